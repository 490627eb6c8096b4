#!/usr/bin/env python3
"""Adapters against Hugging Face's transformers and PEFT on CPU, with small random models.

    peft_test.py PARITY_DUMP

Training: loss and every adapter gradient in f32, within 1e-4 by the norm rule of parity_test.py,
for GPT-2 (fused c_attn) and Llama (separate projections, grouped heads).
Export: the folder that Tutti writes for PEFT, loaded onto the same model, gives Tutti's logits, and
so does the plain model with the merged weights. This includes adapters of projections that
transformers fuses or splits differently.

Exit status: 0 passed, 1 failed, 77 skipped because a package is missing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
try:
    import numpy as np
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
except ImportError as error:
    print(f"SKIPPED: adapters were NOT compared with PEFT: {error}", file=sys.stderr)
    sys.exit(77)

import parity_test
import safetensors_file
from parity_test import LLAMA, TOLERANCE, norm

BATCH, LENGTH = 3, 21
RANK, ALPHA = 4, 6
GPT = parity_test.GPT

MODULES = {
    "gpt": {
        "attention.qkv": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    "llama": {
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.o_proj",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    },
}

# name: (family, the recipe's targets, PEFT's modules, or None if PEFT cannot train the same
# adapters)
CASES = {
    "gpt qkv+output+mlp": ("gpt", ["qkv", "output", "mlp"], list(MODULES["gpt"])),
    "gpt qkv": ("gpt", ["qkv"], ["attention.qkv"]),
    "gpt mlp.down": ("gpt", ["mlp.down"], ["mlp.down"]),
    "gpt query+value": ("gpt", ["query", "value"], None),
    "llama all": ("llama", ["query", "key", "value", "output", "mlp"], list(MODULES["llama"])),
    "llama query+value": ("llama", ["query", "value"], ["attention.query", "attention.value"]),
    "llama fused qkv": ("llama", ["qkv", "mlp.gate"], None),
}


def make_model(family):
    torch.manual_seed(5)
    if family == "gpt":
        config = transformers.GPT2Config(
            vocab_size=GPT["vocabulary"], n_positions=GPT["context"], n_embd=GPT["hidden"],
            n_layer=GPT["layers"], n_head=GPT["heads"], n_inner=GPT["ffn"],
            activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=LLAMA["vocabulary"], hidden_size=LLAMA["hidden"],
            intermediate_size=LLAMA["ffn"], num_hidden_layers=LLAMA["layers"],
            num_attention_heads=LLAMA["heads"], num_key_value_heads=LLAMA["kv_heads"],
            max_position_embeddings=LLAMA["context"], rms_norm_eps=LLAMA["norm_epsilon"],
            rope_theta=LLAMA["rope_theta"], tie_word_embeddings=False, attention_bias=False,
        )
        model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.15)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
    return model.eval()


def to_tutti(family, state):
    """Converts a state dict to the names and layouts of spec/model/params.h."""
    get = lambda name: state[name].detach().numpy().astype(np.float32)  # noqa: E731
    out = {}
    if family == "gpt":
        out["embedding.token.weight"] = get("transformer.wte.weight")
        out["embedding.position.weight"] = get("transformer.wpe.weight")
        for n in range(GPT["layers"]):
            ours, theirs = f"blocks.{n}.", f"transformer.h.{n}."
            for a, b in {"norm1": "ln_1", "norm2": "ln_2"}.items():
                for kind in ("weight", "bias"):
                    out[f"{ours}{a}.{kind}"] = get(f"{theirs}{b}.{kind}")
            for a, b in MODULES["gpt"].items():
                out[f"{ours}{a}.weight"] = get(f"{theirs}{b}.weight").T.copy()
                out[f"{ours}{a}.bias"] = get(f"{theirs}{b}.bias")
        for kind in ("weight", "bias"):
            out[f"final_norm.{kind}"] = get(f"transformer.ln_f.{kind}")
        return out
    out["embedding.token.weight"] = get("model.embed_tokens.weight")
    for n in range(LLAMA["layers"]):
        ours, theirs = f"blocks.{n}.", f"model.layers.{n}."
        out[f"{ours}norm1.weight"] = get(f"{theirs}input_layernorm.weight")
        out[f"{ours}norm2.weight"] = get(f"{theirs}post_attention_layernorm.weight")
        fused = [get(f"{theirs}self_attn.{x}_proj.weight") for x in "qkv"]
        out[f"{ours}attention.qkv.weight"] = np.concatenate(fused)
        out[f"{ours}attention.output.weight"] = get(f"{theirs}self_attn.o_proj.weight")
        fused = [get(f"{theirs}mlp.{x}_proj.weight") for x in ("gate", "up")]
        out[f"{ours}mlp.gate_up.weight"] = np.concatenate(fused)
        out[f"{ours}mlp.down.weight"] = get(f"{theirs}mlp.down_proj.weight")
    out["final_norm.weight"] = get("model.norm.weight")
    out["head.weight"] = get("lm_head.weight")
    return out


def from_tutti(family, merged):
    """Converts Tutti's plain parameters to a state dict of transformers."""
    out = {}
    t = {name: torch.tensor(x) for name, x in merged.items()}
    if family == "gpt":
        for n in range(GPT["layers"]):
            for a, b in MODULES["gpt"].items():
                out[f"transformer.h.{n}.{b}.weight"] = t[f"blocks.{n}.{a}.weight"].T
        return out
    sizes = [LLAMA["heads"], LLAMA["kv_heads"], LLAMA["kv_heads"]]
    rows = [count * LLAMA["head_dim"] for count in sizes]
    for n in range(LLAMA["layers"]):
        layer = f"model.layers.{n}."
        for x, part in zip("qkv", t[f"blocks.{n}.attention.qkv.weight"].split(rows)):
            out[f"{layer}self_attn.{x}_proj.weight"] = part
        out[f"{layer}self_attn.o_proj.weight"] = t[f"blocks.{n}.attention.output.weight"]
        for x, part in zip(("gate", "up"), t[f"blocks.{n}.mlp.gate_up.weight"].chunk(2)):
            out[f"{layer}mlp.{x}_proj.weight"] = part
        out[f"{layer}mlp.down_proj.weight"] = t[f"blocks.{n}.mlp.down.weight"]
    return out


def adapter_shapes(family, targets):
    """{name: (rows, inputs)} of every adapter of a block, as defined in tutti/spec/recipe/lora.h."""
    model = GPT if family == "gpt" else LLAMA
    hidden, ffn = model["hidden"], model["ffn"]
    queries, keys = (model[x] * model["head_dim"] for x in ("heads", "kv_heads"))
    every = {
        "qkv": {"attention.qkv": (queries + 2 * keys, hidden)},
        "query": {"attention.query": (queries, hidden)},
        "key": {"attention.key": (keys, hidden)},
        "value": {"attention.value": (keys, hidden)},
        "output": {"attention.output": (hidden, queries)},
        "mlp.gate": {"mlp.gate": (ffn, hidden)},
        "mlp.up": {"mlp.up": (ffn, hidden)},
        "mlp.down": {"mlp.down": (hidden, ffn)},
    }
    every["mlp"] = {**every["mlp.up"], **every["mlp.down"]}
    if family == "llama":
        every["mlp"] |= every["mlp.gate"]
    return {name: shape for target in targets for name, shape in every[target].items()}


def random_adapters(family, targets):
    generator = torch.Generator().manual_seed(9)
    out = {}
    for n in range((GPT if family == "gpt" else LLAMA)["layers"]):
        for name, (rows, inputs) in adapter_shapes(family, targets).items():
            for half, shape in (("a", (RANK, inputs)), ("b", (rows, RANK))):
                values = 0.2 * torch.randn(shape, generator=generator)
                out[f"blocks.{n}.{name}.lora_{half}.weight"] = values.numpy()
    return out


def run_tutti(program, folder, family, targets, weights, tokens, targets_ids):
    model = GPT if family == "gpt" else LLAMA
    recipe = parity_test.to_yaml(
        {
            "model": {"name": "parity", **model},
            "lora": {"rank": RANK, "alpha": ALPHA, "targets": targets},
            "precision": "f32",
            "threads": 2,
            "batch": {"global": BATCH, "micro": BATCH, "sequence": LENGTH},
            "train": {"steps": 1},
        }
    )
    (folder / "recipe.yaml").write_text(recipe + "\n")
    files = [folder / f"{part}.safetensors" for part in ("weights", "tokens", "out")]
    safetensors_file.write(files[0], weights)
    ids = {"tokens": tokens, "targets": targets_ids}
    safetensors_file.write(
        files[1], {n: t.unsqueeze(0).numpy().astype(np.int32) for n, t in ids.items()}
    )
    subprocess.run([program, folder / "recipe.yaml", *files, folder / "peft"], check=True)
    return safetensors_file.read(files[2])


def check_training(table, case, family, modules, adapters, tokens, targets, out):
    names = MODULES[family]
    peft = get_peft_model(
        make_model(family),
        LoraConfig(
            r=RANK, lora_alpha=ALPHA, lora_dropout=0, bias="none", task_type="CAUSAL_LM",
            target_modules=[names[x] for x in modules], fan_in_fan_out=family == "gpt",
        ),
    )
    parameters = dict(peft.named_parameters())
    layer = "transformer.h" if family == "gpt" else "model.layers"

    def parameter(name):
        _, n, rest = name.split(".", 2)
        module, half = rest.rsplit(".lora_", 1)
        kind = half[0].upper()
        return parameters[f"base_model.model.{layer}.{n}.{names[module]}.lora_{kind}.default.weight"]

    with torch.no_grad():
        for name, values in adapters.items():
            parameter(name).copy_(torch.tensor(values))
    logits = peft(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    table.row(case, "loss", abs(out["loss"][0] - loss.item()) / loss.item(), TOLERANCE)
    gradients = {name: parameter(name).grad for name in adapters}
    parity_test.check_names(case, out, gradients)
    floor = parity_test.gradient_floor(gradients)
    for name, gradient in gradients.items():
        error = norm(out[f"grad.{name}"] - gradient.numpy())
        table.row(case, name, error / max(norm(gradient), floor), TOLERANCE)


def check_export(table, case, family, tokens, out, folder):
    expected = out["logits"]
    with torch.no_grad():
        loaded = PeftModel.from_pretrained(make_model(family), folder / "peft").eval()
        logits = loaded(tokens).logits.flatten(0, 1).numpy()
        table.row(case, "exported adapter", norm(logits - expected) / norm(expected), TOLERANCE)
        merged = {
            name[len("merged.") :]: x for name, x in out.items() if name.startswith("merged.")
        }
        plain = make_model(family)
        missing, unexpected = plain.load_state_dict(from_tutti(family, merged), strict=False)
        assert not unexpected, unexpected
        logits = plain(tokens).logits.flatten(0, 1).numpy()
        table.row(case, "merged weights", norm(logits - expected) / norm(expected), TOLERANCE)
        base = make_model(family)(tokens).logits.flatten(0, 1).numpy()
        # The adapters must change the model.
        table.row(case, "differs from the base", -norm(base - expected) / norm(expected), -0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="path of parity_dump")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    table = parity_test.Table()
    for case, (family, targets, modules) in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            generator = torch.Generator().manual_seed(3)
            vocabulary = (GPT if family == "gpt" else LLAMA)["vocabulary"]
            ids = torch.randint(vocabulary, (BATCH, LENGTH + 1), generator=generator)
            tokens, wanted = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
            adapters = random_adapters(family, targets)
            weights = {**to_tutti(family, make_model(family).state_dict()), **adapters}
            out = run_tutti(arguments.program, folder, family, targets, weights, tokens, wanted)
            if modules is not None:
                check_training(table, case, family, modules, adapters, tokens, wanted, out)
            config = json.loads((folder / "peft" / "adapter_config.json").read_text())
            assert config["r"] == RANK, config
            check_export(table, case, family, tokens, out, folder)
    print(f"PyTorch {torch.__version__}: {table.failures} comparisons failed")
    sys.exit(1 if table.failures else 0)


if __name__ == "__main__":
    main()
