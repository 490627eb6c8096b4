#!/usr/bin/env python3
"""The proof and the speed table of a machine with a GPU, in one report.

Needs only this folder's neighbours: it runs from a kit or bundle (bin/tutti beside benchmarks/) or from
a source tree (build/cuda). No network, no packages; what compares with PyTorch runs where `torch` and
`numpy` can be imported. Nothing on the machine is changed.

--profile proof: that it computes what it should. --profile speed: how fast. The parts run in the order
of their worth until --budget is spent; a part for which the time is too short, or that it cuts off, is
NOT RUN and named. The report (--out) and the same as JSON next to it are rewritten after each part;
the last thing printed is a table of at most 60 lines.

Texts: --corpus, a file or folder of text (default: Tutti's own sources, else the headers of this
machine, else Python's sources), of which at most 8 MiB are read; --shakespeare, the file
tinyshakespeare.txt.

Exit status: 0 when all parts hold; 1 when one failed; 4 when none failed and one was NOT RUN for lack of time; 3 when none failed, all were run, and one could not be checked (no PyTorch, no
compute-sanitizer, a text that is missing); 77 when there is no GPU. What needs two GPUs is left out on a
machine with one, said, and counts neither way.
"""

import argparse
import shutil
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import check_proof
import check_speed
from check_bars import FAILED, NOT_RUN, PASSED
from check_report import Report
from check_run import Machine, OutOfTime, cores

# `seconds`: for which it is begun at all: what it takes at least, estimated, not measured.
Part = namedtuple("Part", "profile run seconds")
PARTS = {
    "operations": Part("proof", check_proof.operations, 20),
    "gpt2": Part("proof", check_proof.gpt2, 30),
    "parity": Part("proof", check_proof.parity, 20),
    "trainer": Part("proof", check_proof.trainer, 20),
    "resume": Part("proof", check_proof.resume, 15),
    "learn": Part("proof", check_proof.learn, 15),
    "gpt2-curve": Part("proof", check_proof.gpt2_curve, 40),
    "ranks": Part("proof", check_proof.ranks, 30),
    "fp8": Part("proof", check_proof.fp8, 30),
    "sanitizer": Part("proof", check_proof.sanitizer, 120),
    "gpt2-124m": Part("speed", check_speed.speed_small, 25),
    "kernels": Part("speed", check_speed.kernels, 25),
    "race": Part("speed", check_speed.race_small, 60),
    "llama": Part("speed", check_speed.speed_llama, 50),
    "fp8-speed": Part("speed", check_speed.fp8_speed, 40),
    "gpt2-1558m": Part("speed", check_speed.speed_large, 40),
    "shakespeare": Part("speed", check_speed.shakespeare, 60),
    "race-1558m": Part("speed", check_speed.race_large, 150),
}


def machine(host, report):
    """What the program itself sees; it asks without computing anything."""
    lines = []
    for command in (["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,"
                     "power.limit,temperature.gpu", "--format=csv"], [host.tutti, "--version"]):
        if shutil.which(str(command[0])):
            lines.append(host.run(command, 60)[1])
    result, text, _ = host.json([host.tutti, "bench", "memory", "--device", "cuda", "--batch", "1",
                                  "--json"], 120)
    if result is None:
        absent = "no GPU" in text or "no CUDA" in text
        report.add("Machine", f"```\n{text[-3000:]}\n```", FAILED, text.strip()[-200:])
        print("skipped: no GPU: nothing was checked" if absent else "", text[-3000:], sep="\n")
        sys.exit(77 if absent else 1)
    devices = result["devices"]
    report.facts["devices"], report.facts["gpu"] = devices, devices[0]["name"]
    report.facts["cores"] = cores()
    lines += [f"{one['name']}, compute capability {one['architecture']}, driver {one['driver']}, "
              f"runtime {one['runtime']}, {one['memory_bytes'] / 2**30:.0f} GiB" for one in devices]
    report.add("Machine", "```\n" + "\n".join(lines) + "\n```", PASSED, lines[-1])


def run_part(name, part, host, report):
    report.begin_part()
    if host.left() < part.seconds:
        report.add(name, f"{host.left():.0f} s are left, and it takes {part.seconds} s at least.",
                   NOT_RUN, f"takes {part.seconds} s at least")
        return
    try:
        part.run(host, report)
    except OutOfTime:
        report.add(name, "The time was over before it was.", NOT_RUN, "cut off")
    except Exception as error:  # a part that breaks must not end the others
        report.add(name, f"the check itself broke: {error!r}", FAILED, f"broke: {error!r}")


def unwritable(path):
    """Why the report cannot be written there; None where it can."""
    if path.is_dir():
        return "it is a folder; name a file in it"
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return None
    except OSError as error:
        return f"{error.strerror}; name a file in a folder that can be written"


def default_jobs(profile):
    """Tests share the GPU and the cores; what is measured runs alone."""
    return max(1, min(6, cores() // 2)) if profile == "proof" else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=("proof", "speed"), default="proof")
    parser.add_argument("--budget", type=float, default=600, metavar="SECONDS",
                        help="for everything; it is kept (default 600)")
    parser.add_argument("--jobs", type=int, help="commands at a time (default: of the proof half the "
                                                 "cores, at most 6; what is measured runs alone)")
    parser.add_argument("--out", type=Path, help="default: gpu-PROFILE.md")
    parser.add_argument("--parts", help="which of the profile's, separated by commas; default: all")
    parser.add_argument("--bin", type=Path, help="the folder of tutti and its test programs")
    parser.add_argument("--corpus", type=Path, help="a file or folder of text to train on")
    parser.add_argument("--shakespeare", type=Path, help="tinyshakespeare.txt")
    arguments = parser.parse_args()
    parts = {name: part for name, part in PARTS.items() if part.profile == arguments.profile}
    wanted = arguments.parts.split(",") if arguments.parts else list(parts)
    unknown = sorted(set(wanted) - set(parts))
    if unknown:
        parser.error(f"--parts: no such part of the profile {arguments.profile}: {', '.join(unknown)}; "
                     f"there are {', '.join(parts)}")
    for name in ("corpus", "shakespeare"):
        path = getattr(arguments, name)
        if path and not path.exists():
            parser.error(f"--{name} {path}: no such file or folder")
    if arguments.jobs is None:
        arguments.jobs = default_jobs(arguments.profile)
    elif arguments.jobs < 1 or (arguments.jobs > 1 and arguments.profile == "speed"):
        parser.error(f"--jobs {arguments.jobs}: at least 1, and of the profile speed 1: what is measured "
                     "runs alone")
    out = (arguments.out or Path(f"gpu-{arguments.profile}.md")).resolve()
    if unwritable(out):
        parser.error(f"--out {out}: {unwritable(out)}")
    host, report = Machine(arguments), Report(out, arguments.profile, arguments.budget)
    try:
        try:
            machine(host, report)
        except OutOfTime:
            sys.exit(f"gpu_check: --budget {arguments.budget:.0f}: too short for anything")
        for name, part in parts.items():
            if name in wanted:
                run_part(name, part, host, report)
    finally:
        shutil.rmtree(host.work, ignore_errors=True)
    report.write()
    print(report.table())
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
