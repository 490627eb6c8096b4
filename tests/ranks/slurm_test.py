"""The same run under srun, on a real Slurm with four virtual nodes that this test starts. Needs
root. About 20 s."""

import os
import subprocess
import sys
import tempfile

import rank_runs
from slurm_cluster import Cluster, apart


def test():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        expected = rank_runs.losses(at("one"))
        # The names of the virtual nodes do not resolve, hence the address.
        variables = {"MASTER_ADDR": "127.0.0.1", "TUTTI_SECRET": "of this test"}
        with Cluster(cluster_folder) as cluster:
            variables["SLURM_CONF"] = cluster.configuration
            for nodes, ranks in [(4, 4), (2, 2)]:
                run = at(f"slurm-{ranks}")
                rank_runs.train(recipe, run, launcher=["srun", f"-N{nodes}", f"-n{ranks}"], **variables)
                worst = rank_runs.compare(run, expected, 20)
                print(f"srun, {ranks} ranks on {nodes} nodes: losses differ by at most {worst:.1e}")
            # Inside of a job step --nproc starts ranks of its own.
            rank_runs.train(recipe, at("inside"), "--nproc", "2", launcher=["srun", "-N1", "-n1"], **variables)
            rank_runs.compare(at("inside"), expected, 20)
            # Asked to stop, a job step saves first.
            process = subprocess.Popen(
                ["srun", "-N2", "-n2", *rank_runs.command(recipe, at("stopped"), steps=100000)],
                env=rank_runs.environment(**variables), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            rank_runs.wait_for(lambda: len(rank_runs.losses(at("stopped"))) > 5, process)
            jobs = subprocess.run(["squeue", "-h", "-o", "%A"], env=rank_runs.environment(**variables),
                                  capture_output=True, text=True).stdout.split()
            subprocess.run(["scancel", "-s", "TERM", *jobs], env=rank_runs.environment(**variables), check=True)
            error = process.communicate(timeout=150)[1]
            assert process.returncode == 75, (process.returncode, error[-2000:])


if __name__ == "__main__":
    apart()
    sys.exit(rank_runs.main(test))
