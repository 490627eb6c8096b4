"""The program under test: its commands, and the logits of what a run folder holds."""

import json
import os
import pathlib
import subprocess
import sys

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
import safetensors_file  # noqa: E402

TUTTI = os.environ["TUTTI_BINARY"]


def tutti(*arguments, fails=False):
    """Runs a command with --json; its result, or with fails=True its error."""
    done = subprocess.run([TUTTI, *map(str, arguments), "--json"], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        sys.exit(f"tutti {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def newest_step(run):
    return max((pathlib.Path(run) / "checkpoints").glob("step-*"))


def parameters(run):
    """Every parameter of the newest checkpoint, by Tutti's name, as stored."""
    found = {}
    for path in newest_step(run).glob("*.safetensors"):
        for name, tensor in safetensors.torch.load_file(path).items():
            if name.startswith("param."):
                found[name[len("param."):]] = tensor
    return found


def logits(parity_dump, run, tokens, folder):
    """Logits [B, T, V] of tokens [B, T], computed by Tutti in f32."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    batch, length = tokens.shape
    # The model as the run describes it, under a recipe of this batch.
    model = (pathlib.Path(run) / "recipe.yaml").read_text().split("\nprecision:")[0]
    (folder / "recipe.yaml").write_text(
        f"{model}\nprecision: f32\nthreads: 2\n"
        f"batch: {{global: {batch}, micro: {batch}, sequence: {length}}}\ntrain: {{steps: 1}}\n")
    weights = {name: t.float().numpy() for name, t in parameters(run).items()}
    safetensors_file.write(folder / "weights.safetensors", weights)
    ids = tokens.int().numpy()[None]
    safetensors_file.write(folder / "tokens.safetensors", {"tokens": ids, "targets": ids})
    subprocess.run(
        [parity_dump, *(folder / f"{name}" for name in (
            "recipe.yaml", "weights.safetensors", "tokens.safetensors", "out.safetensors"))],
        check=True)
    out = safetensors_file.read(folder / "out.safetensors")["logits"]
    return torch.from_numpy(out).reshape(batch, length, -1)
