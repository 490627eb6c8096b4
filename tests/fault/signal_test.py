"""SIGTERM, Ctrl-C and a terminal that closes checkpoint and exit with 75; SIGUSR1 checkpoints and
continues; a second SIGTERM ends at once; a run outlives the reader of its output."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import small_run


def checkpoints(run):
    folder = os.path.join(run, "checkpoints")
    if not os.path.isdir(folder):
        return []
    return sorted(
        int(name[5:]) for name in os.listdir(folder)
        if name.startswith("step-") and os.path.exists(os.path.join(folder, name, "manifest.json")))


def last_step(run):
    return max((step for step, _ in small_run.losses(run)), default=0)


def stops_with_checkpoint(recipe, run, number):
    process = small_run.start(recipe, run, "checkpoint.every_steps=0")
    small_run.wait_for(lambda: last_step(run) > 20, process)
    process.send_signal(number)
    code = process.wait(timeout=120)
    assert code == 75, f"signal {number}: exit code {code}, not 75"
    assert checkpoints(run)[-1] == last_step(run), (checkpoints(run), last_step(run))


def resumes_where_it_stopped(run):
    stopped = last_step(run)
    before = len(small_run.losses(run))
    process = small_run.start(run, run, "--stop-after", str(stopped + 3))
    assert process.wait(timeout=120) == 75
    assert small_run.losses(run)[before][0] == stopped + 1


def user_signal_checkpoints_and_goes_on(recipe, run):
    process = small_run.start(recipe, run, "checkpoint.every_steps=0")
    small_run.wait_for(lambda: last_step(run) > 20, process)
    process.send_signal(signal.SIGUSR1)
    small_run.wait_for(lambda: checkpoints(run), process)
    saved = checkpoints(run)[-1]
    small_run.wait_for(lambda: last_step(run) > saved + 20, process)
    # Many signals in the middle of whatever is being computed disturb nothing.
    for _ in range(100):
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=120)
    assert code == 75, f"exit code {code}, not 75"


def second_signal_ends_at_once(recipe, run):
    # The second may come when the first has already led to its end.
    process = small_run.start(recipe, run, "train.steps=100000")
    small_run.wait_for(lambda: last_step(run) > 5, process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=120)
    assert code in (128 + signal.SIGTERM, 128 + signal.SIGINT, 75), f"exit code {code}"


def ignored_hangup_changes_nothing(recipe, run):
    # As under nohup.
    process = subprocess.Popen(
        [small_run.TUTTI, "train", recipe, "--run", run], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    small_run.wait_for(lambda: last_step(run) > 20, process)
    process.send_signal(signal.SIGHUP)
    seen = last_step(run)
    small_run.wait_for(lambda: last_step(run) > seen + 50, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75


def outlives_its_reader(recipe, run):
    read, write = os.pipe()
    process = subprocess.Popen(
        [small_run.TUTTI, "train", recipe, "--run", run, "train.steps=300"],
        stdout=subprocess.DEVNULL, stderr=write)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    code = process.wait(timeout=120)
    assert code == 0, f"exit code {code}"
    assert checkpoints(run)[-1] == 300


def main():
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        term = os.path.join(folder, "term")
        stops_with_checkpoint(recipe, term, signal.SIGTERM)
        resumes_where_it_stopped(term)
        stops_with_checkpoint(recipe, os.path.join(folder, "int"), signal.SIGINT)
        stops_with_checkpoint(recipe, os.path.join(folder, "hup"), signal.SIGHUP)
        ignored_hangup_changes_nothing(recipe, os.path.join(folder, "nohup"))
        outlives_its_reader(recipe, os.path.join(folder, "reader"))
        user_signal_checkpoints_and_goes_on(recipe, os.path.join(folder, "usr1"))
        second_signal_ends_at_once(recipe, os.path.join(folder, "twice"))
    print("signals: checkpoint and stop, checkpoint and continue, resume, stop now, outlive readers")


if __name__ == "__main__":
    sys.exit(main())
