"""A slurmctld that is killed forgets that it has just launched a job, and launches it again on the same node:
slurmd refuses, cancels the job and has the node drained. No user asked for that: the job gets another launch,
where one that a user cancels in Slurm does not. Needs root."""

import glob
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
import rank_runs  # noqa: E402
from control_plane import ControlPlane, report_state  # noqa: E402
from slurm_cluster import Cluster, apart, wait_until  # noqa: E402

STEPS = 300
# 20 ms more per step, so that there is a middle to be cancelled in.
SLOW = "rank=0 step=1 at=forward do=slow seconds=0.02 generation=0"
PROLOG_SECONDS = 6  # between the launch and the job's first process, while slurmctld is started again
SLURM = """\
SlurmdTimeout=20
KillWait=15
MinJobAge=300
Prolog={prolog}
"""
PROLOG = """\
#!/bin/sh
if [ -e {slow} ]; then sleep {seconds}; fi
"""


def said(cluster, *words):
    return cluster.run(*words).strip()


def state_of(cluster, number):
    return said(cluster, "squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}")


def held_job(cluster):
    """The only one that waits in Slurm, held."""
    waiting = lambda: said(cluster, "squeue", "--noheader", "--states=PENDING", "--format=%A").split()
    wait_until(waiting, "the job in Slurm's line")
    (number,) = waiting()
    cluster.run("scontrol", "hold", number)
    return number


def saved_jobs(cluster):
    """slurmctld's file of jobs, once it was rewritten, which happens every five seconds after changes."""
    path = os.path.join(cluster.folder, "state", "job_state")
    mark = lambda: os.stat(path).st_mtime_ns if os.path.exists(path) else 0
    before = mark()
    wait_until(lambda: mark() != before, "a saved state")
    return path


def forgotten(plane, cluster, controller, slow):
    cluster.run("scontrol", "update", "partition=all", "state=down")
    job = plane.submit("--run", "twice", f"train.steps={STEPS}")
    number = held_job(cluster)
    path = saved_jobs(cluster)
    shutil.copy(path, path + ".forgetful")
    with open(slow, "w"):
        pass
    cluster.run("scontrol", "update", "partition=all", "state=up")
    cluster.run("scontrol", "release", number)
    wait_until(lambda: state_of(cluster, number) == "RUNNING", "its launch")
    # So that what it finds is the whole of it, whichever came first.
    controller.terminate()
    controller.wait()
    node = said(cluster, "squeue", "--noheader", "--format=%B", f"--jobs={number}")
    cluster.kill_controller()
    shutil.copy(path + ".forgetful", path)
    shutil.rmtree(path + ".old", ignore_errors=True)
    cluster.start_controller()
    wait_until(cluster.is_ready, "the nodes")  # which knew of no process of the job when they were asked
    ended = os.path.join(plane.control, "jobs", "*", "ended-1")
    # A step of a job that waits is refused: this is how the first launch ends.
    wait_until(lambda: glob.glob(ended), "the end of its first launch")
    os.remove(slow)
    assert state_of(cluster, number) == "PENDING", "slurmctld remembers its launch"
    cluster.run("scontrol", "release", number)
    wait_until(lambda: state_of(cluster, number) == "CANCELLED", "Slurm's end of it")
    wait_until(lambda: cluster.reason_of(node) == "Duplicate jobid", "the drained node")

    controller = plane.controller()
    shown = plane.wait_for(job, ["COMPLETED", "CANCELLED", "FAILED"])
    assert shown["state"] == "COMPLETED" and shown["exit_code"] == 0, shown
    first, second = shown["launches"]
    assert first["nodes"] == [node] and second["nodes"] != [node], shown["launches"]
    steps = [event["step"] for event in plane.events("twice", "step_done")]
    assert steps == list(range(1, STEPS + 1)), steps
    cluster.resume(node)
    return controller


def cancelled_in_slurm(plane, cluster):
    job = plane.submit("--run", "unwanted", f"train.steps={STEPS}")
    plane.wait_for_steps("unwanted")
    cluster.run("scancel", said(cluster, "squeue", "--noheader", "--states=RUNNING", "--format=%A"))
    shown = plane.wait_for(job, ["COMPLETED", "CANCELLED", "FAILED"])
    assert shown["state"] == "CANCELLED" and len(shown["launches"]) == 1, shown


def test():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        prolog, slow = os.path.join(cluster_folder, "prolog"), os.path.join(cluster_folder, "slow")
        with open(prolog, "w") as file:
            file.write(PROLOG.format(slow=slow, seconds=PROLOG_SECONDS))
        os.chmod(prolog, 0o755)
        with Cluster(cluster_folder, SLURM.format(prolog=prolog)) as cluster:
            plane = ControlPlane(folder, SLURM_CONF=cluster.configuration, MASTER_ADDR="127.0.0.1", TUTTI_FAULT=SLOW)
            plane.call("admin", "site", "--scheduler", "slurm")
            controller = plane.controller()
            try:
                controller = forgotten(plane, cluster, controller, slow)
                cancelled_in_slurm(plane, cluster)
            except AssertionError:
                report_state(plane, cluster)
                raise
            finally:
                controller.terminate()
                controller.wait()


if __name__ == "__main__":
    apart()
    sys.exit(rank_runs.main(test))
