"""The same run under srun, on a real Slurm with four virtual nodes that this test starts: munged,
slurmctld and four slurmd on this host. Needs root. About 20 s."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import rank_runs

NODES = 4
CONFIGURATION = """\
ClusterName=tutti
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES State=UP
"""


class Cluster:
    """Daemons that end with this object."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        for name in ("state", "spool"):
            os.mkdir(os.path.join(folder, name))
        key = os.path.join(folder, "munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o600)
        os.chmod(folder, 0o755)  # munge wants its socket reachable
        self.configuration = os.path.join(folder, "slurm.conf")
        ports = free_ports(NODES + 1)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName=n{n + 1} NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[n + 1]} CPUs=1"
            for n in range(NODES))
        with open(self.configuration, "w") as file:
            file.write(CONFIGURATION.format(host=host, port=ports[0], folder=folder, nodes=nodes,
                                            count=NODES))
        self.environment = rank_runs.environment(SLURM_CONF=self.configuration)

    def __enter__(self):
        at = lambda name: os.path.join(self.folder, name)
        self.start("munged", "--foreground", "--force", f"--key-file={at('munge.key')}",
                   f"--socket={at('munge.sock')}", f"--pid-file={at('munge.pid')}",
                   f"--log-file={at('munge.log')}", f"--seed-file={at('munge.seed')}", "--num-threads=1")
        wait_until(lambda: os.path.exists(at("munge.sock")), "munged")
        self.start("slurmctld", "-D", "-f", self.configuration)
        for node in range(1, NODES + 1):
            self.start("slurmd", "-D", "-N", f"n{node}", "-f", self.configuration)
        wait_until(self.is_ready, "the nodes")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start(self, *command):
        log = open(os.path.join(self.folder, os.path.basename(command[0]) + ".out"), "a")
        self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def is_ready(self):
        found = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], env=self.environment,
                               capture_output=True, text=True)
        return found.stdout.strip() == str(NODES)


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come up within {seconds} s"
        time.sleep(0.1)


def test():
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun", "sinfo") if not shutil.which(name)]
    if missing:
        raise rank_runs.Skip(f"no {', '.join(missing)} (slurm-wlm, munge)")
    if os.geteuid() != 0:
        raise rank_runs.Skip("starting Slurm's daemons needs root")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        recipe = rank_runs.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"))
        expected = rank_runs.losses(at("one"))
        # The virtual nodes have names that nobody resolves, hence the address.
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
            error = process.communicate(timeout=60)[1]
            assert process.returncode == 75, (process.returncode, error[-2000:])


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
