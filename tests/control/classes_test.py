"""Who decides about data and keys of a job: the files that it reads, not its recipe's word; who may set which
key; accounts that demand tokens; nodes that a check found unhealthy; and what is said after a failure."""

import json
import os
import subprocess
import sys
import tempfile
import time

from place import Place, TUTTI


def forget(place, name):
    for file in os.listdir(place.folder):
        if file.startswith(name + "."):
            os.remove(os.path.join(place.folder, file))


def prepare(place, name, *options):
    forget(place, name)
    subprocess.run([TUTTI, "data", "prepare", "text.txt", "--tokenizer", "byte", "--out", name, *options],
                   cwd=place.folder, check=True, capture_output=True)


def refused(place, *words, code=2, environment=None, kind="usage"):
    error = place.call("submit", "recipe.yaml", "--dry-run", *words, code=code, environment=environment)["error"]
    assert error["kind"] == kind, error
    return error["message"]


def accepted(place, *words, environment=None):
    return place.call("submit", "recipe.yaml", "--dry-run", *words, environment=environment)


def text(place, *words):
    done = subprocess.run([TUTTI, *words], cwd=place.folder, env=place.environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done
    return done.stdout


def classes_come_from_the_data(place):
    public = "run.data_class=public"
    prepare(place, "secret", "--data-class", "restricted")
    accepted(place, public)
    for key in ("data.train", "data.validation"):
        why = refused(place, public, f"{key}=secret")
        assert "this is restricted" in why and f"corpus 'secret' of {key}" in why, why
    with open(os.path.join(place.folder, "recipe.yaml")) as file:
        recipe = file.read()
    with open(os.path.join(place.folder, "mixed.yaml"), "w") as file:
        file.write(recipe.replace("{train: corpus}", "{train: [{prefix: corpus, weight: 9}, {prefix: secret, weight: 1}]}"))
    error = place.call("submit", "mixed.yaml", "--dry-run", public, code=2)["error"]["message"]
    assert "this is restricted" in error, error

    # What a run has learned from goes with it, also when the corpus is gone.
    subprocess.run([TUTTI, "train", "recipe.yaml", "data.train=secret", "train.steps=3", "--run", "base"],
                   cwd=place.folder, env=place.environment, check=True, capture_output=True)
    forget(place, "secret")
    for words in (["checkpoint.initialize_from=base"], ["distill.teacher=base"], ["--run", "base"]):
        why = refused(place, public, *words)
        assert "this is restricted" in why and "'" in why, why


def data_without_a_class(place):
    prepare(place, "plain")
    words = ["data.train=plain", "run.data_class=public", "--project", "far"]
    place.call("admin", "project", "far")
    accepted(place, *words)  # nobody here speaks of classes
    place.call("admin", "project", "far", "--regions", "mars")
    why = refused(place, *words)
    assert "rule 2: internal data" in why and "'plain' of data.train states no class" in why, why
    place.call("admin", "site", "--unlabelled", "public")
    accepted(place, *words)
    place.call("admin", "site", "--unlabelled", "strictest", "--data", "restricted")
    assert "rule 3" in refused(place, "data.train=plain", "run.data_class=public")
    prepare(place, "plain", "--data-class", "public")
    accepted(place, "data.train=plain", "run.data_class=public")
    place.call("admin", "site", "--data", "internal")


def classes_are_looked_at_again(place):
    prepare(place, "changed", "--data-class", "public")
    job = place.submit("data.train=changed", "run.data_class=public", "--run", "changed-run")
    prepare(place, "changed", "--data-class", "restricted")
    controller = place.controller()
    end = time.monotonic() + 120
    while place.show(job)["reason"] != "SiteRule":
        assert time.monotonic() < end, place.show(job)
        time.sleep(0.2)
    why = place.call("why", str(job))
    assert "this is restricted" in why["text"] and "corpus 'changed'" in why["text"], why
    assert place.show(job)["launches"] == []
    place.call("cancel", str(job))
    return controller


def keys_are_guarded(place, ada):
    for key, value in (("telemetry.metrics_port", "9999"), ("telemetry.metrics_address", "0.0.0.0"),
                       ("checkpoint.key_file", "/etc/hostname")):
        why = refused(place, f"{key}={value}", "--project", "vision", code=1, environment=ada, kind="permission")
        assert why.startswith(key) and "only an operator in all projects" in why, why
        if key != "checkpoint.key_file":
            accepted(place, f"{key}={value}")
    place.call("admin", "site", "--allow-keys", "telemetry.metrics_port")
    accepted(place, "telemetry.metrics_port=9999", "--project", "vision", environment=ada)
    error = place.call("admin", "site", "--allow-keys", "train.steps", code=2)["error"]["message"]
    assert "is not a guarded key" in error, error


def missing_data_are_named(place):
    why = refused(place, "data.train=nowhere", kind="not_found")
    assert "data.train: there is no corpus 'nowhere'" in why and "tutti data prepare" in why, why
    told = place.call("submit", "recipe.yaml", "--yes", "--no-start", "data.train=nowhere")  # it may still be made
    assert any("no corpus 'nowhere'" in warning for warning in told["warnings"]), told
    place.call("cancel", str(told["job"]))
    with open(os.path.join(place.folder, "recipe.yaml")) as file:
        recipe = file.read()
    with open(os.path.join(place.folder, "gone.yaml"), "w") as file:
        file.write(recipe.replace("{train: corpus}", "{prepare: {source: gone.txt}}"))
    error = place.call("submit", "gone.yaml", "--dry-run", code=2)["error"]["message"]
    assert error.startswith("data.prepare.source") and "gone.txt" in error, error


def failures_are_shown(place, controller):
    done = place.submit("train.steps=40", "--run", "done")
    shown = place.wait_for(done, ["COMPLETED"])
    progress = shown["progress"]
    assert progress["step"] == 40 and progress["planned_steps"] == 40 and progress["loss"] > 0, progress
    assert progress["tokens_per_second"] > 0 and progress["end"] == shown["ended"], (progress, shown)
    assert "40 of 40, loss" in text(place, "show", str(done))
    told = text(place, "queue")
    assert f"{done} " in told and "COMPLETED" in told and "queue --all" in told, told
    listed = place.call("queue", "--all", "--most", "1")
    assert [job["job"] for job in listed["jobs"]] == [done] and listed["total"] > 1, listed
    second, = place.call("queue", "--all", "--most", "1", "--skip", "1")["jobs"]
    assert second["job"] < done

    # A check that failed takes the only node out of use.
    node = os.uname().nodename
    health = os.path.join(place.control, "health")
    os.makedirs(health, exist_ok=True)
    report = {"healthy": False, "wall_seconds": time.time(), "kind": "mine",
              "checks": [{"name": "memory", "status": "fail", "detail": "slow"}]}
    path = os.path.join(health, node + ".json")
    with open(path, "w") as file:
        json.dump(report, file)
    end = time.monotonic() + 60
    while all(each["up"] for each in place.call("admin", "list")["nodes"]):
        assert time.monotonic() < end, "the node is still used"
        time.sleep(0.2)
    job = place.submit("train.steps=3", "--run", "waits")
    why = place.call("why", str(job))
    assert why["unused_nodes"] == [f"{node} (down: unhealthy: memory: slow)"], why
    assert node in text(place, "why", str(job))
    with open(path, "w") as file:
        json.dump({**report, "healthy": True, "checks": []}, file)
    place.wait_for(job, ["COMPLETED"])
    controller.terminate()
    controller.wait()


def people(place, ada):
    pia = place.as_user("pia", "admin", "vision")
    members = place.call("admin", "list", "--project", "vision", environment=pia)["members"]
    assert {"ada", "pia"} <= {member["user"] for member in members}, members
    error = place.call("admin", "list", "--project", "vision", code=1, environment=ada)["error"]
    assert error["kind"] == "permission", error
    account = place.call("admin", "list")["users"]
    mine = next(user["user"] for user in account if user["roles"].get("*") == "admin")
    error = place.call("admin", "user", mine, "--demand-token", code=2)["error"]["message"]
    assert "TUTTI_TOKEN" in error, error
    own = dict(place.environment, TUTTI_TOKEN=place.call("admin", "token")["token"])
    place.call("admin", "user", mine, "--demand-token", environment=own)
    error = place.call("queue", code=1)["error"]
    assert error["kind"] == "permission" and "without a token" in error["message"], error
    place.call("queue", environment=own)
    place.call("admin", "user", mine, "--trust-account", environment=own)
    place.call("queue")


def main():
    with tempfile.TemporaryDirectory() as folder:
        place = Place(os.path.realpath(folder))
        place.call("queue")  # the first use makes this account the admin
        classes_come_from_the_data(place)
        data_without_a_class(place)
        missing_data_are_named(place)
        place.call("admin", "project", "vision")
        ada = place.as_user("ada", "submitter", "vision")
        keys_are_guarded(place, ada)
        people(place, ada)
        failures_are_shown(place, classes_are_looked_at_again(place))
        assert place.call("audit", "verify")["intact"]
        place.wait_for_no_controller()
    print("classes, keys, accounts and nodes are what files and records say")


if __name__ == "__main__":
    sys.exit(main())
