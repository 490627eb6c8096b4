#!/usr/bin/env python3
"""Models of transformers through GGUF files, and back.

    gguf_test.py

A run comes back from an f32 file with the same bits. Where the package `gguf` of ggml is installed, it
reads every file, and its own encoder gives the same bytes for q8_0 and q4_0. Exit status: 0 passed, 1
failed, 77 skipped because a package is missing.
"""

import pathlib
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env", file=sys.stderr)
    sys.exit(77)
try:
    from gguf import GGUFReader, quants
except ImportError:
    GGUFReader = None

import hf_models
import tutti_runs
from tutti_runs import tutti

CASES = ("gpt2", "llama2", "llama3.1", "llama3.2-tied", "llama-biases", "mistral")
# Widths of the models are no multiples of 32; these are.
SIZES = {"hidden_size": 128, "intermediate_size": 160, "n_embd": 160}
# Largest error of a matrix, relative to its norm.
BOUNDS = {"f32": 0, "bf16": 3e-3, "f16": 1e-3, "q8_0": 1e-2, "q4_0": 0.15}

failures = []


def check(case, what, value, passed):
    print(f"{case:16} {what:44} {value!s:>14} {'ok' if passed else 'FAILED'}", flush=True)
    if not passed:
        failures.append(f"{case}: {what}")


def small(name):
    kind, keys = hf_models.CONFIGS[name]
    keys = {**keys, **{key: size for key, size in SIZES.items() if key in keys}}
    if "num_attention_heads" in keys:
        keys.update(num_attention_heads=4, num_key_value_heads=2)
    hf_models.CONFIGS[name] = (kind, keys)
    return hf_models.build(name)


def largest_error(found, expected):
    worst = 0
    for name, tensor in expected.items():
        difference = (found[name].double() - tensor.double()).norm() / tensor.double().norm()
        worst = max(worst, float(difference))
    return worst


def compare_with_gguf(case, path, plain):
    """Every tensor of `path` as the package reads and writes it; `plain` is the f32 file."""
    reference = {t.name: quants.dequantize(t.data, t.tensor_type) for t in GGUFReader(plain).tensors}
    same = True
    for tensor in GGUFReader(path).tensors:
        values = reference[tensor.name].astype(np.float32)
        if tensor.tensor_type.name in ("Q8_0", "Q4_0"):
            same = same and np.array_equal(quants.quantize(values, tensor.tensor_type).ravel().view(np.uint8),
                                           np.ascontiguousarray(tensor.data).ravel().view(np.uint8))
    check(case, f"{path.stem}: bytes of the package's encoder", len(reference), same)


def run_case(case, folder):
    small(case).save_pretrained(folder / "hf")
    tutti("checkpoint", "import", folder / "hf", "--out", folder / "run")
    before = tutti_runs.parameters(folder / "run")
    for dtype, bound in BOUNDS.items():
        path = folder / f"{dtype}.gguf"
        result = tutti("checkpoint", "export", folder / "run", "--out", path, "--format", "gguf", "--dtype", dtype)
        check(case, f"{dtype}: bytes of the file", result["file_bytes"], result["file_bytes"] == path.stat().st_size)
        tutti("checkpoint", "import", path, "--out", folder / f"back-{dtype}")
        back = tutti_runs.parameters(folder / f"back-{dtype}")
        check(case, f"{dtype}: parameters", len(back), back.keys() == before.keys())
        error = largest_error(back, before)
        check(case, f"{dtype}: largest error", f"{error:.3g}", error <= bound)
        if GGUFReader is not None and dtype != "f32":
            compare_with_gguf(case, path, folder / "f32.gguf")
        left = sorted(entry.name for entry in folder.iterdir() if ".from-" in entry.name)
        check(case, f"{dtype}: nothing is left behind", left, not left)


def errors(folder):
    tutti("checkpoint", "export", folder / "run", "--out", folder / "f32.gguf", "--format", "gguf", fails=True)
    tutti("checkpoint", "export", folder / "run", "--out", folder / "x.gguf", "--format", "gguf", "--dtype", "q5_0",
          fails=True)
    whole = (folder / "q8_0.gguf").read_bytes()
    for size in (3, 20, 300, 5000, len(whole) // 2):
        (folder / "cut.gguf").write_bytes(whole[:size])
        tutti("checkpoint", "import", folder / "cut.gguf", "--out", folder / "cut", fails=True)
        check("errors", f"{size} bytes leave nothing behind", "", not list(folder.glob("cut*/")))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for case in CASES:
            folder = pathlib.Path(temporary) / case
            folder.mkdir()
            run_case(case, folder)
        errors(pathlib.Path(temporary) / "llama2")
    if GGUFReader is None:
        print("the package gguf is not installed: its reader and encoder were not compared")
    if failures:
        print("\n".join(["", "failed:"] + failures))
        sys.exit(1)


if __name__ == "__main__":
    main()
