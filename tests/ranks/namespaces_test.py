"""Two ranks in two name spaces of networks and processes, as on two hosts: gloo over a virtual
cable. Needs CAP_NET_ADMIN. About 10 s."""

import os
import sys
import tempfile

import hosts
import rank_runs


def both(pair, recipe, run, secrets, *arguments):
    ranks = []
    for rank in range(2):
        variables = hosts.place(rank, 2, 1)
        if secrets[rank]:
            variables["TUTTI_SECRET"] = secrets[rank]
        ranks.append(pair.start(rank, rank_runs.command(recipe, run, *arguments), **variables))
    return ranks


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
        # Between hosts nothing starts without a secret.
        for rank in both(pair, recipe, at("open"), ["", ""]):
            error = rank.communicate(timeout=120)[1]
            assert rank.returncode == 2 and "TUTTI_SECRET" in error, (rank.returncode, error)


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
