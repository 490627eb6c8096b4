"""Slurm is restarted under load: while twenty jobs wait and run on four virtual nodes, slurmctld is killed
and started again, and so are two slurmd, four times over. Every job trains to its end once, none is lost, and
the ledger is the sum of what they took. Needs root."""

import collections
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
import rank_runs  # noqa: E402
from control_plane import ControlPlane, report_state  # noqa: E402
from slurm_cluster import Cluster, apart, wait_until  # noqa: E402

JOBS = 20
STEPS = 40
ROUNDS = 4
SLURM = "SlurmdTimeout=20\nKillWait=15\nMinJobAge=300\n"


def restart(cluster, nodes):
    """Without warning, all at once; what runs on the nodes continues."""
    cluster.kill_controller()
    for node in nodes:
        cluster.kill_daemon(node)
    time.sleep(random.random())
    for node in nodes:
        cluster.start_node(node)
    cluster.start_controller()


def states(plane):
    return collections.Counter(job["state"] for job in plane.call("queue", "--all")["jobs"])


def resume_drained(cluster):
    """As an operator does with a node on which slurmctld launched a job for the second time."""
    for node in cluster.nodes:
        if cluster.reason_of(node) != "Duplicate jobid":
            continue
        try:
            cluster.resume(node)
            print(f"{node} had been drained for a second launch", flush=True)
        except subprocess.CalledProcessError as error:  # slurmctld is busy with the node: next time
            print(f"{node} was not resumed: {error.stderr.strip()}", flush=True)


def all_have_ended(plane, cluster, jobs):
    resume_drained(cluster)
    found = states(plane)
    return found["COMPLETED"] + found["FAILED"] + found["NODE_FAIL"] + found["CANCELLED"] == len(jobs)


def under_load(plane, cluster, jobs):
    done = 0
    for number in range(ROUNDS):
        resume_drained(cluster)
        # Not before some have ended since: it shall happen in the middle.
        wait_until(lambda: states(plane)["COMPLETED"] >= done + 1, "the next end of a job", 120)
        found = states(plane)
        done = found["COMPLETED"]
        assert len(jobs) - done > 0, "all had ended before Slurm was restarted often enough"
        restart(cluster, random.sample(list(cluster.nodes), 2))
        print(f"restart {number + 1}: {dict(found)}", flush=True)


def test():
    random.seed(3)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        with Cluster(cluster_folder, SLURM) as cluster:
            plane = ControlPlane(folder, SLURM_CONF=cluster.configuration, MASTER_ADDR="127.0.0.1")
            plane.call("admin", "site", "--scheduler", "slurm", "--usd-per-node-hour", "3.60")
            jobs = [plane.submit("--run", f"run-{i}", f"train.steps={STEPS}", "--attempts", "9") for i in range(JOBS)]
            controller = plane.controller()
            try:
                under_load(plane, cluster, jobs)
                wait_until(lambda: all_have_ended(plane, cluster, jobs), "the end of all jobs", 240)
                shown = [plane.show(job) for job in jobs]
            except AssertionError:
                report_state(plane, cluster)
                raise
            finally:
                controller.terminate()
                controller.wait()
            every_job_once(plane, shown)
            books_are_right(plane, shown)


def every_job_once(plane, shown):
    again = 0
    for i, job in enumerate(shown):
        assert job["state"] == "COMPLETED" and job["exit_code"] == 0, job
        events = [event for event in rank_runs.events(plane.run(f"run-{i}"))
                  if event["event"] in ("run_started", "step_done", "run_finished")]
        names = [event["event"] for event in events]
        steps = [event["step"] for event in events if event["event"] == "step_done"]
        assert set(steps) == set(range(1, STEPS + 1)), (i, steps)
        # A launch that is lost when its run has finished is made again, and finds nothing to do.
        assert "step_done" not in names[names.index("run_finished"):], (job, names)
        # One that is lost before resumes from the newest checkpoint: with none, from the start.
        assert names.count("step_done") <= STEPS * names.count("run_started"), (job, names)
        ended = [launch for launch in job["launches"] if launch["exit_code"] == 0]
        assert len(ended) == 1, job["launches"]
        if len(job["launches"]) > 1:
            print(f"job {job['job']}: {[(l['outcome'], l['seconds']) for l in job['launches']]}")
        again += len(job["launches"]) - 1
    print(f"{len(shown)} jobs, each to its end once; {again} launches were lost with Slurm and made again")


def books_are_right(plane, shown):
    ledger = plane.call("ledger", "--month", "all")
    by_job = {entry["job"]: entry for entry in ledger["jobs"]}
    assert set(by_job) == {job["job"] for job in shown}, by_job
    total = sum(round(job["spent"]["usd"] * 1e6) for job in shown)
    assert total == sum(round(entry["usd"] * 1e6) for entry in ledger["jobs"]), (total, ledger["jobs"])
    for job in shown:
        nodes = sum(launch["seconds"] * len(launch["nodes"]) for launch in job["launches"])
        assert abs(job["spent"]["node_hours"] * 3600 - nodes) < 0.01, job
    assert plane.call("audit", "verify")["intact"]


if __name__ == "__main__":
    apart()
    sys.exit(rank_runs.main(test))
