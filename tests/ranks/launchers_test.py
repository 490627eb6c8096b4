"""The same run under mpirun and torchrun, and by hand with secrets that differ. About 15 s."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

import rank_runs


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def mpirun(recipe, run, expected):
    if not shutil.which("mpirun"):
        print("skipped: no mpirun (openmpi-bin)")
        return
    launcher = ["mpirun", "--oversubscribe", "-np", "3"]
    if os.geteuid() == 0:
        launcher.insert(1, "--allow-run-as-root")
    rank_runs.train(recipe, run, launcher=launcher)
    print(f"mpirun, 3 ranks: losses differ by at most {rank_runs.compare(run, expected, 20):.1e}")


def torchrun(recipe, run, expected):
    try:
        import torch.distributed.run  # noqa: F401
    except ImportError:
        print("skipped: no torchrun (python3-torch)")
        return
    # --redirects and --tee: their defaults break this version on Python 3.11.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--no_python",
                "--redirects", "1", "--tee", "1", "--log_dir", run + "-logs",
                "--master_port", str(free_port())]
    rank_runs.train(recipe, run, launcher=launcher)
    print(f"torchrun, 2 ranks: losses differ by at most {rank_runs.compare(run, expected, 20):.1e}")


def start_by_hand(recipe, run, rank, port, secret):
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TUTTI_SECRET": secret}
    return subprocess.Popen(rank_runs.command(recipe, run), env=rank_runs.environment(**variables),
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wrong_secret(recipe, run):
    port = free_port()
    ranks = [start_by_hand(recipe, run, 0, port, "right"), start_by_hand(recipe, run, 1, port, "wrong")]
    error = ranks[1].communicate(timeout=150)[1]
    assert ranks[1].returncode == 1 and "secret" in error, (ranks[1].returncode, error)
    # Another with the right one still joins.
    ranks[1] = start_by_hand(recipe, run, 1, port, "right")
    for rank in ranks:
        error = rank.communicate(timeout=150)[1]
        assert rank.returncode == 0, error[-2000:]
    print("a rank with the wrong secret was refused, and the right one joined instead")


def conflict(recipe, run):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    error = rank_runs.train(recipe, run, code=2, **variables)
    assert "RANK=0" in error and "OMPI_COMM_WORLD_RANK=1" in error, error


def test():
    with tempfile.TemporaryDirectory() as folder:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        expected = rank_runs.losses(at("one"))
        mpirun(recipe, at("mpirun"), expected)
        torchrun(recipe, at("torchrun"), expected)
        wrong_secret(recipe, at("hand"))
        conflict(recipe, at("conflict"))


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
