"""That a GPU computes what it should: the parts of gpu_check.py that compare results."""

import os
import shutil
import sys
from pathlib import Path

from check_bars import FAILED, NOT_RUN, PASSED, UNCHECKED, Bar, final_loss, worst_difference
from check_run import ROOT, losses_of

LAYOUTS = ("zero=0", "zero=1", "zero=2", "zero=3", "tp=2", "pp=2", "cp=2")
# Rounding differences grow from step to step, so that the first steps are held to more.
FIRST_DIFFERENCE, ALL_DIFFERENCE = 1e-4, 2e-3
TWO_GPUS = "needs two GPUs"
# It slows kernels down by far, so tests of large shapes are left out. It reports the faults that
# death tests cause on purpose, and takes memory of the device itself.
LEFT_OUT_BY_SANITIZER = "*Many*:*Large*:*DeathTest*:Workspace.*"


class Sizes:
    """Of a GPU: gpt2-124m with all of its own sizes, and few enough tokens for two cores to take
    minutes for 200 steps."""

    demo, demo_steps, fp8_batch = [], 30, ["batch.global=8", "batch.micro=8", "batch.sequence=256"]
    gpt2, gpt2_first, gpt2_steps = ["batch.global=2", "batch.micro=2", "batch.sequence=64"], 20, 200
    fp8_steps = 1000
    layouts = LAYOUTS
    leave_out_tests = ""

    @staticmethod
    def is_trainer_suite(suite):
        return "Device" in suite


class HostSizes(Sizes):
    """Of the host, which executes the kernels thread by thread in place of a GPU."""

    model = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.ffn=64", "batch.global=2",
             "batch.micro=2", "batch.sequence=16"]
    demo, demo_steps = [*model, "model.kv_heads=1"], 8
    gpt2 = [*model, "model.kv_heads=2", "model.vocabulary=264", "model.context=16"]
    gpt2_first, gpt2_steps = 4, 8
    fp8_batch, fp8_steps = gpt2, 8
    layouts = ("zero=1", "tp=2")
    # What takes longest of the operations, and of the trainers all but one suite: those are tests of
    # their own.
    leave_out_tests = ("*Attention*:*Documents*:*Distill*:*GroupedGemm*:*Many*:*Large*:NarrowGemm*:"
                       "DeviceTrainer.*Layouts*:DeviceTrainer.*Replayed*:DeviceTrainer.*Offload*:"
                       "DeviceTrainer.*Experts*:DeviceTrainer.*RunAhead*:DeviceTrainer.*Below*:"
                       "DeviceTrainer.*Masters*")

    @staticmethod
    def is_trainer_suite(suite):
        return suite == "DeviceTrainer"


def is_host(report):
    return report.facts.get("gpu") == "the host"


def sizes(report):
    return HostSizes if is_host(report) else Sizes


def gpus(report):
    return len(report.facts.get("devices", []))


def operations(machine, report):
    machine.suites(report, "Operations against the CPU's references", "engine_test",
                   leave_out=sizes(report).leave_out_tests)


def trainer(machine, report):
    """Nothing may be skipped but what a machine with one GPU cannot run."""
    alone = gpus(report) < 2
    if alone:
        report.leave_out(f"DeviceEach.* of train_test, ranks with a GPU each: {TWO_GPUS}")
    machine.suites(report, "Trainer against the CPU's", "train_test",
                   wanted=lambda suite: (sizes(report).is_trainer_suite(suite) and
                                         not (alone and suite == "DeviceEach")),
                   may_skip=False, leave_out=sizes(report).leave_out_tests)


def parity(machine, report):
    """f32 within 1e-4 of PyTorch; bf16 gradients at most 1.5 times as far from f32 as PyTorch's own."""
    title = "Gradients and losses against PyTorch's"
    dump, script = machine.program("parity_dump"), ROOT / "tests" / "parity" / "parity_test.py"
    if dump is None or not script.exists():
        report.add(title, "parity_dump or tests/parity is not here: run `make cuda`, or take a kit or "
                          "bundle with tests", UNCHECKED, "no parity_dump")
        return
    where = ["--torch-device", "cpu"] if is_host(report) else []
    status, text, _, _ = machine.run([sys.executable, script, dump, "--device", "cuda", *where], 900)
    verdict = {0: PASSED, 77: UNCHECKED}.get(status, FAILED)
    said = {0: "f32 within 1e-4, bf16 within 1.5 times its errors", 77: "no PyTorch or numpy"}
    report.add(title, f"```\n{text[-12000:]}\n```", verdict, said.get(status, last_line(text)))


def last_line(text):
    return (text.strip().splitlines() or [""])[-1]


def small(report, name):
    return [f"run.name={name}", f"train.steps={sizes(report).demo_steps}", "schedule.warmup_steps=2",
            "evaluate.every_steps=0", "checkpoint.keep_last=2", *sizes(report).demo]


def yardstick(machine, report, title, words):
    """Losses and summary of the run that others are held against; without one the part has failed."""
    losses, summary, text, _ = machine.train("yardstick-" + title.split()[0], "demo", *words)
    if losses is None:
        report.add(title, f"```\n{text[-3000:]}\n```", FAILED, last_line(text))
    return losses, summary


def resume(machine, report):
    """A run that was stopped and resumed has the bits of one that was not."""
    title, steps = "A stopped run resumes with the same bits", sizes(report).demo_steps
    words = [*small(report, "resume"), "device=cuda", "precision=bf16"]
    whole, summary = yardstick(machine, report, title, words)
    if whole is None:
        return
    machine.train("halves", "demo", *words, "--stop-after", str(steps // 2))
    folder = machine.work / "runs" / "halves"
    again, text, _ = machine.json([machine.tutti, "train", folder, "--json"])
    halves = losses_of(folder)
    equal = (again is not None and halves == whole and len(whole) == steps
             and again["validation_loss"] == summary["validation_loss"])
    said = (f"{len(whole)} losses of one run, {len(halves or [])} of two; "
            f"{'equal to the bit' if equal else 'not equal'}")
    report.add(title, said + ("" if equal else f"\n```\n{text[-2000:]}\n```"),
               PASSED if equal else FAILED, said)


def compare_losses(machine, report, title, run, steps, bound):
    """`run`: (losses or None, output) of the first `steps` steps on a device. At the same time, where
    --jobs allows, on the CPU and on the GPU."""
    devices = ("cuda", "cpu")
    found = dict(zip(devices, machine.together(run, devices)))
    if None in found.values():  # the time was too short
        report.add(title, "The time was too short.", NOT_RUN, "cut off")
        return
    losses = {device: result[0] for device, result in found.items()}
    report.facts[title] = losses
    notes = [f"{device}:\n```\n{text[-3000:]}\n```" for device, (run_losses, text) in found.items()
             if run_losses is None]
    worst = worst_difference(losses["cpu"], losses["cuda"], steps)
    report.add_bars(title, [Bar(f"largest difference of {steps} losses", worst, bound,
                                at_least=False, reason="a run failed")], "\n".join(notes))


def learn(machine, report):
    title = "Losses of the demo on CPU and GPU"

    def run(device):
        losses, _, text, _ = machine.train(f"learn-{device}", "demo", *small(report, "learn"),
                                           "precision=f32", f"device={device}", limit=300)
        return losses, text
    compare_losses(machine, report, title, run, sizes(report).demo_steps, FIRST_DIFFERENCE)


def gpt2_folder(machine, device):
    return machine.work / "runs" / f"gpt2-{device}"


def gpt2(machine, report):
    """The first steps of the run that gpt2_curve finishes."""
    size = sizes(report)
    words = [*size.gpt2, f"train.steps={size.gpt2_steps}", "schedule.warmup_steps=2",
             f"schedule.decay_steps={size.gpt2_steps}", "precision=f32", "evaluate.every_steps=0",
             "checkpoint.keep_last=1", "--stop-after", str(size.gpt2_first)]

    def run(device):
        folder = gpt2_folder(machine, device)
        text = machine.train(folder.name, "gpt2-124m", *words, f"device={device}")[2]
        return losses_of(folder), text
    compare_losses(machine, report, f"First {size.gpt2_first} losses of gpt2-124m on CPU and GPU", run,
                   size.gpt2_first, FIRST_DIFFERENCE)


def gpt2_curve(machine, report):
    size = sizes(report)
    title = f"{size.gpt2_steps} losses of gpt2-124m on CPU and GPU"
    if not all(gpt2_folder(machine, device).exists() for device in ("cuda", "cpu")):
        report.add(title, "The part gpt2 has left no runs to resume.", FAILED, "no part gpt2")
        return

    def run(device):
        folder = gpt2_folder(machine, device)
        summary, text, _ = machine.json([machine.tutti, "train", folder, "--json"], 1800)
        return (losses_of(folder) if summary else None), text
    compare_losses(machine, report, title, run, size.gpt2_steps, ALL_DIFFERENCE)


def fp8(machine, report):
    """Products of 8 bits learn as well as those of 16."""
    size, found, notes = sizes(report), {}, []
    words = ["device=cuda", *size.fp8_batch, f"train.steps={size.fp8_steps}",
             f"schedule.warmup_steps={max(2, size.fp8_steps // 10)}",
             f"schedule.decay_steps={size.fp8_steps}", "evaluate.every_steps=0",
             "checkpoint.keep_last=1"]
    for precision in ("bf16", "fp8"):
        losses, summary, text, seconds = machine.train(f"gpt2-{precision}", "gpt2-124m", *words,
                                                       f"precision={precision}")
        found[precision] = final_loss(losses, size.fp8_steps)
        report.facts[f"losses of gpt2-124m, {precision}"] = losses
        notes.append(f"{precision}: loss of the last steps {found[precision]}, {seconds:.0f} s")
        if summary is None:
            notes.append(f"```\n{text[-3000:]}\n```")
    ratio = found["fp8"] / found["bf16"] if all(found.values()) else None
    report.add_bars("FP8 learns as bf16 does",
                    [Bar(f"final loss after {size.fp8_steps} steps, fp8 / bf16", ratio, 1.01,
                         at_least=False, reason="a run failed")], "\n".join(notes))


def ranks(machine, report):
    """Two ranks in each layout against one; through NCCL where there are two GPUs."""
    title, steps = "Two ranks against one", sizes(report).demo_steps
    words = [*small(report, "ranks"), "precision=f32", "device=cuda"]
    alone, _ = yardstick(machine, report, title, words)
    if alone is None:
        return
    if gpus(report) < 2:
        report.leave_out(f"collectives through NCCL: {TWO_GPUS}; ranks share the one")
    expected = "collectives: NCCL" if gpus(report) > 1 else "share the GPU"
    bars, notes = [], [f"{gpus(report)} GPUs, so each run must say `{expected}`."]

    def run(layout):
        return machine.train(f"ranks-{layout}", "demo", *words, "--nproc", "2", f"parallel.{layout}")
    results = machine.together(run, sizes(report).layouts)
    if None in results:
        report.add(title, "The time was too short.", NOT_RUN, "cut off")
        return
    for layout, (found, _, text, _) in zip(sizes(report).layouts, results):
        said = expected in text
        worst = worst_difference(alone, found, steps) if said else None
        bars.append(Bar(f"{layout}: largest difference of {steps} losses", worst, 1e-3,
                        at_least=False, reason="the run failed" if said else f"no `{expected}`"))
        if worst is None:
            notes.append(f"{layout}:\n```\n{text[-1500:]}\n```")
    report.add_bars(title, bars, "\n".join(notes))


def sanitizer(machine, report):
    if is_host(report):
        report.leave_out("compute-sanitizer: it looks at a GPU")
        return
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for check in ("memcheck", "racecheck"):
        title = f"compute-sanitizer {check}"
        if not os.path.exists(tool):
            report.add(title, "not on this machine: it comes with the CUDA toolkit", UNCHECKED,
                       "no compute-sanitizer")
            continue
        machine.suites(report, title, "engine_test", limit=600, leave_out=LEFT_OUT_BY_SANITIZER,
                       wrap=(Path(tool), "--tool", check, "--error-exitcode", "9"))
