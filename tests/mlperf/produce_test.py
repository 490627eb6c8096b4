"""The benchmarks' recipes: at full size their hyperparameters are by the rules; at a tiny one they
train to run_stop, and the checker finds what the size must cause and nothing else. tutti-mini, cut
short: same seed, same samples to target."""

import json
import os
import subprocess
import tempfile

TUTTI = os.environ["TUTTI_BINARY"]
RECIPES = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "recipes", "mlperf")
TINY = os.path.join(RECIPES, "tiny.yaml")

# Recipe, ruleset, what the checker must say of a tiny run.
BENCHMARKS = [
    ("gpt3-175b", "4.1.0", {("target.not_reached", "eval_accuracy")}),
    ("llama2-70b-lora", "5.1.0", {("target.not_reached", "eval_accuracy")}),
    ("llama31-8b", "5.1.0",
     {("target.not_reached", "eval_accuracy"), ("key.value", "eval_samples")}),
    ("llama31-405b", "5.1.0", {("key.value", "eval_samples")}),
]


def tutti(folder, *arguments, code=0):
    done = subprocess.run([TUTTI, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def result(done):
    return json.loads(done.stdout)


def records(run):
    """The MLPerf lines of a run, read as mllog's own users do."""
    prefix = ":::MLLOG "
    with open(os.path.join(run, "mlperf.log")) as file:
        lines = file.read().splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return [json.loads(line[len(prefix):]) for line in lines]


def findings(folder, log, ruleset):
    done = subprocess.run([TUTTI, "mlperf", "check", log, "--ruleset", ruleset, "--json"],
                          cwd=folder, capture_output=True, text=True)
    out = json.loads(done.stdout)
    assert out["compliant"] == (done.returncode == 0)
    return [f for f in out["findings"] if not f.get("warning")]


def subject(finding):
    """Rule and key that a finding is about."""
    key = "eval_accuracy" if finding["rule"].startswith("target") else finding["message"].split()[0]
    return finding["rule"], key


def full_size_is_described(folder, name):
    out = result(tutti(folder, "train", os.path.join(RECIPES, name + ".yaml"), "--dry-run", "--json"))
    assert out["mlperf"]["compliant"], out["mlperf"]["findings"]
    assert out["parameters"] > 6e9 and out["memory_bytes_per_rank"] > 0, out
    assert out["ranks"] == sum(part["ranks"] for part in out["memory"])
    assert any('"key": "opt_base_learning_rate"' in line for line in out["mlperf"]["lines"])


def wrong_rate_is_reported(folder):
    done = tutti(folder, "train", os.path.join(RECIPES, "gpt3-175b.yaml"), "--dry-run", "--json",
                 "optimizer.learning_rate=2.5e-5", code=1)
    found = result(done)["mlperf"]["findings"]
    assert [f["rule"] for f in found] == ["key.value"], found
    assert "opt_base_learning_rate" in found[0]["message"]


def tiny_run_reaches_its_end(folder, name, ruleset, expected):
    recipe = os.path.join(RECIPES, name + ".yaml")
    extra = []
    if "lora" in name:
        tutti(folder, "train", recipe, "--with", TINY, "--run", "base", "lora={}",
              'mlperf.benchmark=""', "train.target_loss=null", "train.steps=1", "schedule.decay_steps=1",
              "batch.sequence=64")
        extra = ["checkpoint.initialize_from=base"]
    tutti(folder, "train", recipe, "--with", TINY, "--run", name, *extra)
    found = findings(folder, os.path.join(name, "mlperf.log"), ruleset)
    assert {subject(f) for f in found} == expected and len(found) == len(expected), found
    log = records(os.path.join(folder, name))
    assert [r["metadata"]["status"] for r in log if r["key"] == "run_stop"] == ["success"]
    times = [r["time_ms"] for r in log]
    assert times == sorted(times)
    if "gpt3" in name:  # a progress of tokens
        accuracy = [r for r in log if r["key"] == "eval_accuracy"][0]
        assert accuracy["metadata"]["epoch_num"] == 2048 * accuracy["metadata"]["samples_count"]
    clear = [r for r in log if r["key"] == "cache_clear"][0]
    assert clear["value"] is True and "corpora" in clear["metadata"]["how"], clear


def a_missing_corpus_costs_nothing(folder):
    """A log makes its folder unusable for another run: a missing corpus is reported before."""
    recipe = os.path.join(RECIPES, "llama31-8b.yaml")
    gone = [os.path.join(folder, "invented" + suffix) for suffix in (".bin", ".idx")]
    for path in gone:
        os.rename(path, path + ".away")
    done = tutti(folder, "train", recipe, "--with", TINY, "--run", "early", code=2)
    assert "no corpus 'invented'" in done.stderr, done.stderr
    assert not os.path.exists(os.path.join(folder, "early")), os.listdir(folder)
    for path in gone:
        os.rename(path + ".away", path)
    tutti(folder, "train", recipe, "--with", TINY, "--run", "early")
    assert [r["metadata"]["status"] for r in records(os.path.join(folder, "early"))
            if r["key"] == "run_stop"] == ["success"]


def a_run_starts_once(folder):
    done = tutti(folder, "train", os.path.join(RECIPES, "gpt3-175b.yaml"), "--with", TINY, "--run",
                 "gpt3-175b", code=2)
    assert "cannot be resumed" in done.stderr, done.stderr


def mini(folder, run, seed):
    """Cut short: a target of 2.6 instead of 0.75."""
    tutti(folder, "train", os.path.join(RECIPES, "tutti-mini.yaml"), "--run", run,
          "train.target_loss=2.6", f"train.seed={seed}")
    found = findings(folder, os.path.join(run, "mlperf.log"), "tutti-1")
    assert {f["rule"] for f in found} == {"target.not_reached"}, found
    log = records(os.path.join(folder, run))
    return [(r["metadata"]["samples_count"], r["value"]) for r in log if r["key"] == "eval_accuracy"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        tutti(folder, "data", "synthesize", "--documents", "300", "--out", "invented.jsonl")
        tutti(folder, "data", "prepare", "invented.jsonl", "--out", "invented", "--tokenizer", "byte",
              "--holdout", "0.1")
        a_missing_corpus_costs_nothing(folder)
        for name, ruleset, expected in BENCHMARKS:
            full_size_is_described(folder, name)
            tiny_run_reaches_its_end(folder, name, ruleset, expected)
        wrong_rate_is_reported(folder)
        a_run_starts_once(folder)

        tutti(folder, "data", "synthesize", "--documents", "6000", "--out", "mini.jsonl")
        tutti(folder, "data", "prepare", "mini.jsonl", "--out", "corpora/tutti-mini", "--tokenizer",
              "byte", "--holdout", "0.05")
        first = mini(folder, "first", 7)
        assert mini(folder, "again", 7) == first
        assert mini(folder, "other", 8) != first
    print("ok")


main()
