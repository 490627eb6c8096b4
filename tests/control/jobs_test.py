"""Jobs through the real program: submitted, run, preempted, stopped at a budget and at a time limit,
with the controller killed at random and a supervisor killed once; then ledger and audit log are verified."""

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time

from control_plane import ControlPlane, secret_is_nowhere


def holders_of(secret):
    """Processes whose environment has it, but for this one's own children that were given it."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if secret.encode() in file.read():
                    found.append(name)
        except OSError:
            pass
    return found


def starts_by_itself(plane):
    """What `submit` starts for a mere submitter does not act as that user: it may monitor
    jobs, and neither it nor what it starts knows the token."""
    plane.call("admin", "project", "apart")
    ada = plane.as_user("ada", "submitter", "apart")
    secret = ada["TUTTI_TOKEN"].split("-")[2]
    printed = plane.call("submit", "recipe.yaml", "--yes", "--project", "apart", "--run", "by-itself",
                      "train.steps=15000", environment=ada)
    assert printed["controller_started"], printed
    plane.wait_for(printed["job"], ["RUNNING"])
    assert not holders_of(secret), holders_of(secret)
    secret_is_nowhere(secret, plane.folder)
    plane.wait_for(printed["job"], ["COMPLETED"])
    plane.wait_for_no_controller()


def runs_and_reports(plane):
    job = plane.submit("--key", "first")
    assert plane.submit("--key", "first") == job
    why = plane.call("why", str(job))
    assert why["state"] == "PENDING" and not why["controller_runs"], why
    controller = plane.controller()
    shown = plane.wait_for(job, ["COMPLETED"])
    assert shown["exit_code"] == 0 and len(shown["launches"]) == 1, shown
    cost = plane.call("cost", str(job))
    assert cost["spent"]["usd"] > 0 and cost["forecast"]["seconds"] > 0, cost
    assert "loss" in plane.call("logs", str(job))["text"]
    return controller


def resumes_after(plane, job, run, before):
    """The job completed, in more than one launch, and trained each step once."""
    shown = plane.wait_for(job, ["COMPLETED"])
    assert len(shown["launches"]) > before, shown
    steps = [event["step"] for event in plane.events(run, "step_done")]
    assert steps == list(range(1, len(steps) + 1)), "a step was repeated or left out"
    return shown


def preempted_and_resumed(plane):
    """A job of higher priority takes the machine; the other saves, waits, and continues."""
    low = plane.submit("train.steps=30000", "--run", "low")
    plane.wait_for(low, ["RUNNING"])
    # Not before it has run for a minute: requested by hand instead, the same way.
    plane.wait_for_steps("low")
    assert plane.call("requeue", str(low))["state"] == "COMPLETING"
    plane.wait_for(low, ["PENDING", "RUNNING"])
    resumes_after(plane, low, "low", 1)


def controllers_die(plane, controller):
    """Killed at random moments, ten times: nothing is lost, nothing runs twice."""
    random.seed(7)
    jobs = [plane.submit("train.steps=400", "--run", f"many-{i}", "--cores", "1") for i in range(6)]
    for _ in range(10):
        time.sleep(random.random() * 0.6)
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        controller = plane.controller()
    for i, job in enumerate(jobs):
        shown = plane.wait_for(job, ["COMPLETED"])
        assert len(shown["launches"]) == 1, shown
        assert len(plane.events(f"many-{i}", "run_started")) == 1, "a job ran twice"
    return controller


def lineage_is_shown(plane):
    """From a checkpoint down to the text and up to its approvals."""
    printed = plane.call("checkpoint", "lineage", "low")
    corpus, = [c for c in printed["corpora"] if c["role"] == "training"]
    assert corpus["hash"] and corpus["licence"] == "CC0" and corpus["data_class"] == "public", corpus
    assert corpus["sources"][0]["path"].endswith("text.txt") and corpus["sources"][0]["hash"], corpus
    assert printed["recipe"]["is_the_recorded_one"] and printed["recipe"]["yaml"], printed["recipe"]
    assert printed["program"]["version"] and printed["program"]["executable_hash"], printed["program"]
    assert printed["events_tell_of_it"] and printed["job"]["project"] == "default" and printed["approvals"] == [], printed
    viewer = plane.as_user("viv", "viewer", "default")
    error = plane.call("checkpoint", "approve", "low", code=1, environment=viewer)["error"]
    assert error["kind"] == "permission", error
    plane.call("checkpoint", "approve", "low", "--remark", "as evaluated", environment=plane.as_user(
        "olaf", "operator", "default"))
    approval, = plane.call("checkpoint", "lineage", "low", environment=viewer)["approvals"]
    assert approval["who"] == "olaf" and approval["remark"] == "as evaluated", approval
    stranger = plane.as_user("sam", "", "default")
    seen = plane.call("checkpoint", "lineage", "low", environment=stranger)
    assert seen["job"] is None and seen["approvals"] == [], seen


def supervisor_dies(plane):
    """What ran under it saves and stops; the job resumes from there as another launch."""
    job = plane.submit("train.steps=20000", "--run", "orphan")
    plane.wait_for(job, ["RUNNING"])
    plane.wait_for_steps("orphan")
    folder = os.path.dirname(plane.show(job)["output"])
    with open(os.path.join(folder, "begun-1")) as file:
        os.kill(json.load(file)["process"], signal.SIGKILL)
    end = time.monotonic() + 120
    while time.monotonic() < end and not plane.show(job)["incidents"]:
        time.sleep(0.1)
    shown = plane.show(job)
    assert shown["incidents"][0]["cause"] == "NodeLost", shown
    incident = os.path.join(plane.control, "incidents", f"{shown['incidents'][0]['incident']:06}.json")
    with open(incident) as file:
        printed = json.load(file)
    assert printed["job"] == job and printed["action"] and "lost_usd" in printed, printed
    resumes_after(plane, job, "orphan", 1)


def limits_hold(plane):
    late = plane.submit("train.steps=1000000", "--time-limit", "3s", "--run", "late")
    dear = plane.submit("train.steps=1000000", "--usd", "0.003", "--run", "dear")
    shown = plane.wait_for(late, ["TIMEOUT"])
    assert 2 <= shown["run_seconds"] <= 30, shown
    # 3.60 USD per hour: 0.003 USD are 3 s.
    shown = plane.wait_for(dear, ["CANCELLED"])
    assert shown["reason"] == "JobBudget", shown
    assert shown["spent"]["usd"] <= 0.003 + 60 * 0.001, shown
    stopped = plane.submit("train.steps=1000000", "--run", "stopped")
    plane.wait_for(stopped, ["RUNNING"])
    plane.call("cancel", str(stopped))
    plane.wait_for(stopped, ["CANCELLED"])
    # A fault that would come back is not tried again.
    hopeless = plane.submit("train.steps=1000", "optimizer.learning_rate=1e6", "--run", "hopeless")
    shown = plane.wait_for(hopeless, ["FAILED"])
    assert shown["exit_code"] == 93 and shown["reason"] == "DoNotRestart" and len(shown["launches"]) == 1, shown
    assert len(shown["incidents"]) == 1 and shown["incidents"][0]["action"] == "given up", shown
    assert "diverged" in shown["incidents"][0]["detail"] and "learning_rate" in shown["detail"], shown
    wrong = plane.submit("train.steps=5", "data.train=nowhere", "--run", "wrong")
    shown = plane.wait_for(wrong, ["FAILED"])
    assert shown["exit_code"] == 2 and shown["reason"] == "WrongRecipe", shown


def tenants_are_apart(plane):
    assert "not first" in plane.call("admin", "user", "@eve", code=2)["error"]["message"]
    plane.call("admin", "user", "eve")
    plane.call("admin", "project", "secret")
    token = plane.call("admin", "token", "--user", "eve")["token"]
    as_eve = dict(plane.environment, TUTTI_TOKEN=token)
    assert plane.call("queue", "--all", environment=as_eve)["jobs"] == []
    assert plane.call("queue", "--project", "secret", "--user", "eve")["jobs"] == []
    for words, known in ((["--project", "secret"], "none"), (["--user", "ada"], "eve")):
        error = plane.call("queue", *words, code=2, environment=as_eve)["error"]
        assert f"'{words[1]}' is not known; known: {known}" in error["message"], error
    for words in (["show", "1"], ["cancel", "1"], ["logs", "1"], ["why", "1"], ["cost", "1"]):
        error = plane.call(*words, code=2, environment=as_eve)["error"]
        assert error["kind"] == "not_found" and "no job 1" in error["message"], error
    error = plane.call("submit", "recipe.yaml", "--yes", code=1, environment=as_eve)["error"]
    assert error["kind"] == "permission", error
    for words in (["requeue", "1"], ["hold", "1"], ["release", "1"]):
        error = plane.call(*words, code=2, environment=as_eve)["error"]
        assert error["kind"] == "not_found", error
    secret_is_nowhere(token.split("-")[2], plane.folder)
    assert plane.call("queue", code=1, environment=dict(as_eve, TUTTI_TOKEN="tutti-a-b"))


def books_are_right(plane):
    verdict = plane.call("audit", "verify")
    assert verdict["intact"] and verdict["lines"] == verdict["lines_in_file"], verdict
    ledger = plane.call("ledger", "--month", "all", "--csv", "ledger.csv", "--html", "ledger.html")
    assert len(ledger["jobs"]) >= 10
    error = plane.call("ledger", "--month", "2026-13", code=2)["error"]
    assert "--month" in error["message"], error
    path = os.path.join(plane.control, "audit.jsonl")
    with open(path) as file:
        lines = file.readlines()
    with open(path, "w") as file:
        file.writelines(lines[:5] + lines[6:])
    assert not plane.call("audit", "verify", code=1)["intact"]
    # An entry that was changed by hand: the sums do not fit any more.
    with sqlite3.connect(os.path.join(plane.control, "control.db")) as database:
        database.execute("UPDATE ledger SET micro_usd = micro_usd + 1 WHERE job = 1")
    database.close()
    findings = plane.call("audit", "verify", code=1)["findings"]
    assert "ledger" in [finding["where"] for finding in findings], findings


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "control"), 0o755)  # made by another user
        plane = ControlPlane(folder)
        plane.call("admin", "site", "--usd-per-node-hour", "3.60")
        assert os.stat(plane.control).st_mode & 0o777 == 0o700
        starts_by_itself(plane)
        controller = runs_and_reports(plane)
        try:
            preempted_and_resumed(plane)
            controller = controllers_die(plane, controller)
            lineage_is_shown(plane)
            supervisor_dies(plane)
            limits_hold(plane)
            tenants_are_apart(plane)
        except AssertionError:
            with open(os.path.join(folder, "controller.log")) as file:
                print(file.read()[-4000:])
            raise
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait()
        assert controller.returncode == 0
        books_are_right(plane)
    print("jobs: run once, resumed, limited, apart, and accounted for")


if __name__ == "__main__":
    sys.exit(main())
