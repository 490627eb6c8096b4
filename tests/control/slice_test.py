"""The whole of it on a real Slurm with four virtual nodes: a user submits, role, quota and budget are
checked, Slurm planes, an unhealthy node is left out, ranks train, a node is killed and a spare takes
it, a second is killed and fewer ranks continue, both from peer copies on other nodes,
the controller and slurmctld are killed
meanwhile, the coordinator's node is killed, the job is preempted; the run reaches its target each
time; ledger, audit log, incident files and the report record what happened and what it cost. Needs root."""

import glob
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
import rank_runs  # noqa: E402
from control_plane import ControlPlane, secret_is_nowhere, report_state  # noqa: E402
from slurm_cluster import Cluster, apart, variables_of, wait_until  # noqa: E402

# Silence of a node counts as its end after ten seconds. Jobs of `urgent` preempt others.
SLURM = """\
SlurmdTimeout=10
KillWait=15
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=n[1-4] PriorityTier=10 State=UP
"""
# Every step takes 20 ms more than it needs, so that there is a middle to be killed in.
SLOW = "rank=0 step=1 at=forward do=slow seconds=0.02 generation=0"


def refusals(plane, ada, eve):
    """Role, quota and budget, in this order; nothing of it reaches Slurm."""
    error = plane.call("submit", "recipe.yaml", "--yes", "--project", "vision", code=1, environment=eve)["error"]
    assert error["kind"] == "permission", error
    for limit, reason in ((["--max-nodes", "1"], "nodes at once"), (["--max-nodes", "none", "--usd", "0.000001"], "left")):
        plane.call("admin", "project", "vision", *limit)
        error = plane.call("submit", "recipe.yaml", "--yes", "--project", "vision", "--nodes", "2",
                           code=2, environment=ada)["error"]
        assert reason in error["message"], error
    plane.call("admin", "project", "vision", "--usd", "50")


def wait_for_steps(plane, run, count, seconds=240):
    wait_until(lambda: len(plane.events(run, "step_done")) >= count, f"step {count} of {run}", seconds)


def copies_in_memory(plane, node="*"):
    return glob.glob(os.path.join(plane.folder, "memory", f"tutti-*-{node}"))


def kill_with_memory(plane, cluster, node):
    cluster.kill_node(node)
    for path in copies_in_memory(plane, node):
        shutil.rmtree(path)


def processes_with(*words):
    """Those of a command line that has all of these words."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if all(word in line for word in words):
            found.append(int(name))
    return found


def nodes_with_ranks(cluster):
    """Those whose ranks have a world, and the secret that they meet by."""
    found = {}
    for node in ("n1", "n2", "n3", "n4"):
        for process in cluster.processes_of(node):
            secret = variables_of(process).get("TUTTI_SECRET")
            if secret:
                found[node] = secret
    return found


def heals_unattended(plane, cluster, controller, ada):
    """n2 is unhealthy; n1 and n3 train; n3 dies: n4 replaces it; n4 dies: n1 continues alone."""
    open(os.path.join(plane.folder, "bad-n2"), "w").close()
    job = plane.submit("--project", "vision", "--nodes", "2", "--spares", "2", "--min-nodes", "1",
                       "--run", "healed", "train.steps=900", "checkpoint.every_steps=100", environment=ada)
    wait_for_steps(plane, "healed", 120)
    used = nodes_with_ranks(cluster)
    assert set(used) == {"n1", "n3"}, used
    for secret in (used["n1"], ada["TUTTI_TOKEN"].split("-")[2]):
        secret_is_nowhere(secret, plane.folder, cluster.folder)
    wait_until(lambda: len(copies_in_memory(plane)) == 2, "copies on both nodes")
    kill_with_memory(plane, cluster, "n3")
    wait_until(lambda: set(nodes_with_ranks(cluster)) == {"n1", "n4"}, "the spare", 120)
    controller.kill()
    controller.wait()
    wait_for_steps(plane, "healed", max(e["step"] for e in plane.events("healed", "step_done")) + 150)
    kill_with_memory(plane, cluster, "n4")
    wait_until(lambda: set(nodes_with_ranks(cluster)) == {"n1"}, "the one that is left", 120)
    controller = plane.controller()
    shown = plane.wait_for(job, ["COMPLETED"], 400)
    assert len(shown["launches"]) == 1 and shown["exit_code"] == 0, shown
    assert shown["peer_copies"] == 1 and "--peer-copies" in shown["command"], shown
    printed = [event["text"] for event in plane.events("healed", "message")]
    assert len([text for text in printed if "from the memory of its hosts" in text]) == 2, printed
    checked = [path for path in os.listdir(plane.folder) if path.startswith("health-")]
    assert sorted(checked) == ["health-n1.json", "health-n3.json", "health-n4.json"], checked
    steps = [event["step"] for event in plane.events("healed", "step_done")]
    assert max(steps) == 900 and set(steps) == set(range(1, 901)), "a step was left out"
    assert len(steps) <= 904, "more than a step of each failure, and the one it was in, was done again"
    first, second = shown["incidents"]
    assert (first["node"], first["rank"], second["node"]) == ("n3", 1, "n4"), shown["incidents"]
    assert "n1, n4" in first["action"] and "1 ranks start again" in second["action"], shown["incidents"]
    for incident in shown["incidents"]:
        assert incident["lost_usd"] > 0 and incident["lost_seconds"] > 0 and incident["lost_steps"] <= 1, incident
        assert "from the peer copies" in incident["action"], incident
        with open(os.path.join(plane.control, "incidents", f"{incident['incident']:06}.json")) as file:
            printed = json.load(file)
        assert printed["job"] == job and printed["user"] == "ada" and printed["rank"] == 1 and printed["time"], printed
        assert printed["lost_steps"] <= 1, printed
    assert copies_in_memory(plane) == [], copies_in_memory(plane)
    assert os.path.exists(plane.run("healed/report.html"))
    for node in ("n3", "n4"):
        cluster.start_node(node)
    os.remove(os.path.join(plane.folder, "bad-n2"))
    return controller


def coordinator_dies(plane, cluster, ada):
    """Supervisor and store are lost with its node: Slurm ends the job, another launch continues elsewhere.
    slurmctld is killed and started again meanwhile; nothing notices."""
    job = plane.submit("--project", "vision", "--nodes", "2", "--run", "moved",
                       "train.steps=600", "checkpoint.every_steps=100", environment=ada)
    wait_for_steps(plane, "moved", 130)
    cluster.kill_controller()
    before = len(plane.events("moved", "step_done"))
    wait_for_steps(plane, "moved", before + 60)
    assert plane.show(job)["state"] == "RUNNING"
    cluster.start_controller()
    first = plane.show(job)["launches"][0]["nodes"]
    kill_with_memory(plane, cluster, first[0])
    shown = plane.wait_for(job, ["COMPLETED"], 400)
    assert len(shown["launches"]) == 2, shown["launches"]
    assert first[0] not in shown["launches"][1]["nodes"], shown["launches"]
    assert [i["cause"] for i in shown["incidents"]][-1] == "NodeLost", shown["incidents"]
    steps = [event["step"] for event in plane.events("moved", "step_done")]
    assert set(steps) == set(range(1, 601)), "a step was left out"
    cluster.start_node(first[0])


def preempted(plane, cluster, ada):
    """A job of a higher partition takes the nodes; ours saves within Slurm's patience and comes back
    with every step done once. slurmd is restarted under it; nothing notices."""
    wait_until(cluster.is_ready, "the nodes", 120)
    job = plane.submit("--project", "vision", "--nodes", "4", "--run", "pushed",
                       "batch.global=4", "train.steps=700", environment=ada)
    wait_for_steps(plane, "pushed", 150)
    cluster.kill_daemon("n2")
    cluster.start_node("n2")
    urgent = cluster.run("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive",
                         "--output=/dev/null", "--wrap=sleep 2").strip()
    shown = plane.wait_for(job, ["COMPLETED"], 400)
    assert shown["requeues"] == 1 and len(shown["launches"]) == 2, shown
    steps = [event["step"] for event in plane.events("pushed", "step_done")]
    assert steps == list(range(1, 701)), "a step was repeated or left out"
    assert "COMPLETED" in cluster.run("scontrol", "show", "job", "-o", urgent)


def controllers_die(plane, cluster, controller, ada):
    """Killed at random moments, while jobs are handed to Slurm: none is lost, none runs twice."""
    wait_until(cluster.is_ready, "the nodes", 120)
    random.seed(11)
    jobs = [plane.submit("--project", "vision", "--run", f"many-{i}", "train.steps=60", environment=ada)
            for i in range(6)]
    for _ in range(8):
        time.sleep(random.random() * 1.2)
        controller.kill()
        controller.wait()
        controller = plane.controller()
    for i, job in enumerate(jobs):
        shown = plane.wait_for(job, ["COMPLETED"], 400)
        assert len(shown["launches"]) == 1, shown
        assert len(plane.events(f"many-{i}", "run_started")) == 1, "a job ran twice"
    return controller


def memory_is_free_again(plane, ada):
    """However a job ends, its nodes keep nothing of it: stopped on request, or failed for good."""
    words = ("--project", "vision", "--nodes", "2", "train.steps=100000")
    stopped = plane.submit(*words, "--run", "stopped", environment=ada)
    wait_for_steps(plane, "stopped", 20)
    assert len(copies_in_memory(plane)) == 2, copies_in_memory(plane)
    plane.call("cancel", str(stopped), environment=ada)
    plane.wait_for(stopped, ["CANCELLED"], 60)
    assert copies_in_memory(plane) == [], copies_in_memory(plane)
    killed = plane.submit(*words, "--run", "killed", "--attempts", "1", environment=ada)
    wait_for_steps(plane, "killed", 20)
    assert len(copies_in_memory(plane)) == 2, copies_in_memory(plane)
    launcher, = processes_with("--ranks-per-node", plane.run("killed"))
    os.kill(launcher, signal.SIGKILL)
    plane.wait_for(killed, ["FAILED"], 120)
    assert copies_in_memory(plane) == [], copies_in_memory(plane)
    without = plane.submit("--project", "vision", "--nodes", "2", "--peer-copies", "0", "train.steps=30",
                           "--run", "without", environment=ada)
    shown = plane.wait_for(without, ["COMPLETED"], 120)
    assert shown["peer_copies"] == 0 and "--peer-copies" not in shown["command"], shown


def spot_notice(plane, ada, notice):
    """From the notice to the durable checkpoint: at most 15 s, measured."""
    job = plane.submit("--project", "vision", "--nodes", "2", "--run", "noticed", "train.steps=100000", environment=ada)
    wait_for_steps(plane, "noticed", 50)
    begin = time.time()
    open(notice, "w").close()
    wait_until(lambda: plane.events("noticed", "checkpoint_saved")
               and plane.events("noticed", "checkpoint_saved")[-1]["step"] > 0, "the checkpoint", 60)
    took = plane.events("noticed", "checkpoint_saved")[-1]["wall_seconds"] - begin
    assert took <= 15, took
    os.remove(notice)
    plane.call("cancel", str(job), environment=ada)
    plane.wait_for(job, ["CANCELLED"], 60)
    print(f"from a notice to a durable checkpoint: {took:.2f} s")


def books_are_right(plane):
    ledger = plane.call("ledger", "--month", "all")
    by_job = {entry["job"]: entry for entry in ledger["jobs"]}
    jobs = plane.call("queue", "--all")["jobs"]
    assert set(by_job) == {job["job"] for job in jobs}, (by_job, jobs)
    for job in by_job:
        shown = plane.show(job)
        nodes = sum(launch["seconds"] * len(launch["nodes"]) for launch in shown["launches"])
        assert abs(shown["spent"]["node_hours"] * 3600 - nodes) < 0.01, shown
    assert plane.call("audit", "verify")["intact"]
    lines = plane.call("audit", "show", "--most", "100000")["lines"]
    done = {line["what"] for line in lines}
    for what in ("submit", "fault", "node down", "node up", "RUNNING -> COMPLETED"):
        assert what in done, (what, sorted(done))
    assert any(not line["allowed"] for line in lines)


def test():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        with Cluster(cluster_folder, SLURM) as cluster:
            notice = os.path.join(folder, "notice")
            os.mkdir(os.path.join(folder, "memory"))
            plane = ControlPlane(folder, SLURM_CONF=cluster.configuration, MASTER_ADDR="127.0.0.1", TUTTI_FAULT=SLOW,
                          TUTTI_NOTICE_FILE=notice, TUTTI_MEMORY_ROOT=os.path.join(folder, "memory"))
            plane.call("admin", "site", "--scheduler", "slurm", "--usd-per-node-hour", "3.60",
                       "--node-check", f"test ! -e {folder}/bad-$SLURMD_NODENAME || exit 2; "
                       f"{rank_runs.TUTTI} check --quick --only topology,governor,gpu --folder {folder} "
                       f"--out {folder}/health-$SLURMD_NODENAME.json")
            plane.call("admin", "project", "vision")
            ada = plane.as_user("ada", "submitter", "vision")
            eve = plane.as_user("eve", "", "vision")
            refusals(plane, ada, eve)
            controller = plane.controller()
            try:
                for name, part in (("heals", lambda: heals_unattended(plane, cluster, controller, ada)),
                                   ("coordinator", lambda: coordinator_dies(plane, cluster, ada)),
                                   ("preempted", lambda: preempted(plane, cluster, ada)),
                                   ("controllers", lambda: controllers_die(plane, cluster, controller, ada)),
                                   ("memory", lambda: memory_is_free_again(plane, ada)),
                                   ("notice", lambda: spot_notice(plane, ada, notice))):
                    begin = time.monotonic()
                    controller = part() or controller
                    print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
            except AssertionError:
                report_state(plane, cluster)
                raise
            finally:
                controller.terminate()
                controller.wait()
            books_are_right(plane)
            assert copies_in_memory(plane) == [], copies_in_memory(plane)


if __name__ == "__main__":
    apart()
    sys.exit(rank_runs.main(test))
