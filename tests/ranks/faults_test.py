"""Ranks that die, hang, freeze, lag or compute wrongly: the run goes on and ends with the losses of
the undisturbed one, or stops and says why; and no process is ever left over. About 100 s."""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import rank_runs

RANKS = 4


def children_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(recipe, run, *arguments, steps=20, **variables):
    log = open(run + ".log", "a")
    return subprocess.Popen(
        rank_runs.command(recipe, run, "--nproc", str(RANKS), *arguments, steps=steps),
        env=rank_runs.environment(**variables), stdout=log, stderr=log)


def restarts(text):
    return len(re.findall(r"^tutti: .* start again ", text, re.MULTILINE))


def goes_on(recipe, run, expected, fault, said, *arguments):
    """The fault happens once; the run ends by itself, with the same losses."""
    begin = time.monotonic()
    error = rank_runs.train(recipe, run, "--nproc", str(RANKS), *arguments, fault=fault)
    assert re.search(said, error), f"{fault}: not told '{said}':\n{error[-3000:]}"
    assert "start again" in error, f"{fault}: no restart:\n{error[-3000:]}"
    rank_runs.compare(run, expected, 20)
    print(f"{fault}: {time.monotonic() - begin:.1f} s")


def deaths(recipe, at, expected):
    cases = [
        ("rank=0 step=8 at=forward do=kill", r"rank 0 was ended by signal 9 \(Killed\) in step 8, forward of micro-batch 0"),
        ("rank=1 step=8 at=backward do=exit", r"rank 1 ended with exit code 1 in step 8, backward"),
        ("rank=2 step=8 at=reduce do=throw", r"aborted by rank 2 .*TUTTI_FAULT asked for \(in step 8, reduce"),
        ("rank=3 step=5 at=save do=kill", r"rank 3 was ended by signal 9 \(Killed\) in the checkpoint after step 5"),
        ("rank=0 step=5 at=save do=throw", r"rank 0 ended with exit code 1 in the checkpoint after step 5"),
        ("rank=3 step=7 at=update do=throw", r"rank 3 ended with exit code 1 in step 7, update"),
        ("rank=1 step=1 at=start do=kill", r"rank 1 was ended by signal 9 \(Killed\) in start-up"),
    ]
    for number, (fault, said) in enumerate(cases):
        goes_on(recipe, at(f"death-{number}"), expected, fault, said)


def hangs(recipe, at, expected):
    for number, (rank, where, how) in enumerate([(2, "backward", "stop"), (0, "forward", "hang"), (1, "save", "stop")]):
        step = 5 if where == "save" else 8
        place = "the checkpoint after step 5" if where == "save" else f"step 8, {where} of micro-batch 0"
        goes_on(recipe, at(f"hang-{number}"), expected, f"rank={rank} step={step} at={where} do={how}",
                rf"rank {rank} hangs in {place}, for .*; others wait: rank \d: in all_(reduce|gather)\(.*call \d+",
                "--watchdog", "8")


def flipped_bit(recipe, at, expected):
    goes_on(recipe, at("flip"), expected, "rank=2 step=7 at=backward do=flip",
            r"after step 8 the parameters of rank 2 are not those of the other ranks", "--check-replicas", "4")


def crash_loop(recipe, run):
    # Without checkpoints between, which would be progress.
    error = rank_runs.train(recipe, run, "checkpoint.every_steps=0", "--nproc", str(RANKS), code=1,
                            fault="rank=2 step=7 at=forward do=kill generation=0")
    assert "given up after 3 failures in a row in step 7" in error, error[-2000:]
    assert restarts(error) == 2, error[-2000:]


def fewer_ranks(recipe, at, expected):
    error = rank_runs.train(recipe, at("fewer"), "--nproc", "4", "--min-nproc", "2",
                            fault="rank=3 step=8 at=forward do=gone generation=0")
    assert "rank 3 is gone for good: 3 ranks instead of 4" in error, error[-2000:]
    rank_runs.compare(at("fewer"), expected, 20)
    error = rank_runs.train(recipe, at("dead"), "--nproc", "4", "--min-nproc", "3",
                            fault="rank=3 step=1 at=start do=exit generation=0")
    assert "rank 3 is gone for good: 3 ranks instead of 4" in error, error[-2000:]
    rank_runs.compare(at("dead"), expected, 20)
    error = rank_runs.train(recipe, at("none"), "--nproc", "4", code=1,
                            fault="rank=3 step=8 at=forward do=gone generation=0")
    assert "--min-nproc" in error, error[-2000:]


def frozen_rank(recipe, run):
    """Five seconds without one rank cost five seconds, and are named."""
    process = start(recipe, run, steps=100000)
    rank_runs.wait_for(lambda: len(rank_runs.losses(run)) > 20, process)
    victim = children_of(process.pid)[1]
    begin, before = time.monotonic(), len(rank_runs.losses(run))
    os.kill(victim, signal.SIGSTOP)
    time.sleep(5)
    os.kill(victim, signal.SIGCONT)
    rank_runs.wait_for(lambda: len(rank_runs.losses(run)) > before + 20, process)
    cost = time.monotonic() - begin
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    # On a busy machine others may be starved, too.
    said = [text for text in rank_runs.messages(run) if re.match(r"rank 1 was frozen for [4-9]\.", text)]
    assert len(said) == 1, rank_runs.messages(run)
    assert "start again" not in open(run + ".log").read()
    print(f"a freeze of 5 s cost {cost:.1f} s; told: {said[0]}")


def slow_rank(recipe, run):
    rank_runs.train(recipe, run, "--nproc", str(RANKS), steps=30,
                    fault="rank=1 step=3 at=forward do=slow seconds=0.2")
    said = [text for text in rank_runs.messages(run) if text.startswith("rank 1 is slow")]
    assert len(said) == 1, rank_runs.messages(run)


def nobody_is_left(recipe, at):
    """kill -9 of the command ends every rank, also one that is stopped."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        run = at(f"left-{number}")
        process = start(recipe, run, steps=100000)
        rank_runs.wait_for(lambda: len(rank_runs.losses(run)) > 5, process)
        ranks = children_of(process.pid)
        assert len(ranks) == RANKS, ranks
        if number == signal.SIGKILL:
            os.kill(ranks[2], signal.SIGSTOP)
        process.send_signal(number)
        code = process.wait(timeout=120)
        assert code == (75 if number == signal.SIGTERM else -number), code
        end = time.monotonic() + 10
        while any(map(is_running, ranks)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not any(map(is_running, ranks)), "ranks were left over"
    # A signal to one rank reaches all, and the command ends as if it had got it itself.
    run = at("one-signal")
    process = start(recipe, run, steps=100000)
    rank_runs.wait_for(lambda: len(rank_runs.losses(run)) > 5, process)
    os.kill(children_of(process.pid)[3], signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    last = max(rank_runs.losses(run))
    assert os.path.exists(os.path.join(run, "checkpoints", f"step-{last:08d}", "manifest.json"))


def random_kills(recipe, run, kills):
    """One of four is killed at a random moment, again and again; nobody helps."""
    seed = int(os.environ.get("TUTTI_TEST_SEED", time.time_ns() % 2**32))
    print(f"seed {seed} (set TUTTI_TEST_SEED to repeat)")
    chance = random.Random(seed)
    steps = 3000
    process = start(recipe, run, "checkpoint.every_steps=10", steps=steps)
    done = 0
    while done < kills and process.poll() is None:
        before = len(rank_runs.small_run.losses(run))
        # Somewhere in the first quarter of a second after some new steps.
        rank_runs.wait_for(lambda: len(rank_runs.small_run.losses(run)) > before + 25, process)
        time.sleep(chance.uniform(0, 0.25))
        ranks = [rank for rank in children_of(process.pid) if is_running(rank)]
        if len(ranks) == RANKS:
            os.kill(chance.choice(ranks), signal.SIGKILL)
            done += 1
    code = process.wait(timeout=300)
    log = open(run + ".log").read()
    assert code == 0, f"exit code {code}:\n{log[-3000:]}"
    assert done == kills, f"only {done} kills in {steps} steps"
    whole = run + "-whole"
    rank_runs.train(recipe, whole, "checkpoint.every_steps=10", "--nproc", str(RANKS), steps=steps)
    expected = rank_runs.losses(whole)
    wrong = [pair for pair in rank_runs.small_run.losses(run) if expected[pair[0]] != pair[1]]
    assert not wrong, f"{len(wrong)} losses differ from the undisturbed run, first {wrong[0]}"
    print(f"{kills} kills, {restarts(log)} restarts, all {steps} losses as undisturbed")


def test():
    kills = int(os.environ.get("TUTTI_TEST_KILLS", 20))
    with tempfile.TemporaryDirectory() as folder:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        expected = rank_runs.losses(at("one"))
        deaths(recipe, at, expected)
        hangs(recipe, at, expected)
        flipped_bit(recipe, at, expected)
        crash_loop(recipe, at("loop"))
        fewer_ranks(recipe, at, expected)
        frozen_rank(recipe, at("frozen"))
        slow_rank(recipe, at("slow"))
        nobody_is_left(recipe, at)
        random_kills(recipe, at("kills"), kills)


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
