"""What an earlier version wrote opens and continues today (fixtures.tar.gz, made by make_fixtures.py).

In a copy of the fixtures, with today's program: corpora are whole; every checkpoint verifies, evaluates and generates
as the earlier program found; every run resumes to its end with the losses that the earlier program reached when it
resumed the same folder; every resolved recipe reads and writes with equal meaning; the control plane's jobs, costs,
ledger and audit log are as they were, a job that waited and a new one complete.

Losses are equal to the bit where CPU, instruction set, threads and the library of products are those of the machine
that made the fixtures; else within TOLERANCE.
"""

import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time

import earlier_data
from earlier_data import call, call_json

TUTTI = os.environ["TUTTI_BINARY"]
HERE = pathlib.Path(__file__).resolve().parent
# Relative, on another machine. Another instruction set sums in another order, which the updates of AdamW amplify.
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2}
# Keys that the earlier version did not have, each with the value that does what it did.
ADDED = {"deterministic": "true", "data.prepare.source": "", "data.prepare.xxh3": "",
         "data.prepare.tokenizer": "byte", "data.prepare.holdout": "0", "data.prepare.folder": "",
         "checkpoint.sample_tokens": "0", "checkpoint.sample_prompt": ""}

failures = []


def check(what, passed, detail=""):
    if not passed:
        failures.append(f"{what}: {detail}")
        print(f"FAILED {what}: {detail}", flush=True)


def attempt(what, function, *arguments):
    """The others are tried too."""
    try:
        return function(*arguments)
    except (AssertionError, KeyError, ValueError, OSError, sqlite3.Error) as error:
        check(what, False, f"{type(error).__name__}: {error}")
        return None


def same_losses(what, found, expected, bits, precision):
    check(f"{what}: steps", found.keys() == expected.keys(), f"{sorted(found)}, expected {sorted(expected)}")
    pairs = {key: (found[key], expected[key]) for key in found.keys() & expected.keys()}
    error = max((abs(a / b - 1) for a, b in pairs.values()), default=0)
    limit = 0 if bits else TOLERANCE[precision]
    differing = {key: pair for key, pair in pairs.items() if abs(pair[0] / pair[1] - 1) > limit}
    check(f"{what}: losses", not differing, f"(found, expected) differ by more than {limit}: {differing}")
    return error


def corpora_are_whole(folder):
    for name in ("text", "text-validation", "bytes", "answers"):
        inspected = call_json(TUTTI, folder, "data", "inspect", f"corpora/{name}")
        wrong = [found for found in inspected["checks"] if not found["ok"]]
        check(f"corpus {name}", inspected["checks"] and not wrong, wrong)


def checkpoints_open(folder, name, step):
    listed = call_json(TUTTI, folder, "checkpoint", "list", f"runs/{name}")["checkpoints"]
    check(f"{name}: checkpoint list", [(c["step"], c["valid"]) for c in listed] == [(step, True)], listed)
    verified = call_json(TUTTI, folder, "checkpoint", "verify", f"runs/{name}")
    check(f"{name}: checkpoint verify", verified["intact"] and len(verified["checkpoints"]) == 1, verified)
    lineage = call_json(TUTTI, folder, "checkpoint", "lineage", f"runs/{name}")
    check(f"{name}: recipe of the checkpoint", lineage["recipe"]["is_the_recorded_one"], lineage["recipe"])
    check(f"{name}: events of the checkpoint", lineage["events_tell_of_it"], lineage)


def evaluates_as_before(folder, name, expected, precision):
    corpus = "corpora/bytes" if name in ("base", "adapters") else "corpora/text-validation"
    evaluated = call_json(TUTTI, folder, "eval", f"runs/{name}", "--data", corpus)
    loss = evaluated["sets"][0]["loss"]
    check(f"{name}: eval", abs(loss / expected["evaluation"] - 1) <= TOLERANCE[precision],
          f"{loss}, expected {expected['evaluation']}")
    text = call(TUTTI, folder, "generate", f"runs/{name}", *earlier_data.PROMPT).stdout
    check(f"{name}: generate", text == expected["text"], f"{text!r}, expected {expected['text']!r}")


def reports(folder, name, expected):
    result = call_json(TUTTI, folder, "report", f"runs/{name}", "--out", f"{name}.html")
    page = (folder / f"{name}.html").read_text()
    check(f"{name}: report", "<svg" in page and f"<title>{name}" in page, f"{len(page)} bytes")
    last = max(int(key.split()[1]) for key in expected["saved"] if key.startswith("train"))
    check(f"{name}: report's steps", result["name"] == name and result["steps"] == last, result)


def resumes(folder, name, expected, precision):
    # A run folder, or the same command again: both resume.
    target = [f"recipes/{name}.yaml", "--run", f"runs/{name}"] if name == "experts" else [f"runs/{name}"]
    if name == earlier_data.FINISHED:
        target.append(f"train.steps={earlier_data.EXTENDED_STEPS}")
    call(TUTTI, folder, "train", *target)
    events = earlier_data.last_session(folder / "runs" / name)
    bits = earlier_data.machine(events) == expected["machine"]
    error = same_losses(f"{name}: resumed", earlier_data.losses(events), expected["resumed"], bits, precision)
    verified = call_json(TUTTI, folder, "checkpoint", "verify", f"runs/{name}")
    check(f"{name}: verify after resume", verified["intact"], verified)
    print(f"{name:9} {len(expected['resumed'])} losses, worst relative difference {error:.1e}"
          f"{', to the bit' if bits else ', on another kind of machine'}", flush=True)


def runs_open(folder, expected):
    # Before anything is resumed: adapters want the checkpoint of their base, students their teacher's.
    for name in ("adapters", "student", "base", "experts", "sealed", "finished"):
        precision = "bf16" if name == earlier_data.FINISHED else "f32"
        step = earlier_data.STOPPED.get(name, 12)
        attempt(f"{name}: checkpoints", checkpoints_open, folder, name, step)
        attempt(f"{name}: evaluation", evaluates_as_before, folder, name, expected[name], precision)
        attempt(f"{name}: report", reports, folder, name, expected[name])
        attempt(f"{name}: resume", resumes, folder, name, expected[name], precision)


def flatten(text):
    """{"a.b": value} of a recipe as the program writes it: a key per line, two spaces per level."""
    path, found = [], {}
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, value = line.strip().partition(":")
        path = [*path[:depth], key]
        if value:
            found[".".join(path)] = value.strip().strip('"')
    return found


def written_again(folder, path):
    """The recipe as today's program writes it; its corpora need not be there."""
    done = subprocess.run([TUTTI, "train", path, "--dry-run", "--verbose", "--json"], cwd=folder, capture_output=True,
                          text=True, check=False, env=earlier_data.environment(folder))
    begin = done.stderr.find("model:\n")
    assert begin >= 0, done.stderr
    lines = [line for line in done.stderr[begin:].splitlines() if re.match(r" *[a-z_0-9]+:( |$)", line)]
    return "\n".join(line for line in lines if not line.startswith("tutti:")) + "\n"


def recipe_means_the_same(folder, path):
    before = flatten((folder / path).read_text())
    text = written_again(folder, path)
    now = flatten(text)
    # A recipe without a name is named when it is used.
    changed = {key: (value, now.get(key)) for key, value in before.items()
               if now.get(key) != value and (key, value) != ("run.name", "")}
    check(f"{path}: keys", len(before) > 50 and not changed, f"(earlier, now): {changed}")
    new = {key: value for key, value in now.items() if key not in before}
    check(f"{path}: new keys", all(ADDED.get(key) == value for key, value in new.items()), new)
    (folder / "again.yaml").write_text(text)
    check(f"{path}: written twice", written_again(folder, "again.yaml") == text)


def recipes_mean_the_same(folder):
    paths = [*folder.glob("resolved/*.yaml"), *folder.glob("runs/*/recipe.yaml"), *folder.glob("control/recipes/*.yaml")]
    check("recipes", len(paths) > 20, paths)
    for path in sorted(paths):
        attempt(path.name, recipe_means_the_same, folder, str(path.relative_to(folder)))


def move_records(folder):
    """The records name the folder where they were made; here they are elsewhere."""
    database = sqlite3.connect(folder / "control" / "control.db")
    with database:
        database.execute("UPDATE jobs SET request = replace(request, ?, ?)", (earlier_data.FOLDER, str(folder)))
    database.close()


def control_plane_goes_on(folder, expected):
    move_records(folder)
    tokens = json.loads((folder / "tokens.json").read_text())
    jobs = expected["jobs"]

    def ask(*words, user="admin"):
        return call_json(TUTTI, folder, *words, variables={"TUTTI_TOKEN": tokens[user]})

    def state(job):
        return ask("show", job)["state"]

    queue = {job["job"]: job for job in ask("queue", "--all")["jobs"]}
    states = {jobs["ended"]: "COMPLETED", jobs["cancelled"]: "CANCELLED", jobs["held"]: "PENDING"}
    check("queue", {job: shown["state"] for job, shown in queue.items()} == states, queue)
    seen_by_ada = {job["job"] for job in ask("queue", "--all", user="ada")["jobs"]}
    check("queue of a user", seen_by_ada == set(states), seen_by_ada)
    for job in states:
        shown = ask("show", job)
        check(f"show {job}", shown["user"] == "ada" and shown["project"] == "letters", shown)
    check("show of what ended", ask("show", jobs["ended"])["exit_code"] == 0)
    check("logs", "loss" in ask("logs", jobs["ended"])["text"])
    for job, spent in expected["costs"].items():
        cost = ask("cost", job)
        check(f"cost {job}", cost["spent"] == spent and spent["usd"] > 0, (cost["spent"], spent))
    ledger = ask("ledger", "--month", "all")  # which has more keys today
    check("ledger", {key: ledger[key] for key in expected["ledger"]} == expected["ledger"], ledger)
    listed = json.dumps(ask("admin", "list"))
    check("admin list", all(word in listed for word in ("ada", "letters", "submitter", "250")), listed)
    verified = ask("audit", "verify")
    check("audit", verified["intact"] and verified["lines"] >= expected["audit"]["lines"], verified)

    again = ask("submit", "recipes/job.yaml", "--yes", "--no-start", "--project", "letters", "--key", "first",
                "--run", "runs/job-ended", user="ada")
    check("submission with a key of before", again["duplicate"] and again["job"] == jobs["ended"], again)
    call(TUTTI, folder, "submit", "recipes/job.yaml", "--yes", "--no-start", "--project", "letters", "--key", "first",
         "--run", "runs/job-ended", "train.steps=21", code=2, variables={"TUTTI_TOKEN": tokens["ada"]})
    new = ask("submit", "recipes/job.yaml", "--yes", "--no-start", "--project", "letters", "--run", "runs/job-new",
              user="ada")["job"]
    with open(folder / "controller-now.log", "w") as log:
        controller = subprocess.Popen([TUTTI, "controller", "run"], cwd=folder, stdout=log, stderr=log,
                                      env={**earlier_data.environment(folder), "TUTTI_TOKEN": tokens["admin"]})
        try:
            # It must be there before the release, which would start another.
            end = time.monotonic() + 120
            while state(new) == "PENDING":
                assert time.monotonic() < end, ask("show", new)
                time.sleep(0.05)
            ask("release", jobs["held"], user="ada")
            while not all(state(job) == "COMPLETED" for job in (new, jobs["held"])):
                assert time.monotonic() < end, [ask("show", job) for job in (new, jobs["held"])]
                time.sleep(0.2)
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait()
    check("the controller's exit code", controller.returncode == 0, controller.returncode)
    for job in (new, jobs["held"]):
        check(f"cost {job}", ask("cost", job)["spent"]["usd"] > 0)
    verified = ask("audit", "verify")
    check("audit at the end", verified["intact"] and verified["lines"] == verified["lines_in_file"], verified)


def main():
    expected = json.loads((HERE / "expected.json").read_text())
    with tempfile.TemporaryDirectory(prefix="tutti_earlier_") as name:
        folder = pathlib.Path(name)
        with tarfile.open(HERE / "fixtures.tar.gz") as archive:
            archive.extractall(folder)
        attempt("corpora", corpora_are_whole, folder)
        attempt("recipes", recipes_mean_the_same, folder)
        runs_open(folder, expected["runs"])
        attempt("control plane", control_plane_goes_on, folder, expected["control"])
    if failures:
        sys.exit(f"FAILED: {len(failures)} of {expected['version']}")
    print(f"what {expected['version']} wrote opens and continues")


if __name__ == "__main__":
    main()
