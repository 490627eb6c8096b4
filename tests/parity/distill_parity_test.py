#!/usr/bin/env python3
"""Knowledge distillation against plain PyTorch on CPU: students and teachers of both architectures.

    distill_parity_test.py PARITY_DUMP [--keep FOLDER]

The reference loss is
    (1 - weight) F.cross_entropy + weight T^2 F.kl_div(log p_T(student), log p_T(teacher))
over the targets that are not ignored; a fifth of them is. The comparisons and tolerances are those
of parity_test.py: in f32 logits, loss, its parts, every gradient and the losses of 20 AdamW steps;
in bf16 each gradient's error relative to that of PyTorch's autocast, also of the teacher.

Exit status: 0 passed, 1 failed, 77 skipped because there is no PyTorch.
"""

import argparse
import sys
import tempfile

import parity_test  # exits with 77 without PyTorch
import reference_models
import safetensors_file
import torch
import torch.nn.functional as F
from parity_test import BATCH, GPT, LLAMA

GPT_TEACHER = {**GPT, "layers": 3, "hidden": 80, "heads": 5, "kv_heads": 5, "ffn": 320, "vocabulary": 101}
LLAMA_TEACHER = {**LLAMA, "layers": 3, "vocabulary": 128}

# name: (student, teacher, temperature, weight, sequences of one micro-batch)
CASES = {
    "gpt-from-llama": (GPT, LLAMA_TEACHER, 2.0, 0.7, BATCH),
    "llama-from-gpt-accumulated": (LLAMA, GPT_TEACHER, 1.0, 0.5, 1),
    "gpt-from-llama-alone": (GPT, LLAMA_TEACHER, 3.5, 1.0, BATCH),
    "llama-sharpened": (LLAMA, GPT_TEACHER, 0.6, 0.3, BATCH),
}


class Teacher:
    def __init__(self, model, temperature, weight):
        self.model, self.temperature, self.weight = model, temperature, weight
        self.weights = {}

    def draw(self, generator, targets):
        """Draws new weights and returns the targets with a fifth of them ignored."""
        self.weights = parity_test.random_weights(self.model, generator)
        ignored = torch.rand(targets.shape, generator=generator) < 0.2
        return targets.masked_fill(ignored, -1)

    def write(self, folder):
        """Writes the weights and returns the teacher's section of the recipe for parity_dump."""
        path = folder / "teacher.safetensors"
        safetensors_file.write(path, {n: w.numpy() for n, w in self.weights.items()})
        return {
            "distill": {
                "teacher": str(path),
                "temperature": self.temperature,
                "weight": self.weight,
                "model": {"name": "teacher", **self.model},
            }
        }

    def means(self, out, targets):
        """Scales gradients to means over the targets: Tutti's are over all rows until the update."""
        factor = targets.numel() / (targets >= 0).sum().item()
        return {n: x * factor if n.startswith("grad.") else x for n, x in out.items()}

    def both(self, logits, tokens, targets):
        """Cross-entropy and T^2 KL. Under autocast the teacher runs in bf16 too."""
        rows = targets.flatten() >= 0
        with torch.no_grad():
            teacher = reference_models.forward(self.model, self.weights, tokens)
        teacher = teacher.float().flatten(0, 1)[rows] / self.temperature
        student = logits.float().flatten(0, 1)[rows]
        cross_entropy = F.cross_entropy(student, targets.flatten()[rows])
        divergence = F.kl_div(
            F.log_softmax(student / self.temperature, dim=-1),
            F.log_softmax(teacher, dim=-1),
            reduction="batchmean",
            log_target=True,
        )
        return cross_entropy, self.temperature**2 * divergence

    def loss_of(self, logits, tokens, targets):
        cross_entropy, divergence = self.both(logits, tokens, targets)
        return (1 - self.weight) * cross_entropy + self.weight * divergence

    def parts(self, logits, tokens, targets):
        cross_entropy, divergence = self.both(logits, tokens, targets)
        return {"ce_loss": cross_entropy.item(), "kl_loss": divergence.item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="path of parity_dump")
    parser.add_argument("--keep", help="write the files to this folder and keep them")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    table = parity_test.Table()
    with tempfile.TemporaryDirectory() as temporary:
        runner = parity_test.Runner(arguments.program, arguments.keep or temporary)
        for case, (student, model, temperature, weight, micro) in CASES.items():
            teacher = Teacher(model, temperature, weight)
            parity_test.check_f32(table, runner, case, student, micro, teacher)
            parity_test.check_bf16(table, runner, case, student, micro, teacher)
    print(f"PyTorch {torch.__version__}: {table.failures} comparisons failed")
    sys.exit(1 if table.failures else 0)


if __name__ == "__main__":
    main()
