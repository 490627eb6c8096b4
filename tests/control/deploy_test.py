"""Deployments as their users meet them: a role, an approved checkpoint, a killed endpoint that comes back, a
hung one that is found by its health, its end, and what the audit log says of it all."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "endpoint"))
from control_plane import ControlPlane, TUTTI, secret_is_nowhere  # noqa: E402
from endpoint_server import train_tiny  # noqa: E402

PATIENCE_SECONDS = 120


def attempt(plane, *words, environment):
    """The error, or None."""
    done = subprocess.run([TUTTI, *words, "--json"], cwd=plane.folder, capture_output=True, text=True,
                          env=environment, check=False)
    return None if done.returncode == 0 else json.loads(done.stdout)["error"]


def find(plane, name):
    found = [each for each in plane.call("deployment", "list", "--all")["deployments"]
             if each["deployment"]["name"] == name]
    return found[-1]


def wait_for(plane, name, condition, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = find(plane, name)
        if condition(found):
            return found
        assert time.monotonic() < end, (what, found, plane.call("logs", str(found["job"]))["text"])
        time.sleep(0.1)


def is_healthy(found):
    return found["health"] == "healthy"


def ask(url, path, body=None, key=None):
    request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def endpoint_process(plane):
    """Of the deployment in this plane's folder."""
    ids = subprocess.run(["pgrep", "-f", f"^tutti endpoint .*{plane.control}"], capture_output=True, text=True,
                         check=True).stdout.split()
    assert len(ids) == 1, ids
    return int(ids[0])


def refusals(plane, run):
    """Who may not deploy, and what is not deployed; returns the environment of a deployer."""
    submitter = plane.as_user("sam", "submitter", "default")
    deployer = plane.as_user("dora", "deployer", "default")
    error = attempt(plane, "deploy", run, "--name", "chat", environment=submitter)
    assert error["kind"] == "permission" and "deploy models" in error["message"], error
    plane.call("admin", "project", "default", "--deployments", "approved")
    error = attempt(plane, "deploy", run, "--name", "chat", environment=deployer)
    assert error["kind"] == "usage" and "tutti checkpoint approve" in error["message"], error
    assert attempt(plane, "checkpoint", "approve", run, environment=deployer)["kind"] == "permission"
    plane.call("checkpoint", "approve", run, "--remark", "evaluated")
    error = attempt(plane, "deploy", run, "--name", "chat", "--address", "0.0.0.0", "--plain-http",
                    environment=deployer)
    assert error["kind"] == "permission" and "--address 0.0.0.0" in error["message"], error
    error = attempt(plane, "deploy", run, "--name", "two words", environment=deployer)
    assert error["kind"] == "usage", error
    dry = plane.call("deploy", run, "--name", "chat", "--dry-run", environment=deployer)
    assert dry["dry_run"] and "job" not in dry, dry
    assert plane.call("deployment", "list")["deployments"] == []
    return deployer


def complete(url, key, tokens=8):
    return ask(url, "v1/completions", {"prompt": "The quick", "max_tokens": tokens, "ignore_eos": True}, key)


def wait_for_key(url, key, status):
    """The endpoint reads its keys every second."""
    end = time.monotonic() + PATIENCE_SECONDS
    while ask(url, "v1/models", key=key)[0] != status:
        assert time.monotonic() < end, status
        time.sleep(0.1)


def keys_and_budgets(plane, url, deployer):
    """Returns a key with a budget that is used up but for a few tokens."""
    status, answer, _ = complete(url, None)
    assert status == 401 and answer["error"]["code"] == "invalid_api_key", answer
    viewer = plane.as_user("viv", "viewer", "default")
    error = attempt(plane, "deployment", "keys", "chat", "--add", "ann", environment=viewer)
    assert error["kind"] == "permission", error
    made = plane.call("deployment", "keys", "chat", "--add", "ann", "--key-tokens", "40", environment=deployer)
    key = made["key"]
    secret_is_nowhere(key.split("-")[2], plane.control)
    wait_for_key(url, key, 200)
    assert ask(url, "v1/models", key=key[:-1] + ("0" if key[-1] != "0" else "1"))[0] == 401
    status, answer, _ = complete(url, key)
    assert status == 200 and answer["model"] == "chat", answer
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17,
                               "prompt_tokens_details": {"cached_tokens": 0}}, answer
    # 23 are left: more than it asks for is not begun.
    status, answer, headers = complete(url, key, 64)
    assert status == 429 and answer["error"]["code"] == "insufficient_quota", answer
    assert "23 tokens left" in answer["error"]["message"], answer
    assert headers["Retry-After"] is None and headers["x-should-retry"] == "false", headers
    assert complete(url, key, 11)[0] == 200
    # 3 are left, which the prompt alone exceeds.
    limited = plane.call("deployment", "keys", "chat", "--add", "bob", "--key-requests-per-minute", "2",
                         environment=deployer)["key"]
    wait_for_key(url, limited, 200)
    assert complete(url, limited)[0] == 200 and complete(url, limited)[0] == 200
    status, answer, headers = complete(url, limited)
    assert status == 429 and answer["error"]["code"] == "rate_limit_exceeded", answer
    assert 0 < int(headers["Retry-After"]) <= 30, headers
    plane.call("deployment", "keys", "chat", "--withdraw", limited.split("-")[1], environment=deployer)
    wait_for_key(url, limited, 401)
    return key


def budgets_outlive_it(plane, url, key):
    status, answer, _ = complete(url, key, 1)
    assert status == 429 and answer["error"]["code"] == "insufficient_quota", answer
    assert "3 tokens left" in answer["error"]["message"], answer
    used = plane.call("deployment", "keys", "chat")["keys"]
    assert [(each["name"], each["used"]["requests"], each["used"]["prompt_tokens"],
             each["used"]["answer_tokens"]) for each in used] == [("ann", 2, 18, 19)], used


def approver(plane):
    """Who approved."""
    lines = plane.call("audit", "show", "--about", "approve")["lines"]
    return [line["who"] for line in lines if line["allowed"]][0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(folder)
        models = pathlib.Path(folder, "models")
        models.mkdir()
        run = str(train_tiny(models)[0])
        deployer = refusals(plane, run)
        made = plane.call("deploy", run, "--name", "chat", "--cores", "1", "--health-every", "300ms",
                          "--health-failures", "3", "--usd-per-million-prompt-tokens", "2",
                          "--usd-per-million-answer-tokens", "10.5", environment=deployer)
        job = made["job"]
        try:
            error = attempt(plane, "deploy", run, "--name", "chat", environment=deployer)
            assert error["kind"] == "usage" and f"job {job}" in error["message"], error
            found = wait_for(plane, "chat", is_healthy, "it starts")
            assert found["state"] == "RUNNING" and found["url"] == made["url"], found
            key = keys_and_budgets(plane, found["url"], deployer)

            # It is killed, and comes back at the same address, a launch later; each end is an incident.
            os.kill(endpoint_process(plane), signal.SIGKILL)
            found = wait_for(plane, "chat", lambda f: f["generation"] == 2 and is_healthy(f), "it comes back")
            assert found["url"] == made["url"], found
            incidents = plane.show(job)["incidents"]
            assert len(incidents) == 1 and "exit code 137" in incidents[0]["detail"], incidents
            assert ask(found["url"], "health")[0] == 200
            budgets_outlive_it(plane, found["url"], key)

            # It hangs: only its health says so.
            os.kill(endpoint_process(plane), signal.SIGSTOP)
            wait_for(plane, "chat", lambda f: f["generation"] == 2 and f["state"] == "PENDING", "it is killed")
            incident = plane.show(job)["incidents"][-1]
            assert "health checks failed in a row" in incident["detail"], incident

            # A role that was taken away: the deployment stays, whose it was cannot stop it.
            plane.call("admin", "revoke", "dora", "--project", "default")
            plane.call("admin", "grant", "dora", "submitter", "--project", "default")
            error = attempt(plane, "deployment", "stop", "chat", environment=deployer)
            assert error["kind"] == "permission", error
            error = attempt(plane, "cancel", str(job), environment=deployer)
            assert error["kind"] == "permission", error
            plane.call("admin", "grant", "dora", "deployer", "--project", "default")
            plane.call("deployment", "stop", "chat", environment=deployer)
            ended = plane.wait_for(job, ("CANCELLED",))
            assert ended["reason"] == "UserRequest", ended
            assert plane.call("deployment", "list")["deployments"] == []

            # A checkpoint that was exchanged since is not served, however often it is tried.
            manifest = pathlib.Path(found["deployment"]["checkpoint"]) / "manifest.json"
            manifest.write_text(manifest.read_text() + " ")
            plane.call("requeue", str(job), environment=deployer)
            plane.wait_for(job, ("FAILED",))
            assert "another checkpoint" in plane.show(job)["incidents"][-1]["detail"]

            lines = plane.call("audit", "show", "--about", "deploy", "--most", "100")["lines"]
            assert [(line["who"], line["allowed"]) for line in lines] == [
                ("sam", False), ("dora", False), ("dora", False), ("dora", False), ("dora", True),
                ("dora", False)], lines
            detail = lines[4]["detail"]
            assert detail["deployment"] == "chat" and len(detail["manifest_sha256"]) == 64, detail
            assert detail["approved_by"] == [approver(plane)], detail
            assert plane.call("audit", "verify")["intact"]
            # Time on nodes is in the ledger like that of any job.
            assert plane.call("cost", str(job))["spent"]["node_hours"] > 0
            served = {each["client"]: each for each in plane.call("ledger", "--month", "all")["served"]}
            assert set(served) == {"ann", "bob"}, served
            assert served["ann"]["requests"] == 2 and served["ann"]["deployment"] == "chat", served
            assert served["ann"]["pico_usd"] == 18 * 2_000_000 + 19 * 10_500_000, served
            assert served["bob"]["answer_tokens"] == 16, served
        finally:
            attempt(plane, "cancel", str(job), environment=plane.environment)
            plane.wait_for_no_controller()
    print("deployments: roles, approvals, restarts, health, audit log")


if __name__ == "__main__":
    main()
