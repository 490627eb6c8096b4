"""How fast a GPU is: the parts of gpu_check.py that measure, each figure beside its ceiling."""

import json
import statistics
import sys
from pathlib import Path

from check_bars import UNCHECKED, Bar, mfu, own_memory_kernels
from peaks import peak_source

HERE = Path(__file__).resolve().parent


class Work:
    """A training step to be measured. Its micro-batches are as many as runs have of that model, so that
    the optimizer has its real share of a step. `least`: share of the data sheet's bf16 rate."""

    def __init__(self, model, batch, sequence, accumulate, steps, least):
        self.model, self.batch, self.sequence = model, batch, sequence
        self.accumulate, self.steps, self.least = accumulate, steps, least

    def name(self, precision="bf16", layers=None):
        return (f"{self.model}{f', {layers} layers,' if layers else ''} T{self.sequence} "
                f"{self.batch}x{self.accumulate} {precision}")

    def arguments(self, layers=None):
        words = ["--model", self.model, "--batch", self.batch, "--seq", self.sequence,
                 "--accumulate", self.accumulate]
        words += ["--set", f"model.layers={layers}"] if layers else []
        return [str(word) for word in words]


SMALL = Work("gpt2-124m", 32, 1024, 16, 8, 0.40)
LARGE = Work("gpt2-1558m", 16, 1024, 8, 4, 0.50)
# As many layers of it as the memory holds; the others would be the same work once more.
LLAMA = Work("llama3.1-8b", 1, 8192, 8, 4, 0.56)
LLAMA_LAYERS = 32
# Of the device, beside the arenas of the memory map: workspaces of the libraries, their code.
RESERVE_BYTES = 6 << 30
FP8_RATIO = 1.25
RACE_RATIO = 1.1
HOST_SHARE = 0.05
MEMORY_BOUND = 0.85
LEAST_KERNEL_SECONDS = 1e-4  # shorter ones do not fill the device, nor the time between two events
# Few layers, many rows: kernels that take long enough.
KERNELS = {"gpt2-1558m": ["--model", "gpt2-1558m", "--set", "model.layers=2", "--batch", "64",
                          "--seq", "1024"],
           "llama3.1-8b": ["--model", "llama3.1-8b", "--set", "model.layers=1", "--batch", "4",
                           "--seq", "8192"]}
SHAKESPEARE_LOSS, SHAKESPEARE_SECONDS, SEEDS = 1.48, 25, (1, 2, 3, 4, 5)


def measure(machine, report, work, precision="bf16", layers=None):
    """Of `tutti bench step --json`; None, shown, where it failed."""
    result, text, _ = machine.json([machine.tutti, "bench", "step", "--device", "cuda", "--json",
                                    "--precision", precision, "--steps", str(work.steps),
                                    *work.arguments(layers)], 300)
    if result is not None:
        report.facts[work.name(precision, layers)] = result
    return result, text


def step_text(result, share):
    seconds = result["step_seconds"]["median"]
    lines = [f"{result['tokens_per_second']:,.0f} tokens/s, {1e3 * seconds:.1f} ms a step, of which "
             f"{1e3 * result['host_seconds']:.2f} ms of the host; "
             f"{f'{100 * share:.1f}' if share else 'no '}% of the data sheet, "
             f"{100 * result['mfu_of_gemm_peak']:.1f}% of the measured "
             f"{1e-12 * result['gemm_peak_flops']:.0f} TFLOP/s; "
             f"{result['peak_memory_bytes'] / 2**30:.1f} GiB of the host at most, "
             f"{result['memory_map_bytes'] / 2**30:.1f} GiB in the memory map"]
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def speed_of(machine, report, work, layers=None):
    """Measures it and adds the part; returns the bars' result."""
    gpu, name = report.facts.get("gpu", ""), work.name("bf16", layers)
    result, text = measure(machine, report, work, "bf16", layers)
    share = mfu(result, gpu) if result else None
    bars = [Bar("MFU of the data sheet", share, work.least,
                reason="it failed" if result is None else peak_source(gpu))]
    if work is SMALL:
        host = result["host_seconds"] / result["step_seconds"]["median"] if result else None
        bars.append(Bar("host's share of a step", host, HOST_SHARE, at_least=False,
                        reason="it failed"))
    report.add_bars(f"Speed of {name}", bars,
                    f"peak: {peak_source(gpu)}\n\n" + step_text(result, share) if result
                    else f"```\n{text[-3000:]}\n```")


def speed_small(machine, report):
    speed_of(machine, report, SMALL)


def speed_large(machine, report):
    speed_of(machine, report, LARGE)


def map_bytes(machine, work, layers, precision):
    """(what the program says the step takes, what the device has free)"""
    result, text, _ = machine.json([machine.tutti, "bench", "memory", "--device", "cuda", "--json",
                                    "--precision", precision, *work.arguments(layers)], 60)
    if result is None:
        raise RuntimeError(f"tutti bench memory: {text.strip()[-500:]}")
    return result["memory_map_bytes"], result["free_bytes"]


def layers_that_fit(machine, work, most, precisions=("bf16", "fp8")):
    """The most for which each precision's memory map leaves RESERVE_BYTES free; 0: not even one."""
    fit, too_many = 0, most + 1
    while too_many - fit > 1:
        layers = (fit + too_many) // 2
        maps = [map_bytes(machine, work, layers, precision) for precision in precisions]
        if all(needed + RESERVE_BYTES <= free for needed, free in maps):
            fit = layers
        else:
            too_many = layers
    return fit


def llama_layers(machine, report):
    if "layers of llama3.1-8b" not in report.facts:
        report.facts["layers of llama3.1-8b"] = layers_that_fit(machine, LLAMA, LLAMA_LAYERS)
    return report.facts["layers of llama3.1-8b"]


def speed_llama(machine, report):
    layers = llama_layers(machine, report)
    if layers == 0:
        report.leave_out(f"{LLAMA.name()}: not one layer fits beside {RESERVE_BYTES >> 30} GiB")
        return
    speed_of(machine, report, LLAMA, layers)


def fp8_speed(machine, report):
    layers = llama_layers(machine, report)
    if layers == 0:
        return
    wide, text = report.facts.get(LLAMA.name("bf16", layers)), ""
    if wide is None:
        wide, text = measure(machine, report, LLAMA, "bf16", layers)
    narrow, narrow_text = measure(machine, report, LLAMA, "fp8", layers)
    ratio = narrow["tokens_per_second"] / wide["tokens_per_second"] if wide and narrow else None
    said = step_text(narrow, None) if narrow else f"```\n{(text + narrow_text)[-3000:]}\n```"
    report.add_bars(f"Speed of FP8, {LLAMA.name('fp8', layers)}",
                    [Bar("fp8 / bf16", ratio, FP8_RATIO, reason="a run failed")], said)


def race(machine, report, work, layers=None):
    """Against PyTorch's compiled step on the same tokens, accumulated alike."""
    name = work.name("bf16", layers)
    title = f"Race against PyTorch, {name}"
    status, text, _, _ = machine.run([sys.executable, "-c", "import torch; torch.zeros(1).cuda()"], 120)
    if status != 0:
        report.add(title, f"torch cannot be imported, or has no GPU:\n```\n{text[-500:]}\n```",
                   UNCHECKED, "no PyTorch with a GPU")
        return
    ours, our_text = report.facts.get(name), ""
    if ours is None:
        ours, our_text = measure(machine, report, work, "bf16", layers)
    status, text, out, _ = machine.run(
        [sys.executable, HERE / "torch_race.py", work.model, str(work.batch), str(work.sequence),
         "--steps", str(work.steps), "--accumulate", str(work.accumulate),
         *(["--layers", str(layers)] if layers else [])], 600)
    theirs = last_json(out) if status == 0 else None
    if theirs:
        report.facts[f"{name}, PyTorch"] = theirs
    ratio = ours["tokens_per_second"] / theirs["tokens_per_second"] if ours and theirs else None
    lines = [f"{program}: " + (f"{result['tokens_per_second']:,.0f} tokens/s" if result
                           else f"`{said.strip()[-400:]}`")
             for program, result, said in (("Tutti", ours, our_text), ("PyTorch", theirs, text))]
    report.add_bars(title, [Bar("tokens/s against PyTorch's", ratio, RACE_RATIO,
                                reason="one of the two failed")], "\n".join(lines))


def race_small(machine, report):
    race(machine, report, SMALL)


def race_large(machine, report):
    race(machine, report, LARGE)


def last_json(out):
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None


def kernels(machine, report):
    bars, rows = [], ["| kernel | shape | each | of its ceiling |", "|---|---|---|---|"]
    failed = ""
    for model, arguments in KERNELS.items():
        result, text, _ = machine.json([machine.tutti, "bench", "kernels", "--device", "cuda", "--json",
                                        "--precision", "bf16", "--steps", "5", *arguments], 300)
        if result is None:
            bars.append(Bar(f"{model}: kernels", None, MEMORY_BOUND, reason="it failed"))
            failed += f"\n```\n{text[-3000:]}\n```"
            continue
        found = report.facts[f"kernels of {model}"] = result["kernels"]
        rows += [f"| {k['name']} | {k['shape']} | {1e6 * k['median_seconds']:.1f} us | "
                 f"{100 * k['share_of_ceiling']:.0f}% ({k['bound']}) |" for k in found]
        own = own_memory_kernels(found, LEAST_KERNEL_SECONDS)
        bars += [Bar(f"{k['name']} {k['shape']}", k["share_of_ceiling"], MEMORY_BOUND) for k in own]
        if not own:
            bars.append(Bar(f"{model}: own kernels bound by memory", None, MEMORY_BOUND,
                            reason=f"none takes {1e6 * LEAST_KERNEL_SECONDS:.0f} us"))
    report.add_bars("Kernels bound by memory", bars, "\n".join(rows) + failed)


def shakespeare(machine, report):
    """The recipe shakespeare-gpu, by five seeds; a run's time includes start, tuning, evaluation."""
    title = "Shakespeare by characters"
    text_file = machine.shakespeare
    if text_file is None or not text_file.exists():
        report.add(title, "needs the text: --shakespeare tinyshakespeare.txt", UNCHECKED,
                   "no --shakespeare tinyshakespeare.txt")
        return
    prefix = machine.work / "shakespeare"
    machine.run([machine.tutti, "data", "prepare", text_file, "--tokenizer", "char", "--holdout",
                 "0.1", "--split", "tail", "--out", prefix], 120)
    losses, seconds, rows = [], [], ["| seed | validation loss | seconds |", "|---|---|---|"]
    for seed in SEEDS:
        summary, text, wall = machine.json(
            [machine.tutti, "train", "shakespeare-gpu", "device=cuda", f"data.train={prefix}",
             f"data.validation={prefix}-validation", f"train.seed={seed}", "--run",
             machine.work / "runs" / f"shakespeare-{seed}", "--json"], 300)
        loss = summary["validation_loss"] if summary else None
        if loss is None:
            rows.append(f"| {seed} | `{text.strip()[-300:]}` | |")
            continue
        losses.append(loss)
        seconds.append(wall)
        rows.append(f"| {seed} | {loss:.4f} | {wall:.1f} |")
    done = len(losses) == len(SEEDS)
    report.facts["shakespeare"] = {"losses": losses, "seconds": seconds}
    report.add_bars(title, [
        Bar("median validation loss", statistics.median(losses) if done else None, SHAKESPEARE_LOSS,
            at_least=False, reason="a seed failed"),
        Bar("median time", statistics.median(seconds) if done else None, SHAKESPEARE_SECONDS,
            at_least=False, unit=" s", reason="a seed failed")], "\n".join(rows))
