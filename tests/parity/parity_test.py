#!/usr/bin/env python3
"""Tutti against plain PyTorch on CPU, with the same weights and tokens from safetensors files.

    parity_test.py PARITY_DUMP [--keep FOLDER] [--device cuda [--torch-device cpu]]

f32: logits, loss and every gradient tensor within 1e-4 by the norm rule
    |difference| <= tolerance * max(|g|, 1e-3 * |G| / sqrt(tensors)),
with |G| the norm over all tensors, which avoids division by zero for gradients that are exactly
zero; and the losses of 20 AdamW steps within 1e-5 relative.

bf16: each gradient's error against the f32 reference is at most 1.5 times the error of PyTorch's
bf16 autocast on the same f32 weights. Both errors are root mean squares over several draws of
weights and tokens, because for one draw their ratio is noisy in short vectors. Autocast's error
counts as at least one bf16 rounding (2^-9) of the floor of the norm rule.

Exit status: 0 passed, 1 failed, 77 skipped because there is no PyTorch.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"SKIPPED: parity with PyTorch was NOT tested: {error}", file=sys.stderr)
    print("Install it with: apt-get install python3-torch python3-numpy", file=sys.stderr)
    sys.exit(77)

import reference_models
import safetensors_file

BATCH, LENGTH, STEPS = 3, 37, 20
TOLERANCE = 1e-4
STEP_TOLERANCE = 1e-5
BF16_RATIO = 1.5
BF16_DRAWS = 4
BF16_ROUNDING = 2.0**-9

# Epsilon (here and in some models) is large enough that the losses depend on where it is added.
OPTIMIZER = {
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-5,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
}

GPT = {
    "layers": 2,
    "hidden": 48,
    "heads": 3,
    "kv_heads": 3,
    "head_dim": 16,
    "ffn": 192,
    "vocabulary": 128,
    "context": 40,
    "norm": "layer",
    "norm_epsilon": 1e-5,
    "norm_bias": True,
    "activation": "gelu",
    "positions": "learned",
    "linear_bias": True,
    "tied_embeddings": True,
}
LLAMA = {
    "layers": 2,
    "hidden": 72,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 12,
    "ffn": 104,
    "vocabulary": 101,
    "context": 64,
    "norm": "rms",
    "norm_epsilon": 1e-6,
    "norm_bias": False,
    "activation": "swiglu",
    "positions": "rope",
    "linear_bias": False,
    "tied_embeddings": False,
    "rope_theta": 500.0,
}
GPT_NO_BIAS = {**GPT, "linear_bias": False, "norm_bias": False, "layers": 3, "norm_epsilon": 1e-2}
LLAMA_TIED = {**LLAMA, "tied_embeddings": True, "kv_heads": 6, "norm_epsilon": 1e-2}
# With this context two of the head's six frequencies each are kept, blended and divided.
SCALING = {
    "factor": 8.0,
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
    "original_context": 160,
}

# name: (model, sequences of one micro-batch)
CASES = {
    "gpt-tied": (GPT, BATCH),
    "gpt-tied-accumulated": (GPT, 1),
    "gpt-untied-odd": ({**GPT, "tied_embeddings": False, "vocabulary": 101, "ffn": 100}, BATCH),
    "gpt-no-bias": (GPT_NO_BIAS, BATCH),
    "llama-gqa": (LLAMA, BATCH),
    "llama-gqa-scaled": ({**LLAMA, "rope_scaling": SCALING}, BATCH),
    "llama-tied-accumulated": (LLAMA_TIED, 1),
}


def random_weights(model, generator):
    """Larger than a usual initialisation, so that no gradient is negligible."""
    weights = {}
    for name, shape in reference_models.parameter_shapes(model).items():
        values = torch.randn(shape, generator=generator)
        if name.endswith("bias"):
            weights[name] = 0.1 * values
        elif len(shape) == 1:
            weights[name] = 1 + 0.2 * values
        else:
            weights[name] = (0.5 if "embedding" in name else 1.2 / math.sqrt(shape[1])) * values
    return weights


def random_batches(model, generator):
    shape = (STEPS, BATCH, LENGTH + 1)
    tokens = torch.randint(model["vocabulary"], shape, generator=generator)
    return tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()


def to_yaml(mapping, indent=""):
    lines = []
    for key, value in mapping.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", to_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}")
    return "\n".join(lines)


def recipe(model, precision, micro, batch, sections, device="cpu"):
    return to_yaml(
        {
            "model": {"name": "parity", **model},
            "precision": precision,
            "threads": 2,
            "device": device,
            "batch": {"global": batch, "micro": micro, "sequence": LENGTH},
            "optimizer": OPTIMIZER,
            "schedule": {"kind": "constant"},
            "train": {"steps": STEPS},
            **sections,
        }
    )


class Runner:
    """Runs parity_dump with files in a folder."""

    def __init__(self, program, folder, device="cpu", torch_device="cpu"):
        self.program, self.folder, self.device, self.torch_device = program, Path(folder), device, torch_device

    def run(
        self, name, model, precision, micro, weights, tokens, targets, batch=BATCH, teacher=None
    ):
        folder = self.folder / f"{name}-{precision}"
        folder.mkdir(parents=True, exist_ok=True)
        sections = teacher.write(folder) if teacher else {}
        recipe_path = folder / "recipe.yaml"
        recipe_path.write_text(recipe(model, precision, micro, batch, sections, self.device) + "\n")
        files = [folder / f"{part}.safetensors" for part in ("weights", "tokens", "out")]
        safetensors_file.write(files[0], {n: w.numpy() for n, w in weights.items()})
        batches = {"tokens": tokens, "targets": targets}
        safetensors_file.write(
            files[1], {n: t.numpy().astype(np.int32) for n, t in batches.items()}
        )
        subprocess.run([self.program, recipe_path, *files], check=True)
        out = safetensors_file.read(files[2])
        return teacher.means(out, targets[0]) if teacher else out


def norm(array):
    return float(np.linalg.norm(np.asarray(array, dtype=np.float64)))


class Table:
    """Prints rows as they are added and counts failures."""

    def __init__(self):
        self.failures = 0

    def row(self, case, what, value, bound, note=""):
        passed = value <= bound  # false for NaN
        self.failures += not passed
        verdict = "ok" if passed else "FAILED"
        print(f"{case:28} {what:36} {value:10.3g} <= {bound:<8.3g} {verdict:6} {note}", flush=True)


def gradient_floor(reference):
    """1e-3 |G| / sqrt(tensors)."""
    total = math.sqrt(sum(norm(g) ** 2 for g in reference.values()))
    return 1e-3 * total / math.sqrt(len(reference))


def check_names(case, out, reference):
    found = {name[len("grad.") :] for name in out if name.startswith("grad.")}
    if found != set(reference):
        sys.exit(f"{case}: only one side has gradients of {sorted(found ^ set(reference))}")


def check_f32(table, runner, case, model, micro, teacher=None):
    """`teacher` (distill_parity_test.py) draws its weights, masks targets and defines the loss."""
    generator = torch.Generator().manual_seed(1)
    weights = random_weights(model, generator)
    tokens, targets = random_batches(model, generator)
    if teacher:
        targets = teacher.draw(generator, targets)
    loss_of = teacher.loss_of if teacher else None
    logits, loss, gradients = reference_models.gradients(
        model, weights, tokens[0], targets[0], loss_of=loss_of
    )
    losses = reference_models.adamw_losses(
        model, weights, tokens, targets, OPTIMIZER, loss_of=loss_of
    )
    out = runner.run(case, model, "f32", micro, weights, tokens, targets, teacher=teacher)

    case = f"{case} f32"
    expected = logits.flatten(0, 1).numpy()
    table.row(case, "logits", norm(out["logits"] - expected) / norm(expected), TOLERANCE)
    table.row(case, "loss", abs(out["loss"][0] - loss) / loss, TOLERANCE)
    check_names(case, out, gradients)
    floor = gradient_floor(gradients)
    for name, gradient in gradients.items():
        error = norm(out[f"grad.{name}"] - gradient.numpy())
        table.row(case, name, error / max(norm(gradient), floor), TOLERANCE)
    if teacher:
        for part, value in teacher.parts(logits, tokens[0], targets[0]).items():
            table.row(case, part, abs(out[part][0] - value) / value, TOLERANCE)
    worst = max(abs(a - b) / b for a, b in zip(out["losses"], losses))
    note = f"loss {losses[0]:.4f} -> {losses[-1]:.4f}"
    table.row(case, f"losses of {STEPS} AdamW steps", worst, STEP_TOLERANCE, note)


def check_bf16(table, runner, case, model, micro, teacher=None):
    loss_of = teacher.loss_of if teacher else None
    ours, autocasts, sizes = {}, {}, {}  # name: sum over draws of squared errors, of squared norms
    floors = 0.0
    for draw in range(BF16_DRAWS):
        generator = torch.Generator().manual_seed(100 + draw)
        weights = random_weights(model, generator)
        tokens, targets = random_batches(model, generator)
        if teacher:
            targets = teacher.draw(generator, targets)
        logits, _, exact = reference_models.gradients(
            model, weights, tokens[0], targets[0], loss_of=loss_of
        )
        cast_logits, _, cast = reference_models.gradients(
            model, weights, tokens[0], targets[0], autocast=True, loss_of=loss_of,
            device=runner.torch_device
        )
        out = runner.run(
            case, model, "bf16", micro, weights, tokens[:1], targets[:1], teacher=teacher
        )
        check_names(case, out, exact)
        floors += gradient_floor(exact) ** 2

        compared = {n: (out[f"grad.{n}"], cast[n].numpy(), g.numpy()) for n, g in exact.items()}
        compared["logits"] = tuple(
            np.asarray(x).reshape(-1, model["vocabulary"])
            for x in (out["logits"], cast_logits, logits)
        )
        for name, (own, autocast, reference) in compared.items():
            ours[name] = ours.get(name, 0) + norm(own - reference) ** 2
            autocasts[name] = autocasts.get(name, 0) + norm(autocast - reference) ** 2
            sizes[name] = sizes.get(name, 0) + norm(reference) ** 2

    for name, square in ours.items():
        error, autocast, size = (math.sqrt(x) for x in (square, autocasts[name], sizes[name]))
        ratio = error / max(autocast, BF16_ROUNDING * math.sqrt(floors))
        note = f"relative error {error / size:.2e}, autocast {autocast / size:.2e}"
        table.row(f"{case} bf16", f"{name} / autocast", ratio, BF16_RATIO, note)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="path of parity_dump")
    parser.add_argument("--device", default="cpu", help="device of Tutti (default: cpu)")
    parser.add_argument("--torch-device", help="device of PyTorch's bf16 runs (default: --device)")
    parser.add_argument("--keep", help="write the files to this folder and keep them")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch_device = arguments.torch_device or arguments.device
    if torch_device == "cuda" and not torch.cuda.is_available():
        print("SKIPPED: parity with PyTorch was NOT tested: PyTorch has no GPU", file=sys.stderr)
        sys.exit(77)
    table = Table()
    with tempfile.TemporaryDirectory() as temporary:
        runner = Runner(arguments.program, arguments.keep or temporary, arguments.device, torch_device)
        for case, (model, micro) in CASES.items():
            check_f32(table, runner, case, model, micro)
            check_bf16(table, runner, case, model, micro)
    print(f"PyTorch {torch.__version__}: {table.failures} comparisons failed")
    sys.exit(1 if table.failures else 0)


if __name__ == "__main__":
    main()
