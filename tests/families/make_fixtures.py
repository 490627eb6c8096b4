#!/usr/bin/env python3
"""Writes fixtures/CASE.json and fixtures/CASE.safetensors: what transformers makes of every model
of family_models.py.

    pip install torch==2.15.0 transformers==5.23.0    (in an environment of its own)
    make_fixtures.py [CASE...]

CASE.json holds config.json as transformers saves it, names and shapes of the tensors, the mean loss
and greedy tokens; CASE.safetensors the logits and the gradient of every tensor. The weights are
functions of names (family_models.py). PyTorch computes in f64 wherever transformers lets it.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
import family_models  # noqa: E402
import safetensors_file  # noqa: E402

PINNED = {"torch": "2.15.0", "transformers": "5.23.0"}
FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures"


def stored(case, name, tensor):
    """What a file has of a parameter, by name: most have the matrices of experts one by one."""
    if case.startswith("gpt-oss"):
        return {name: tensor}
    module, _, kind = name.rpartition(".")
    if not module.endswith("mlp.experts") or kind not in ("gate_up_proj", "down_proj"):
        return {name: tensor}
    out = {}
    for expert, matrix in enumerate(tensor):
        parts = {"down_proj": matrix}
        if kind == "gate_up_proj":
            parts = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True))
        for part, rows in parts.items():
            out[f"{module}.{expert}.{part}.weight"] = rows
    return out


def build(case):
    kind, keys = family_models.CASES[case]
    config = getattr(transformers, kind)(**keys)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager")
    parameters = dict(model.named_parameters())  # tied ones once
    # Selection biases of routers are no parameters there.
    parameters.update((name, buffer) for name, buffer in model.named_buffers()
                      if name.endswith("e_score_correction_bias"))
    with torch.no_grad():
        for parameter, whole in parameters.items():
            for name, tensor in stored(case, parameter, whole).items():
                values = family_models.weight(case, name, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(values))
    return model.double().eval(), config


def saved_config(model):
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    config["architectures"] = [type(model).__name__]
    for key in ("dtype", "transformers_version"):
        config.pop(key, None)
    return config


def greedy(model, prompt):
    ids = prompt
    with torch.no_grad():
        for _ in range(family_models.NEW):
            following = model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, following], -1)
    return ids[0, prompt.shape[1]:].tolist()


def make(case):
    model, config = build(case)
    ids = torch.from_numpy(family_models.tokens(case, config.vocab_size)).long()
    logits = model(ids[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, config.vocab_size).double(), ids[:, 1:].reshape(-1))
    loss.backward()
    parameters = dict(model.named_parameters())
    out = {"logits": logits.detach().float().numpy()}
    shapes = {name: list(buffer.shape) for name, buffer in model.named_buffers()
              if name.endswith("e_score_correction_bias")}  # without a gradient
    for parameter, whole in parameters.items():
        for name, gradient in stored(case, parameter, whole.grad).items():
            out[f"grad.{name}"] = gradient.float().numpy()
            shapes[name] = list(gradient.shape)
    safetensors_file.write(FOLDER / f"{case}.safetensors", out)
    fixture = {
        "config": saved_config(model),
        "tensors": shapes,
        "loss": loss.item(),
        "greedy": greedy(model, ids[:1, :family_models.PROMPT]),
    }
    (FOLDER / f"{case}.json").write_text(json.dumps(fixture, indent=1) + "\n")
    print(f"{case:14} loss {loss.item():.6f} greedy {fixture['greedy']}", flush=True)


def main():
    for package, version in PINNED.items():
        have = sys.modules[package].__version__.split("+")[0]
        if have != version:
            sys.exit(f"{package} {have} is installed; fixtures are made with {version}")
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for case in sys.argv[1:] or family_models.CASES:
        make(case)


if __name__ == "__main__":
    main()
