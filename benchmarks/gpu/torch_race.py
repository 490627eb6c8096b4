"""One training step of the same model in PyTorch: torch.compile, scaled-dot-product attention, bf16
autocast over f32 parameters, fused AdamW, gradients of several micro-batches added. Prints one JSON
object.
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch import nn

# layers, width, heads, key/value heads, feed-forward width, vocabulary (padded to a multiple of 128)
SHAPES = {
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, "gpt"),
    "gpt2-1558m": (48, 1600, 25, 25, 6400, 50304, "gpt"),
    "llama3.1-8b": (32, 4096, 32, 8, 14336, 128256, "llama"),
}


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotate(x, cosine, sine):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return (x * cosine + turned * sine).type_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn, kind):
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.kind = heads, kv_heads, width // heads, kind
        bias = kind == "gpt"
        norm = (lambda: nn.LayerNorm(width)) if kind == "gpt" else (lambda: RmsNorm(width))
        self.norm1, self.norm2 = norm(), norm()
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, ffn if kind == "gpt" else 2 * ffn, bias=bias)
        self.down = nn.Linear(ffn, width, bias=bias)

    def forward(self, x, cosine, sine):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(
            [self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], -1)
        q = q.view(b, t, self.heads, self.dim).transpose(1, 2)
        k = k.view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        v = v.view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        if self.kind == "llama":
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        h = self.up(self.norm2(x))
        if self.kind == "gpt":
            h = F.gelu(h, approximate="tanh")
        else:
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, ffn, vocabulary, kind, context):
        super().__init__()
        self.kind = kind
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width) if kind == "gpt" else None
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, ffn, kind) for _ in range(layers))
        self.norm = nn.LayerNorm(width) if kind == "gpt" else RmsNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if kind == "gpt":
            self.head.weight = self.tokens.weight
        dim = width // heads
        angle = torch.outer(torch.arange(context).float(),
                            500000.0 ** (-torch.arange(0, dim, 2).float() / dim)).repeat(1, 2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.cosine[:tokens.shape[1]], self.sine[:tokens.shape[1]])
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=list(SHAPES))
    parser.add_argument("batch", type=int, help="sequences per micro-batch")
    parser.add_argument("sequence", type=int)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches per step")
    parser.add_argument("--steps", type=int, default=20, help="measured, after two of warm-up")
    parser.add_argument("--layers", type=int, help="in place of the model's own")
    return parser.parse_args()


def main():
    run = parse()
    shape = list(SHAPES[run.model])
    if run.layers:
        shape[0] = run.layers
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Model(*shape, context=run.sequence)
    step_model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.randint(shape[5] - 64, (run.batch, run.sequence + 1), device="cuda")

    def step():
        for _ in range(run.accumulate):
            with torch.autocast("cuda", torch.bfloat16):
                loss = step_model(tokens[:, :-1], tokens[:, 1:]) / run.accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        step()
    seconds = []
    for _ in range(run.steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    median = statistics.median(seconds)
    print(json.dumps({"model": run.model, "batch": run.batch, "sequence": run.sequence,
                      "accumulate": run.accumulate, "layers": shape[0],
                      "step_seconds": {"median": median, "min": min(seconds), "max": max(seconds)},
                      "tokens_per_second": run.accumulate * run.batch * run.sequence / median,
                      "peak_memory_bytes": torch.cuda.max_memory_allocated(),
                      "torch": torch.__version__}))


main()
