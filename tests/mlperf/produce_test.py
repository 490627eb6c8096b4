"""The benchmarks' recipes: at full size their hyperparameters are by the rules; at a tiny one they
train to run_stop, and the checker finds what the size must cause and nothing else. tutti-mini, cut
short: same seed, same samples to target."""

import os
import tempfile

from produced import (ends_as_expected, findings, full_size_is_described, prepare_corpus, recipe_file,
                      records, result, tiny, tutti)

# Recipe, ruleset, what the checker must say of a tiny run.
BENCHMARKS = [
    ("gpt3-175b", "4.1.0", {("target.not_reached", "eval_accuracy")}),
    ("llama2-70b-lora", "5.1.0", {("target.not_reached", "eval_accuracy")}),
    ("llama31-8b", "5.1.0",
     {("target.not_reached", "eval_accuracy"), ("key.value", "eval_samples")}),
    ("llama31-405b", "5.1.0", {("key.value", "eval_samples")}),
    ("gpt-oss-20b", "6.0.0",
     {("target.not_reached", "eval_accuracy"), ("key.value", "eval_samples")}),
]


def wrong_rate_is_reported(folder):
    done = tutti(folder, "train", recipe_file("gpt3-175b"), "--dry-run", "--json",
                 "optimizer.learning_rate=2.5e-5", code=1)
    found = result(done)["mlperf"]["findings"]
    assert [f["rule"] for f in found] == ["key.value"], found
    assert "opt_base_learning_rate" in found[0]["message"]


def tiny_run_reaches_its_end(folder, name, ruleset, expected):
    recipe = recipe_file(name)
    extra = []
    if "lora" in name:
        tutti(folder, "train", recipe, *tiny(name), "--run", "base", "lora={}",
              'mlperf.benchmark=""', "train.target_loss=null", "train.steps=1", "schedule.decay_steps=1",
              "batch.sequence=64")
        extra = ["checkpoint.initialize_from=base"]
    tutti(folder, "train", recipe, *tiny(name), "--run", name, *extra)
    log = ends_as_expected(folder, name, ruleset, expected)
    if "gpt3" in name:  # a progress of tokens
        accuracy = [r for r in log if r["key"] == "eval_accuracy"][0]
        assert accuracy["metadata"]["epoch_num"] == 2048 * accuracy["metadata"]["samples_count"]
    clear = [r for r in log if r["key"] == "cache_clear"][0]
    assert clear["value"] is True and "corpora" in clear["metadata"]["how"], clear


def a_missing_corpus_costs_nothing(folder):
    """A log makes its folder unusable for another run: a missing corpus is reported before."""
    recipe = recipe_file("llama31-8b")
    gone = [os.path.join(folder, "invented" + suffix) for suffix in (".bin", ".idx")]
    for path in gone:
        os.rename(path, path + ".away")
    done = tutti(folder, "train", recipe, *tiny("llama31-8b"), "--run", "early", code=2)
    assert "no corpus 'invented'" in done.stderr, done.stderr
    assert not os.path.exists(os.path.join(folder, "early")), os.listdir(folder)
    for path in gone:
        os.rename(path + ".away", path)
    tutti(folder, "train", recipe, *tiny("llama31-8b"), "--run", "early")
    assert [r["metadata"]["status"] for r in records(os.path.join(folder, "early"))
            if r["key"] == "run_stop"] == ["success"]


def a_run_starts_once(folder):
    done = tutti(folder, "train", recipe_file("gpt3-175b"), *tiny("gpt3-175b"), "--run", "gpt3-175b",
                 code=2)
    assert "cannot be resumed" in done.stderr, done.stderr


def mini(folder, run, seed):
    """Cut short: a target of 2.6 instead of 0.75."""
    tutti(folder, "train", recipe_file("tutti-mini"), "--run", run,
          "train.target_loss=2.6", f"train.seed={seed}")
    found = findings(folder, os.path.join(run, "mlperf.log"), "tutti-1")
    assert {f["rule"] for f in found} == {"target.not_reached"}, found
    log = records(os.path.join(folder, run))
    return [(r["metadata"]["samples_count"], r["value"]) for r in log if r["key"] == "eval_accuracy"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        prepare_corpus(folder)
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
