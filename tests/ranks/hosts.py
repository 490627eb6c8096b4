"""Two name spaces of networks and, if wanted, processes, as two hosts with a cable between them. Needs
root and iproute2. The cable is the kernel's own, or one of a given rate and delay: a process that passes
packets on, because many kernels lack netem."""

import collections
import fcntl
import os
import select
import shlex
import shutil
import signal
import struct
import subprocess
import time

import rank_runs

ADDRESSES = ["10.213.7.1", "10.213.7.2"]
PORT = "29711"

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 65500  # few and large packets, so that passing them on costs little


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def open_tunnel(name):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def pass_on(ends, bytes_per_second, delay_seconds):
    """Each direction sends one packet after the other at this rate; each arrives `delay` later."""
    lines = [collections.deque(), collections.deque()]
    free = [0.0, 0.0]  # when the direction has sent all it has taken
    while True:
        due = min((line[0][0] for line in lines if line), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        ready = select.select(ends, [], [], wait)[0]
        now = time.monotonic()
        for side in (0, 1):
            if ends[side] in ready:
                try:
                    while True:
                        packet = os.read(ends[side], MTU + 100)
                        free[side] = max(now, free[side]) + len(packet) / bytes_per_second
                        lines[side].append((free[side] + delay_seconds, packet))
                except BlockingIOError:
                    pass
            while lines[side] and lines[side][0][0] <= time.monotonic():
                try:
                    os.write(ends[1 - side], lines[side].popleft()[1])
                except OSError:
                    pass  # the other end is full or gone: a lost packet


class Hosts:
    """Gone with this object. With a rate (bits per second): a slow cable of that one-way delay."""

    def __init__(self, bits_per_second=None, delay_seconds=0.0):
        if not shutil.which("ip") or not shutil.which("unshare"):
            raise rank_runs.Skip("no ip or unshare (iproute2, util-linux)")
        if os.geteuid() != 0:
            raise rank_runs.Skip("name spaces need root")
        self.names = [f"tutti-{os.getpid()}-{i}" for i in range(2)]
        self.ends = []
        self.rate = bits_per_second
        self.delay = delay_seconds
        self.cable = None

    def __enter__(self):
        ends = self.ends = [f"tu{os.getpid() % 100000}{i}" for i in "ab"]
        try:
            for name in self.names:
                ip("netns", "add", name)
            if self.rate is None:
                ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
                tunnels = []
            else:
                tunnels = [open_tunnel(end) for end in ends]
            for i, (name, end) in enumerate(zip(self.names, ends)):
                ip("link", "set", end, "netns", name)
                if tunnels:
                    ip("-n", name, "link", "set", end, "mtu", str(MTU), "txqueuelen", "5000")
                    ip("-n", name, "addr", "add", ADDRESSES[i], "peer", ADDRESSES[1 - i], "dev", end)
                else:
                    ip("-n", name, "addr", "add", ADDRESSES[i] + "/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (subprocess.CalledProcessError, OSError) as error:
            self.__exit__()
            raise rank_runs.Skip(f"no name spaces of networks here: "
                                 f"{getattr(error, 'stderr', None) or error}")
        if tunnels:
            self.cable = os.fork()
            if self.cable == 0:
                os.nice(-10)  # a cable does not wait for those who compute
                try:
                    pass_on(tunnels, self.rate / 8, self.delay)
                finally:
                    os._exit(0)
            for tunnel in tunnels:
                os.close(tunnel)
        return self

    def connect(self, connected):
        """Cuts the cable, or mends it."""
        ip("-n", self.names[1], "link", "set", self.ends[1], "up" if connected else "down")

    def __exit__(self, *_):
        if self.cable is not None:
            os.kill(self.cable, signal.SIGKILL)
            os.waitpid(self.cable, 0)
        for name in self.names:
            ip("netns", "del", name, check=False)

    def start(self, host, command, processes=True, **variables):
        """In a network namespace, and a PID namespace unless disabled."""
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if processes else []
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], *apart, *command],
            env=rank_runs.environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)


def rank_variables(rank, ranks, on_host):
    """The launch environment of a rank of `ranks`, `on_host` to a host."""
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % on_host),
            "LOCAL_WORLD_SIZE": str(on_host), "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT}


def together(commands):
    """One command that runs several (words, variables) and fails when one does."""
    starts = ["env " + shlex.join([f"{key}={value}" for key, value in variables.items()] + words) + " & p=\"$p $!\""
              for words, variables in commands]
    return ["sh", "-c", "; ".join(starts) + "; for q in $p; do wait $q || exit $?; done"]
