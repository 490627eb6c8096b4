#!/usr/bin/env python3
"""Tutti's mixture of experts against Hugging Face's MixtralForCausalLM on CPU, with the same random
weights and tokens. tutti/model/moe.h defines Tutti's names.

    moe_parity_test.py PARITY_DUMP [--keep FOLDER]

f32: logits, the losses (cross-entropy, balance, z) and every gradient tensor of
    cross-entropy + balance weight * balance + z weight * z
within 1e-4 by the norm rule of parity_test.py. The reference for balance is load_balancing_loss_func
of transformers for each layer and sequence, averaged; with one layer and one sequence it equals the
aux_loss that the model returns, which is compared too. bf16: logits and loss within the rounding of
the type, for tokens with the same experts.

Exit status: 0 passed, 1 failed, 77 skipped because there is no PyTorch or transformers.
"""

import argparse
import sys
import tempfile

import parity_test

try:
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
except ImportError as error:
    print(f"SKIPPED: parity with transformers was NOT tested: {error}", file=sys.stderr)
    sys.exit(77)

BF16_TOLERANCE = 3e-2
LENGTH = parity_test.LENGTH

MIXTRAL = {
    "layers": 2,
    "hidden": 72,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 12,
    "ffn": 40,
    "vocabulary": 101,
    "context": 64,
    "norm": "rms",
    "norm_epsilon": 1e-5,
    "norm_bias": False,
    "activation": "swiglu",
    "positions": "rope",
    "linear_bias": False,
    "tied_embeddings": False,
    "rope_theta": 500.0,
    "moe": {"experts": 5, "top_k": 2, "expert_ffn": 40, "balance_loss": 0.5, "z_loss": 0.1},
}


def with_moe(layers=2, **changes):
    return {**MIXTRAL, "layers": layers, "moe": {**MIXTRAL["moe"], **changes}}


# name: (model, sequences of the batch, sequences of one micro-batch)
CASES = {
    "mixtral": (MIXTRAL, 3, 3),
    "mixtral-accumulated": (MIXTRAL, 3, 1),
    "one-layer-one-sequence": (with_moe(layers=1), 1, 1),
    "top-1-of-3": (with_moe(experts=3, top_k=1), 3, 3),
    "top-4-of-8": (with_moe(experts=8, top_k=4, expert_ffn=24), 3, 3),
    "no-auxiliary-losses": (with_moe(balance_loss=0.0, z_loss=0.0), 3, 3),
}


def huggingface_model(model):
    moe = model["moe"]
    torch.manual_seed(1)
    config = MixtralConfig(
        vocab_size=model["vocabulary"],
        hidden_size=model["hidden"],
        intermediate_size=moe["expert_ffn"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        num_key_value_heads=model["kv_heads"],
        max_position_embeddings=model["context"],
        rms_norm_eps=model["norm_epsilon"],
        rope_theta=model["rope_theta"],
        sliding_window=None,
        num_local_experts=moe["experts"],
        num_experts_per_tok=moe["top_k"],
        output_router_logits=True,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="eager",
        initializer_range=0.1,
    )
    network = MixtralForCausalLM(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn(parameter.shape))
            if "gate" in name:
                parameter.mul_(4)
    return network


def to_tutti(tensors, layers, experts):
    """Converts Hugging Face's names and shapes to Tutti's, for weights and gradients."""
    out = {
        "embedding.token.weight": tensors["model.embed_tokens.weight"],
        "final_norm.weight": tensors["model.norm.weight"],
        "head.weight": tensors["lm_head.weight"],
    }
    for n in range(layers):
        block, layer = f"blocks.{n}", f"model.layers.{n}"
        attention, mixture = f"{layer}.self_attn", f"{layer}.block_sparse_moe"
        out[f"{block}.norm1.weight"] = tensors[f"{layer}.input_layernorm.weight"]
        out[f"{block}.norm2.weight"] = tensors[f"{layer}.post_attention_layernorm.weight"]
        out[f"{block}.attention.qkv.weight"] = torch.cat(
            [tensors[f"{attention}.{part}_proj.weight"] for part in "qkv"]
        )
        out[f"{block}.attention.output.weight"] = tensors[f"{attention}.o_proj.weight"]
        out[f"{block}.moe.router.weight"] = tensors[f"{mixture}.gate.weight"]
        gate, down, up = (
            torch.stack([tensors[f"{mixture}.experts.{e}.{w}.weight"] for e in range(experts)])
            for w in ("w1", "w2", "w3")
        )
        out[f"{block}.moe.experts.gate_up.weight"] = torch.cat((gate, up), dim=1)
        out[f"{block}.moe.experts.down.weight"] = down
    return out


def reference(network, model, tokens, targets):
    """Returns the output and the three losses; stores the gradients of their weighted sum in the
    network."""
    moe, batch = model["moe"], len(tokens)
    output = network(tokens)
    loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), targets.flatten())
    balances, zs = [], []
    for logits in output.router_logits:
        zs.append(logits.logsumexp(-1).square().mean())
        for sequence in logits.view(batch, LENGTH, -1):
            balances.append(load_balancing_loss_func((sequence,), moe["experts"], moe["top_k"]))
    balance, z = torch.stack(balances).mean(), torch.stack(zs).mean()
    network.zero_grad()
    (loss + moe["balance_loss"] * balance + moe["z_loss"] * z).backward()
    return output, loss.item(), balance.item(), z.item()


def check(table, runner, case, model, batch, micro):
    norm, tolerance = parity_test.norm, parity_test.TOLERANCE
    network = huggingface_model(model)
    generator = torch.Generator().manual_seed(2)
    shape = (parity_test.STEPS, batch, LENGTH + 1)
    tokens = torch.randint(model["vocabulary"], shape, generator=generator)
    tokens, targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    output, loss, balance, z = reference(network, model, tokens[0], targets[0])
    experts = model["moe"]["experts"]
    weights = to_tutti(
        {n: p.detach() for n, p in network.named_parameters()}, model["layers"], experts
    )
    gradients = to_tutti(
        {n: p.grad for n, p in network.named_parameters()}, model["layers"], experts
    )
    logits = output.logits.detach().flatten(0, 1).numpy()

    out = runner.run(case, model, "f32", micro, weights, tokens, targets, batch)
    row = f"{case} f32"
    table.row(row, "logits", norm(out["logits"] - logits) / norm(logits), tolerance)
    table.row(row, "loss", abs(out["loss"][0] - loss) / loss, tolerance)
    table.row(row, "balance loss", abs(out["balance_loss"][0] - balance) / balance, tolerance)
    table.row(row, "z loss", abs(out["z_loss"][0] - z) / z, tolerance)
    if batch == 1 and model["layers"] == 1:
        own = output.aux_loss.item()
        table.row(row, "aux_loss", abs(out["balance_loss"][0] - own) / own, tolerance)
    parity_test.check_names(row, out, gradients)
    floor = parity_test.gradient_floor(gradients)
    for name, gradient in gradients.items():
        error = norm(out[f"grad.{name}"] - gradient.numpy())
        table.row(row, name, error / max(norm(gradient), floor), tolerance)

    out = runner.run(case, model, "bf16", micro, weights, tokens, targets, batch)
    row = f"{case} bf16"
    # A token with nearly equal experts may be routed differently, so the median token is compared.
    errors = torch.linalg.norm(torch.tensor(out["logits"] - logits), dim=1)
    sizes = torch.linalg.norm(torch.tensor(logits), dim=1)
    table.row(row, "logits, median token", (errors / sizes).median().item(), BF16_TOLERANCE)
    table.row(row, "loss", abs(out["loss"][0] - loss) / loss, BF16_TOLERANCE)
    table.row(
        row, "balance loss", abs(out["balance_loss"][0] - balance) / balance, BF16_TOLERANCE
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="path of parity_dump")
    parser.add_argument("--keep", help="write the files to this folder and keep them")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    table = parity_test.Table()
    with tempfile.TemporaryDirectory() as temporary:
        runner = parity_test.Runner(arguments.program, arguments.keep or temporary)
        for case, (model, batch, micro) in CASES.items():
            check(table, runner, case, model, batch, micro)
    print(f"PyTorch {torch.__version__}: {table.failures} comparisons failed")
    sys.exit(1 if table.failures else 0)


if __name__ == "__main__":
    main()
