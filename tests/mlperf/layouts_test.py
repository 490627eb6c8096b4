"""The benchmarks with experts: at full size compliant, with what the rules ask beyond the keys of
other benchmarks; at a tiny one trained to run_stop on one rank and in layouts of two, with the same
losses and the findings that the size must cause."""

import json
import tempfile

from produced import (ends_as_expected, full_size_is_described, prepare_corpus, recipe_file, tiny,
                      tutti)

TARGET = ("target.not_reached", "eval_accuracy")
SAMPLES = ("key.value", "eval_samples")
BATCH = ("key.value", "global_batch_size")

# Recipe, findings, layouts of two ranks.
BENCHMARKS = [
    ("gpt-oss-20b", {TARGET, SAMPLES},
     [["parallel.dp=2", "parallel.ep=2"], ["parallel.tp=2"], ["parallel.pp=2"]]),
    ("deepseek-v3", {TARGET, SAMPLES, BATCH},
     [["parallel.dp=2", "parallel.ep=2"], ["parallel.tp=2"], ["parallel.pp=2"]]),
]


def logged(out, key):
    """The value of a key in the log that a dry run shows."""
    lines = [json.loads(line[line.index("{"):]) for line in out["mlperf"]["lines"]]
    values = [line["value"] for line in lines if line["key"] == key]
    assert len(values) == 1, (key, values)
    return values[0]


def deepseek_asks_for_more(folder):
    out = full_size_is_described(folder, "deepseek-v3")
    assert logged(out, "moe_aux_loss_coeff") == 0.01
    assert abs(out["parameters"] - 671e9) < 1e9, out["parameters"]
    # A batch and its rate belong together; ruleset 6.1.0 fixes the first evaluation.
    for change, rule in (("batch.global=20480", "opt_base_learning_rate"),
                         ("model.moe.balance_loss=0.01", "moe_aux_loss_coeff"),
                         ("evaluate.skip_first=41", "first evaluation")):
        done = tutti(folder, "train", recipe_file("deepseek-v3"), "--dry-run", "--json", change, code=1)
        found = json.loads(done.stdout)["mlperf"]["findings"]
        assert len(found) == 1 and rule in found[0]["message"], found


def losses(log):
    return [record["value"] for record in log if record["key"] == "eval_accuracy"]


def layouts_agree(folder, name, expected, layouts):
    command = ["train", recipe_file(name), *tiny(name)]
    tutti(folder, *command, "--run", name)
    reference = losses(ends_as_expected(folder, name, "6.0.0", expected))
    for number, layout in enumerate(layouts):
        run = f"{name}-{number}"
        tutti(folder, *command, "--nproc", "2", "--run", run, *layout)
        found = losses(ends_as_expected(folder, run, "6.0.0", expected))
        assert len(found) == len(reference) > 0, (run, found)
        for value, wanted in zip(found, reference):
            assert abs(value - wanted) <= 1e-6 * wanted, (run, found, reference)


def main():
    with tempfile.TemporaryDirectory() as folder:
        prepare_corpus(folder)
        assert full_size_is_described(folder, "gpt-oss-20b")["mlperf"]["ruleset"] == "6.1.0"
        deepseek_asks_for_more(folder)
        for name, expected, layouts in BENCHMARKS:
            layouts_agree(folder, name, expected, layouts)
    print("ok")


main()
