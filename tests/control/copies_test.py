"""Peer copies of jobs of the local queue: there while a job runs, and none when it has ended for
good: completed, cancelled, failed, its launcher killed, or everything of it killed and then cancelled
while it waits to be tried again. About 30 s."""

import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
from control_plane import ControlPlane  # noqa: E402
from slurm_cluster import wait_until  # noqa: E402


def of_job(plane, run):
    """The processes of a job: its supervisor, its launcher, its ranks."""
    words = plane.run(run), f"{plane.control}/jobs/"
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] in line or ("supervise" in line and any(word.startswith(words[1]) for word in line)):
            found.append((int(name), line))
    return found


class Copies:
    def __init__(self, plane, memory):
        self.plane = plane
        self.memory = memory

    def begin(self, run, *words):
        """A job of two ranks that runs and has copies."""
        job = self.plane.submit("--peer-copies", "1", "--run", run, "parallel.dp=2", "batch.micro=1", *words)
        self.plane.wait_for(job, ["RUNNING"])
        wait_until(lambda: len(self.plane.events(run, "step_done")) > 5, "steps of " + run, 120)
        kept = os.listdir(self.memory)
        assert len(kept) == 1 and kept[0].startswith("tutti-"), kept
        return job

    def none_are_left(self):
        assert os.listdir(self.memory) == [], os.listdir(self.memory)


def test(plane, copies):
    printed = plane.call("submit", "recipe.yaml", "--dry-run", "--no-start", "--peer-copies", "1")
    assert printed["dry_run"], printed
    done = plane.submit("--peer-copies", "2", "--run", "done", "parallel.dp=2", "batch.micro=1", "train.steps=100")
    shown = plane.wait_for(done, ["COMPLETED"])
    assert shown["peer_copies"] == 2, shown
    assert any("peer copies every 2 steps" in e["text"] for e in plane.events("done", "message"))
    copies.none_are_left()

    stopped = copies.begin("stopped", "train.steps=1000000")
    plane.call("cancel", str(stopped))
    plane.wait_for(stopped, ["CANCELLED"])
    copies.none_are_left()

    # Only its supervisor is left to save, or to clear what it held.
    killed = copies.begin("killed", "train.steps=1000000", "--attempts", "1")
    launcher, = [p for p, line in of_job(plane, "killed") if "--end-with-parent" in line]
    os.kill(launcher, signal.SIGKILL)
    shown = plane.wait_for(killed, ["FAILED"])
    assert shown["exit_code"] == 137, shown
    copies.none_are_left()

    # No process is left: the next launch would resume from them; there is none.
    lost = copies.begin("lost", "train.steps=1000000")
    for process, _ in of_job(plane, "lost"):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    plane.wait_for(lost, ["PENDING"])
    assert len(os.listdir(copies.memory)) == 1
    plane.call("cancel", str(lost))
    plane.wait_for(lost, ["CANCELLED"])
    copies.none_are_left()

    without = plane.submit("--run", "without", "parallel.dp=2", "batch.micro=1", "train.steps=20")
    assert plane.wait_for(without, ["COMPLETED"])["peer_copies"] == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        memory = os.path.join(folder, "memory")
        os.mkdir(memory)
        plane = ControlPlane(folder, TUTTI_MEMORY_ROOT=memory)
        plane.call("admin", "site", "--usd-per-node-hour", "3.60")
        controller = plane.controller()
        try:
            test(plane, Copies(plane, memory))
        except AssertionError:
            with open(os.path.join(folder, "controller.log")) as file:
                print(file.read()[-4000:])
            raise
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait()
    print("jobs leave nothing in memory")


if __name__ == "__main__":
    sys.exit(main())
