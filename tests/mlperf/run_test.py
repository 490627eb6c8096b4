"""`tutti mlperf run`: a set of runs fixed before its first, kept whole, interrupted and resumed,
and the submission that comes of it."""

import glob
import json
import os
import signal
import subprocess
import tempfile
import time

TUTTI = os.environ["TUTTI_BINARY"]
RECIPES = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "recipes", "mlperf")
TINY = ["--with", os.path.join(RECIPES, "tiny.yaml")]
RECIPE = os.path.join(RECIPES, "llama31-405b.yaml")
# What 405B at a tiny size cannot have: its evaluation set.
TOO_SMALL = {("key.value", "eval_samples")}


def tutti(folder, *arguments, code=0):
    done = subprocess.run([TUTTI, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def run_set(folder, out, *arguments, code=0):
    return tutti(folder, "mlperf", "run", RECIPE, *TINY, "--out", out, *arguments, code=code)


def load(folder, *path):
    with open(os.path.join(folder, *path)) as file:
        return json.load(file)


def processes_of(text):
    """Running processes of tutti whose command line holds `text`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                line = file.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in line and "tutti" in line:
            found.append(int(path.split("/")[2]))
    return found


def wait_until(what, condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("never: " + what)


def steps_recorded(path):
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return sum('"event":"step_done"' in line for line in file)


def a_set_becomes_a_submission(folder):
    done = run_set(folder, "set", "--runs", "3", "--seed-base", "7", "--submitter", "Me & Co",
                   "--system-name", "my box", "--field", "cooling=air", "--json", code=1)
    result = json.loads(done.stdout)
    assert [run["seed"] for run in result["set"]["runs"]] == [7, 8, 9]
    assert all(run["reached_target"] and run["minutes"] > 0 for run in result["set"]["runs"])
    findings = [f for f in result["check"]["findings"] if f["severity"] == "error"]
    assert {(f["rule"], f["message"].split()[0]) for f in findings if "result_" in f["file"]} == \
        TOO_SMALL, findings
    submission = os.path.join(folder, "set", "submission")
    system = load(submission, "systems", "my-box.json")
    assert system["submitter"] == "Me & Co" and system["cooling"] == "air", system
    assert system["host_processor_model_name"] and system["operating_system"], system
    assert not any(f["rule"].startswith(("system", "layout", "seed", "runs.count"))
                   for f in findings), findings
    for i in range(3):
        log = os.path.join(submission, "results", "my-box", "llama31_405b", f"result_{i}.txt")
        with open(log) as file:
            text = file.read()
        with open(os.path.join(folder, "set", "runs", f"run_{i}", "mlperf.log")) as file:
            assert text == file.read()
        assert f'"key": "seed", "value": {7 + i},' in text
        assert '"key": "submission_org", "value": "Me & Co"' in text
    folders = glob.glob(os.path.join(submission, "benchmarks", "llama31_405b", "*"))
    assert sorted(map(os.path.basename, folders)) == ["implementations", "my-box"]
    # Again: nothing is missing, nothing runs, the same submission.
    started = [run["started"] for run in result["set"]["runs"]]
    again = json.loads(run_set(folder, "set", "--runs", "3", "--seed-base", "7", "--submitter",
                               "Me & Co", "--system-name", "my box", "--json", code=1).stdout)
    assert [run["started"] for run in again["set"]["runs"]] == started
    assert again["set"]["attempts"] == []


def a_set_is_fixed(folder):
    same = ["--submitter", "Me & Co", "--system-name", "my box"]
    done = run_set(folder, "set", "--runs", "4", "--seed-base", "7", *same, code=2)
    assert "3 runs, not 4" in done.stderr, done.stderr
    done = run_set(folder, "set", "--runs", "3", "--seed-base", "8", *same, code=2)
    assert "has seed 7, not 8" in done.stderr, done.stderr
    done = run_set(folder, "set", "--runs", "3", "--seed-base", "7", *same,
                   "optimizer.weight_decay=0.2", code=2)
    assert "optimizer.weight_decay" in done.stderr, done.stderr


LONG = ["batch.sequence=128", "train.steps=1000", "train.target_loss=0.1",
        "evaluate.every_steps=1000"]


def start_long(folder, out):
    process = subprocess.Popen([TUTTI, "mlperf", "run", RECIPE, *TINY, "--out", out, "--runs", "2", *LONG],
                               cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    events = os.path.join(folder, out, "runs", "run_0", "events.jsonl")
    wait_until("a step", lambda: steps_recorded(events) > 3 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def an_interrupted_set_goes_on(folder):
    process = start_long(folder, "cut")
    busy = run_set(folder, "cut", "--runs", "2", *LONG, code=2)
    assert "in use" in busy.stderr, busy.stderr
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=150)
    assert process.returncode == 75, output
    assert not processes_of(os.path.join("cut", "recipe.yaml"))
    stored = load(folder, "cut", "runs.json")
    assert [run["state"] for run in stored["runs"]] == ["planned", "planned"], stored
    assert len(stored["attempts"]) == 1, stored
    kept = os.path.join(folder, stored["attempts"][0]["folder"], "events.jsonl")
    assert steps_recorded(kept) > 3
    done = run_set(folder, "cut", "--runs", "2", "--json", *LONG, code=1)
    runs = json.loads(done.stdout)["set"]["runs"]
    assert [run["seed"] for run in runs] == [run["seed"] for run in stored["runs"]]
    assert [run["state"] for run in runs] == ["done", "done"] and not runs[0]["reached_target"]
    assert "ended without the target" in done.stderr, done.stderr
    # Whole, from the first step on.
    assert steps_recorded(os.path.join(folder, "cut", "runs", "run_0", "events.jsonl")) == 1000


def no_process_survives_a_killed_command(folder):
    process = start_long(folder, "killed")
    process.kill()
    process.wait()
    wait_until("the end of the run",
               lambda: not processes_of(os.path.join("killed", "recipe.yaml")))
    stored = load(folder, "killed", "runs.json")
    assert stored["runs"][0]["state"] == "running", stored


def a_run_that_cannot_start_is_reported(folder):
    done = run_set(folder, "broken", "--runs", "2", "data.train=nothing", code=2)
    assert "could not start" in done.stderr and "nothing" in done.stderr, done.stderr
    assert load(folder, "broken", "runs.json")["runs"][0]["state"] == "planned"


def failed_runs_count(folder):
    """Two runs are killed: there can be no score, and the third is not started."""
    process = subprocess.Popen([TUTTI, "mlperf", "run", RECIPE, *TINY, "--out", "failed", *LONG,
                                "--runs", "3", "--json"],
                               cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for i in range(2):
        run_folder = os.path.join("failed", "runs", f"run_{i}")
        events = os.path.join(folder, run_folder, "events.jsonl")
        wait_until("a step", lambda: steps_recorded(events) > 3 or process.poll() is not None)
        (run,) = processes_of("--run " + run_folder)
        os.kill(run, signal.SIGKILL)
    output, messages = process.communicate(timeout=150)
    assert process.returncode == 1, (output, messages)
    result = json.loads(output)
    runs = result["set"]["runs"]
    assert [run["state"] for run in runs] == ["failed", "failed", "planned"], runs
    assert runs[0]["exit_code"] == 128 + signal.SIGKILL, runs
    assert "failed (exit code 137)" in messages and "can no longer get a score" in messages, messages
    assert [score["minutes"] for score in result["scores"]] == [None], result


def main():
    with tempfile.TemporaryDirectory() as folder:
        tutti(folder, "data", "synthesize", "--documents", "300", "--out", "invented.jsonl")
        tutti(folder, "data", "prepare", "invented.jsonl", "--out", "invented", "--tokenizer", "byte",
              "--holdout", "0.1")
        a_set_becomes_a_submission(folder)
        a_set_is_fixed(folder)
        an_interrupted_set_goes_on(folder)
        no_process_survives_a_killed_command(folder)
        a_run_that_cannot_start_is_reported(folder)
        failed_runs_count(folder)
    print("ok")


main()
