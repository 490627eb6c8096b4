"""What a site of 10,000 jobs, 1,000 projects and 100 nodes costs its users and its controller:
CPU seconds and resident memory of the real processes, `tutti why`, `queue`, `serve` and the controller.

The goals are 50 ms and 64 MiB each. CPU times are the least of several; they may be half as much again, since
they grow with what else runs on the machine, and more where it takes longer for a fixed piece of work."""

import contextlib
import fcntl
import json
import os
import pwd
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "serve"))
from page_server import TUTTI, ControlPlane, Server  # noqa: E402

GOAL_SECONDS = 0.050
GOAL_BYTES = 64 << 20
ROOM = 1.5  # for CPU times
REFERENCE_SECONDS = 0.047  # for work(), on the machine of docs/performance.md
ATTEMPTS = 7
ROUNDS_PER_SECOND = 2  # of the controller


def work():
    """CPU seconds of a fixed piece of work."""
    begin = time.process_time()
    total = 0
    for i in range(600_000):
        total += i * i % 7
    assert total > 0
    return time.process_time() - begin


def cpu_of(words, plane):
    """CPU seconds and peak bytes of a command."""
    process = subprocess.Popen([TUTTI, *words], env=plane.environment, cwd=plane.folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (words, process.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10


def cpu_so_far(process):
    """CPU seconds of a process's threads that live; the server's live as long as it does."""
    total = 0
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def peak_of(process):
    with open(f"/proc/{process}/status") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10


class Report:
    def __init__(self):
        self.slowness = max(1.0, min(work() for _ in range(5)) / REFERENCE_SECONDS)
        print(f"a fixed piece of work takes {self.slowness:.2f} times what it should")
        self.over = []

    def add(self, what, seconds, peak):
        print(f"{what}: {seconds * 1e3:.1f} ms of CPU, {peak / 2**20:.1f} MiB")
        if seconds > ROOM * GOAL_SECONDS * self.slowness:
            self.over.append(f"{what} takes {seconds:.3f} s")
        if peak > GOAL_BYTES:
            self.over.append(f"{what} takes {peak >> 20} MiB")


def make_site(plane):
    """As the generator of tutti/control/testing/many_jobs.h makes it; this account is an admin."""
    control = plane.environment["TUTTI_CONTROL"]
    os.makedirs(control)
    subprocess.run([os.environ["TUTTI_MANY_JOBS"], "--gtest_filter=ManyJobs.TenThousand*"], check=True,
                   stdout=subprocess.DEVNULL, env={**plane.environment, "TUTTI_MANY_JOBS_FOLDER": control})
    with contextlib.closing(sqlite3.connect(os.path.join(control, "control.db"))) as records, records:
        name = pwd.getpwuid(os.geteuid()).pw_name
        records.execute("INSERT OR IGNORE INTO users (name, created_ms) VALUES (?, 0)", (name,))
        records.execute("INSERT OR REPLACE INTO members VALUES (?, '*', 'admin')", (name,))
        return name, records.execute("SELECT id, submitted_ms FROM jobs WHERE state = 2").fetchall()


@contextlib.contextmanager
def supervised(plane, jobs):
    """Jobs that run, for the controller: their supervisors' files, and their locks, held here."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with contextlib.ExitStack() as locks:
        for job, stamp in jobs:
            folder = os.path.join(plane.environment["TUTTI_CONTROL"], "jobs", f"{job}-{stamp}")
            os.makedirs(folder)
            for name, value in (("newest", {"generation": 1}),
                                ("begun-1", {"process": 2**30, "boot": boot, "steady_ms": int(time.monotonic() * 1e3)})):
                with open(os.path.join(folder, name), "w") as file:
                    json.dump(value, file)
            lock = locks.enter_context(open(os.path.join(folder, "lock"), "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def commands(plane, report):
    print(f"tutti --version: {min(cpu_of(['--version'], plane)[0] for _ in range(ATTEMPTS)) * 1e3:.1f} ms of CPU")
    for words in (["why", "9999"], ["why", "5000", "--json"], ["queue"], ["queue", "--all"], ["queue", "--skip", "9000"],
                  ["show", "9999"]):
        used = [cpu_of(words, plane) for _ in range(ATTEMPTS)]
        report.add("tutti " + " ".join(words), min(cpu for cpu, _ in used), max(peak for _, peak in used))


def page(plane, name, report):
    token = plane.token(name)
    server = Server(plane)
    try:
        cookie = server.log_in(token)
        bearer = {"Authorization": "Bearer " + token}
        process = server.process.pid

        def cost(ask):
            used = []
            for number in range(ATTEMPTS):
                before = cpu_so_far(process)
                status, text, _ = ask(number)
                assert status == 200, (status, text[:300])
                used.append(cpu_so_far(process) - before)
            return min(used)

        views = {"a view of the page": lambda i: server.ask("GET", f"/?live={50 * i}", cookie=cookie),
                 "an update of it": lambda i: server.ask("GET", f"/sections?live={50 * i}", cookie=cookie),
                 "/metrics": lambda i: server.ask("GET", "/metrics", headers=bearer)}
        for what, ask in views.items():
            report.add(what, cost(ask), peak_of(process))
    finally:
        server.close()


def rounds(plane, report):
    """Of the controller, while a hundred jobs run and the rest waits."""
    with open(os.path.join(plane.folder, "controller.log"), "w") as log:
        controller = subprocess.Popen([TUTTI, "controller", "run"], env=plane.environment, cwd=plane.folder,
                                      stdout=log, stderr=log)
    try:
        time.sleep(5)
        least = None
        for _ in range(3):
            before, begin = cpu_so_far(controller.pid), time.monotonic()
            time.sleep(4)
            used = (cpu_so_far(controller.pid) - before) / ((time.monotonic() - begin) * ROUNDS_PER_SECOND)
            least = min(used, least or used)
        assert controller.poll() is None, "the controller ended"
        report.add("a round of the controller", least, peak_of(controller.pid))
    finally:
        controller.send_signal(signal.SIGTERM)
        controller.wait(timeout=60)
    with contextlib.closing(sqlite3.connect(os.path.join(plane.environment["TUTTI_CONTROL"], "control.db"))) as records:
        count = records.execute("SELECT count(*) FROM jobs WHERE state = 2").fetchone()[0]
    assert count == 100, f"{count} jobs run"


def main():
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(os.path.realpath(folder))
        report = Report()
        name, running = make_site(plane)
        assert len(running) == 100, len(running)
        with supervised(plane, running):
            commands(plane, report)
            page(plane, name, report)
            rounds(plane, report)
    assert not report.over, report.over


if __name__ == "__main__":
    main()
