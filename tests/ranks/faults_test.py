"""Ranks that die, hang, freeze, lag or compute wrongly: the run continues and ends with the losses of
the undisturbed one, or stops and says why; and no process is ever left over.

A model of 119 thousand parameters. At most four minutes on two cores, half of it for the matrix of
faults: runs that are struck again and again, each fault in a world of its own, two runs at a time."""

import concurrent.futures
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
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


def goes_on(recipe, run, expected, fault, said, *arguments, ranks=RANKS):
    """The fault happens once; the run ends by itself, with the same losses."""
    begin = time.monotonic()
    error = rank_runs.train(recipe, run, "--nproc", str(ranks), *arguments, fault=fault)
    assert re.search(said, error), f"{fault}: '{said}' is not reported:\n{error[-3000:]}"
    assert "start again" in error, f"{fault}: no restart:\n{error[-3000:]}"
    rank_runs.compare(run, expected, 20)
    print(f"{fault}: {time.monotonic() - begin:.1f} s")


# What the command says of each, of rank {rank} in {activity}; and what the other ranks have said.
ENDED = {
    "kill": r"rank {rank} was ended by signal 9 \(Killed\) in {activity}",
    "exit": r"rank {rank} ended with exit code 1 in {activity}",
    "throw": r"rank {rank} ended with exit code 1 in {activity}.*a fault that TUTTI_FAULT asked for",
    "stop": r"rank {rank} did not end and was killed in {activity}",
}
ENDED["hang"] = r"rank {rank} (ended with exit code 1|did not end and was killed) in {activity}"
REPORTED = {
    "throw": r"aborted by rank {rank} .*TUTTI_FAULT asked for \(in {activity}",
    "stop": r"rank {rank} hangs in {activity}.*, for .*; others wait: rank \d: in {call}\(.*call \d+",
}
REPORTED["hang"] = REPORTED["stop"]
LIMIT = "3"  # of the watchdog, seconds
STEPS_BETWEEN = 15


def activity(where, step):
    if where == "save":
        return f"the checkpoint after step {step}"
    return f"step {step}, {where}"


WHOLE = {}
ONE_AT_A_TIME = threading.Lock()


def undisturbed(recipe, folder, settings, steps):
    """The losses of such a run, which is made once."""
    with ONE_AT_A_TIME:
        if (settings, steps) not in WHOLE:
            run = os.path.join(folder, f"whole-{len(WHOLE)}")
            rank_runs.train(recipe, run, *settings, "--nproc", str(RANKS), steps=steps)
            WHOLE[settings, steps] = rank_runs.losses(run)
        return WHOLE[settings, steps]


def struck(recipe, run, faults, *settings, call="all_(reduce|gather)"):
    """One run, and each of `faults` (what, rank, where) in a world of its own, some steps after the
    one before. Every one is named as what it is, and the losses are those of the undisturbed run."""
    begin = time.monotonic()
    # While saving: at the first checkpoint. Else there are some between two faults.
    every = STEPS_BETWEEN if faults[0][2] == "save" else STEPS_BETWEEN // 3
    settings = (f"checkpoint.every_steps={every}", *settings)
    steps = STEPS_BETWEEN * len(faults) + 3
    expected = undisturbed(recipe, os.path.dirname(run), settings, steps)
    at_step = [STEPS_BETWEEN * (i + 1) for i in range(len(faults))]
    asked = ";".join(f"rank={rank} step={step} at={where} do={what} generation={i + 1}"
                     for i, ((what, rank, where), step) in enumerate(zip(faults, at_step)))
    error = rank_runs.train(recipe, run, *settings, "--nproc", str(RANKS), "--watchdog", LIMIT,
                            fault=asked, steps=steps)
    shown = re.split(rf"^tutti: (.*); {RANKS} ranks start again ", error, flags=re.MULTILINE)
    # Before each restart what the ranks said, then what the command says.
    words, ends = shown[0::2], shown[1::2]
    assert len(ends) == len(faults), f"{len(faults)} faults, {len(ends)} restarts:\n{error[-3000:]}"
    for (what, rank, where), step, word, end in zip(faults, at_step, words, ends):
        names = {"rank": rank, "activity": activity(where, step), "call": call}
        assert re.match(ENDED[what].format(**names), end), f"{what} of rank {rank} in {where}: {end}"
        if what in REPORTED:
            said = REPORTED[what].format(**names)
            if where == "save":  # the others may wait for files, in no collective
                said = said.split("; others wait")[0]
            assert re.search(said, word + end), f"{what}: '{said}' is not reported:\n{word[-3000:]}"
    assert rank_runs.losses(run) == expected, "losses are not those of the undisturbed run"
    return f"{len(faults)} faults, {time.monotonic() - begin:.0f} s"


def matrix(recipe, at):
    """Every fault of every rank in every part of a step, on data parallel ranks; and of every other
    kind of mesh some. The faults of checkpoints have runs of their own: one that comes while the
    one before is still being written is skipped."""
    def of(*whats):
        return list(itertools.product(whats, range(RANKS), ("forward", "backward", "reduce")))

    experts = ["model.moe.experts=4", "model.moe.top_k=2", "model.moe.expert_ffn=64"]
    runs = [
        ("stop", of("stop"), []),
        ("die", of("kill", "exit", "throw"), []),
        ("tp", [("kill", 1, "forward"), ("stop", 3, "backward"), ("throw", 2, "backward"), ("exit", 0, "reduce")],
         ["parallel.tp=2", "parallel.dp=2"]),
        ("pp", [("exit", 0, "backward"), ("kill", 3, "forward"), ("throw", 2, "send_gradient"), ("stop", 1, "forward")],
         ["parallel.pp=2", "parallel.dp=2"]),
        ("cp", [("throw", 0, "forward"), ("stop", 2, "reduce"), ("kill", 3, "backward"), ("exit", 1, "update")],
         ["parallel.cp=2", "parallel.dp=2"]),
        ("ep", [("exit", 3, "forward"), ("kill", 0, "backward"), ("stop", 1, "forward"), ("throw", 2, "reduce")],
         ["parallel.ep=2", "parallel.dp=4", *experts]),
        ("zero", [("kill", 2, "gather"), ("stop", 0, "forward"), ("throw", 3, "reduce"), ("exit", 1, "update")],
         ["parallel.zero=3"]),
        ("other", [("throw", 3, "update"), ("hang", 0, "forward")], []),
    ]
    runs += [(f"{what} of rank {rank} while saving", [(what, rank, "save")], [])
             for what in ("kill", "stop", "exit", "throw") for rank in range(RANKS)]
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        done = [(name, two.submit(struck, recipe, at(f"matrix-{name.replace(' ', '-')}"), faults, *settings,
                                  call=r"(all_(reduce|gather|to_all)|reduce_scatter)"))
                for name, faults, settings in runs]
        for name, result in done:
            print(f"{name}: {result.result()}")


def flipped_bit(recipe, at, expected):
    """In its own memory by the rank itself, of two as of four and of a shard; one in a computation by
    the others."""
    goes_on(recipe, at("flip"), expected, "rank=2 step=7 at=backward do=flip",
            "in the memory of rank 2 a bit has flipped: its parameters are")
    for zero, where, name in ((0, "adamw.m", "first moments"), (3, "param", "parameters")):
        goes_on(recipe, at(f"flip-{zero}"), expected, f"rank=1 step=7 at=forward do=flip in={where}",
                f"in the memory of rank 1 a bit has flipped: its {name} are", f"parallel.zero={zero}", ranks=2)
    goes_on(recipe, at("wrong"), expected, "rank=2 step=7 at=update do=flip in=gradient",
            "after step 8 the parameters of rank 2 are not those of the other ranks", "--check-replicas", "4")


def crash_loop(recipe, run):
    # Without checkpoints between, which would be progress.
    error = rank_runs.train(recipe, run, "checkpoint.every_steps=0", "--nproc", str(RANKS), code=1,
                            fault="rank=2 step=7 at=forward do=kill generation=0")
    assert "given up after 3 failures in a row in step 7" in error, error[-2000:]
    assert restarts(error) == 2, error[-2000:]


def fewer_ranks(recipe, at, expected):
    error = rank_runs.train(recipe, at("fewer"), "--nproc", "4", "--min-nproc", "2",
                            fault="rank=3 step=8 at=forward do=gone generation=0")
    assert "rank 3 is lost for good: 3 ranks instead of 4" in error, error[-2000:]
    rank_runs.compare(at("fewer"), expected, 20)
    error = rank_runs.train(recipe, at("dead"), "--nproc", "4", "--min-nproc", "3",
                            fault="rank=3 step=1 at=start do=exit generation=0")
    assert "rank 3 is lost for good: 3 ranks instead of 4" in error, error[-2000:]
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
    said = [text for text in rank_runs.messages(run) if re.match(r"rank 1 was frozen for ([4-9]|[1-5][0-9])\.", text)]
    assert len(said) == 1, rank_runs.messages(run)
    assert "start again" not in open(run + ".log").read()
    print(f"a freeze of 5 s cost {cost:.1f} s; shown: {said[0]}")


RECOVERED = 90  # seconds, on a machine as busy as can be; ten of them are the limit


def stopped_rank(recipe, run, expected, fault, said=r"hangs in .*; stopped for longer than 10"):
    """No limit is asked for, nor is any known yet: a stopped rank gets less time than a slow one."""
    begin = time.monotonic()
    goes_on(recipe, run, expected, fault, said)
    assert time.monotonic() - begin < RECOVERED


def stopped_from_outside(recipe, run, victims, running, expected):
    """These ranks are stopped once the run has come so far."""
    process = start(recipe, run, steps=len(expected))
    rank_runs.wait_for(lambda: len(children_of(process.pid)) == RANKS, process)
    if running:
        rank_runs.wait_for(lambda: len(rank_runs.losses(run)) > 20, process)
    begin = time.monotonic()
    ranks = children_of(process.pid)
    for victim in victims:
        os.kill(ranks[victim], signal.SIGSTOP)
    code = process.wait(timeout=240)
    log = open(run + ".log").read()
    assert code == 0, f"exit code {code}:\n{log[-3000:]}"
    assert time.monotonic() - begin < RECOVERED
    assert restarts(log) == 1 and "did not end and was killed" in log, log[-3000:]
    assert rank_runs.losses(run) == expected, "losses are not those of the undisturbed run"
    print(f"ranks {victims} stopped {'while training' if running else 'at their start'}: "
          f"{time.monotonic() - begin:.1f} s")


def stopped_ranks(recipe, at, expected):
    steps = 1500
    whole = undisturbed(recipe, os.path.dirname(at("")), (), steps)
    with concurrent.futures.ThreadPoolExecutor(3) as some:
        done = [
            some.submit(stopped_rank, recipe, at("stop-start"), expected, "rank=1 step=1 at=start do=stop"),
            some.submit(stopped_rank, recipe, at("stop-first"), expected, "rank=0 step=2 at=forward do=stop"),
            some.submit(stopped_rank, recipe, at("stop-save"), expected, "rank=2 step=5 at=save do=stop"),
            # Only the command is left to watch, or no rank has started to.
            some.submit(stopped_from_outside, recipe, at("stop-all"), range(RANKS), True, whole),
            some.submit(stopped_from_outside, recipe, at("stop-early"), [1], False, whole)]
        for one in done:
            one.result()


def slow_rank(recipe, run):
    rank_runs.train(recipe, run, "--nproc", str(RANKS), steps=30,
                    fault="rank=1 step=3 at=forward do=slow seconds=0.5")
    said = [text for text in rank_runs.messages(run) if text.startswith("rank 1 is slow")]
    assert len(said) == 1, rank_runs.messages(run)


def no_rank_is_left(recipe, at):
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
        end = time.monotonic() + 60
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
    """One of four is killed at a random moment, again and again, without intervention."""
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
        matrix(recipe, at)
        goes_on(recipe, at("start"), expected, "rank=1 step=1 at=start do=kill",
                r"rank 1 was ended by signal 9 \(Killed\) in start-up")
        flipped_bit(recipe, at, expected)
        crash_loop(recipe, at("loop"))
        fewer_ranks(recipe, at, expected)
        frozen_rank(recipe, at("frozen"))
        stopped_ranks(recipe, at, expected)
        slow_rank(recipe, at("slow"))
        no_rank_is_left(recipe, at)
        random_kills(recipe, at("kills"), kills)


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
