"""Two ranks in two name spaces of networks and processes, as on two hosts: gloo over a virtual
cable, which is cut. Needs CAP_NET_ADMIN. About a minute.
Usage: namespaces_test.py [long]      long: cut for more than a minute, and for ever; five minutes"""

import os
import signal
import sys
import tempfile
import time

import hosts
import rank_runs


def both(pair, recipe, run, secrets, *arguments, steps=20, processes=True, **more):
    ranks = []
    for rank in range(2):
        variables = {**hosts.rank_variables(rank, 2, 1), **more}
        if secrets[rank]:
            variables["TUTTI_SECRET"] = secrets[rank]
        ranks.append(pair.start(rank, rank_runs.command(recipe, run, *arguments, steps=steps), processes,
                                **variables))
    return ranks


# Slow enough that few steps are taken meanwhile.
SLOWLY = {"TUTTI_FAULT": "rank=0 step=1 at=forward do=slow seconds=0.03 generation=0"}


def begin(pair, recipe, run, watchdog, more_steps):
    """Both ranks, which share the processes of one machine and no network, once they have done some steps."""
    before = len(rank_runs.small_run.losses(run))
    ranks = both(pair, recipe, run, ["s", "s"], "--watchdog", watchdog, steps=100000, processes=False, **SLOWLY)
    more(run, ranks, before, more_steps)
    return ranks


def more(run, ranks, before, steps):
    rank_runs.wait_for(lambda: len(rank_runs.small_run.losses(run)) >= before + steps, ranks[0])


def stop(ranks):
    ranks[0].send_signal(signal.SIGTERM)
    for rank in ranks:
        error = rank.communicate(timeout=120)[1]
        assert rank.returncode == 75, (rank.returncode, error[-3000:])


def cut_link(pair, recipe, at):
    run = at("cut")
    # For less than the watchdog's limit: nothing happens but that the ranks wait.
    ranks = begin(pair, recipe, run, "60", 10)
    pair.connect(False)
    time.sleep(1)
    before = len(rank_runs.small_run.losses(run))
    time.sleep(4)
    after = len(rank_runs.small_run.losses(run))
    pair.connect(True)
    assert after <= before + 1, f"{after - before} steps without a link between the ranks"
    more(run, ranks, after, 10)
    stop(ranks)
    # For longer: both ranks end, whether the link comes back or not, and resume when restarted.
    ranks = begin(pair, run, run, "5", 10)
    pair.connect(False)
    errors = []
    for rank in ranks:
        errors.append(rank.communicate(timeout=120)[1])
        assert rank.returncode == 1, (rank.returncode, errors[-1][-3000:])
    assert any("the ranks of other hosts do not answer" in error for error in errors), errors
    pair.connect(True)
    stop(begin(pair, run, run, "60", 10))
    # All of it as if nothing had happened, also what was computed twice.
    shown = rank_runs.small_run.losses(run)
    losses = dict(shown)
    assert all(losses[step] == loss for step, loss in shown), "a step has another loss the second time"
    whole = at("cut-whole")
    rank_runs.train(recipe, whole, "--stop-after", str(max(losses)), code=75, steps=100000)
    worst = rank_runs.compare(run, rank_runs.losses(whole), max(losses))
    print(f"a link cut twice within {max(losses)} steps: losses differ by at most {worst:.1e}")


def long_cuts():
    """Within a watchdog's limit of five minutes: a minute's cut is waited out, and one for ever is found by
    the system, which waits two minutes for an answer."""
    with tempfile.TemporaryDirectory() as folder, hosts.Hosts() as pair:
        recipe, run = rank_runs.prepare(folder), os.path.join(folder, "cut")
        ranks = begin(pair, recipe, run, "300", 10)
        pair.connect(False)
        time.sleep(66)
        before = len(rank_runs.small_run.losses(run))
        for rank in ranks:
            assert rank.poll() is None, rank.communicate()[1][-3000:]
        pair.connect(True)
        more(run, ranks, before, 10)
        stop(ranks)
        ranks = begin(pair, run, run, "300", 10)
        pair.connect(False)
        cut = time.monotonic()
        for rank in ranks:
            error = rank.communicate(timeout=240)[1]
            took = time.monotonic() - cut
            assert rank.returncode == 1 and "is lost" in error, (rank.returncode, error[-3000:])
            assert 110 < took < 200, f"ended {took:.0f} s after the link was cut: {error[-3000:]}"
            print(f"cut for ever: a rank ended after {took:.0f} s")
        pair.connect(True)
        stop(begin(pair, run, run, "300", 10))


def test():
    with tempfile.TemporaryDirectory() as folder, hosts.Hosts() as pair:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        for zero in ("0", "1"):
            run = at("two-" + zero)
            for rank in both(pair, recipe, run, ["s", "s"], "parallel.zero=" + zero):
                error = rank.communicate(timeout=120)[1]
                assert rank.returncode == 0, error[-3000:]
            worst = rank_runs.compare(run, rank_runs.losses(at("one")), 20)
            print(f"two hosts, zero {zero}: losses differ by at most {worst:.1e}")
        cut_link(pair, recipe, at)
        # Between hosts nothing starts without a secret.
        for rank in both(pair, recipe, at("open"), ["", ""]):
            error = rank.communicate(timeout=120)[1]
            assert rank.returncode == 2 and "TUTTI_SECRET" in error, (rank.returncode, error)


if __name__ == "__main__":
    sys.exit(rank_runs.main(long_cuts if sys.argv[1:] == ["long"] else test))
