"""The records when things go wrong, through the program: locked by another process, a full disk, damaged,
cut off, gone, restored from an older backup, left by a killed process, and asked for the same job twice."""

import concurrent.futures
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from control_plane import ControlPlane

# Takes the lock on the records, says so, and keeps it until its standard input ends.
LOCKER = """\
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


class Lock:
    """The records are locked by another process as long as this lives."""

    def __init__(self, plane):
        self.process = subprocess.Popen([sys.executable, "-c", LOCKER, plane.records()], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "locked\n"

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def jobs_of(plane):
    return [job["job"] for job in plane.call("queue", "--all")["jobs"]]


def locked(plane):
    """Short: waited for. Long: named with its holder. Readers and running jobs are not affected."""
    before = jobs_of(plane)
    with Lock(plane):  # a reader would wait in vain
        assert jobs_of(plane) == before
    with Lock(plane) as holder, concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(plane.submit, "--name", "patient")
        time.sleep(1)
        holder.stdin.close()
        holder.wait()
        job = waits.result()
    plane.call("cancel", str(job))
    with Lock(plane) as holder:
        begin = time.monotonic()
        error = plane.call("submit", "recipe.yaml", "--yes", "--no-start", code=1)["error"]
        assert 5 < time.monotonic() - begin < 60, "did not wait, or for too long"
        assert error["kind"] == "io" and "locked" in error["message"] and plane.records() in error["message"], error
        if os.access("/proc/locks", os.R_OK):
            assert f"process {holder.pid} (" in error["message"], error
    assert sorted(jobs_of(plane)) == sorted([*before, job])


def killed_writers(plane):
    """What was committed is there, what was not is not, though the process died with the log open."""
    controller = plane.controller()
    job = plane.submit("--name", "kept", "--run", "kept")
    plane.wait_for(job, ["RUNNING", "COMPLETED"])
    with Lock(plane) as holder:
        holder.kill()
        holder.wait()
    controller.kill()
    controller.wait()
    assert os.path.getsize(plane.records() + "-wal") > 0
    with open(plane.records() + "-wal", "ab") as file:
        file.write(b"\x5a" * 5000)  # torn
    assert plane.show(job)["name"] == "kept"
    controller = plane.controller()
    plane.wait_for(job, ["COMPLETED"])  # which it may have been before
    wait_for_controller(plane)
    stop(controller)
    assert len(plane.events("kept", "run_started")) == 1


def twice(plane):
    """A retry storm with one key makes one job; a run folder belongs to one job at a time."""
    words = ["submit", "recipe.yaml", "--yes", "--no-start", "--key", "storm"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        printed = list(pool.map(lambda _: plane.call(*words), range(8)))
    assert len({each["job"] for each in printed}) == 1 and sum(not each["duplicate"] for each in printed) == 1, printed
    error = plane.call(*words, "train.steps=3", code=2)["error"]
    assert "another request" in error["message"], error
    first = plane.submit("--run", "mine")
    error = plane.call("submit", "recipe.yaml", "--yes", "--no-start", "--run", "mine", code=2)["error"]
    assert f"job {first}" in error["message"] and "--run" in error["message"], error
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda _: plane.submit("--name", "same"), range(4)))
    runs = {plane.show(job)["run"] for job in jobs}
    assert len(runs) == 4, runs
    for job in [*jobs, first, printed[0]["job"]]:
        plane.call("cancel", str(job))
    plane.submit("--run", "mine")  # whose job has ended
    plane.call("cancel", str(plane.call("queue")["jobs"][0]["job"]))


def stop(controller):
    controller.send_signal(signal.SIGTERM)
    assert controller.wait() == 0


def spent(plane):
    """What the ledger says, to the last digit."""
    return plane.call("ledger", "--month", "all")["jobs"]


def damaged(plane):
    """Flipped, cut off and missing records are named with their remedy, and a backup takes their plane."""
    for own in ("control.db", "control.db-wal", "audit.jsonl", "controller.lock"):
        path = os.path.join(plane.control, own)
        assert "control plane's own" in plane.call("controller", "backup", path, code=2)["error"]["message"]
    assert plane.call("audit", "verify")["intact"]
    plane.call("controller", "backup", "backup.db")
    books, jobs = spent(plane), jobs_of(plane)
    with open(plane.records(), "rb") as file:
        good = file.read()

    def flip(data):
        return data[:4096] + bytes(byte ^ 0xFF for byte in data[4096:8192 * 2]) + data[8192 * 2:]

    for what, damage in (("flipped", flip), ("cut off", lambda data: data[:len(data) // 2]),
                         ("empty", lambda data: b""), ("missing", None)):
        for part in ("-wal", "-shm"):
            if os.path.exists(plane.records() + part):
                os.remove(plane.records() + part)
        if damage is None:
            os.remove(plane.records())
        else:
            with open(plane.records(), "wb") as file:
                file.write(damage(good))
        for words in (["queue", "--all"], ["submit", "recipe.yaml", "--yes"], ["controller", "run"]):
            error = plane.call(*words, code=1)["error"]
            assert error["kind"] == "corrupt" and "tutti controller restore FILE" in error["message"], (what, error)
            assert plane.records() in error["message"], error
        printed = plane.call("controller", "restore", "backup.db")
        assert printed["kept"] == "" if damage is None else os.path.exists(printed["kept"]), printed
        assert spent(plane) == books and jobs_of(plane) == jobs, what
    assert plane.call("audit", "verify")["intact"]


def refused_restores(plane):
    """While others use the records, by those who may not, and of what is not a backup."""
    words = ["controller", "restore", "backup.db"]
    plane.call("controller", "backup", "backup.db")
    controller = plane.controller()
    wait_for_controller(plane)
    assert "controller runs" in plane.call(*words, code=2)["error"]["message"]
    stop(controller)
    if os.access("/proc/locks", os.R_OK):
        database = sqlite3.connect(plane.records())
        database.execute("SELECT count(*) FROM jobs").fetchall()
        error = plane.call(*words, code=2)["error"]
        assert f"process {os.getpid()} (" in error["message"], error
        database.close()
    vic = plane.as_user("vic", "submitter", "default")
    plane.call("controller", "backup", "backup.db")
    assert plane.call(*words, code=1, environment=vic)["error"]["kind"] == "permission"
    assert plane.call("controller", "restore", "nowhere.db", code=2)["error"]["kind"] == "not_found"
    assert plane.call("controller", "restore", "recipe.yaml", code=1)["error"]["kind"] == "corrupt"
    assert vic["TUTTI_TOKEN"] and plane.call("queue", environment=vic) is not None


def wait_for_controller(plane):
    """Until it has run a job: no other controller does."""
    plane.wait_for(plane.submit("--name", "sign", "train.steps=1"), ["COMPLETED"])


def older_backup(plane):
    """Jobs that ran, were cancelled or submitted after the backup: none runs again, none is lost, the
    ledger is what it was, a withdrawn token stays withdrawn. One keeps running without a controller."""
    waits = plane.submit("--name", "waits", "--run", "waits")
    unwanted = plane.submit("--name", "unwanted", "--run", "unwanted")
    eve = plane.as_user("eve", "submitter", "default")
    plane.call("controller", "backup", "older.db")
    plane.call("cancel", str(unwanted))
    plane.call("admin", "token", "--withdraw", eve["TUTTI_TOKEN"].split("-")[1])
    later = plane.submit("--name", "later", "--run", "later")
    controller = plane.controller()
    for job in (waits, later):
        plane.wait_for(job, ["COMPLETED"])
    long = plane.submit("train.steps=15000", "--name", "long", "--run", "long")
    plane.wait_for(long, ["RUNNING"])
    controller.kill()
    controller.wait()
    books = [entry for entry in spent(plane) if entry["job"] != long]
    plane.call("controller", "restore", "older.db")
    controller = plane.controller()
    try:
        assert [entry for entry in spent(plane) if entry["job"] != long] == books
        assert plane.show(unwanted)["state"] == "CANCELLED"
        assert plane.call("queue", code=1, environment=eve)["error"]["kind"] == "permission"
        for job, run in ((waits, "waits"), (later, "later"), (long, "long")):
            shown = plane.wait_for(job, ["COMPLETED"])
            assert len(shown["launches"]) == 1, shown
            assert len(plane.events(run, "run_started")) == 1, f"{run} ran twice"
        assert not os.path.exists(plane.run("unwanted"))
        assert plane.submit("--name", "next") == long + 1
        plane.call("cancel", str(long + 1))
    finally:
        stop(controller)
    assert plane.call("audit", "verify")["intact"]
    # Without the audit log file the folders of jobs still show that they have run.
    os.rename(os.path.join(plane.control, "audit.jsonl"), os.path.join(plane.folder, "audit"))
    assert plane.call("controller", "restore", "older.db")["trail_written_anew"]
    controller = plane.controller()
    for job in (waits, unwanted):  # no record is left that it was cancelled
        plane.wait_for(job, ["COMPLETED"])
    stop(controller)
    assert len(plane.events("waits", "run_started")) == 1, "a job ran twice"
    assert [e for e in spent(plane) if e["job"] == waits] == [e for e in books if e["job"] == waits]


def full_disk(folder):
    """A submission is refused and leaves nothing; what runs ends, and its end is recorded once there is room."""
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False,
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        print(f"skipped: a full disk (mounting one needs root: {mounted.stderr.strip()})")
        return
    controller = None
    try:
        plane = ControlPlane(folder, control=os.path.join(disk, "control"))
        controller = plane.controller()
        job = plane.submit("--name", "ends", "--run", "ends", "train.steps=12000")
        plane.wait_for(job, ["RUNNING"])
        before = jobs_of(plane)
        files = set(os.listdir(os.path.join(plane.control, "recipes")))
        filler = os.path.join(disk, "filler")
        with open(filler, "wb", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2
        error = plane.call("submit", "recipe.yaml", "--yes", "--no-start", "train.seed=9", code=1)["error"]
        assert error["kind"] == "no_space" and plane.control in error["message"], error
        end = time.monotonic() + 240
        while not plane.events("ends", "run_finished"):
            assert time.monotonic() < end, "the run did not end"
            time.sleep(0.1)
        time.sleep(1.5)  # its supervisor has nowhere to write that
        assert plane.show(job)["state"] == "RUNNING", plane.show(job)
        os.remove(filler)
        shown = plane.wait_for(job, ["COMPLETED"], 120)
        assert len(shown["launches"]) == 1 and shown["exit_code"] == 0 and not shown["incidents"], shown
        assert len(plane.events("ends", "run_started")) == 1
        assert jobs_of(plane) == before
        assert set(os.listdir(os.path.join(plane.control, "recipes"))) == files
        again = plane.submit("train.seed=9", "train.steps=5")
        plane.wait_for(again, ["COMPLETED"])
        stop(controller)
        assert plane.call("audit", "verify")["intact"]
    finally:
        if controller is not None and controller.poll() is None:
            controller.kill()
            controller.wait()
        subprocess.run(["umount", disk], check=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("plane", "full"):
            os.mkdir(os.path.join(folder, name))
        plane = ControlPlane(os.path.join(folder, "plane"))
        plane.call("admin", "site", "--usd-per-node-hour", "3.60")
        parts = [lambda: twice(plane), lambda: killed_writers(plane), lambda: locked(plane), lambda: damaged(plane),
                 lambda: refused_restores(plane), lambda: older_backup(plane),
                 lambda: full_disk(os.path.join(folder, "full"))]
        for name, part in zip(("twice", "killed", "locked", "damaged", "refused", "older", "full"), parts):
            begin = time.monotonic()
            part()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
