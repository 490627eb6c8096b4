"""GPT-2 and Llama in plain PyTorch (1.13 or later), the reference of tests/parity.

A model is a dict with the keys of a recipe's `model` mapping, and a dict of parameters with the
names and shapes of tutti/spec/model/params.h. B sequences, T tokens, H hidden, A query heads, K
key/value heads, D head size, F feed-forward width, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F


def parameter_shapes(model):
    """{name: shape} of every parameter, in forward order."""
    hidden, ffn, vocabulary = model["hidden"], model["ffn"], model["vocabulary"]
    head_dim, queries = model["head_dim"], model["heads"] * model["head_dim"]
    qkv = queries + 2 * model["kv_heads"] * head_dim
    shapes = {"embedding.token.weight": (vocabulary, hidden)}
    if model["positions"] == "learned":
        shapes["embedding.position.weight"] = (model["context"], hidden)

    def norm(name):
        shapes[f"{name}.weight"] = (hidden,)
        if model["norm"] == "layer" and model["norm_bias"]:
            shapes[f"{name}.bias"] = (hidden,)

    def linear(name, rows, columns):
        shapes[f"{name}.weight"] = (rows, columns)
        if model["linear_bias"]:
            shapes[f"{name}.bias"] = (rows,)

    for n in range(model["layers"]):
        block = f"blocks.{n}"
        norm(f"{block}.norm1")
        linear(f"{block}.attention.qkv", qkv, hidden)
        linear(f"{block}.attention.output", hidden, queries)
        norm(f"{block}.norm2")
        if model["activation"] == "swiglu":
            linear(f"{block}.mlp.gate_up", 2 * ffn, hidden)
        else:
            linear(f"{block}.mlp.up", ffn, hidden)
        linear(f"{block}.mlp.down", hidden, ffn)
    norm("final_norm")
    if not model["tied_embeddings"]:
        shapes["head.weight"] = (vocabulary, hidden)
    return shapes


def rope_frequencies(model):
    """[D/2] radians per token; Llama 3.1's scaling as in Meta's reference code."""
    head_dim = model["head_dim"]
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = model["rope_theta"] ** -exponent
    scaling = model.get("rope_scaling")
    if not scaling:
        return frequencies
    context = scaling["original_context"]
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    scaled = []
    for frequency in frequencies.tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < context / high:
            scaled.append(frequency)
        elif wavelength > context / low:
            scaled.append(frequency / scaling["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * frequency / scaling["factor"] + smooth * frequency)
    return torch.tensor(scaled, dtype=torch.float64)


def rotate(x, cosine, sine):
    """x [B, heads, T, D]: rotates the pairs (i, i + D/2) of each head."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def forward(model, parameters, tokens):
    """Logits [B, T, V] of tokens [B, T]."""
    batch, length = tokens.shape
    heads, kv_heads, head_dim = model["heads"], model["kv_heads"], model["head_dim"]
    mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)

    def norm(name, x):
        weight, epsilon = parameters[f"{name}.weight"], model["norm_epsilon"]
        if model["norm"] == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, parameters.get(f"{name}.bias"), epsilon)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight

    def linear(name, x):
        return F.linear(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))

    def attention(name, x):
        sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        query, key, value = (
            part.view(batch, length, -1, head_dim).transpose(1, 2)
            for part in linear(f"{name}.qkv", x).split(sizes, dim=-1)
        )
        if model["positions"] == "rope":
            angle = torch.outer(torch.arange(length, dtype=torch.float64), rope_frequencies(model))
            cosine, sine = (x.float().to(tokens.device) for x in (angle.cos(), angle.sin()))
            query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        key = key.repeat_interleave(heads // kv_heads, dim=1)
        value = value.repeat_interleave(heads // kv_heads, dim=1)
        scores = query @ key.transpose(-1, -2) / math.sqrt(head_dim)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, -1)
        return linear(f"{name}.output", mixed)

    def mlp(name, x):
        if model["activation"] == "swiglu":
            gate, up = linear(f"{name}.gate_up", x).chunk(2, dim=-1)
            return linear(f"{name}.down", F.silu(gate) * up)
        return linear(f"{name}.down", F.gelu(linear(f"{name}.up", x), approximate="tanh"))

    x = F.embedding(tokens, parameters["embedding.token.weight"])
    if model["positions"] == "learned":
        x = x + parameters["embedding.position.weight"][:length]
    for n in range(model["layers"]):
        block = f"blocks.{n}"
        x = x + attention(f"{block}.attention", norm(f"{block}.norm1", x))
        x = x + mlp(f"{block}.mlp", norm(f"{block}.norm2", x))
    head = "embedding.token.weight" if model["tied_embeddings"] else "head.weight"
    return F.linear(norm("final_norm", x), parameters[head])


def mean_loss(logits, targets):
    """Mean cross-entropy over all targets [B, T], in f32 for any type of logits."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def gradients(model, weights, tokens, targets, autocast=False, loss_of=None, device="cpu"):
    """Logits, loss and a dict of all gradients, computed on `device` and copied to the CPU; with
    autocast in PyTorch's mixed bf16.

    loss_of(logits, tokens, targets), if given, replaces mean_loss; here and below.
    """
    loss_of = loss_of or (lambda logits, _, targets: mean_loss(logits, targets))
    tokens, targets = tokens.to(device), targets.to(device)
    parameters = {name: w.to(device).clone().requires_grad_() for name, w in weights.items()}
    with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
        logits = forward(model, parameters, tokens)
        loss = loss_of(logits, tokens, targets)
    loss.backward()
    found = {name: p.grad.cpu() for name, p in parameters.items()}
    return logits.detach().float().cpu(), loss.item(), found


def adamw_losses(model, weights, tokens, targets, optimizer, loss_of=None):
    """Losses of one AdamW step per batch of tokens [S, B, T]; `optimizer` as in a recipe."""
    parameters = {name: w.clone().requires_grad_() for name, w in weights.items()}
    matrices = [p for p in parameters.values() if p.ndim == 2]
    vectors = [p for p in parameters.values() if p.ndim != 2]
    adamw = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": optimizer["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=optimizer["learning_rate"],
        betas=(optimizer["beta1"], optimizer["beta2"]),
        eps=optimizer["epsilon"],
    )
    losses = []
    for x, y in zip(tokens, targets):
        adamw.zero_grad()
        logits = forward(model, parameters, x)
        loss = loss_of(logits, x, y) if loss_of else mean_loss(logits, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), optimizer["clip_norm"])
        adamw.step()
        losses.append(loss.item())
    return losses
