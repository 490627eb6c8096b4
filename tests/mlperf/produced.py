"""What the tests of this folder share: runs of the benchmarks' recipes at a tiny size, their logs,
and what the checker finds in them."""

import json
import os
import subprocess

TUTTI = os.environ["TUTTI_BINARY"]
RECIPES = os.path.join(os.environ["TUTTI_SOURCE_DIR"], "recipes", "mlperf")


def recipe_file(name):
    return os.path.join(RECIPES, name + ".yaml")


def tiny(name):
    """Options that shrink a benchmark: of some, a second file shrinks what only they have."""
    overlays = [recipe_file("tiny"), recipe_file("tiny-" + name)]
    return [word for path in overlays if os.path.exists(path) for word in ("--with", path)]


def tutti(folder, *arguments, code=0):
    done = subprocess.run([TUTTI, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def result(done):
    return json.loads(done.stdout)


def prepare_corpus(folder):
    """The corpora that mlperf/tiny names."""
    tutti(folder, "data", "synthesize", "--documents", "300", "--out", "invented.jsonl")
    tutti(folder, "data", "prepare", "invented.jsonl", "--out", "invented", "--tokenizer", "byte",
          "--holdout", "0.1")


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
    out = result(tutti(folder, "train", recipe_file(name), "--dry-run", "--json"))
    assert out["mlperf"]["compliant"], out["mlperf"]["findings"]
    assert out["parameters"] > 6e9 and out["memory_bytes_per_rank"] > 0, out
    assert out["ranks"] == sum(part["ranks"] for part in out["memory"])
    assert any('"key": "opt_base_learning_rate"' in line for line in out["mlperf"]["lines"])
    return out


def ends_as_expected(folder, run, ruleset, expected):
    """The checker finds in the log of a tiny run what is `expected`, once each; the run succeeded."""
    found = findings(folder, os.path.join(run, "mlperf.log"), ruleset)
    assert {subject(f) for f in found} == expected and len(found) == len(expected), found
    log = records(os.path.join(folder, run))
    assert [r["metadata"]["status"] for r in log if r["key"] == "run_stop"] == ["success"]
    times = [r["time_ms"] for r in log]
    assert times == sorted(times)
    return log
