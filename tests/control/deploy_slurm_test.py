"""A deployment on a Slurm: it is healthy on one of the nodes, comes back when it is killed, and is stopped. Needs
root."""

import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "ranks"))
sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "endpoint"))
import rank_runs  # noqa: E402
from control_plane import ControlPlane, report_state  # noqa: E402
from deploy_test import complete, endpoint_process, is_healthy, wait_for, wait_for_key  # noqa: E402
from endpoint_server import train_tiny  # noqa: E402
from slurm_cluster import Cluster, apart, wait_until  # noqa: E402


def serve(plane, cluster, run):
    made = plane.call("deploy", run, "--name", "chat", "--address", "0.0.0.0", "--plain-http", "--no-start",
                      "--health-every", "300ms")
    job = made["job"]
    found = wait_for(plane, "chat", is_healthy, "it starts")
    (node,) = found_nodes(plane, job)
    port = found["deployment"]["port"]
    assert found["url"] == f"http://{node}:{port}/", found
    url = f"http://127.0.0.1:{port}/"  # all nodes are this machine
    key = plane.call("deployment", "keys", "chat", "--add", "ann", "--key-tokens", "100")["key"]
    wait_for_key(url, key, 200)
    assert complete(url, key)[0] == 200

    os.kill(endpoint_process(plane), signal.SIGKILL)
    wait_for(plane, "chat", lambda f: f["generation"] == 2 and is_healthy(f), "it comes back")
    assert complete(url, key)[0] == 200
    # Nothing that was used is forgotten: 34 of 100 tokens.
    assert complete(url, key, 58)[0] == 429
    assert complete(url, key, 57)[0] == 200
    plane.call("deployment", "stop", "chat")
    ended = plane.wait_for(job, ["CANCELLED", "FAILED"])
    assert ended["state"] == "CANCELLED", ended
    wait_until(lambda: not cluster.run("squeue", "--noheader", "--states=RUNNING").strip(), "an empty queue")


def found_nodes(plane, job):
    return plane.show(job)["launches"][-1]["nodes"]


def test():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        with Cluster(cluster_folder) as cluster:
            plane = ControlPlane(folder, SLURM_CONF=cluster.configuration, MASTER_ADDR="127.0.0.1")
            models = pathlib.Path(folder, "models")
            models.mkdir()
            run = str(train_tiny(models)[0])
            plane.call("admin", "site", "--scheduler", "slurm")
            controller = plane.controller()
            try:
                serve(plane, cluster, run)
            except AssertionError:
                report_state(plane, cluster)
                raise
            finally:
                controller.terminate()
                controller.wait()


if __name__ == "__main__":
    apart()
    sys.exit(rank_runs.main(test))
