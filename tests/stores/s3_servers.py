"""Servers of the S3 protocol that tests start for themselves, on loopback, and that end with them:

  moto    in this process (tools/python_requirements.txt); ignores what it does not check
  ceph    Ceph's gateway over one monitor and one object daemon, which keeps everything in memory
  swift   OpenStack Swift with its S3 interface: a proxy and three servers over one plain folder

The last two are Debian's packages; where they are missing, making one throws Skip, which names them."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
from rank_runs import Skip  # noqa: E402
from slurm_cluster import free_ports  # noqa: E402

SECRET = "a-secret-that-is-in-no-output"


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """Has `endpoint` once it is entered."""
    access_key = "AKIDEXAMPLE"

    def __init__(self, folder):
        self.folder = os.path.join(os.path.realpath(folder), type(self).__name__.lower())
        os.mkdir(self.folder)
        self.daemons = []

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def start(self, name, *command, **variables):
        with open(self.at(name + ".out"), "a") as log:
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables}))
        return self.daemons[-1]

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.last_words()}"
        return done.stdout

    def wait_for(self, port, seconds=90):
        end = time.monotonic() + seconds
        while not answers(port):
            dead = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            assert not dead and time.monotonic() < end, f"{dead or port} did not come up\n{self.last_words()}"
            time.sleep(0.05)

    def last_words(self):
        words = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(self.at(name), errors="replace") as file:
                    words.append(f"== {name}\n" + "".join(file.readlines()[-8:]))
        return "\n".join(words)

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):  # nothing of theirs is needed any more
            daemon.kill()
            daemon.wait()

    def client(self):
        import boto3
        from botocore.config import Config
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1",
                            aws_access_key_id=self.access_key, aws_secret_access_key=SECRET,
                            config=Config(s3={"addressing_style": "path"}))

    def environment(self, endpoint=None):
        """What a command needs to reach it, or what is in front of it."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint, "no_proxy": "*"}


class Moto(Server):
    def open(self):
        from moto.server import ThreadedMotoServer
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.endpoint = f"http://127.0.0.1:{self.server.get_host_and_port()[1]}"

    def __exit__(self, *_):
        self.server.stop()


CEPH_CONF = """\
[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{port}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms mon service mode = crc
ms mon cluster mode = crc
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
crash dir = {folder}
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
mon data avail warn = 1
mon data avail crit = 1
paxos propose interval = 0.05
mon allow pool size one = true
osd objectstore = memstore
memstore device bytes = 8589934592
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class update on start = false
rgw thread pool size = 64
rgw bucket quota ttl = 0
"""


class Ceph(Server):
    def __init__(self, folder):
        need(ceph_mon="ceph-mon", ceph_osd="ceph-osd", radosgw="radosgw", ceph="ceph-mon")
        super().__init__(folder)
        self.port, self.mon_port = free_ports(2)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.configuration = self.at("ceph.conf")

    def open(self):
        for name in ("mon", "osd", "rgw"):
            os.mkdir(self.at(name))
        cluster, osd = str(uuid.uuid4()), str(uuid.uuid4())
        with open(self.configuration, "w") as file:
            file.write(CEPH_CONF.format(fsid=cluster, port=self.mon_port, folder=self.folder))
        config = ("-c", self.configuration)
        self.run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", f"[v2:127.0.0.1:{self.mon_port}]",
                 self.at("monmap"))
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", self.at("monmap"), *config)
        self.start("mon", "ceph-mon", "-f", "-i", "a", *config)
        self.run("ceph", *config, "osd", "new", osd)
        self.run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd, *config)
        self.start("osd", "ceph-osd", "-f", "-i", "0", *config)
        self.start("rgw", "radosgw", "-f", "-n", "client.rgw", "--rgw-frontends",
                   f"beast endpoint=127.0.0.1:{self.port}", *config)
        self.admin("user", "create", "--uid", "lab", "--display-name", "lab", "--access-key", self.access_key,
                   "--secret-key", SECRET)
        self.wait_for(self.port)

    def admin(self, *words):
        """Of the gateway's users, buckets and quotas."""
        return self.run("radosgw-admin", *words, "-c", self.configuration)


SWIFT_CONF = "[swift-hash]\nswift_hash_path_suffix = tutti\n[storage-policy:0]\nname = plain\ndefault = yes\n"
SWIFT_STORAGE = """\
[DEFAULT]
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
workers = 0
log_name = {kind}
fallocate_reserve = 0
[app:{kind}-server]
use = egg:swift#{kind}
[pipeline:main]
pipeline = {kind}-server
"""
SWIFT_PROXY = """\
[DEFAULT]
swift_dir = {folder}
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
workers = 0
log_name = proxy
[pipeline:main]
pipeline = catch_errors cache listing_formats bulk s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_lab_tester = {secret} .admin
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
# Rings of one device; servers. The package has no program for them.
SWIFT_RINGS = """\
import sys
from swift.common.ring import RingBuilder
folder, *ports = sys.argv[1:]
for kind, port in zip(("account", "container", "object"), ports):
    ring = RingBuilder(4, 1, 0)
    ring.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1", "weight": 1})
    ring.rebalance(seed=1)
    ring.get_ring().save(f"{folder}/{kind}.ring.gz")
"""
SWIFT_SERVER = """\
import sys
from swift.common import utils
folder, kind = sys.argv[1:]
utils.set_swift_dir(folder)
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(f"{folder}/{kind}.conf", f"{kind}-server"))
"""
PYTHON = "/usr/bin/python3"  # Debian's, which its packages are for


class Swift(Server):
    access_key = "lab:tester"  # ACCOUNT:USER
    def __init__(self, folder):
        if subprocess.run([PYTHON, "-c", "import swift, swift.common.middleware.s3api"], check=False,
                          capture_output=True, env=plain_environment()).returncode != 0:
            raise Skip("no OpenStack Swift (package python3-swift)")
        super().__init__(folder)
        self.ports = free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self.ports[3]}"

    def open(self):
        os.makedirs(self.at("devices", "d1"))
        with open(self.at("swift.conf"), "w") as file:
            file.write(SWIFT_CONF)
        values = {"folder": self.folder, "user": getpass.getuser(), "secret": SECRET}
        kinds = ("account", "container", "object", "proxy")
        for kind, port in zip(kinds, self.ports):
            with open(self.at(kind + ".conf"), "w") as file:
                file.write((SWIFT_PROXY if kind == "proxy" else SWIFT_STORAGE).format(kind=kind, port=port, **values))
        done = subprocess.run([PYTHON, "-c", SWIFT_RINGS, self.folder, *map(str, self.ports[:3])], check=False,
                              capture_output=True, text=True, env=plain_environment())
        assert done.returncode == 0, done.stderr
        for kind in kinds:
            self.start(kind, PYTHON, "-c", SWIFT_SERVER, self.folder, kind, **plain_environment())
        for port in self.ports:
            self.wait_for(port)


def plain_environment():
    """Without what leads Debian's Python to packages of others."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def need(**packages):
    """Programs, each with its package."""
    missing = {program.replace("_", "-"): package for program, package in packages.items()
               if not shutil.which(program.replace("_", "-"))}
    if missing:
        raise Skip(f"no {', '.join(missing)} (packages {', '.join(sorted(set(missing.values())))})")


def make(kind, folder):
    return {"moto": Moto, "ceph": Ceph, "swift": Swift}[kind](folder)
