"""What `tutti submit --as` prints is what these systems take: checked against the parts of their schemas
that it uses, with nothing beside, and against what launch.md and formats.md promise."""

import os
import subprocess
import sys
import tempfile

import jsonschema
import yaml

TUTTI = os.environ["TUTTI_BINARY"]
LABEL = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
COUNT = {"type": "integer", "minimum": 1}


def exactly(properties, optional=()):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": [name for name in properties if name not in optional]}


def listed(items):
    return {"type": "array", "items": items, "minItems": 1}


def pod(container, extra):
    variable = {"oneOf": [
        exactly({"name": {"type": "string"}, "value": {"type": "string"}}),
        exactly({"name": {"type": "string"}, "valueFrom": {"oneOf": [
            exactly({"fieldRef": exactly({"fieldPath": {"type": "string"}})}),
            exactly({"secretKeyRef": exactly({"name": LABEL, "key": {"type": "string"}})})]}})]}
    volume = {"oneOf": [
        exactly({"name": LABEL, "persistentVolumeClaim": exactly({"claimName": {"type": "string"}})}),
        exactly({"name": LABEL, "emptyDir": exactly({"medium": {"const": "Memory"}})})]}
    limits = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
    return exactly({
        **extra,
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 30},
        "containers": listed(exactly({
            "name": {"const": container}, "image": {"type": "string"}, "command": listed({"type": "string"}),
            "env": listed(variable), "resources": exactly({"limits": limits}),
            "volumeMounts": listed(exactly({"name": LABEL, "mountPath": {"type": "string"}}))}, ["resources"])),
        "volumes": listed(volume)})


HEAD = {"metadata": exactly({"name": LABEL})}
JOBSET = exactly({
    "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"}, "kind": {"const": "JobSet"}, **HEAD,
    "spec": exactly({
        "network": exactly({"enableDNSHostnames": {"type": "boolean"}, "subdomain": LABEL}),
        "failurePolicy": exactly({"maxRestarts": {"type": "integer", "minimum": 0}, "rules": listed(exactly({
            "name": {"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
            "action": {"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]},
            "onJobFailureReasons": listed({"enum": [
                "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded",
                "PodFailurePolicy"]})}))}),
        "replicatedJobs": listed(exactly({
            "name": LABEL, "replicas": COUNT, "template": exactly({"spec": exactly({
                "parallelism": COUNT, "completions": COUNT, "completionMode": {"const": "Indexed"},
                "backoffLimit": {"type": "integer", "minimum": 0},
                "podFailurePolicy": exactly({"rules": listed(exactly({
                    "action": {"enum": ["FailJob", "FailIndex", "Ignore", "Count"]},
                    "onExitCodes": exactly({"containerName": {"type": "string"}, "operator": {"enum": ["In", "NotIn"]},
                                            "values": listed({"type": "integer"})})}))}),
                "template": exactly({"spec": pod("tutti", {"restartPolicy": {"const": "Never"}})})})})}))})})
REPLICAS = exactly({"replicas": COUNT,
                    "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
                    "template": exactly({"spec": pod("pytorch", {})})})
PYTORCHJOB = exactly({
    "apiVersion": {"const": "kubeflow.org/v1"}, "kind": {"const": "PyTorchJob"}, **HEAD,
    "spec": exactly({
        "runPolicy": exactly({"cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                              "backoffLimit": {"type": "integer", "minimum": 0}}),
        "pytorchReplicaSpecs": exactly({"Master": REPLICAS, "Worker": REPLICAS}, ["Worker"])})})


def written(folder, kind, *words):
    text = subprocess.run([TUTTI, "submit", "demo", "--as", kind, *words], cwd=folder, capture_output=True,
                          text=True, check=True).stdout
    return yaml.safe_load(text)


def variables(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def copies(kind, document):
    """Steps between peer copies as passed to the ranks."""
    spec = document["spec"]
    pods = [spec["replicatedJobs"][0]["template"]["spec"]["template"]] if kind == "jobset" else \
        [each["template"] for each in spec["pytorchReplicaSpecs"].values()]
    words = [pod["spec"]["containers"][0]["command"] for pod in pods]
    assert all(each == words[0] for each in words), words
    return int(words[0][words[0].index("--peer-copies") + 1]) if "--peer-copies" in words[0] else 0


def check_copies(folder):
    """Where pods outlive their containers, as jobs of ours have them; never in memory that is new."""
    for kind, words, steps in (("pytorchjob", [], 0), ("pytorchjob", ["--nodes", "2"], 1),
                               ("pytorchjob", ["--nodes", "2", "--peer-copies", "5"], 5),
                               ("pytorchjob", ["--nodes", "2", "--peer-copies", "0"], 0),
                               ("jobset", ["--nodes", "2"], 0), ("jobset", ["--nodes", "2", "--peer-copies", "0"], 0)):
        found = copies(kind, written(folder, kind, *words))
        assert found == steps, (kind, words, found)
    refused = subprocess.run([TUTTI, "submit", "demo", "--as", "jobset", "--nodes", "2", "--peer-copies", "1"],
                             cwd=folder, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "--as pytorchjob" in refused.stderr, refused


def main():
    with tempfile.TemporaryDirectory() as folder:
        for words in ([], ["--nodes", "4"], ["--nodes", "2", "--gpus", "8", "--cores", "16", "--name", "Big Run_1."]):
            jobset = written(folder, "jobset", *words)
            jsonschema.validate(jobset, JOBSET)
            job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
            container = job["template"]["spec"]["containers"][0]
            env = variables(container)
            name = jobset["metadata"]["name"]
            assert int(env["WORLD_SIZE"]) == job["completions"] == job["parallelism"]
            # JobSet's name of the first pod: <set>-<job>-<replica>-<index>.<subdomain>.
            assert env["MASTER_ADDR"] == f"{name}-ranks-0-0.{name}", env
            assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2, 93]
            pytorch = written(folder, "pytorchjob", *words)
            jsonschema.validate(pytorch, PYTORCHJOB)
            replicas = pytorch["spec"]["pytorchReplicaSpecs"]
            assert sum(each["replicas"] for each in replicas.values()) == job["completions"]
            # The operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT itself.
            assert "RANK" not in variables(replicas["Master"]["template"]["spec"]["containers"][0])
            if "--gpus" in words:
                assert container["resources"]["limits"] == {"cpu": "16", "nvidia.com/gpu": "8"}
        wrong = subprocess.run([TUTTI, "submit", "demo", "--as", "jobset", "--nodes", "7"], cwd=folder,
                               capture_output=True, text=True, check=False)
        assert wrong.returncode == 2 and "7 ranks" in wrong.stderr, wrong
        for words in (["--deadline", "8h"], ["--usd", "5"], ["--spares", "1"], ["train.steps=5"]):
            refused = subprocess.run([TUTTI, "submit", "demo", *words, "--as", "jobset"], cwd=folder,
                                     capture_output=True, text=True, check=False)
            name = words[0] if len(words) == 2 else "SETTING"
            assert refused.returncode == 2 and f"{name}: " in refused.stderr, refused
            assert "submit without --as" in refused.stderr and refused.stdout == "", refused
        written(folder, "jobset", "--yes", "--no-start")
        check_copies(folder)
    print("JobSet and PyTorchJob: valid, and nothing beside")


if __name__ == "__main__":
    sys.exit(main())
