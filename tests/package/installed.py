"""What the tests of packages share: commands with an empty environment, and a run of two steps."""

import json
import subprocess

TEXT = "all the world's a stage, and all the men and women merely players; " * 300
# Keys of the demo's recipe for two steps on a small text.
KEYS = ["train.steps=2", "schedule.warmup_steps=1", "train.target_loss=null",
        "batch={global: 2, micro: 2, sequence: 32}", "threads=1"]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          **options)
    words = " ".join(str(word) for word in command)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def prepare(tutti, folder):
    """A corpus, and the keys that name it."""
    (folder / "text.txt").write_text(TEXT)
    run(tutti, "data", "prepare", folder / "text.txt", "--tokenizer", "byte", "--out",
        folder / "corpus", env={}, cwd=folder)
    return [*KEYS, f"data.train={folder}/corpus", f"data.validation={folder}/corpus"]


def trains_two_steps(tutti, folder):
    """The program finds its libraries and recipes, and trains; returns the result."""
    folder.mkdir(exist_ok=True)
    assert run(tutti, "--version", env={}, cwd=folder).startswith("tutti ")
    plan = json.loads(run(tutti, "plan", "predict", "gpt2-124m", "--system", "dgx-h100", "--gpus",
                          "8", "--json", env={}, cwd=folder))
    assert plan["tokens_per_second_per_gpu"] > 0, plan
    keys = prepare(tutti, folder)
    result = json.loads(run(tutti, "train", "demo", "run.name=two", *keys, "--json",
                            env={"HOME": str(folder)}, cwd=folder))
    assert result["steps"] == 2, result
    return result
