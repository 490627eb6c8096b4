"""Two ranks in two name spaces of networks and processes, as on two hosts: gloo over a virtual
cable. Needs CAP_NET_ADMIN. About 10 s."""

import os
import shutil
import subprocess
import sys
import tempfile

import rank_runs

ADDRESSES = ["10.213.7.1", "10.213.7.2"]


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    """Two name spaces with a cable between them, gone with this object."""

    def __init__(self):
        self.names = [f"tutti-{os.getpid()}-{i}" for i in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            ends = [f"tu{os.getpid() % 100000}{i}" for i in "ab"]
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for name, end, address in zip(self.names, ends, ADDRESSES):
                ip("link", "set", end, "netns", name)
                ip("-n", name, "addr", "add", address + "/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise rank_runs.Skip(f"no name spaces of networks here: {error.stderr.strip()}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "del", name, check=False)

    def start(self, rank, command, **variables):
        """In a name space of processes too: its ranks share no memory with others."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[rank], "unshare", "--pid", "--fork", "--kill-child",
             "--mount-proc", *command],
            env=rank_runs.environment(**variables), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def both(hosts, recipe, run, secrets, *arguments):
    ranks = []
    for rank in range(2):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                     "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29711"}
        if secrets[rank]:
            variables["TUTTI_SECRET"] = secrets[rank]
        ranks.append(hosts.start(rank, rank_runs.command(recipe, run, *arguments), **variables))
    return ranks


def test():
    if not shutil.which("ip") or not shutil.which("unshare"):
        raise rank_runs.Skip("no ip or unshare (iproute2, util-linux)")
    if os.geteuid() != 0:
        raise rank_runs.Skip("name spaces need root")
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        for zero in ("0", "1"):
            run = at("two-" + zero)
            for rank in both(hosts, recipe, run, ["s", "s"], "parallel.zero=" + zero):
                error = rank.communicate(timeout=120)[1]
                assert rank.returncode == 0, error[-3000:]
            worst = rank_runs.compare(run, rank_runs.losses(at("one")), 20)
            print(f"two hosts, zero {zero}: losses differ by at most {worst:.1e}")
        # Between hosts nothing starts without a secret.
        for rank in both(hosts, recipe, at("open"), ["", ""]):
            error = rank.communicate(timeout=120)[1]
            assert rank.returncode == 2 and "TUTTI_SECRET" in error, (rank.returncode, error)


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
