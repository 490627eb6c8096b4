"""Data class and keys of a job: decided by the files that it reads, not by its recipe; who may set which
key; accounts that demand tokens; nodes that a check found unhealthy; and what is said after a failure."""

import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from control_plane import ControlPlane, TUTTI


def forget(plane, name):
    for file in os.listdir(plane.folder):
        if file.startswith(name + "."):
            os.remove(os.path.join(plane.folder, file))


def prepare(plane, name, *options):
    forget(plane, name)
    subprocess.run([TUTTI, "data", "prepare", "text.txt", "--tokenizer", "byte", "--out", name, *options],
                   cwd=plane.folder, check=True, capture_output=True)


def refused(plane, *words, code=2, environment=None, kind="usage"):
    error = plane.call("submit", "recipe.yaml", "--dry-run", *words, code=code, environment=environment)["error"]
    assert error["kind"] == kind, error
    return error["message"]


def accepted(plane, *words, environment=None):
    return plane.call("submit", "recipe.yaml", "--dry-run", *words, environment=environment)


def text(plane, *words):
    done = subprocess.run([TUTTI, *words], cwd=plane.folder, env=plane.environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done
    return done.stdout


def classes_come_from_the_data(plane):
    public = "run.data_class=public"
    prepare(plane, "secret", "--data-class", "restricted")
    accepted(plane, public)
    for key in ("data.train", "data.validation"):
        why = refused(plane, public, f"{key}=secret")
        assert "this is restricted" in why and f"corpus 'secret' of {key}" in why, why
    with open(os.path.join(plane.folder, "recipe.yaml")) as file:
        recipe = file.read()
    with open(os.path.join(plane.folder, "mixed.yaml"), "w") as file:
        file.write(recipe.replace("{train: corpus}", "{train: [{prefix: corpus, weight: 9}, {prefix: secret, weight: 1}]}"))
    error = plane.call("submit", "mixed.yaml", "--dry-run", public, code=2)["error"]["message"]
    assert "this is restricted" in error, error

    # What a run has learned from goes with it, also when the corpus is gone.
    subprocess.run([TUTTI, "train", "recipe.yaml", "data.train=secret", "train.steps=3", "--run", "base"],
                   cwd=plane.folder, env=plane.environment, check=True, capture_output=True)
    forget(plane, "secret")
    for words in (["checkpoint.initialize_from=base"], ["distill.teacher=base"], ["--run", "base"]):
        why = refused(plane, public, *words)
        assert "this is restricted" in why and "'" in why, why


def data_without_a_class(plane):
    prepare(plane, "plain")
    words = ["data.train=plain", "run.data_class=public", "--project", "far"]
    plane.call("admin", "project", "far")
    accepted(plane, *words)  # no class is declared here
    plane.call("admin", "project", "far", "--regions", "mars")
    why = refused(plane, *words)
    assert "rule 2: internal data" in why and "'plain' of data.train states no class" in why, why
    plane.call("admin", "site", "--unlabelled", "public")
    accepted(plane, *words)
    plane.call("admin", "site", "--unlabelled", "strictest", "--data", "restricted")
    assert "rule 3" in refused(plane, "data.train=plain", "run.data_class=public")
    prepare(plane, "plain", "--data-class", "public")
    accepted(plane, "data.train=plain", "run.data_class=public")
    plane.call("admin", "site", "--data", "internal")


def classes_survive_merging(plane):
    """A merged model has the class of its base, its adapters' corpora and whatever those were made of."""
    def run(*words):
        subprocess.run([TUTTI, *words], cwd=plane.folder, env=plane.environment, check=True, capture_output=True)

    plane.call("admin", "site", "--data", "internal", "--unlabelled", "strictest")
    public = "run.data_class=public"
    prepare(plane, "sec", "--data-class", "restricted", "--licence", "sealed")
    prepare(plane, "pub", "--data-class", "public")
    for base, adapters, merged in (("sec", "pub", "secret-base"), ("pub", "sec", "secret-adapters"),
                                   ("pub", "pub", "all-public")):
        run("train", "recipe.yaml", f"data.train={base}", "train.steps=3", public, "--run", f"base-{merged}")
        run("train", "recipe.yaml", f"data.train={adapters}", "train.steps=3", "lora.rank=2", public,
            f"checkpoint.initialize_from=base-{merged}", "--run", f"adapters-{merged}")
        run("checkpoint", "merge", f"adapters-{merged}", "--out", merged)
        lineage = plane.call("checkpoint", "lineage", merged)
        assert {corpus["path"] for corpus in lineage["corpora"]} == {base, adapters}, lineage
        assert lineage["initial_weights"]["path"].endswith(f"base-{merged}/checkpoints/step-00000003"), lineage
        assert lineage["recipe"]["is_the_recorded_one"], lineage
    # It says so by itself.
    for name in ("base-secret-base", "adapters-secret-base", "base-secret-adapters", "adapters-secret-adapters"):
        shutil.rmtree(plane.run(name))
    forget(plane, "sec")
    run("train", "recipe.yaml", "data.train=pub", "train.steps=3", "checkpoint.initialize_from=secret-base", public,
        "--run", "begun")
    run("train", "recipe.yaml", "data.train=pub", "train.steps=3", "checkpoint.initialize_from=secret-base", public,
        "lora.rank=2", "--run", "tuned-again")
    run("checkpoint", "merge", "tuned-again", "--out", "merged-again")
    train = ["data.train=pub", public]
    for name in ("secret-base", "secret-adapters", "begun", "merged-again"):
        for words in ([f"checkpoint.initialize_from={name}"], [f"distill.teacher={name}"], ["--run", name]):
            assert "this is restricted" in refused(plane, *train, *words), (name, words)
    accepted(plane, *train, "checkpoint.initialize_from=all-public")
    # What states no class stays without one.
    prepare(plane, "unknown")
    run("train", "recipe.yaml", "data.train=unknown", "train.steps=3", "--run", "base-unknown")
    run("train", "recipe.yaml", "data.train=pub", "train.steps=3", "lora.rank=2", public,
        "checkpoint.initialize_from=base-unknown", "--run", "adapters-unknown")
    run("checkpoint", "merge", "adapters-unknown", "--out", "merged-unknown")
    plane.call("admin", "site", "--data", "restricted")
    why = refused(plane, *train, "checkpoint.initialize_from=merged-unknown")
    assert "rule 3" in why and "base-unknown" in why, why
    plane.call("admin", "site", "--data", "internal")


def classes_are_looked_at_again(plane):
    prepare(plane, "changed", "--data-class", "public")
    job = plane.submit("data.train=changed", "run.data_class=public", "--run", "changed-run")
    prepare(plane, "changed", "--data-class", "restricted")
    controller = plane.controller()
    end = time.monotonic() + 120
    while plane.show(job)["reason"] != "SiteRule":
        assert time.monotonic() < end, plane.show(job)
        time.sleep(0.2)
    why = plane.call("why", str(job))
    assert "this is restricted" in why["text"] and "corpus 'changed'" in why["text"], why
    assert plane.show(job)["launches"] == []
    plane.call("cancel", str(job))
    return controller


def keys_are_guarded(plane, ada):
    for key, value in (("telemetry.metrics_port", "9999"), ("telemetry.metrics_address", "0.0.0.0"),
                       ("checkpoint.key_file", "/etc/hostname"), ("checkpoint.store", "s3://lab/runs"),
                       ("data.cache", "/srv/cache")):
        why = refused(plane, f"{key}={value}", "--project", "vision", code=1, environment=ada, kind="permission")
        assert why.startswith(key) and "only an operator in all projects" in why, why
        if key.startswith("telemetry"):
            accepted(plane, f"{key}={value}")
    plane.call("admin", "site", "--allow-keys", "telemetry.metrics_port")
    accepted(plane, "telemetry.metrics_port=9999", "--project", "vision", environment=ada)
    error = plane.call("admin", "site", "--allow-keys", "train.steps", code=2)["error"]["message"]
    assert "is not a guarded key" in error, error


def starts_that_would_fail_are_named(plane):
    """With the words of the start: a dry run is an error, a submission a warning."""
    for setting, words in (("checkpoint.initialize_from=/nowhere", "holds no valid checkpoint"),
                           ("checkpoint.initialize_from=all-public model.ffn=32", "tensor"),
                           ("checkpoint.key_file=/nope", "checkpoint.key_file: '/nope' is not there"),
                           ("model.vocabulary=100", "set model.vocabulary=257")):
        code = 1 if "key" in setting else 2
        error = plane.call("submit", "recipe.yaml", "--dry-run", *setting.split(), code=code)["error"]["message"]
        assert words in error, (setting, error)
        train = subprocess.run([TUTTI, "train", "recipe.yaml", *setting.split(), "--dry-run", "--run", "none"],
                                    cwd=plane.folder, env=plane.environment, capture_output=True, text=True, check=False)
        assert train.returncode == code and words in train.stderr, train
    printed = plane.call("submit", "recipe.yaml", "--yes", "--no-start", "checkpoint.initialize_from=/nowhere")
    assert any("holds no valid checkpoint" in warning for warning in printed["warnings"]), printed
    plane.call("cancel", str(printed["job"]))


def missing_data_are_named(plane):
    why = refused(plane, "data.train=nowhere", kind="not_found")
    assert "data.train: no corpus 'nowhere'" in why and "tutti data prepare" in why, why
    printed = plane.call("submit", "recipe.yaml", "--yes", "--no-start", "data.train=nowhere")  # it may still be made
    assert any("no corpus 'nowhere'" in warning for warning in printed["warnings"]), printed
    plane.call("cancel", str(printed["job"]))
    with open(os.path.join(plane.folder, "recipe.yaml")) as file:
        recipe = file.read()
    with open(os.path.join(plane.folder, "gone.yaml"), "w") as file:
        file.write(recipe.replace("{train: corpus}", "{prepare: {source: gone.txt}}"))
    error = plane.call("submit", "gone.yaml", "--dry-run", code=2)["error"]["message"]
    assert error.startswith("data.prepare.source") and "gone.txt" in error, error


def failures_are_shown(plane, controller):
    done = plane.submit("train.steps=40", "--run", "done")
    shown = plane.wait_for(done, ["COMPLETED"])
    progress = shown["progress"]
    assert progress["step"] == 40 and progress["planned_steps"] == 40 and progress["loss"] > 0, progress
    assert progress["tokens_per_second"] > 0 and progress["end"] == shown["ended"], (progress, shown)
    assert "40 of 40, loss" in text(plane, "show", str(done))
    printed = text(plane, "queue")
    assert f"{done} " in printed and "COMPLETED" in printed and "queue --all" in printed, printed
    listed = plane.call("queue", "--all", "--most", "1")
    assert [job["job"] for job in listed["jobs"]] == [done] and listed["total"] > 1, listed
    second, = plane.call("queue", "--all", "--most", "1", "--skip", "1")["jobs"]
    assert second["job"] < done

    # What waits starts when what runs ends, by the same figures.
    runs = plane.submit("train.steps=1000000", "--run", "long")
    end = time.monotonic() + 120
    while (plane.show(runs)["progress"] or {}).get("step", 0) < 200:
        assert time.monotonic() < end, plane.show(runs)
        time.sleep(0.2)
    waits = plane.submit("train.steps=3", "--run", "behind")
    shown, expected = (datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ") for text in (
        plane.show(runs)["progress"]["end"], plane.call("why", str(waits))["expected_start"]))
    left = (shown - datetime.datetime.utcnow()).total_seconds()
    assert abs((expected - shown).total_seconds()) < max(60, left / 2), (shown, expected)
    plane.call("cancel", str(runs))
    plane.wait_for(waits, ["COMPLETED"])

    # A check that failed takes the only node out of use.
    node = os.uname().nodename
    health = os.path.join(plane.control, "health")
    os.makedirs(health, exist_ok=True)
    report = {"healthy": False, "wall_seconds": time.time(), "kind": "mine",
              "checks": [{"name": "memory", "status": "fail", "detail": "slow"}]}
    path = os.path.join(health, node + ".json")
    with open(path, "w") as file:
        json.dump(report, file)
    end = time.monotonic() + 60
    while all(each["up"] for each in plane.call("admin", "list")["nodes"]):
        assert time.monotonic() < end, "the node is still used"
        time.sleep(0.2)
    job = plane.submit("train.steps=3", "--run", "waits")
    why = plane.call("why", str(job))
    assert why["unused_nodes"] == [f"{node} (down: unhealthy: memory: slow)"], why
    assert node in text(plane, "why", str(job))
    with open(path, "w") as file:
        json.dump({**report, "healthy": True, "checks": []}, file)
    plane.wait_for(job, ["COMPLETED"])
    controller.terminate()
    controller.wait()


def people(plane, ada):
    pia = plane.as_user("pia", "admin", "vision")
    members = plane.call("admin", "list", "--project", "vision", environment=pia)["members"]
    assert {"ada", "pia"} <= {member["user"] for member in members}, members
    error = plane.call("admin", "list", "--project", "vision", code=1, environment=ada)["error"]
    assert error["kind"] == "permission", error
    account = plane.call("admin", "list")["users"]
    mine = next(user["user"] for user in account if user["roles"].get("*") == "admin")
    error = plane.call("admin", "user", mine, "--demand-token", code=2)["error"]["message"]
    assert "TUTTI_TOKEN" in error, error
    own = dict(plane.environment, TUTTI_TOKEN=plane.call("admin", "token")["token"])
    plane.call("admin", "user", mine, "--demand-token", environment=own)
    error = plane.call("queue", code=1)["error"]
    assert error["kind"] == "permission" and "without a token" in error["message"], error
    plane.call("queue", environment=own)
    plane.call("admin", "user", mine, "--trust-account", environment=own)
    plane.call("queue")


def main():
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(os.path.realpath(folder))
        plane.call("queue")  # the first use makes this account the admin
        classes_come_from_the_data(plane)
        data_without_a_class(plane)
        classes_survive_merging(plane)
        missing_data_are_named(plane)
        starts_that_would_fail_are_named(plane)
        plane.call("admin", "project", "vision")
        ada = plane.as_user("ada", "submitter", "vision")
        keys_are_guarded(plane, ada)
        people(plane, ada)
        failures_are_shown(plane, classes_are_looked_at_again(plane))
        assert plane.call("audit", "verify")["intact"]
        plane.wait_for_no_controller()
    print("classes, keys, accounts and nodes are what files and records say")


if __name__ == "__main__":
    sys.exit(main())
