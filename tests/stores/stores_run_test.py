"""A run whose corpus and checkpoints are in a bucket: prepared there, trained, killed, resumed, verified,
evaluated; its losses are those of the same run on a disk, to the bit. Then the bucket is measured, and left as
it was. Argument: whose server (s3_servers.py)."""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import s3_servers
from rank_runs import main as run_or_skip
from slurm_cluster import apart

TUTTI = os.environ["TUTTI_BINARY"]
STEPS = 20

RECIPE = """\
model: {name: store-test, layers: 2, hidden: 64, heads: 4, kv_heads: 4, head_dim: 16, ffn: 256,
        vocabulary: 257, context: 32}
precision: f32
threads: 1
batch: {global: 4, micro: 4, sequence: 32}
optimizer: {learning_rate: 1e-3}
train: {steps: 100000, seed: 3}
schedule: {decay_steps: 20}
checkpoint: {every_steps: 5, every_seconds: 0, keep_last: 2}
"""

SAID = []  # everything that a command wrote


def tutti(*arguments, code=0):
    done = subprocess.run([TUTTI, *arguments], capture_output=True, text=True, errors="replace")
    SAID.append(done.stdout + done.stderr)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def losses(run):
    found = {}
    with open(os.path.join(run, "events.jsonl")) as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last one of a killed process
            if event["event"] == "step_done":
                found.setdefault(event["step"], set()).add(event["loss"])
    return found


def wait_for(condition, process, log):
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, open(log).read()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def other_tokenizer_is_refused(folder, recipe, settings, bucket, keys):
    """On another machine, the same run with a corpus of other tokens: its home in the bucket stays as it was."""
    def home():
        return {key: bucket.get_object(Bucket="lab", Key=key)["ETag"] for key in keys("runs/far/")}

    text = os.path.join(folder, "other.txt")
    with open(text, "w") as file:
        file.write("abc\n" * 2000)
    other = os.path.join(folder, "other-corpus")
    tutti("data", "prepare", text, "--tokenizer", "char", "--out", other)
    again = os.path.join(folder, "prepared-again")  # with the tokenizer in the bucket
    tutti("data", "prepare", text, "--tokenizer", "s3://lab/runs/far/tokenizer.json", "--out", again)
    before = home()
    assert "runs/far/tokenizer.json" in before, before
    for corpus, said in ((other, "tokenizer"), (again, "is not the corpus")):
        refused = tutti("train", recipe, "--run", os.path.join(folder, os.path.basename(corpus), "far"),
                        f"data.train={corpus}", settings[1], "--force-resume", code=2)
        assert said in refused.stderr, refused.stderr
        assert home() == before, "the run in the bucket was changed"


def measure(folder, keys):
    before = keys("")
    command = ["bench", "storage", "s3://lab/bench", "--size", "16MiB", "--readers", "2", "--repeats", "1",
               "--model", "gpt2-124m"]
    bench = json.loads(tutti(*command, "--seconds", "2", "--json").stdout)
    assert bench["kind"] == "store" and bench["round_trip_seconds"] > 0, bench
    for name, figure in bench["figures"].items():
        assert figure["value"] > 0 and figure["ceiling"] > 0, (name, figure)
    assert keys("") == before, keys("")
    # Interrupted in the middle of it.
    log = os.path.join(folder, "bench.log")
    with open(log, "w") as file:
        process = subprocess.Popen([TUTTI, *command, "--seconds", "600"], stdout=file, stderr=file)
    wait_for(lambda: keys("bench/"), process, log)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 128 + signal.SIGINT, open(log).read()
    SAID.append(open(log).read())
    assert keys("") == before, keys("")


def test(server, folder):
    os.environ.update(server.environment())
    bucket = server.client()
    bucket.create_bucket(Bucket="lab")

    def keys(prefix):
        pages = bucket.list_objects_v2(Bucket="lab", Prefix=prefix)
        return [entry["Key"] for entry in pages.get("Contents", [])]

    os.environ["TUTTI_CACHE"] = os.path.join(folder, "cache")
    text = os.path.join(folder, "text.txt")
    with open(text, "w") as file:
        for i in range(4000):
            file.write(f"line {i} of {i * i % 97} and {i % 13}\n")
    near = os.path.join(folder, "corpus")
    for out in (near, "s3://lab/corpora/lines"):
        tutti("data", "prepare", text, "--tokenizer", "byte", "--out", out, "--holdout", "0.05")
    for suffix in ("bin", "idx", "checksums"):
        far = bucket.get_object(Bucket="lab", Key=f"corpora/lines.{suffix}")["Body"].read()
        assert far == open(f"{near}.{suffix}", "rb").read(), suffix
    assert not [key for key in keys("corpora/") if "tmp" in key or "pending" in key], keys("")
    tutti("data", "inspect", "s3://lab/corpora/lines")

    recipe = os.path.join(folder, "recipe.yaml")
    with open(recipe, "w") as file:
        file.write(RECIPE)
    # In the bucket; killed once there is a checkpoint to resume from.
    run = os.path.join(folder, "far")
    settings = ["data.train=s3://lab/corpora/lines", "checkpoint.store=s3://lab/runs"]
    log = os.path.join(folder, "far.log")
    with open(log, "w") as file:
        process = subprocess.Popen([TUTTI, "train", recipe, "--run", run, *settings],
                                   stdout=file, stderr=file)
    wait_for(lambda: any(key.endswith("manifest.json") for key in keys("runs/far/checkpoints/")),
             process, log)
    process.send_signal(signal.SIGKILL)
    process.wait()
    SAID.append(open(log).read())
    resumed_from = len(losses(run))
    tutti("train", run, "--stop-after", str(resumed_from + STEPS), code=75)
    last = max(losses(run))
    tutti("train", recipe, "--run", os.path.join(folder, "again"), f"data.train={near}",
          "--stop-after", str(last), code=75)
    again = losses(os.path.join(folder, "again"))
    found = losses(run)
    assert found and all(found[step] == again[step] for step in found), "losses differ"
    assert not os.path.exists(os.path.join(run, "checkpoints"))

    listed = json.loads(tutti("checkpoint", "list", run, "--json").stdout)["checkpoints"]
    assert listed and all(entry["valid"] for entry in listed), listed
    assert listed[-1]["path"].startswith("s3://lab/runs/far/checkpoints/step-"), listed
    assert tutti("checkpoint", "verify", run).stdout.count("intact") == len(listed)
    mine = tutti("eval", run, "--data", near + "-validation", "--json").stdout
    # What is in the bucket is enough for another machine.
    for path in glob.glob(os.path.join(run, "*")):
        if os.path.isfile(path):
            os.remove(path)
    far = tutti("eval", "s3://lab/runs/far", "--data", "s3://lab/corpora/lines-validation",
                "--json").stdout
    assert json.loads(mine)["loss"] == json.loads(far)["loss"], (mine, far)
    tutti("generate", "s3://lab/runs/far", "--prompt", "line", "--tokens", "8")

    # Another run of the same name does not continue this one, nor does this with another recipe.
    refused = tutti("train", recipe, "--run", os.path.join(folder, "other", "far"), *settings, code=2)
    assert f"belongs to the run of '{os.path.realpath(run)}'" in refused.stderr, refused.stderr
    refused = tutti("train", recipe, "--run", run, *settings, "batch.global=8", code=2)
    assert "batch.global" in refused.stderr, refused.stderr
    missing = tutti("train", recipe, "--run", run + "2", settings[0],
                    "checkpoint.store=s3://nowhere/runs", code=2)
    assert "there is no bucket 'nowhere'" in missing.stderr, missing.stderr
    refused = tutti("train", recipe, "--run", "s3://lab/runs/x", *settings, code=2)
    assert "checkpoint.store" in refused.stderr, refused.stderr
    other_tokenizer_is_refused(folder, recipe, settings, bucket, keys)
    before = keys("")
    for words in (["checkpoint", "export", "s3://lab/runs/far", "--out", "s3://lab/exported"],
                  ["data", "train-tokenizer", text, "--out", "s3://lab/t.model"],
                  ["data", "synthesize", "--out", "s3://lab/invented.jsonl"],
                  ["submit", recipe, "--run", "s3://lab/runs/x"],
                  ["train", recipe, "--run", run + "3", settings[0], "data.cache=s3://lab/cache"]):
        refused = tutti(*words, code=2)
        assert "in an object store" in refused.stderr and "local" in refused.stderr, refused.stderr
    assert keys("") == before, "something was uploaded"
    measure(folder, keys)
    assert not any(s3_servers.SECRET in text for text in SAID), "a secret was written"
    print(f"{len(found)} steps with a kill at {resumed_from}: losses equal")


def main():
    with tempfile.TemporaryDirectory() as folder, s3_servers.make(sys.argv[1], folder) as server:
        test(server, folder)


if __name__ == "__main__":
    apart()
    sys.exit(run_or_skip(main))
