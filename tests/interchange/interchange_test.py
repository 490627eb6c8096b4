#!/usr/bin/env python3
"""Models of transformers through `tutti checkpoint import` and `export`, against transformers.

    interchange_test.py PARITY_DUMP

Both ways the logits agree within f32 rounding (relative error of the norm), an export of an import
is the same bits, and a wrong layout of rotary pairs shows. Exit status: 0 passed, 1 failed, 77
skipped because a package is missing.
"""

import json
import pathlib
import shutil
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env", file=sys.stderr)
    sys.exit(77)

import hf_models
import tutti_runs
from tutti_runs import tutti

ROUNDING = 5e-6  # of the norm of all logits; observed: 1e-7 to 1.8e-6
WRONG = 1e-2
BATCH, LENGTH = 2, 61

failures = []


def check(case, what, value, passed, bound=""):
    print(f"{case:24} {what:44} {value!s:>12} {bound:12} {'ok' if passed else 'FAILED'}", flush=True)
    if not passed:
        failures.append(f"{case}: {what}")


def below(case, what, value, bound):
    check(case, what, f"{value:.3g}", value <= bound, f"<= {bound:g}")


def tensors_of(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        found.update(load_file(path))
    return found


def same_tensors(case, what, a, b):
    equal = a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape
        and torch.equal(a[n].view(torch.uint8 if a[n].ndim == 0 else a[n].dtype), b[n])
        for n in a)
    check(case, what, f"{len(a)} tensors", equal)


def some_tokens(model, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (BATCH, LENGTH), generator=generator)


def load(folder, **keys):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, **keys)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model.eval()


# What transformers may drop from a config.json or add to it without another model.
INCIDENTAL = {"transformers_version", "_name_or_path", "torch_dtype", "attn_pdrop", "n_ctx",
              "n_inner", "head_dim"}


def same_config(case, a, b):
    a, b = a.to_dict(), b.to_dict()
    differing = {k for k in a.keys() | b.keys() if a.get(k) != b.get(k)} - INCIDENTAL
    check(case, "configuration of the export", differing or "same", not differing)


def round_trip(case, model, folder, parity_dump, max_shard="5GB", dtype=torch.float32):
    """HF -> Tutti -> HF: logits of both sides, and the bits."""
    source, run, back = folder / "hf", folder / "run", folder / "back"
    model.to(dtype).save_pretrained(source, max_shard_size=max_shard)
    model = load(source, torch_dtype=torch.float32)  # what the files hold, widened
    result = tutti("checkpoint", "import", source, "--out", run)
    counted = sum(p.numel() for p in model.parameters())
    check(case, "parameters", result["parameters"], result["parameters"] == counted)
    tokens = some_tokens(model)
    expected = hf_models.logits(model, tokens)
    found = tutti_runs.logits(parity_dump, run, tokens, folder / "dump")
    below(case, "logits, HF -> Tutti", hf_models.relative_error(found, expected), ROUNDING)
    below(case, "largest KL divergence", hf_models.divergence(found, expected), 1e-6)
    tutti("checkpoint", "export", run, "--out", back)
    same_tensors(case, "export of the import, bits", tensors_of(source), tensors_of(back))
    loaded = load(back, torch_dtype=torch.float32)
    same_config(case, model.config, loaded.config)
    again = hf_models.logits(loaded, tokens)
    check(case, "logits of the export, bits", "", torch.equal(again, expected))


def bare_gpt2(folder, parity_dump):
    """Saved as GPT2Model: names without "transformer.", as the published files are."""
    model = hf_models.build("gpt2", seed=9)
    model.transformer.save_pretrained(folder / "hf")
    tutti("checkpoint", "import", folder / "hf", "--out", folder / "run")
    tokens = some_tokens(model)
    found = tutti_runs.logits(parity_dump, folder / "run", tokens, folder / "dump")
    below("gpt2 without prefix", "logits, HF -> Tutti",
          hf_models.relative_error(found, hf_models.logits(model, tokens)), ROUNDING)


def interleaved(weight, head_dim):
    """Rows of a query or key weight as in Meta's files: the inverse of transformers' `permute`."""
    heads = weight.shape[0] // head_dim
    return (weight.view(heads, 2, head_dim // 2, -1).transpose(1, 2)
            .reshape(weight.shape).contiguous())


def rope_layouts(folder, parity_dump):
    """Only the right layout of rotary pairs gives the right logits, and the other one shows."""
    model = hf_models.build("llama3.1", seed=3)
    source = folder / "hf"
    model.save_pretrained(source)
    weights = load_file(source / "model.safetensors")
    head_dim = model.config.hidden_size // model.config.num_attention_heads
    for name in weights:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weights[name] = interleaved(weights[name], head_dim)
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    tokens = some_tokens(model)
    expected = hf_models.logits(model, tokens)
    errors = {}
    for layout in ("interleaved", "half"):
        run = folder / layout
        tutti("checkpoint", "import", source, "--out", run, "--rope-layout", layout)
        found = tutti_runs.logits(parity_dump, run, tokens, folder / "dump")
        errors[layout] = hf_models.relative_error(found, expected)
        if layout == "half":
            kl = hf_models.divergence(found, expected)
    below("rope layout", "logits, read as it is", errors["interleaved"], ROUNDING)
    check("rope layout", "logits, read as the other", f"{errors['half']:.3g}",
          errors["half"] > WRONG, f"> {WRONG:g}")
    check("rope layout", "its largest KL divergence", f"{kl:.3g}", kl > WRONG, f"> {WRONG:g}")
    tutti("checkpoint", "export", folder / "interleaved", "--out", folder / "back",
          "--rope-layout", "interleaved")
    same_tensors("rope layout", "export of the import, bits", weights, tensors_of(folder / "back"))


RECIPE = """
model: {{{model}, vocabulary: 257, context: 32, layers: 2, hidden: 32, heads: 4, ffn: 48}}
precision: {precision}
threads: 2
data: {{train: c, validation: c-validation}}
batch: {{global: 4, sequence: 32}}
optimizer: {{learning_rate: 0.01}}
train: {{steps: 6}}
"""
TRAINED = {
    "trained gpt": ("norm: layer", "f32"),
    "trained gpt, no biases": ("norm: layer, linear_bias: false, norm_bias: false", "f32"),
    "trained llama": ("norm: rms, activation: swiglu, positions: rope, linear_bias: false, "
                      "kv_heads: 2, tied_embeddings: false", "bf16"),
}


def trained_runs(folder, parity_dump):
    """Tutti -> HF: a run that Tutti trained, in transformers; and back again."""
    for case, (model, precision) in TRAINED.items():
        recipe, run = folder / "recipe.yaml", folder / case.replace(" ", "-")
        recipe.write_text(RECIPE.format(model=model, precision=precision))
        tutti("train", recipe, "--run", run, f"data.train={folder / 'c'}",
              f"data.validation={folder / 'c-validation'}")
        out = folder / (run.name + "-hf")
        tutti("checkpoint", "export", run, "--out", out)
        loaded = load(out)
        tokens = torch.randint(257, (2, 32), generator=torch.Generator().manual_seed(1))
        found = tutti_runs.logits(parity_dump, run, tokens, folder / "dump")
        below(case, "logits, Tutti -> HF",
              hf_models.relative_error(hf_models.logits(loaded, tokens), found), ROUNDING)
        tutti("checkpoint", "import", out, "--out", folder / (run.name + "-back"))
        there, back = tutti_runs.parameters(run), tutti_runs.parameters(
            folder / (run.name + "-back"))
        added = {n: t for n, t in back.items() if n not in there}
        same = all(torch.equal(t, back[n]) for n, t in there.items())
        check(case, "import of the export, bits", f"{len(there)} tensors",
              same and not any(t.any() for t in added.values()))


def corpus_loss(model, tokens, length):
    """Mean loss of every token but the first, in windows as `tutti eval` cuts them."""
    total, count = 0.0, 0
    for begin in range(0, len(tokens) - 1, length):
        window = tokens[begin:begin + length + 1]
        scores = hf_models.logits(model, window[None, :-1])[0]
        total += float(torch.nn.functional.cross_entropy(scores, window[1:], reduction="sum"))
        count += len(window) - 1
    return total / count, count


def user_path(folder, _):
    """Import, evaluate, train on, export: the workflow of fine-tuning."""
    case = "user path"
    kind, keys = hf_models.CONFIGS["llama3.1"]
    hf_models.CONFIGS["bytes"] = (kind, {**keys, "vocab_size": 257, "max_position_embeddings": 64})
    model = hf_models.build("bytes")
    for p in model.parameters():  # a model that predicts, rather than one that is sure and wrong
        p.data *= 0.5 if p.ndim == 2 else 1
    model.save_pretrained(folder / "hf", max_shard_size="100KB")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / "hf" / name).write_text(json.dumps({"version": "1.0", "of": name}))
    base = folder / "base"
    result = tutti("checkpoint", "import", folder / "hf", "--out", base)
    check(case, "kept files", len(result["files"]), len(result["files"]) == 5)
    validation = folder / "c-validation"
    evaluated = tutti("eval", base, "--data", validation)
    tokens = torch.from_numpy(np.fromfile(f"{validation}.bin", "<u2").astype(np.int64))
    expected, count = corpus_loss(model, tokens, 64)
    check(case, "evaluated tokens", evaluated["tokens"], evaluated["tokens"] == count)
    below(case, "loss against transformers", abs(evaluated["loss"] - expected) / expected, 1e-5)
    recipe = folder / "tune.yaml"
    recipe.write_text(
        f"model: {base}/model.yaml\nprecision: bf16\nthreads: 2\n"
        f"data: {{train: {folder / 'c'}, validation: {validation}}}\n"
        "batch: {global: 8, sequence: 64}\noptimizer: {learning_rate: 3e-3}\n"
        f"checkpoint: {{initialize_from: {base}}}\ntrain: {{steps: 5}}\n")
    tuned = tutti("train", recipe, "--run", folder / "tuned")
    check(case, "loss after 5 steps", f"{tuned['validation_loss']:.3f}",
          tuned["validation_loss"] < 0.95 * evaluated["loss"], f"< {evaluated['loss']:.3f}")
    shutil.rmtree(base)  # the tuned run needs it no more
    out = folder / "tuned-hf"
    result = tutti("checkpoint", "export", folder / "tuned", "--out", out, "--dtype", "bf16",
                   "--shard-bytes", "200kB")
    check(case, "weight files", len(result["weight_files"]), len(result["weight_files"]) > 1)
    kept = [(out / name).read_bytes() == (folder / "hf" / name).read_bytes()
            for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                         "generation_config.json")]
    check(case, "tokenizer files", sum(kept), all(kept))
    loaded = load(out, torch_dtype="auto")
    check(case, "type", loaded.dtype, loaded.dtype == torch.bfloat16)
    check(case, "special tokens", loaded.config.eos_token_id, loaded.config.eos_token_id == 7)
    loss, _ = corpus_loss(loaded.float(), tokens, 64)
    below(case, "its loss in transformers", abs(loss / tuned["validation_loss"] - 1), 5e-3)


def main():
    parity_dump = sys.argv[1]
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="tutti_interchange_") as temporary:
        root = pathlib.Path(temporary)
        for name in hf_models.CONFIGS.copy():
            round_trip(name, hf_models.build(name), root / name, parity_dump)
        round_trip("llama3.1, shards", hf_models.build("llama3.1"), root / "s", parity_dump,
                   max_shard="200KB")
        round_trip("llama3.1, bf16", hf_models.build("llama3.1"), root / "b", parity_dump,
                   dtype=torch.bfloat16)
        round_trip("gpt2, f16", hf_models.build("gpt2"), root / "h", parity_dump,
                   dtype=torch.float16)
        text = root / "text.txt"
        text.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(2000)))
        for case in (bare_gpt2, rope_layouts, trained_runs, user_path):
            folder = root / case.__name__
            folder.mkdir()
            tutti("data", "prepare", text, "--out", folder / "c", "--holdout", "0.1")
            case(folder, parity_dump)
    if failures:
        sys.exit("FAILED: " + "; ".join(failures))


if __name__ == "__main__":
    main()
