#!/usr/bin/env python3
"""The proof and the speed table of a machine with a GPU, in one report file.

Needs only this folder's neighbours: it runs from a bundle (bin/tutti beside benchmarks/) or from a
source tree (build/cuda). No network, no packages; the race against PyTorch runs where `torch` can
be imported. Nothing on the machine is changed. The report is written anew after each part, so that
what is done is kept whatever comes after.

Usage: gpu_check.py [--out REPORT.md] [--parts NAME,...] [--budget SECONDS] [--bin FOLDER]
Parts, in order: machine, operations, trainer, speed, race, kernels, learn, ranks, sanitizer.
Exit status 1 when a part failed, 77 when there is no GPU.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Dense bf16 matrix rate of the maker's data sheet, FLOP/s, by the GPU's name.
PEAKS = {"H100": 989e12, "H200": 989e12, "GH200": 989e12, "A100": 312e12, "B200": 2250e12,
         "GB200": 2450e12, "B300": 2250e12, "GB300": 2450e12, "L40S": 362e12}

# name, arguments of `tutti bench step`, arguments of torch_race.py, least share of the peak, least
# ratio to PyTorch (0: none)
WORK = [
    ("gpt2-124m T1024 bf16",
     ["--model", "gpt2-124m", "--batch", "32", "--seq", "1024", "--steps", "20"],
     ["gpt2-124m", "32", "1024"], 0.45, 1.25),
    ("gpt2-1558m T1024 bf16",
     ["--model", "gpt2-1558m", "--batch", "16", "--seq", "1024", "--steps", "10"],
     ["gpt2-1558m", "16", "1024", "10"], 0.55, 0),
    ("llama3.1-8b, 24 layers, T8192 bf16",
     ["--model", "llama3.1-8b", "--set", "model.layers=24", "--batch", "1", "--seq", "8192",
      "--steps", "10"],
     ["llama3.1-8b", "1", "8192", "10", "24"], 0.58, 0),
]
MEMORY_BOUND_BAR = 0.85


class Report:
    def __init__(self, path):
        self.path, self.parts, self.failed, self.facts = path, [], [], {}

    def add(self, title, text, good=None):
        mark = "" if good is None else (" — PASSED" if good else " — FAILED")
        if good is False:
            self.failed.append(title)
        self.parts.append(f"## {title}{mark}\n\n{text.rstrip()}\n")
        print(f"{title}{mark}", flush=True)
        self.write()

    def write(self):
        head = f"# GPU report, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n"
        state = "Nothing failed so far." if not self.failed else "FAILED: " + "; ".join(self.failed)
        text = "\n".join([head, state + "\n", *self.parts,
                          "## Figures\n\n```json\n" + json.dumps(self.facts, indent=1) + "\n```\n"])
        temporary = self.path.with_suffix(".part")
        temporary.write_text(text)
        os.replace(temporary, self.path)


class Check:
    def __init__(self, arguments):
        self.bin = arguments.bin or next(
            (folder for folder in (ROOT / "bin", ROOT / "build" / "cuda")
             if (folder / "tutti").exists()), None)
        if self.bin is None:
            sys.exit("gpu_check: no tutti in bin/ or build/cuda; unpack a bundle or run `make cuda`")
        self.end = time.monotonic() + arguments.budget
        self.report = Report(arguments.out)
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))

    def test(self, name):
        return next(path for path in (self.bin / name, self.bin / "bin" / name) if path.exists())

    def run(self, command, limit=600, **environment):
        """(exit status, output of both streams, standard output, seconds)"""
        limit = min(limit, self.end - time.monotonic())
        if limit < 5:
            return 124, "no time left of --budget", "", 0
        begin = time.monotonic()
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  timeout=limit, cwd=self.work,
                                  env={**os.environ, "TUTTI_TUNING": str(self.work), **environment})
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode(errors="replace")
            return 124, out + f"\nended after {limit:.0f} s", out, limit
        return done.returncode, done.stdout + done.stderr, done.stdout, time.monotonic() - begin

    def tests(self, title, program, only=""):
        """Each suite in a process of its own: a fault on the device ends only that one."""
        names = self.run([self.test(program), "--gtest_list_tests"], 60,
                         TUTTI_TEST_DEVICE="cuda")[2]
        suites = [line[:-1] for line in names.splitlines()
                  if line and not line.startswith(" ") and line.split("#")[0].rstrip().endswith(".")]
        rows, good = ["| suite | passed | failed | skipped | seconds |", "|---|---|---|---|---|"], True
        details = []
        for suite in (name for name in suites if only in name):
            status, text, _, seconds = self.run(
                [self.test(program), f"--gtest_filter={suite}.*"], 240, TUTTI_TEST_DEVICE="cuda")
            passed = len(re.findall(r"^\[       OK \]", text, re.M))
            failed = re.findall(r"^\[  FAILED  \] (\S+) \(", text, re.M)
            skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", text, re.M))
            good = good and status == 0
            what = ", ".join(failed) if failed else ("" if status == 0 else f"exit status {status}")
            rows.append(f"| {suite} | {passed} | {what} | {skipped} | {seconds:.1f} |")
            if status != 0:
                details.append(f"\n{suite}:\n```\n{text[-2500:]}\n```")
        self.report.add(title, "\n".join(rows + details), good)

    # Parts.

    def machine(self):
        lines = []
        for command in (["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,"
                         "power.limit,temperature.gpu", "--format=csv"],
                        [self.bin / "tutti", "--version"]):
            if shutil.which(str(command[0])):
                lines.append(self.run(command, 60)[1])
        status, text, _, _ = self.run([self.test("engine_test"), "--gtest_list_tests"], 60,
                                      TUTTI_TEST_DEVICE="cuda")
        if status == 77 or "skipped:" in text:
            self.report.add("Machine", text)
            print("skipped: no GPU: nothing was checked")
            sys.exit(77)
        self.report.facts["gpu"] = lines[0].splitlines()[-1] if lines else ""
        self.report.add("Machine", "```\n" + "\n".join(lines) + "\n```")

    def operations(self):
        self.tests("Operations against the CPU's references", "engine_test")

    def trainer(self):
        self.tests("Trainer against the CPU's", "train_test", "DeviceTrainer")

    def peak(self):
        gpu = self.report.facts.get("gpu", "")
        names = sorted((name for name in PEAKS if name in gpu), key=len)
        return PEAKS[names[-1]] if names else 0

    def speed(self):
        rows, good = ["| Work | tokens/s | step | MFU of the data sheet | of the measured peak | bar |",
                      "|---|---|---|---|---|---|"], True
        for name, arguments, _, bar, _ in WORK:
            status, text, out, _ = self.run([self.bin / "tutti", "bench", "step", "--device", "cuda",
                                             "--precision", "bf16", "--json", *arguments], 300)
            if status != 0:
                rows.append(f"| {name} | failed: `{text.strip()[-400:]}` | | | | |")
                good = False
                continue
            result = json.loads(out)
            self.report.facts[name] = result
            seconds = result["step_seconds"]["median"]
            mfu = result["model_flops_per_step"] / seconds / self.peak() if self.peak() else 0
            result["mfu_of_data_sheet"] = mfu
            good = good and mfu >= bar
            rows.append(f"| {name} | {result['tokens_per_second']:,.0f} | {1e3 * seconds:.1f} ms | "
                        f"{100 * mfu:.1f}% | {100 * result['mfu_of_gemm_peak']:.1f}% of "
                        f"{result['gemm_peak_flops'] * 1e-12:.0f} TFLOP/s | {100 * bar:.0f}% |")
        self.report.add("Speed", "\n".join(rows), good)

    def race(self):
        status, _, _, _ = self.run([sys.executable, "-c", "import torch; torch.zeros(1).cuda()"], 120)
        if status != 0:
            self.report.add("Race against PyTorch", "skipped: torch cannot be imported, or has no GPU")
            return
        rows, good = ["| Work | PyTorch tokens/s | ratio | bar |", "|---|---|---|---|"], True
        for name, _, arguments, _, bar in WORK:
            status, text, out, _ = self.run([sys.executable, HERE / "torch_race.py", *arguments], 300)
            ours = self.report.facts.get(name)
            if status != 0 or ours is None:
                rows.append(f"| {name} | `{text.strip()[-300:]}` | | |")
                continue
            theirs = json.loads(out.strip().splitlines()[-1])
            self.report.facts[name + ", PyTorch"] = theirs
            ratio = ours["tokens_per_second"] / theirs["tokens_per_second"]
            good = good and ratio >= bar
            rows.append(f"| {name} | {theirs['tokens_per_second']:,.0f} | {ratio:.2f} | "
                        f"{bar if bar else ''} |")
        self.report.add("Race against PyTorch", "\n".join(rows), good)

    def kernels(self):
        status, text, out, _ = self.run(
            [self.bin / "tutti", "bench", "kernels", "--device", "cuda", "--json", "--precision",
             "bf16", "--model", "gpt2-124m", "--batch", "32", "--seq", "1024", "--steps", "5"], 200)
        if status != 0:
            self.report.add("Kernels", f"```\n{text[-3000:]}\n```", False)
            return
        kernels = json.loads(out)["kernels"]
        self.report.facts["kernels"] = kernels
        rows = ["| kernel | shape | each | of its ceiling |", "|---|---|---|---|"]
        rows += [f"| {k['name']} | {k['shape']} | {1e6 * k['median_seconds']:.1f} us | "
                 f"{100 * k['share_of_ceiling']:.0f}% ({k['bound']}) |" for k in kernels]
        # Small ones are bound by their start, and lie in the cache.
        large = [k for k in kernels if k["bound"] == "memory" and k["median_seconds"] > 50e-6]
        good = all(k["share_of_ceiling"] >= MEMORY_BOUND_BAR for k in large)
        self.report.add("Kernels", "\n".join(rows), good)

    def corpus(self):
        corpus = self.work / "corpus"
        if not corpus.with_suffix(".bin").exists():
            text = self.work / "text.txt"
            text.write_text("\n".join(f"{i} times {j} is {i * j}" for i in range(200) for j in range(100)))
            self.run([self.bin / "tutti", "data", "prepare", text, "--tokenizer", "byte", "--out",
                      corpus], 60)
        return corpus

    def losses(self, name, *words):
        """(losses of 30 steps of the demo in f32, or None, and the output)"""
        corpus = self.corpus()
        status, out, _, _ = self.run(
            [self.bin / "tutti", "train", "demo", f"data.train={corpus}", f"data.validation={corpus}",
             f"run.name=check-{name}", "precision=f32", "train.steps=30", "schedule.warmup_steps=5",
             "train.target_loss=null", "--json", *words], 300)
        events = self.work / "runs" / f"check-{name}" / "events.jsonl"
        if status != 0 or not events.exists():
            return None, out
        return [event["loss"] for event in map(json.loads, events.open())
                if event["event"] == "step_done"], out

    def learn(self):
        """The same 30 steps on the CPU and on the GPU, from a text made here: equal losses."""
        losses = {}
        for device in ("cpu", "cuda"):
            losses[device], out = self.losses(device, f"device={device}")
            if losses[device] is None:
                self.report.add("Same losses on CPU and GPU", f"```\n{out[-3000:]}\n```", False)
                return
        worst = max((abs(a - b) for a, b in zip(losses["cpu"], losses["cuda"])), default=None)
        good = worst is not None and len(losses["cuda"]) == 30 and worst < 1e-4
        self.report.facts["losses"] = losses
        self.report.add("Same losses on CPU and GPU", f"largest difference {worst}", good)

    def ranks(self):
        """Two ranks in each layout against one; through NCCL where there are two GPUs."""
        alone, out = self.losses("alone", "device=cuda")
        if alone is None:
            self.report.add("Two ranks", f"```\n{out[-3000:]}\n```", False)
            return
        gpus = len(self.run(["nvidia-smi", "--list-gpus"], 60)[2].splitlines())
        expected = "collectives: NCCL" if gpus > 1 else "share the GPU"
        rows, good = ["| layout | largest difference of 30 losses | |", "|---|---|---|"], True
        for layout in ("zero=0", "zero=1", "zero=2", "zero=3", "tp=2", "pp=2", "cp=2"):
            found, out = self.losses(f"ranks-{layout}", "device=cuda", "--nproc", "2",
                                     f"parallel.{layout}")
            if found is None or len(found) != len(alone) or expected not in out:
                rows.append(f"| {layout} | `{out.strip()[-600:]}` | failed |")
                good = False
                continue
            worst = max(abs(a - b) for a, b in zip(alone, found))
            good = good and worst < 1e-3
            rows.append(f"| {layout} | {worst:.2e} | {expected} |")
        self.report.add("Two ranks", "\n".join(rows), good)

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            self.report.add("compute-sanitizer", "skipped: not on this machine")
            return
        for check in ("memcheck", "racecheck"):
            status, text, _, seconds = self.run(
                [tool, "--tool", check, "--error-exitcode", "9", self.test("engine_test"),
                 "--gtest_filter=-*Many*:*Large*"], 600, TUTTI_TEST_DEVICE="cuda")
            self.report.add(f"compute-sanitizer {check}",
                            f"```\n{text[-2500:]}\n```\n{seconds:.0f} s", status == 0)


PARTS = ["machine", "operations", "trainer", "speed", "race", "kernels", "learn", "ranks", "sanitizer"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--budget", type=float, default=3600, help="seconds for everything")
    parser.add_argument("--bin", type=Path)
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    wanted = arguments.parts.split(",")
    unknown = set(wanted) - set(PARTS)
    if unknown:
        sys.exit(f"gpu_check: no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    check = Check(arguments)
    for part in PARTS:
        if part == "machine" or part in wanted:
            getattr(check, part)()
    shutil.rmtree(check.work, ignore_errors=True)
    print(f"The report is in {arguments.out}")
    return 1 if check.report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
