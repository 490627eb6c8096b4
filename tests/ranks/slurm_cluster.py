"""A real Slurm with virtual nodes on this host, for tests: munged, slurmctld and a slurmd per node.
Needs root. Nodes can be killed and started again. `apart` sees to it that nothing outlives a test."""

import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
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
FirstJobId={job}
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES State=UP
"""


def apart():
    """Runs this script in a name space of processes of its own, where that is allowed: however it ends, killed
    as well, what Slurm started ends with it. Does not return there the first time."""
    if os.environ.pop("TUTTI_TEST_APART", None):
        return
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*words, "true"], check=False, capture_output=True).returncode != 0:
        return
    # The shell is the first process there, and reaps orphaned processes.
    os.execvpe("unshare", [*words, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.argv],
               dict(os.environ, TUTTI_TEST_APART="1"))


class Cluster:
    """Daemons that end with this object."""

    def __init__(self, folder, extra=""):
        """`extra`: further lines of slurm.conf."""
        missing = [name for name in ("munged", "slurmctld", "slurmd", "srun", "sinfo") if not shutil.which(name)]
        if missing:
            raise rank_runs.Skip(f"no {', '.join(missing)} (slurm-wlm, munge)")
        if os.geteuid() != 0:
            raise rank_runs.Skip("starting Slurm's daemons needs root")
        self.folder = folder
        self.daemons = []
        self.nodes = {}
        self.controller = None
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
            # Ranks meet at a port that follows from the job's number: another cluster here has others.
            file.write(CONFIGURATION.format(host=host, port=ports[0], folder=folder, nodes=nodes, count=NODES,
                                            job=random.randrange(1, 1_000_000)) + extra)
        self.environment = rank_runs.environment(SLURM_CONF=self.configuration)

    def __enter__(self):
        at = lambda name: os.path.join(self.folder, name)
        self.start("munged", "--foreground", "--force", f"--key-file={at('munge.key')}",
                   f"--socket={at('munge.sock')}", f"--pid-file={at('munge.pid')}",
                   f"--log-file={at('munge.log')}", f"--seed-file={at('munge.seed')}", "--num-threads=1")
        wait_until(lambda: os.path.exists(at("munge.sock")), "munged")
        self.start_controller()
        for node in range(1, NODES + 1):
            self.start_node(f"n{node}")
        wait_until(self.is_ready, "the nodes", why=self.last_words)
        return self

    def __exit__(self, *_):
        # What a failed test left running, before those end that could end it. Without a controller it asks in vain.
        try:
            subprocess.run(["scancel", "--signal=KILL", "--full", "--user=root"], env=self.environment, check=False,
                           capture_output=True, timeout=20)
        except subprocess.TimeoutExpired:
            pass
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
        return self.daemons[-1]

    def start_controller(self):
        self.controller = self.start("slurmctld", "-D", "-f", self.configuration)

    def kill_controller(self):
        self.controller.kill()
        self.controller.wait()

    def start_node(self, node):
        self.nodes[node] = self.start("slurmd", "-D", "-N", node, "-f", self.configuration)

    def processes_of(self, node):
        """Those that a step on this node runs. Another cluster may have a node of this name."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        variables = {process: variables_of(process) for process in found}
        return [p for p in found if variables[p].get("SLURMD_NODENAME") == node
                and variables[p].get("SLURM_CONF") == self.configuration]

    def kill_node(self, node):
        """Everything on it at once, without a word: the daemon, its steps, their tasks."""
        self.nodes[node].kill()
        self.nodes[node].wait()
        for _ in range(3):  # what was being started meanwhile, too
            tasks = with_descendants(self.processes_of(node))
            parents = {parent_of(task) for task in tasks} - {0, 1}
            stepds = [p for p in parents | set(tasks) if name_of(p).startswith("slurmstepd")]
            for process in stepds + tasks:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def kill_daemon(self, node):
        """The daemon alone; what it runs continues."""
        self.nodes[node].kill()
        self.nodes[node].wait()

    def run(self, *command):
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def reason_of(self, node):
        """Why it takes no jobs."""
        return self.run("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%E").strip()

    def resume(self, node):
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def last_words(self):
        """Of the daemons' logs, for a cluster that does not come up."""
        words = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(os.path.join(self.folder, name), errors="replace") as file:
                    words.append(f"== {name}\n" + "".join(file.readlines()[-8:]))
        return "\n".join(words)

    def is_ready(self):
        found = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], env=self.environment,
                               capture_output=True, text=True)
        return found.stdout.strip() == str(NODES)


def stat_of(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return text[text.index("(") + 1:text.rindex(")")], int(text.rsplit(")", 1)[1].split()[1])


def name_of(process):
    return stat_of(process)[0]


def parent_of(process):
    return stat_of(process)[1]


def variables_of(process):
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def with_descendants(processes):
    """And what they started, such as an srun, whose environment does not name the node."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(parent_of(int(name)), []).append(int(name))
    found = list(processes)
    for process in found:  # grows meanwhile
        found += [child for child in children.get(process, []) if child not in found]
    return found


def free_ports(count):
    """Below those at which Tutti's ranks meet, and those that systems give to connections of anybody."""
    return list(itertools.islice(filter(is_free, random.sample(range(10_000, 20_000), 50 * count)), count))


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(condition, what, seconds=120, why=lambda: ""):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come up within {seconds} s\n{why()}"
        time.sleep(0.1)
