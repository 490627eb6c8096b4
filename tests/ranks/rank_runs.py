"""Small runs on several ranks, and what to compare of them."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "fault"))
import small_run  # noqa: E402

TUTTI = small_run.TUTTI
events = small_run.events


def wait_for(condition, process):
    small_run.wait_for(condition, process, seconds=240)


# Twelve sequences a step: 1, 2, 3, 4 and 6 ranks divide them.
SETTINGS = ["batch.global=12", "batch.micro=3", "checkpoint.every_steps=5", "run.name=ranks"]
TOLERANCE = 1e-5  # relative, of every loss


class Skip(Exception):
    """What is needed is not here."""


def prepare(folder):
    """Corpus and recipe in `folder`; the recipe's path."""
    return small_run.prepare(folder)


def environment(**variables):
    """That of this process, without what a launcher around it may have set."""
    out = {k: v for k, v in os.environ.items()
           if not k.startswith(("SLURM", "OMPI_", "PMIX", "TORCHELASTIC"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TUTTI_FAULT"):
        out.pop(name, None)
    out.update(variables)
    return out


def command(target, run, *arguments, steps=20):
    settings = SETTINGS if not os.path.isdir(target) else []
    return [TUTTI, "train", target, *settings, f"train.steps={steps}", "--run", run, *arguments]


def train(target, run, *arguments, launcher=(), fault="", code=0, timeout=300, steps=20, **variables):
    """Trains to the end; what it wrote on standard error. Fails unless it ends with `code`."""
    if fault:
        variables["TUTTI_FAULT"] = fault
    done = subprocess.run([*launcher, *command(target, run, *arguments, steps=steps)],
                          env=environment(**variables), capture_output=True, text=True,
                          timeout=timeout)
    assert done.returncode == code, f"exit code {done.returncode}, not {code}:\n{done.stderr[-4000:]}"
    return done.stderr


def losses(run):
    """{step: loss}; of a step that was repeated after a failure the last."""
    return dict(small_run.losses(run))


def compare(run, expected, steps):
    got = losses(run)
    assert sorted(got) == list(range(1, steps + 1)), f"{run}: steps {sorted(got)}"
    worst = max(abs(got[step] / expected[step] - 1) for step in got)
    assert worst <= TOLERANCE, f"{run}: a loss differs by {worst:.2e}"
    return worst


def last_evaluation(run):
    return [e for e in events(run) if e["event"] == "evaluation_done"][-1]


def messages(run):
    return [e["text"] for e in events(run) if e["event"] == "message"]


def result(stdout):
    return json.loads(stdout)


def main(test):
    """Runs `test()`; exit status 77 when what it needs is not here."""
    try:
        test()
    except Skip as skip:
        print(f"skipped: {skip}")
        return 77
    return 0
