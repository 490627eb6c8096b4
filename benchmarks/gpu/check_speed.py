"""How fast a GPU is: the parts of gpu_check.py that measure, each figure beside its ceiling."""

import json
import statistics
import sys
from pathlib import Path

from check_bars import FAILED, UNCHECKED, Bar, mfu, own_memory_kernels, peak_flops

HERE = Path(__file__).resolve().parent
LLAMA = ["--model", "llama3.1-8b", "--set", "model.layers=24", "--batch", "1", "--seq", "8192",
         "--steps", "10"]
# name: precision, arguments of `tutti bench step`, least share of the data sheet's bf16 rate
WORK = {
    "gpt2-124m T1024 bf16": ("bf16", ["--model", "gpt2-124m", "--batch", "32", "--seq", "1024",
                                      "--steps", "20"], 0.45),
    "gpt2-1558m T1024 bf16": ("bf16", ["--model", "gpt2-1558m", "--batch", "16", "--seq", "1024",
                                       "--steps", "10"], 0.55),
    "llama3.1-8b, 24 layers, T8192 bf16": ("bf16", LLAMA, 0.58),
    "llama3.1-8b, 24 layers, T8192 fp8": ("fp8", LLAMA, None),
}
FP8_RATIO = 1.25
# name: arguments of torch_race.py, least ratio to PyTorch (None: no demand)
RACES = {
    "gpt2-124m T1024 bf16": (["gpt2-124m", "32", "1024"], 1.25),
    "gpt2-1558m T1024 bf16": (["gpt2-1558m", "16", "1024", "10"], None),
    "llama3.1-8b, 24 layers, T8192 bf16": (["llama3.1-8b", "1", "8192", "10", "24"], None),
}
HOST_SHARE = 0.05
MEMORY_BOUND = 0.85
LEAST_KERNEL_SECONDS = 1e-4  # beside which a kernel's start does not count
SHAKESPEARE_LOSS, SHAKESPEARE_SECONDS, SEEDS = 1.48, 25, (1, 2, 3, 4, 5)


def speed(machine, report):
    gpu = report.facts.get("gpu", "")
    unknown = "" if peak_flops(gpu) else f"no peak is known of '{gpu}': add it to PEAKS"
    bars = []
    rows = ["| work | tokens/s | step | host | of the data sheet | of the measured peak |",
            "|---|---|---|---|---|---|"]
    for name, (precision, arguments, least) in WORK.items():
        result, text, _ = machine.json([machine.tutti, "bench", "step", "--device", "cuda",
                                        "--precision", precision, "--json", *arguments], 300)
        share = mfu(result, gpu) if result else None
        if least:
            bars.append(Bar(f"{name}: MFU of the data sheet", share, least,
                            reason=unknown if result else "it failed"))
        if result is None:
            rows.append(f"| {name} | `{text.strip()[-400:]}` | | | | |")
            continue
        report.facts[name] = result
        seconds = result["step_seconds"]["median"]
        rows.append(f"| {name} | {result['tokens_per_second']:,.0f} | {1e3 * seconds:.1f} ms | "
                    f"{1e3 * result['host_seconds']:.2f} ms | "
                    f"{f'{100 * share:.1f}%' if share else unknown} | "
                    f"{100 * result['mfu_of_gemm_peak']:.1f}% of "
                    f"{result['gemm_peak_flops'] * 1e-12:.0f} TFLOP/s |")
        rows += [f"| | {note} | | | | |" for note in result["notes"]]
    wide, narrow = (report.facts.get(f"llama3.1-8b, 24 layers, T8192 {precision}")
                    for precision in ("bf16", "fp8"))
    ratio = narrow["tokens_per_second"] / wide["tokens_per_second"] if wide and narrow else None
    bars.append(Bar("llama3.1-8b, 24 layers, T8192: fp8 / bf16", ratio, FP8_RATIO))
    first = report.facts.get("gpt2-124m T1024 bf16")
    host = first["host_seconds"] / first["step_seconds"]["median"] if first else None
    bars.append(Bar("gpt2-124m T1024 bf16: host's share of a step", host, HOST_SHARE,
                    at_least=False))
    report.add_bars("Speed", bars, "\n".join(rows))


def race(machine, report):
    status, text, _, _ = machine.run([sys.executable, "-c", "import torch; torch.zeros(1).cuda()"],
                                     120)
    if status != 0:
        report.add("Race against PyTorch", "torch cannot be imported, or has no GPU:\n"
                   f"```\n{text[-500:]}\n```", UNCHECKED)
        return
    rows, bars = ["| work | PyTorch tokens/s | ratio |", "|---|---|---|"], []
    for name, (arguments, least) in RACES.items():
        status, text, out, _ = machine.run([sys.executable, HERE / "torch_race.py", *arguments], 600)
        theirs = last_json(out) if status == 0 else None
        ours = report.facts.get(name)
        ratio = ours["tokens_per_second"] / theirs["tokens_per_second"] if ours and theirs else None
        if theirs:
            report.facts[f"{name}, PyTorch"] = theirs
            rows.append(f"| {name} | {theirs['tokens_per_second']:,.0f} | "
                        f"{f'{ratio:.2f}' if ratio else 'not measured here'} |")
        else:
            rows.append(f"| {name} | `{text.strip()[-300:]}` | |")
        if least:
            bars.append(Bar(f"{name}: tokens/s against PyTorch's", ratio, least,
                            reason="one of the two has no figure; is the part `speed` done?"))
    report.add_bars("Race against PyTorch", bars, "\n".join(rows))


def last_json(out):
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None


def kernels(machine, report):
    """Two layers, many rows: kernels that take long enough to be timed one by one."""
    result, text, _ = machine.json(
        [machine.tutti, "bench", "kernels", "--device", "cuda", "--json", "--precision", "bf16",
         "--model", "gpt2-1558m", "--set", "model.layers=2", "--batch", "128", "--seq", "1024",
         "--steps", "3"], 300)
    if result is None:
        report.add("Kernels bound by memory", f"```\n{text[-3000:]}\n```", FAILED)
        return
    found = report.facts["kernels"] = result["kernels"]
    rows = ["| kernel | shape | each | of its ceiling |", "|---|---|---|---|"]
    rows += [f"| {k['name']} | {k['shape']} | {1e6 * k['median_seconds']:.1f} us | "
             f"{100 * k['share_of_ceiling']:.0f}% ({k['bound']}) |" for k in found]
    own = own_memory_kernels(found, LEAST_KERNEL_SECONDS)
    bars = [Bar(f"{k['name']} {k['shape']}", k["share_of_ceiling"], MEMORY_BOUND) for k in own]
    if not own:
        bars = [Bar("own kernels bound by memory", None, MEMORY_BOUND,
                    reason=f"none takes {1e6 * LEAST_KERNEL_SECONDS:.0f} us")]
    report.add_bars("Kernels bound by memory", bars, "\n".join(rows))


def shakespeare(machine, report, text_file):
    """The recipe shakespeare-gpu, by five seeds; a run's time includes start, tuning, evaluation."""
    title = "Shakespeare by characters"
    if text_file is None or not text_file.exists():
        report.add(title, "needs the text: --shakespeare tinyshakespeare.txt", UNCHECKED)
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
