"""That a GPU computes what it should: the parts of gpu_check.py that compare results."""

import os
import shutil
import sys
from pathlib import Path

from check_bars import FAILED, PASSED, UNCHECKED, Bar, final_loss, worst_difference
from check_run import ROOT, losses_of

STEPS = 30  # of the small runs
LAYOUTS = ("zero=0", "zero=1", "zero=2", "zero=3", "tp=2", "pp=2", "cp=2")
# Small enough for two cores to take a few minutes for 200 steps; all of the model's own sizes.
GPT2_STEPS = 200
GPT2 = ["batch.global=2", "batch.micro=2", "batch.sequence=64", f"train.steps={GPT2_STEPS}",
        "schedule.warmup_steps=20", f"schedule.decay_steps={GPT2_STEPS}", "precision=f32",
        "evaluate.every_steps=0", "checkpoint.keep_last=1"]
FP8_STEPS = 1000
FP8 = ["device=cuda", "batch.global=8", "batch.micro=8", "batch.sequence=256",
       f"train.steps={FP8_STEPS}", "schedule.warmup_steps=100", f"schedule.decay_steps={FP8_STEPS}",
       "evaluate.every_steps=0", "checkpoint.keep_last=1"]


def operations(machine, report):
    machine.suites(report, "Operations against the CPU's references", "engine_test")


def trainer(machine, report):
    machine.suites(report, "Trainer against the CPU's", "train_test", only="Device",
                   may_skip=False)


def parity(machine, report):
    """f32 within 1e-4 of PyTorch; bf16 gradients at most 1.5 times as far from f32 as PyTorch's own."""
    title = "Gradients and losses against PyTorch's"
    dump, script = machine.program("parity_dump"), ROOT / "tests" / "parity" / "parity_test.py"
    if dump is None or not script.exists():
        report.add(title, "parity_dump or tests/parity is not here: run `make cuda`, or take a bundle "
                          "with tests", UNCHECKED)
        return
    status, text, _, seconds = machine.run([sys.executable, script, dump, "--device", "cuda"], 900)
    verdict = {0: PASSED, 77: UNCHECKED}.get(status, FAILED)
    report.add(title, f"```\n{text[-12000:]}\n```\n{seconds:.0f} s", verdict)


def small(name):
    return [f"run.name={name}", f"train.steps={STEPS}", "schedule.warmup_steps=5",
            "evaluate.every_steps=0", "checkpoint.keep_last=2"]


def yardstick(machine, report, title, words):
    """Losses and summary of the run that others are held against; without one the part has failed."""
    losses, summary, text, _ = machine.train("yardstick-" + title.split()[0], "demo", *words)
    if losses is None:
        report.add(title, f"```\n{text[-3000:]}\n```", FAILED)
    return losses, summary


def resume(machine, report):
    """A run that was stopped and went on has the bits of one that was not."""
    title = "A stopped run goes on with the same bits"
    words = [*small("resume"), "device=cuda", "precision=bf16"]
    whole, summary = yardstick(machine, report, title, words)
    if whole is None:
        return
    machine.train("halves", "demo", *words, "--stop-after", str(STEPS // 2))
    folder = machine.work / "runs" / "halves"
    again, text, _ = machine.json([machine.tutti, "train", folder, "--json"])
    halves = losses_of(folder)
    equal = (again is not None and halves == whole and len(whole) == STEPS
             and again["validation_loss"] == summary["validation_loss"])
    report.add(title, f"{len(whole)} losses of one run, {len(halves or [])} of two; "
                      f"{'equal to the bit' if equal else 'not equal'}" +
               ("" if equal else f"\n```\n{text[-2000:]}\n```"), PASSED if equal else FAILED)


def compare_losses(machine, report, title, recipe, words, steps, bound, limit):
    """The same steps on CPU and GPU."""
    losses, notes = {}, []
    for device in ("cuda", "cpu"):
        name = f"{title.replace(' ', '-')}-{device}"
        losses[device], _, text, seconds = machine.train(name, recipe, *words, f"device={device}",
                                                         limit=limit)
        notes.append(f"{device}: {seconds:.0f} s")
        if losses[device] is None:
            notes.append(f"```\n{text[-3000:]}\n```")
    report.facts[title] = losses
    worst = worst_difference(losses["cpu"], losses["cuda"], steps)
    report.add_bars(title, [Bar(f"largest difference of {steps} losses", worst, bound,
                                at_least=False, reason="a run failed")], "\n".join(notes))


def learn(machine, report):
    compare_losses(machine, report, "Losses of the demo on CPU and GPU", "demo",
                   [*small("learn"), "precision=f32"], STEPS, 1e-4, 300)


def gpt2(machine, report):
    compare_losses(machine, report, "Losses of gpt2-124m on CPU and GPU", "gpt2-124m", GPT2,
                   GPT2_STEPS, 1e-4, 1800)


def fp8(machine, report):
    """Products of 8 bits learn as well as those of 16."""
    found, notes = {}, []
    for precision in ("bf16", "fp8"):
        losses, summary, text, seconds = machine.train(f"gpt2-{precision}", "gpt2-124m", *FP8,
                                                       f"precision={precision}")
        found[precision] = final_loss(losses, FP8_STEPS)
        notes.append(f"{precision}: loss of the last steps {found[precision]}, {seconds:.0f} s")
        if summary is None:
            notes.append(f"```\n{text[-3000:]}\n```")
    report.facts["final losses of gpt2-124m"] = found
    ratio = found["fp8"] / found["bf16"] if all(found.values()) else None
    report.add_bars("FP8 learns as bf16 does",
                    [Bar(f"final loss after {FP8_STEPS} steps, fp8 / bf16", ratio, 1.01,
                         at_least=False, reason="a run failed")], "\n".join(notes))


def ranks(machine, report):
    """Two ranks in each layout against one; through NCCL where there are two GPUs."""
    title = "Two ranks against one"
    words = [*small("ranks"), "precision=f32", "device=cuda"]
    alone, _ = yardstick(machine, report, title, words)
    if alone is None:
        return
    gpus = len(report.facts.get("devices", []))
    expected = "collectives: NCCL" if gpus > 1 else "share the GPU"
    bars, notes = [], [f"{gpus} GPUs, so each run must say `{expected}`."]
    for layout in LAYOUTS:
        found, _, text, _ = machine.train(f"ranks-{layout}", "demo", *words, "--nproc", "2",
                                          f"parallel.{layout}")
        said = expected in text
        worst = worst_difference(alone, found, STEPS) if said else None
        bars.append(Bar(f"{layout}: largest difference of {STEPS} losses", worst, 1e-3,
                        at_least=False, reason="the run failed" if said else f"no `{expected}`"))
        if worst is None:
            notes.append(f"{layout}:\n```\n{text[-1500:]}\n```")
    report.add_bars(title, bars, "\n".join(notes))


def sanitizer(machine, report):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for check in ("memcheck", "racecheck"):
        title = f"compute-sanitizer {check}"
        if not os.path.exists(tool):
            report.add(title, "not on this machine: it comes with the CUDA toolkit", UNCHECKED)
            continue
        # It slows kernels down by far, so tests of large shapes are left out.
        machine.suites(report, title, "engine_test", limit=600, leave_out="*Many*:*Large*",
                       wrap=(Path(tool), "--tool", check, "--error-exitcode", "9"))
