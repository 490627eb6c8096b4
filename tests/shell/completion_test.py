"""Completes command lines in real shells with the scripts that the program prints."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TUTTI = Path(os.environ["TUTTI_BINARY"])
ENVIRONMENT = {"PATH": f"{TUTTI.parent}:/usr/bin:/bin", "LC_ALL": "C",
               "TUTTI_HOME": os.environ["TUTTI_SOURCE_DIR"]}

# What bash does when Tab is pressed: the words so far in COMP_WORDS, the function, its COMPREPLY.
PRESS_TAB = """
source <(tutti completion bash)
complete -p tutti > /dev/null || exit 3
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tutti
printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=ENVIRONMENT, **options)
    assert done.returncode == 0 and not done.stderr, f"{command}: {done}"
    return done.stdout


def bash(folder, *words):
    return set(run("bash", "--norc", "-c", PRESS_TAB, "-", *words, cwd=folder).split("\n")) - {""}


def check_bash(folder):
    (folder / "demons.yaml").write_text("")
    (folder / "my texts").mkdir()

    def completes(words, *expected, no=()):
        found = bash(folder, "tutti", *words)
        assert set(expected) <= found, f"{words}: expected {expected} among {found}"
        assert not found & set(no), f"{words}: expected none of {no} in {found}"
        return found

    completes([""], "train", "data", "bench", "completion", "man", no=["supervise"])
    assert completes(["repor"]) == {"report"}
    assert completes(["data", "pre"]) == {"prepare"}
    completes(["data", "prepare", "--to"], "--tokenizer")
    completes(["data", "prepare", "my texts", "--hold"], "--holdout")
    completes(["train", "--"], "--nproc", "--json", no=["--end-with-parent", "--tokenizer"])
    completes(["train", "dem"], "demo", "demons.yaml")
    completes(["plan", "predict", "gpt2"], "gpt2-124m")
    # The value of an option, and arguments that are files: left to the shell.
    assert completes(["data", "prepare", "--out", ""]) == set()
    assert completes(["data", "prepare", "m"]) == set()
    # A flag takes no value, so a recipe may follow it.
    completes(["train", "--dry-run", "dem"], "demo")


def check_syntax(shell, folder, *options):
    if not shutil.which(shell):
        print(f"not checked: no {shell} here")
        return
    script = folder / f"script.{shell}"
    script.write_text(run(TUTTI, "completion", shell))
    run(shell, *options, script)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        check_bash(Path(temporary))
        check_syntax("zsh", Path(temporary), "--no-rcs", "-n")
        check_syntax("fish", Path(temporary), "--no-execute")
    for shell in ("zsh", "fish"):
        assert "prepare" in run(TUTTI, "completion", shell)


sys.exit(main())
