"""`tutti check` as people and schedulers use it: exit codes, JSON, references, topology files, ranks;
and a few trials of a slow node (check_trials.py makes the long series)."""

import json
import os
import socket
import subprocess
import sys
import tempfile

import check_trials

TUTTI = check_trials.TUTTI
NO_LAUNCHER = {k: v for k, v in os.environ.items()
               if not k.startswith(("SLURM", "OMPI_", "PMIX", "TORCHELASTIC", "RANK", "WORLD_SIZE",
                                    "LOCAL_"))}


def check(*arguments, code=None, **variables):
    done = subprocess.run([TUTTI, "check", *arguments], capture_output=True, text=True,
                          env={**NO_LAUNCHER, **variables}, timeout=300)
    if code is not None:
        assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def status(health, name):
    return next(c["status"] for c in health["checks"] if c["name"] == name)


def node_file(folder, **quantities):
    path = os.path.join(folder, "node.yaml")
    with open(path, "w") as out:
        out.write("kind: node\nname: mine\nsource: {text: test, date: 2026-11-20}\nquantities:\n")
        for key, value in quantities.items():
            out.write(f"  {key}: {value}\n")
    return path


def test_reference(folder):
    """Figures within reach pass, figures out of reach fail, each by its name."""
    arguments = ["--quick", "--only", "products,memory,disk", "--folder", folder, "--json"]
    easy = node_file(folder, f32_product_tflops=1e-6, memory_copy_gigabytes_per_second=1e-3,
                     disk_fsync_microseconds=1e9)
    health = json.loads(check(*arguments, "--against", easy, code=0).stdout)
    assert health["healthy"] and health["kind"] == "mine", health
    assert status(health, "f32_product") == "pass" and status(health, "bf16_product") == "note"
    hard = node_file(folder, f32_product_tflops=1e6, disk_fsync_microseconds=1e-3, cores_count=3)
    done = check(*arguments, "--against", hard)
    health = json.loads(done.stdout)
    assert done.returncode == {"unhealthy": 3, "busy": 0}[health["state"]], (done.returncode, health)
    failed = {c["name"] for c in health["checks"] if c["status"] in ("fail", "busy")}
    assert failed == {"f32_product", "disk_fsync"}, failed
    health = json.loads(check("--only", "topology", "--json", "--against", hard, code=3).stdout)
    assert health["differences"][0]["what"] == "cores", health["differences"]
    assert not [name for name in os.listdir(folder) if name.startswith(".tutti-check")]


def test_topology(folder):
    path = os.path.join(folder, "topology.json")
    check("--write-topology", path, code=0)
    check("--only", "topology", "--topology", path, code=0)
    with open(path) as file:
        topology = json.load(file)
    topology["numa_nodes"][0]["cores"] = "0-1023"
    topology["gpus"].append({"name": "0000:1a:00.0", "model": "H100", "numa_node": 0,
                             "bytes_per_second": 0})
    with open(path, "w") as file:
        json.dump(topology, file)
    done = check("--only", "topology", "--topology", path, code=3)
    assert "GPU 0000:1a:00.0: missing" in done.stdout, done.stdout
    assert "NUMA node 0 cores" in done.stdout, done.stdout


def test_errors(folder):
    for arguments, message in (
            (["--against", "no-such-node"], "not in the catalog"),
            (["--only", "cpus"], "unknown probe"),
            (["--topology", os.path.join(folder, "missing")], "missing"),
            (["--write-reference", os.path.join(folder, "x.yaml")], "--name")):
        done = check(*arguments, code=2)
        assert message in done.stderr, done.stderr
    # What cannot be measured is neither healthy nor unhealthy.
    done = check("--only", "disk", "--quick", "--folder", "/proc/self")
    assert done.returncode in (1, 2), (done.returncode, done.stderr)


def test_ranks(folder):
    """Two ranks of one machine: it is checked once, and what is between them is measured."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = []
    for rank in range(2):
        ranks.append(subprocess.Popen(
            [TUTTI, "check", "--quick", "--only", "topology", "--json", "--folder", folder],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**NO_LAUNCHER, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                 "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}))
    results = [rank.communicate(timeout=200) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], results
    assert results[1][0] == "", results[1]
    health = json.loads(results[0][0])
    assert health["ranks"] == 2 and len(health["nodes"]) == 1, health
    names = [c["name"] for c in health["between"]]
    assert names == ["link_latency", "link", "all_reduce"], names
    assert health["links"][0]["bytes_per_second"] > 0, health["links"]


def test_busy():
    """Where other programs use all cores, nothing can be said about the node, and nothing is."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        done = check("--quick", "--only", "cpu", "--json")
        health = json.loads(done.stdout)
        if health["state"] == "unhealthy":  # such as by a quota, which does not concern others
            failed = {c["name"] for c in health["checks"] if c["status"] == "fail"}
            assert failed <= {"cpu_quota", "cpu_available"} and "cpu_quota" in failed, health
            print("not tried: this node has a quota")
            return
        assert done.returncode == 0 and health["state"] == "busy" and health["healthy"], health
        assert status(health, "cpu_available") == "busy", health
        done = check("--quick", "--only", "cpu", "--strict", code=1)
        assert "is busy" in done.stdout, done.stdout
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def busy_share(seconds=0.5):
    """What all programs together use of the cores now."""
    def read():
        with open("/proc/stat") as file:
            columns = [int(x) for x in file.readline().split()[1:9]]
        return sum(columns), columns[3] + columns[4]
    total, idle = read()
    check_trials.time.sleep(seconds)
    total_later, idle_later = read()
    return 1 - (idle_later - idle) / max(1, total_later - total)


def test_trials():
    """A tenth withheld, a few times. Whether a healthy node passes shows only where no one else
    uses it, which may begin and end within a trial: one that passes shows it."""
    for throttle in ("cgroup", "stop"):
        for attempt in range(5):
            quiet = busy_share() < 0.03
            options = check_trials.parse(["--trials", "2", "--cut", "0.1", "--throttle", throttle])
            trials = check_trials.run(options)
            if trials is None:
                print("no control groups here")
                break
            result = check_trials.summary(trials)
            quiet = quiet and busy_share() < 0.03
            print(throttle, "quiet" if quiet else "not quiet", result)
            assert result["found"] == 2, trials
            if not quiet or result["false_alarms"] < result["healthy_trials"]:
                break
        else:
            raise AssertionError(f"an idle node never passes: {trials}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_errors(folder)
        test_topology(folder)
        test_reference(folder)
        test_ranks(folder)
    test_busy()
    test_trials()
    print("tutti check finds what is wrong, and says so")


if __name__ == "__main__":
    sys.exit(main())
