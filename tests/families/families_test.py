#!/usr/bin/env python3
"""Today's families against what transformers computed (fixtures/, make_fixtures.py).

    families_test.py PARITY_DUMP [CASE...]

Of every model of family_models.py: `tutti checkpoint import`, then logits, loss, the gradient of
every tensor and greedy tokens as transformers has them; the export is the same bits and says the
same of the model. Gradients are compared by Tutti's names: a model whose weights are the expected
gradients is imported like any other. Exit status: 0 passed, 1 failed, 77 skipped because a package
is missing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env", file=sys.stderr)
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import family_models  # noqa: E402
import safetensors_file  # noqa: E402

TUTTI = os.environ["TUTTI_BINARY"]
LOSS, GRADIENT, LOGITS = 1e-6, 1e-5, 5e-6  # relative; the latter two of norms

failures = []


def check(case, what, passed, value=""):
    if not passed:
        failures.append(f"{case}: {what}")
        print(f"{case:14} {what:40} {value} FAILED", flush=True)


def tutti(*arguments):
    done = subprocess.run([TUTTI, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"tutti {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)


def relative_error(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    size = np.linalg.norm(expected)
    return float(np.linalg.norm(found - expected) / size) if size > 0 else float(np.abs(found).max())


def stored(folder, prefix=""):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(safetensors_file.read(path))
    return {n[len(prefix):]: t for n, t in tensors.items() if n.startswith(prefix)}


def parameters(run):
    step = max((pathlib.Path(run) / "checkpoints").glob("step-*"))
    return stored(step, "param.")


def model_folder(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors_file.write(folder / "model.safetensors", tensors)
    return folder


def dump(program, folder, run, ids):
    """What parity_dump makes of the run's model on the tokens."""
    model = (run / "recipe.yaml").read_text().split("\nprecision:")[0]
    (folder / "recipe.yaml").write_text(
        f"{model}\nprecision: f32\nthreads: 1\nbatch: {{global: {ids.shape[0]}, "
        f"micro: {ids.shape[0]}, sequence: {ids.shape[1] - 1}}}\ntrain: {{steps: 1}}\n")
    safetensors_file.write(folder / "weights.safetensors", parameters(run))
    safetensors_file.write(folder / "tokens.safetensors", {
        "tokens": ids[None, :, :-1], "targets": ids[None, :, 1:],
        "prompt": ids[0, :family_models.PROMPT]})
    subprocess.run(
        [program, *(folder / f"{name}" for name in (
            "recipe.yaml", "weights.safetensors", "tokens.safetensors", "out.safetensors"))],
        check=True)
    return safetensors_file.read(folder / "out.safetensors")


def meaning(config):
    """A config.json without what older files say elsewhere or not at all."""
    out = {k: v for k, v in config.items() if v is not None}
    out.pop("num_nextn_predict_layers", None)  # what predicts further tokens is left out
    if "num_local_experts" in out:
        out.setdefault("num_experts", out.pop("num_local_experts"))
    rope = dict(out.pop("rope_parameters", {}))
    scaling = out.pop("rope_scaling", None) or {}
    if "full_attention" in rope:
        window = rope["sliding_attention"]
        out.setdefault("rope_local_base_freq", window["rope_theta"])
        rope = dict(rope["full_attention"])
    rope.update(scaling)
    out.setdefault("rope_theta", rope.pop("rope_theta", None))
    if "partial_rotary_factor" in rope:
        out["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope.get("rope_type", "default") != "default":
        out["rope"] = {"beta_fast": 32.0, "beta_slow": 1.0, **rope}
        if rope["rope_type"] == "linear":
            out["rope"] = {k: rope[k] for k in ("rope_type", "factor")}
    return out


# Said by one side only, and without effect on the arithmetic.
INCIDENTAL = {"torch_dtype", "_sliding_window_pattern", "original_max_position_embeddings",
              "resid_pdrop", "embd_pdrop", "use_cache", "head_dim", "max_window_layers",
              "use_bidirectional_attention", "attention_bias", "no_rope_layer_interval",
              "partial_rotary_factor", "output_router_logits", "qk_head_dim", "mlp_bias",
              "moe_layer_freq", "scoring_func", "topk_method", "n_group", "topk_group",
              "rope_interleave", "pretraining_tp"}


def same_config(case, given, exported):
    a, b = meaning(given), meaning(exported)
    differing = {k: (a.get(k), b.get(k)) for k in a.keys() | b.keys()
                 if a.get(k) != b.get(k) and not (k in INCIDENTAL and (k not in a or k not in b))}
    differing.pop("layer_types", None) if set(a.get("layer_types", ["full_attention"])) == {
        "full_attention"} else None
    check(case, "configuration of the export", not differing, differing)


def run_case(program, case, folder):
    fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
    expected = safetensors_file.read(HERE / "fixtures" / f"{case}.safetensors")
    weights = {name: family_models.weight(case, name, shape)
               for name, shape in fixture["tensors"].items()}
    config = fixture["config"]
    run = folder / "run"
    tutti("checkpoint", "import", model_folder(folder / "hf", config, weights), "--out", run)
    out = dump(program, folder, run, family_models.tokens(case, config["vocab_size"]))

    error = relative_error(out["logits"], expected["logits"].reshape(out["logits"].shape))
    check(case, "logits", error <= LOGITS, error)
    loss = abs(out["loss"][0] / fixture["loss"] - 1)
    check(case, "loss", loss <= LOSS, loss)
    check(case, "greedy tokens", out["greedy"].tolist() == fixture["greedy"], out["greedy"])

    # Selection biases of routers have none.
    gradients = {name: expected.get(f"grad.{name}", np.zeros(shape, np.float32))
                 for name, shape in fixture["tensors"].items()}
    wanted_run = folder / "gradients"
    tutti("checkpoint", "import", model_folder(folder / "hf-gradients", config, gradients), "--out",
          wanted_run)
    worst = 0.0
    for name, wanted in parameters(wanted_run).items():
        error = relative_error(out[f"grad.{name}"], wanted)
        worst = max(worst, error)
        check(case, f"gradient of {name}", error <= GRADIENT, error)

    back = folder / "back"
    tutti("checkpoint", "export", run, "--out", back)
    again = stored(back)
    check(case, "tensors of the export", again.keys() == weights.keys(),
          again.keys() ^ weights.keys())
    for name, tensor in again.items():
        check(case, f"bits of {name}", np.array_equal(tensor.view(np.int32),
                                                      weights[name].view(np.int32)))
    same_config(case, config, json.loads((back / "config.json").read_text()))
    print(f"{case:14} loss off by {loss:.1e}, gradients by up to {worst:.1e}", flush=True)


GPT_OSS_ROPE = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 2.5, "beta_slow": 0.5,
                "original_max_position_embeddings": 16}

DEEPSEEK_ROPE = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0,  # without mscale
                 "original_max_position_embeddings": 16}

# case: what its config.json would be without one part, which then shows.
WITHOUT = [
    ("qwen2-3", {"use_sliding_window": False}),
    ("qwen2-3", {"max_window_layers": 3, "layer_types": None}),
    ("mistral-1", {"sliding_window": 6}),
    ("gemma2-1", {"attn_logit_softcapping": None}),
    ("gemma2-1", {"final_logit_softcapping": None}),
    ("gemma2-1", {"query_pre_attn_scalar": 8}),
    ("gemma2-1", {"layer_types": ["full_attention"] * 3}),
    ("gemma3-1", {"rope_parameters": None, "rope_theta": 1e6}),
    ("phi3-3", {"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}}),
    ("smollm3-1", {"no_rope_layers": [1, 1, 1]}),
    ("granite-1", {"embedding_multiplier": 1.0}),
    ("granite-1", {"residual_multiplier": 1.0}),
    ("granite-1", {"logits_scaling": 1.0}),
    ("granite-1", {"attention_multiplier": 0.4}),
    ("qwen3-moe-1", {"norm_topk_prob": False}),
    ("qwen3-moe-1", {"num_experts_per_tok": 3}),
    ("qwen3-moe-2", {"use_sliding_window": False}),
    ("olmoe-1", {"norm_topk_prob": True}),
    ("gpt-oss-1", {"layer_types": ["full_attention"] * 3}),
    ("gpt-oss-3", {"rope_parameters": {**GPT_OSS_ROPE, "truncate": True}}),
    ("deepseek-v2-1", {"topk_method": "greedy"}),
    ("deepseek-v2-1", {"topk_group": 1}),
    ("deepseek-v2-1", {"routed_scaling_factor": 1.0}),
    ("deepseek-v2-1", {"rope_parameters": {**DEEPSEEK_ROPE, "beta_fast": 8.0}}),
    ("deepseek-v2-3", {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}),
    ("deepseek-v3-1", {"n_group": 1, "topk_group": 1}),
    ("deepseek-v3-1", {"topk_group": 3}),
    ("deepseek-v3-1", {"norm_topk_prob": False}),
    ("deepseek-v3-1", {"routed_scaling_factor": 1.0}),
    ("deepseek-v3-1", {"rope_parameters": {**DEEPSEEK_ROPE, "beta_slow": 0.5}}),
    ("deepseek-v3-3", {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}),
    ("llama-yarn-1", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}),
    ("llama-yarn-3", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}),
]
SHOWS = 1e-3


def parts_show(program, folder):
    """Without a part the logits are others: none is read and then left out."""
    for index, (case, keys) in enumerate(WITHOUT):
        here = folder / str(index)
        here.mkdir()
        fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
        expected = safetensors_file.read(HERE / "fixtures" / f"{case}.safetensors")["logits"]
        weights = {name: family_models.weight(case, name, shape)
                   for name, shape in fixture["tensors"].items()}
        config = {k: v for k, v in {**fixture["config"], **keys}.items()
                  if v is not None or "softcapping" in k or k not in keys}
        tutti("checkpoint", "import", model_folder(here / "hf", config, weights), "--out",
              here / "run")
        out = dump(program, here, here / "run",
                   family_models.tokens(case, config["vocab_size"]))["logits"]
        error = relative_error(out, expected.reshape(out.shape))
        check(case, f"shows {keys}", error > SHOWS, error)
    print(f"{len(WITHOUT)} parts left out show", flush=True)


def window_hides(program, folder):
    """In one layer a token changes the logits of its window, and of no token behind it."""
    case, window, changed = "mistral-1", 5, 3
    fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
    config = {**fixture["config"], "num_hidden_layers": 1}
    weights = {name: family_models.weight(case, name, shape)
               for name, shape in fixture["tensors"].items()
               if not name.startswith(("model.layers.1.", "model.layers.2."))}
    tutti("checkpoint", "import", model_folder(folder / "hf", config, weights), "--out",
          folder / "run")
    ids = family_models.tokens(case, config["vocab_size"])[:1]
    other = ids.copy()
    other[0, changed] = 3 + (ids[0, changed] + 7) % (config["vocab_size"] - 3)
    a, b = (dump(program, folder, folder / "run", one)["logits"] for one in (ids, other))
    differs = (a != b).any(axis=1).tolist()
    wanted = [changed <= row < changed + window for row in range(len(differs))]
    check(case, "rows that see a changed token", differs == wanted, differs)


def sinks_show(program, folder):
    """The score that a head has besides its keys changes the logits of every row."""
    case = "gpt-oss-2"
    fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
    config = fixture["config"]
    logits = []
    for index, shift in enumerate((0.0, 0.5)):
        here = folder / str(index)
        here.mkdir()
        weights = {name: family_models.weight(case, name, shape)
                   for name, shape in fixture["tensors"].items()}
        weights["model.layers.1.self_attn.sinks"] += np.float32(shift)
        tutti("checkpoint", "import", model_folder(here / "hf", config, weights), "--out",
              here / "run")
        ids = family_models.tokens(case, config["vocab_size"])[:1]
        logits.append(dump(program, here, here / "run", ids)["logits"])
    check(case, "rows that a sink changes", (logits[0] != logits[1]).any(axis=1).all())


def selection_biases_choose(program, folder):
    """Biases of a router choose experts, and do not weigh them: what they add to all says nothing."""
    case = "deepseek-v3-1"
    fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
    config = fixture["config"]
    logits = {}
    for kind in ("given", "shifted", "without"):
        here = folder / kind
        here.mkdir()
        weights = {name: family_models.weight(case, name, shape)
                   for name, shape in fixture["tensors"].items()}
        for name in weights:
            if name.endswith("e_score_correction_bias"):
                weights[name] = {"given": weights[name], "shifted": weights[name] + np.float32(1),
                                 "without": np.zeros_like(weights[name])}[kind]
        tutti("checkpoint", "import", model_folder(here / "hf", config, weights), "--out",
              here / "run")
        ids = family_models.tokens(case, config["vocab_size"])[:1]
        logits[kind] = dump(program, here, here / "run", ids)["logits"]
    check(case, "a bias of all experts says nothing",
          np.array_equal(logits["given"], logits["shifted"]))
    check(case, "selection biases choose",
          relative_error(logits["without"], logits["given"]) > SHOWS)


CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-x for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)])


def refusal(folder, config, tensors):
    """What `tutti checkpoint import` says of a folder that it refuses; empty where it does not."""
    model_folder(folder / "hf", config, tensors)
    done = subprocess.run([TUTTI, "checkpoint", "import", folder / "hf", "--out", folder / "run"],
                          capture_output=True, text=True)
    if done.returncode == 0 or (folder / "run" / "checkpoints").exists():
        return ""
    return done.stderr


def damaged_mxfp4_is_refused(folder, config, packed):
    """Blocks and scales that are not of one tensor, or no numbers, by name and without a trace."""
    name = "model.layers.1.mlp.experts.gate_up_proj"
    blocks, scales = packed[name + "_blocks"], packed[name + "_scales"]
    no_number = scales.copy()
    no_number[1, 3, 0] = 255
    damages = [
        ({name + "_scales": None}, f"'{name}_scales' is missing"),
        ({name + "_blocks": None}, f"'{name}' is missing"),
        ({name + "_scales": scales[:, :-1]}, f"'{name}_scales' is u8"),
        ({name + "_scales": scales.astype(np.int32)}, f"'{name}_scales' is i32"),
        ({name + "_blocks": blocks.reshape(*blocks.shape[:2], -1)}, f"'{name}_blocks' is u8"),
        ({name + "_scales": no_number}, f"'{name}_blocks'"),
        ({name + "_extra": scales}, f"'{name}_extra' is not part of the model"),
    ]
    for index, (damage, wanted) in enumerate(damages):
        tensors = {k: v for k, v in {**packed, **damage}.items() if v is not None}
        said = refusal(folder / f"damaged-{index}", config, tensors)
        check("gpt-oss-3", f"refuses {wanted}", wanted in said, said)


def mxfp4_is_read(_, folder):
    """Experts in MXFP4 are the numbers that their codes and scales stand for."""
    case = "gpt-oss-3"
    fixture = json.loads((HERE / "fixtures" / f"{case}.json").read_text())
    packed, plain = {}, {}
    for name, shape in fixture["tensors"].items():
        tensor = family_models.weight(case, name, shape)
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = shape
            seed = f"{case}/{name}"
            count = experts * outputs * inputs
            codes = (family_models.uniform(seed, count) * 8 + 8).astype(np.uint8)
            codes = codes.reshape(experts, outputs, inputs // 32, 32)
            scales = (family_models.uniform(seed + "/scales", count // 32) * 6 + 124).astype(np.uint8)
            scales = scales.reshape(experts, outputs, inputs // 32)
            packed[name + "_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
            packed[name + "_scales"] = scales
            values = CODES[codes] * 2.0 ** (scales[..., None].astype(int) - 127)
            plain[name] = np.ascontiguousarray(
                values.reshape(experts, outputs, inputs).transpose(0, 2, 1)).astype(np.float32)
        else:
            packed[name] = plain[name] = tensor
    runs = {}
    for kind, weights in (("packed", packed), ("plain", plain)):
        config = dict(fixture["config"])
        if kind == "packed":
            config["quantization_config"] = {"quant_method": "mxfp4"}
        tutti("checkpoint", "import", model_folder(folder / kind, config, weights), "--out",
              folder / f"{kind}-run", "--dtype", "f32")
        runs[kind] = parameters(folder / f"{kind}-run")
    damaged_mxfp4_is_refused(
        folder, {**fixture["config"], "quantization_config": {"quant_method": "mxfp4"}}, packed)
    for name, tensor in runs["plain"].items():
        check(case, f"{name} from MXFP4", np.array_equal(runs["packed"][name], tensor))
    print("experts in MXFP4 are read", flush=True)


def main():
    program, *chosen = sys.argv[1:]
    for test in () if chosen else (parts_show, window_hides, sinks_show,
                                      selection_biases_choose, mxfp4_is_read):
        with tempfile.TemporaryDirectory(prefix="tutti_families_") as folder:
            test(program, pathlib.Path(folder))
    for case in chosen or family_models.CASES:
        with tempfile.TemporaryDirectory(prefix="tutti_families_") as folder:
            try:
                run_case(program, case, pathlib.Path(folder))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                check(case, "runs", False, error)
    if failures:
        sys.exit(f"FAILED: {len(failures)}: " + "; ".join(failures[:40]))


if __name__ == "__main__":
    main()
