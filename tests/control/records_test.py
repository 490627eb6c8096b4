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

from place import Place

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

    def __init__(self, place):
        self.process = subprocess.Popen([sys.executable, "-c", LOCKER, place.records()], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "locked\n"

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def jobs_of(place):
    return [job["job"] for job in place.call("queue", "--all")["jobs"]]


def locked(place):
    """Short: waited out. Long: named with who has it. Readers and what runs do not care."""
    before = jobs_of(place)
    with Lock(place):  # who only looks would wait in vain
        assert jobs_of(place) == before
    with Lock(place) as holder, concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(place.submit, "--name", "patient")
        time.sleep(1)
        holder.stdin.close()
        holder.wait()
        job = waits.result()
    place.call("cancel", str(job))
    with Lock(place) as holder:
        begin = time.monotonic()
        error = place.call("submit", "recipe.yaml", "--yes", "--no-start", code=1)["error"]
        assert 5 < time.monotonic() - begin < 60, "did not wait, or for too long"
        assert error["kind"] == "io" and "locked" in error["message"] and place.records() in error["message"], error
        if os.access("/proc/locks", os.R_OK):
            assert f"process {holder.pid} (" in error["message"], error
    assert sorted(jobs_of(place)) == sorted([*before, job])


def killed_writers(place):
    """What was committed is there, what was not is not, though the process died with the log open."""
    controller = place.controller()
    job = place.submit("--name", "kept", "--run", "kept")
    place.wait_for(job, ["RUNNING", "COMPLETED"])
    with Lock(place) as holder:
        holder.kill()
        holder.wait()
    controller.kill()
    controller.wait()
    assert os.path.getsize(place.records() + "-wal") > 0
    with open(place.records() + "-wal", "ab") as file:
        file.write(b"\x5a" * 5000)  # torn
    assert place.show(job)["name"] == "kept"
    controller = place.controller()
    place.wait_for(job, ["COMPLETED"])  # which it may have been before
    wait_for_controller(place)
    stop(controller)
    assert len(place.events("kept", "run_started")) == 1


def twice(place):
    """A retry storm with one key makes one job; a run folder belongs to one job at a time."""
    words = ["submit", "recipe.yaml", "--yes", "--no-start", "--key", "storm"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: place.call(*words), range(8)))
    assert len({each["job"] for each in told}) == 1 and sum(not each["duplicate"] for each in told) == 1, told
    error = place.call(*words, "train.steps=3", code=2)["error"]
    assert "another request" in error["message"], error
    first = place.submit("--run", "mine")
    error = place.call("submit", "recipe.yaml", "--yes", "--no-start", "--run", "mine", code=2)["error"]
    assert f"job {first}" in error["message"] and "--run" in error["message"], error
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda _: place.submit("--name", "same"), range(4)))
    runs = {place.show(job)["run"] for job in jobs}
    assert len(runs) == 4, runs
    for job in [*jobs, first, told[0]["job"]]:
        place.call("cancel", str(job))
    place.submit("--run", "mine")  # whose job has ended
    place.call("cancel", str(place.call("queue")["jobs"][0]["job"]))


def stop(controller):
    controller.send_signal(signal.SIGTERM)
    assert controller.wait() == 0


def spent(place):
    """What the ledger says, to the last digit."""
    return place.call("ledger", "--month", "all")["jobs"]


def damaged(place):
    """Flipped, cut off and missing records are named with their remedy, and a backup takes their place."""
    for own in ("control.db", "control.db-wal", "audit.jsonl", "controller.lock"):
        path = os.path.join(place.control, own)
        assert "control plane's own" in place.call("controller", "backup", path, code=2)["error"]["message"]
    assert place.call("audit", "verify")["intact"]
    place.call("controller", "backup", "backup.db")
    books, jobs = spent(place), jobs_of(place)
    with open(place.records(), "rb") as file:
        good = file.read()

    def flip(data):
        return data[:4096] + bytes(byte ^ 0xFF for byte in data[4096:8192 * 2]) + data[8192 * 2:]

    for what, damage in (("flipped", flip), ("cut off", lambda data: data[:len(data) // 2]),
                         ("empty", lambda data: b""), ("missing", None)):
        for part in ("-wal", "-shm"):
            if os.path.exists(place.records() + part):
                os.remove(place.records() + part)
        if damage is None:
            os.remove(place.records())
        else:
            with open(place.records(), "wb") as file:
                file.write(damage(good))
        for words in (["queue", "--all"], ["submit", "recipe.yaml", "--yes"], ["controller", "run"]):
            error = place.call(*words, code=1)["error"]
            assert error["kind"] == "corrupt" and "tutti controller restore FILE" in error["message"], (what, error)
            assert place.records() in error["message"], error
        told = place.call("controller", "restore", "backup.db")
        assert told["kept"] == "" if damage is None else os.path.exists(told["kept"]), told
        assert spent(place) == books and jobs_of(place) == jobs, what
    assert place.call("audit", "verify")["intact"]


def refused_restores(place):
    """While others use the records, by those who may not, and of what is no backup."""
    words = ["controller", "restore", "backup.db"]
    place.call("controller", "backup", "backup.db")
    controller = place.controller()
    wait_for_controller(place)
    assert "controller runs" in place.call(*words, code=2)["error"]["message"]
    stop(controller)
    if os.access("/proc/locks", os.R_OK):
        database = sqlite3.connect(place.records())
        database.execute("SELECT count(*) FROM jobs").fetchall()
        error = place.call(*words, code=2)["error"]
        assert f"process {os.getpid()} (" in error["message"], error
        database.close()
    vic = place.as_user("vic", "submitter", "default")
    place.call("controller", "backup", "backup.db")
    assert place.call(*words, code=1, environment=vic)["error"]["kind"] == "permission"
    assert place.call("controller", "restore", "nowhere.db", code=2)["error"]["kind"] == "not_found"
    assert place.call("controller", "restore", "recipe.yaml", code=1)["error"]["kind"] == "corrupt"
    assert vic["TUTTI_TOKEN"] and place.call("queue", environment=vic) is not None


def wait_for_controller(place):
    """Until it has run a job: nobody else does."""
    place.wait_for(place.submit("--name", "sign", "train.steps=1"), ["COMPLETED"])


def older_backup(place):
    """Jobs that ran, were cancelled or submitted after the backup: none runs again, none is lost, the
    ledger is what it was, a withdrawn token stays withdrawn. One goes on while nobody looks after it."""
    waits = place.submit("--name", "waits", "--run", "waits")
    unwanted = place.submit("--name", "unwanted", "--run", "unwanted")
    eve = place.as_user("eve", "submitter", "default")
    place.call("controller", "backup", "older.db")
    place.call("cancel", str(unwanted))
    place.call("admin", "token", "--withdraw", eve["TUTTI_TOKEN"].split("-")[1])
    later = place.submit("--name", "later", "--run", "later")
    controller = place.controller()
    for job in (waits, later):
        place.wait_for(job, ["COMPLETED"])
    long = place.submit("train.steps=15000", "--name", "long", "--run", "long")
    place.wait_for(long, ["RUNNING"])
    controller.kill()
    controller.wait()
    books = [entry for entry in spent(place) if entry["job"] != long]
    place.call("controller", "restore", "older.db")
    controller = place.controller()
    try:
        assert [entry for entry in spent(place) if entry["job"] != long] == books
        assert place.show(unwanted)["state"] == "CANCELLED"
        assert place.call("queue", code=1, environment=eve)["error"]["kind"] == "permission"
        for job, run in ((waits, "waits"), (later, "later"), (long, "long")):
            shown = place.wait_for(job, ["COMPLETED"])
            assert len(shown["launches"]) == 1, shown
            assert len(place.events(run, "run_started")) == 1, f"{run} ran twice"
        assert not os.path.exists(place.run("unwanted"))
        assert place.submit("--name", "next") == long + 1
        place.call("cancel", str(long + 1))
    finally:
        stop(controller)
    assert place.call("audit", "verify")["intact"]
    # Without the trail's file the folders of jobs still tell that they have run.
    os.rename(os.path.join(place.control, "audit.jsonl"), os.path.join(place.folder, "trail"))
    assert place.call("controller", "restore", "older.db")["trail_written_anew"]
    controller = place.controller()
    for job in (waits, unwanted):  # nothing tells any more that it was cancelled
        place.wait_for(job, ["COMPLETED"])
    stop(controller)
    assert len(place.events("waits", "run_started")) == 1, "a job ran twice"
    assert [e for e in spent(place) if e["job"] == waits] == [e for e in books if e["job"] == waits]


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
        place = Place(folder, control=os.path.join(disk, "control"))
        controller = place.controller()
        job = place.submit("--name", "ends", "--run", "ends", "train.steps=12000")
        place.wait_for(job, ["RUNNING"])
        before = jobs_of(place)
        files = set(os.listdir(os.path.join(place.control, "recipes")))
        filler = os.path.join(disk, "filler")
        with open(filler, "wb", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2
        error = place.call("submit", "recipe.yaml", "--yes", "--no-start", "train.seed=9", code=1)["error"]
        assert error["kind"] == "no_space" and place.control in error["message"], error
        end = time.monotonic() + 240
        while not place.events("ends", "run_finished"):
            assert time.monotonic() < end, "the run did not end"
            time.sleep(0.1)
        time.sleep(1.5)  # its supervisor has nowhere to write that
        assert place.show(job)["state"] == "RUNNING", place.show(job)
        os.remove(filler)
        shown = place.wait_for(job, ["COMPLETED"], 120)
        assert len(shown["launches"]) == 1 and shown["exit_code"] == 0 and not shown["incidents"], shown
        assert len(place.events("ends", "run_started")) == 1
        assert jobs_of(place) == before
        assert set(os.listdir(os.path.join(place.control, "recipes"))) == files
        again = place.submit("train.seed=9", "train.steps=5")
        place.wait_for(again, ["COMPLETED"])
        stop(controller)
        assert place.call("audit", "verify")["intact"]
    finally:
        if controller is not None and controller.poll() is None:
            controller.kill()
            controller.wait()
        subprocess.run(["umount", disk], check=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("place", "full"):
            os.mkdir(os.path.join(folder, name))
        place = Place(os.path.join(folder, "place"))
        place.call("admin", "site", "--usd-per-node-hour", "3.60")
        parts = [lambda: twice(place), lambda: killed_writers(place), lambda: locked(place), lambda: damaged(place),
                 lambda: refused_restores(place), lambda: older_backup(place),
                 lambda: full_disk(os.path.join(folder, "full"))]
        for name, part in zip(("twice", "killed", "locked", "damaged", "refused", "older", "full"), parts):
            begin = time.monotonic()
            part()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
