"""The manual pages: one per command, without a warning of groff or man, and they say what --help
says."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TUTTI = os.environ["TUTTI_BINARY"]


def run(*command, **variables):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=dict(os.environ, **variables))
    assert done.returncode == 0, f"{command}: {done}"
    return done


def commands(*above):
    """All of them, from --help."""
    out = [above]
    listed = run(TUTTI, *above, "--help").stdout.partition("\nSubcommands:\n")[2].split("\n\n")[0]
    for name in re.findall(r"^  ([a-z][a-z-]*)", listed, re.M):
        out += commands(*above, name)
    return out


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "man1"
        run(TUTTI, "man", folder)
        expected = {"-".join(("tutti", *words)) + ".1" for words in commands()}
        found = {page.name for page in folder.iterdir()}
        assert found == expected, found ^ expected
        pages = sorted(folder.iterdir())
        assert run(TUTTI, "man").stdout == (folder / "tutti.1").read_text()
        text = (folder / "tutti-data-prepare.1").read_text()
        for words in (r"\-\-holdout", "PREFIX", "Default: auto", "Example"):
            assert words in text, f"no {words} in tutti-data-prepare(1)"
        if shutil.which("groff"):
            # -ww warns of everything; breaks cannot always be placed well in a narrow column.
            done = run("groff", "-man", "-K", "utf8", "-T", "utf8", "-ww", "-W", "break", "-z",
                       *pages)
            assert not done.stderr, done.stderr
        else:
            print("not checked: no groff here")
        if shutil.which("man") and shutil.which("groff"):
            for page in pages[:3]:
                done = run("man", "--warnings", "-l", page, LC_ALL="C.UTF-8", MANWIDTH="100")
                assert not done.stderr, done.stderr
                assert "NAME" in done.stdout, done.stdout


sys.exit(main())
