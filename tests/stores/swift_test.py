"""OpenStack Swift behind its S3 interface, which has no conditional writes: corpora are prepared there and
trained from, in parts and through the cache, and losses are those of a disk. Checkpoints are refused before the
first step, with what to do instead; nothing is left in the bucket."""

import json
import os
import subprocess
import sys
import tempfile

import s3_servers
from rank_runs import main as run_or_skip
from slurm_cluster import apart
import small_run

TUTTI = small_run.TUTTI
CORPUS = "s3://lab/corpora/lines"


def test(server, folder):
    environment = {**os.environ, **server.environment(), "TUTTI_CACHE": os.path.join(folder, "cache")}
    bucket = server.client()
    bucket.create_bucket(Bucket="lab")

    def tutti(*words, code=0):
        done = subprocess.run([TUTTI, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert s3_servers.SECRET not in done.stdout + done.stderr
        return done

    def objects():
        return {entry["Key"]: entry["ETag"] for entry in bucket.list_objects_v2(Bucket="lab").get("Contents", [])}

    text = os.path.join(folder, "text.txt")
    with open(text, "w") as file:  # 40 MB of tokens: an upload in parts
        file.write("".join(f"line {i} of {i * i % 9973} and {i % 131}, long enough for some parts\n"
                           for i in range(330_000)))
    near = os.path.join(folder, "corpus")
    for out in (near, CORPUS):
        tutti("data", "prepare", text, "--tokenizer", "byte", "--out", out, "--holdout", "0.005")
    assert objects()["corpora/lines.bin"].strip('"').endswith("-3"), objects()
    assert not bucket.list_multipart_uploads(Bucket="lab").get("Uploads"), "an upload is left"
    assert "BAD" not in tutti("data", "inspect", CORPUS).stdout

    recipe = os.path.join(folder, "recipe.yaml")
    with open(recipe, "w") as file:
        file.write(small_run.RECIPE)
    losses = {}
    for name, corpus in (("near", near), ("far", CORPUS)):
        run = os.path.join(folder, name)
        tutti("train", recipe, "--run", run, f"data.train={corpus}", "train.steps=20")
        losses[name] = small_run.losses(run)
        evaluated = tutti("eval", run, "--data", corpus + "-validation", "--json").stdout
        losses[name].append(json.loads(evaluated)["loss"])
    assert len(losses["far"]) == 21 and losses["far"] == losses["near"], losses

    before = objects()
    refused = tutti("train", recipe, "--run", os.path.join(folder, "kept"), f"data.train={CORPUS}",
                    "checkpoint.store=s3://lab/runs", code=2)
    measured = tutti("bench", "storage", "s3://lab/bench", "--size", "16MiB", "--seconds", "2", code=2)
    for done in (refused, measured):
        for word in ("Conditional object PUTs are not supported", "conditional writes", "checkpoint.store"):
            assert word in done.stderr, done.stderr
    assert not small_run.losses(os.path.join(folder, "kept"))
    assert objects() == before, sorted(set(objects()) ^ set(before))
    error = tutti("data", "inspect", "s3://nowhere/lines", code=2).stderr
    assert "there is no bucket 'nowhere'" in error, error


def main():
    with tempfile.TemporaryDirectory() as folder, s3_servers.make("swift", folder) as server:
        test(server, os.path.realpath(folder))


if __name__ == "__main__":
    apart()
    sys.exit(run_or_skip(main))
