"""How surely `tutti check` finds a slow node: trials in a control group whose quota takes a share of
the cores away, in turn with trials without.

  check_trials.py [--trials N] [--cut 0.05] [--throttle cgroup|stop] [--only cpu] [--against FILE]
                  [--append FILE] [--undisturbed 0.015] [--foremost] [--seconds N]

Of a slow trial counts whether the measurement found it (cpu_available; also as busy, where other
programs used the cores that a stopped check left to them), not that the quota can be read. --throttle stop stops and continues the whole check instead, as a stand-in where control
groups may not be written: nothing then says why the cores stand idle. --append adds a line of JSON
per trial to FILE, so that several short calls make one series; the last line printed is the sum over
FILE. On a machine that is not one's own, --undisturbed leaves out trials of both kinds during which
other programs used more than that, by the system's count and whatever the check said. Exit status
1: fewer than 99% found or more than 1% false alarms; 77: neither way is possible.

A check takes one second where nothing disturbs it, and three where it is measured again: a hundred
trials of each kind take between three and a half minutes and eleven. --foremost gives the first, also
where others compute.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release/tutti")
TUTTI = os.environ.get("TUTTI_BINARY") or (BUILT if os.path.exists(BUILT) else "tutti")
PERIOD_US = 100_000
V1, V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"


class Group:
    """A control group below this process's own."""

    def __init__(self, foremost):
        name = f"tutti-trial-{os.getpid()}"
        self.second = not os.path.isdir(V1)
        self.path = os.path.join(V2 if self.second else V1, name)
        os.mkdir(self.path)
        try:
            if foremost:
                self.write(*(("cpu.weight", "10000") if self.second else ("cpu.shares", "262144")))
            self.set_quota(None)
        except OSError:
            os.rmdir(self.path)
            raise

    def write(self, file, text):
        with open(os.path.join(self.path, file), "w") as out:
            out.write(text)

    def set_quota(self, cores):
        quota = -1 if cores is None else int(cores * PERIOD_US)
        if self.second:
            self.write("cpu.max", f"{'max' if cores is None else quota} {PERIOD_US}")
        else:
            self.write("cpu.cfs_period_us", str(PERIOD_US))
            self.write("cpu.cfs_quota_us", str(quota))

    def enter(self):
        """Of the child, before it runs the check."""
        self.write("cgroup.procs", "0")

    def close(self):
        os.rmdir(self.path)


def group_or_none(foremost):
    try:
        return Group(foremost)
    except OSError:
        return None


@contextlib.contextmanager
def stopping(process, cut):
    """Stops the process for that share of every period."""
    done = threading.Event()

    def run():
        next_period = time.monotonic()
        while not done.is_set():
            process.send_signal(signal.SIGSTOP)
            time.sleep(cut * PERIOD_US * 1e-6)
            process.send_signal(signal.SIGCONT)
            next_period += PERIOD_US * 1e-6
            time.sleep(max(0.0, next_period - time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        process.send_signal(signal.SIGCONT)


def busy_seconds():
    """Of all cores, by whatever."""
    with open("/proc/stat") as file:
        columns = [int(x) for x in file.readline().split()[1:8]]
    return (sum(columns) - columns[3] - columns[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(options, group, slow):
    before = busy_seconds() - own_seconds(), time.monotonic()
    cores = len(os.sched_getaffinity(0))
    command = [TUTTI, "check", "--quick", "--json", "--only", options.only]
    if options.against:
        command += ["--against", options.against]
    if group:
        group.set_quota((1 - options.cut) * cores if slow else None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=group.enter if group else None)
    with stopping(process, options.cut) if slow and not group else contextlib.nullcontext():
        out, err = process.communicate(timeout=300)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"tutti check ended with {process.returncode}: {err}")
    result = json.loads(out)
    assert result["healthy"] == (process.returncode == 0), result
    others = ((busy_seconds() - own_seconds() - before[0])
              / (time.monotonic() - before[1]) / os.cpu_count())
    checks = {c["name"]: c for c in result["checks"]}
    return {"slow": slow, "throttle": "cgroup" if group else "stop", "cut": options.cut,
            "seconds": result["seconds"], "others": others,
            "measured": checks["cpu_available"]["value"],
            "measured_fail": checks["cpu_available"]["status"] in ("fail", "busy"),
            "failed": [name for name, c in checks.items() if c["status"] == "fail"],
            "detail": checks["cpu_available"]["detail"],
            "figures": {name: c["value"] for name, c in checks.items() if c["figure"]}}


def summary(trials, undisturbed=1.0):
    """Of the trials during which others used at most that share of the machine."""
    all_trials, trials = trials, [t for t in trials if t["others"] <= undisturbed]
    slow = [t for t in trials if t["slow"]]
    well = [t for t in trials if not t["slow"]]
    return {"void": len(all_trials) - len(trials),
            "others_share": round(sum(t["others"] for t in trials) / max(1, len(trials)), 4),
            "slow_trials": len(slow), "found": sum(t["measured_fail"] for t in slow),
            "healthy_trials": len(well), "false_alarms": sum(bool(t["failed"]) for t in well),
            "most_available_slow": max((t["measured"] for t in slow), default=None),
            "least_available_healthy": min((t["measured"] for t in well), default=None),
            "seconds_per_check": round(sum(t["seconds"] for t in trials) / max(1, len(trials)), 2)}


def run(options, seconds=float("inf"), done=lambda trial: None):
    """The trials, as many as fit into `seconds`; None where nothing can throttle."""
    group = group_or_none(options.foremost) if options.throttle == "cgroup" else None
    if options.throttle == "cgroup" and group is None:
        return None
    begin = time.monotonic()
    trials = []
    try:
        for _ in range(options.trials):
            for slow in (False, True):
                trials.append(check(options, group, slow))
                done(trials[-1])
            if time.monotonic() - begin > seconds:
                break
    finally:
        if group:
            group.close()
    return trials


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="of each kind")
    parser.add_argument("--cut", type=float, default=0.05)
    parser.add_argument("--throttle", choices=("cgroup", "stop"), default="cgroup")
    parser.add_argument("--only", default="cpu", help="probes of tutti check")
    parser.add_argument("--against", default="")
    parser.add_argument("--append", default="")
    parser.add_argument("--undisturbed", type=float, default=1.0, metavar="SHARE",
                        help="trials during which others used more of the machine are void")
    parser.add_argument("--foremost", action="store_true",
                        help="the check comes before all other programs of the machine, which then "
                        "hardly run: for a machine that cannot be had alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after")
    return parser.parse_args(arguments)


def main():
    options = parse(None)
    begin = time.monotonic()
    done = []

    def keep(trial):
        done.append(trial)
        if len(done) % 10 == 0:
            seconds = time.monotonic() - begin
            print(f"{len(done)} of {2 * options.trials} trials, {seconds:.0f} s, "
                  f"{seconds / len(done) * (2 * options.trials - len(done)):.0f} s to go",
                  file=sys.stderr, flush=True)
        if options.append:
            with open(options.append, "a") as out:
                out.write(json.dumps(trial) + "\n")

    trials = run(options, options.seconds, keep)
    if trials is None:
        print("skipped: control groups may not be written; --throttle stop is the stand-in")
        return 77
    if options.append:
        with open(options.append) as lines:
            trials = [json.loads(line) for line in lines]
    result = summary(trials, options.undisturbed)
    print(json.dumps(result))
    return 0 if (result["found"] >= 0.99 * result["slow_trials"]
                 and result["false_alarms"] <= 0.01 * result["healthy_trials"]) else 1


if __name__ == "__main__":
    sys.exit(main())
