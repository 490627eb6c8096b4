#!/usr/bin/env python3
"""The proof and the speed table of a machine with a GPU, in one report file.

Needs only this folder's neighbours: it runs from a bundle (bin/tutti beside benchmarks/) or from a
source tree (build/cuda). No network, no packages; what compares with PyTorch runs where `torch` and
`numpy` can be imported. Nothing on the machine is changed. The report is written anew after each
part, so that what is done is kept whatever comes after.

Texts: --corpus, a file or folder of text (default: the headers of this machine, else Python's own
sources), of which at most 8 MiB are read; --shakespeare, the file tinyshakespeare.txt.

Exit status: 0 when all parts hold; 1 when one failed; 3 when none failed and one could not be checked
(no PyTorch, no compute-sanitizer, a text or a figure that is missing); 77 when there is no GPU.
"""

import argparse
import shutil
import sys
from pathlib import Path

import check_proof
import check_speed
from check_bars import FAILED, PASSED
from check_run import Machine, Report


def machine(place, report):
    """What the program itself sees: a step on the first device, which also names them all."""
    lines = []
    for command in (["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,"
                     "power.limit,temperature.gpu", "--format=csv"], [place.tutti, "--version"]):
        if shutil.which(str(command[0])):
            lines.append(place.run(command, 60)[1])
    result, text, _ = place.json([place.tutti, "bench", "step", "--device", "cuda", "--precision",
                                  "bf16", "--batch", "1", "--seq", "64", "--steps", "1", "--json"], 300)
    if result is None:
        absent = "no GPU" in text or "no CUDA" in text
        report.add("Machine", f"```\n{text[-3000:]}\n```", FAILED)
        print("skipped: no GPU: nothing was checked" if absent else text[-3000:])
        sys.exit(77 if absent else 1)
    devices = result["devices"]
    report.facts["devices"], report.facts["gpu"] = devices, devices[0]["name"]
    lines += [f"{one['name']}, compute capability {one['architecture']}, driver {one['driver']}, "
              f"runtime {one['runtime']}, {one['memory_bytes'] / 2**30:.0f} GiB" for one in devices]
    report.add("Machine", "```\n" + "\n".join(lines) + "\n```", PASSED)


PARTS = {
    "operations": check_proof.operations,
    "trainer": check_proof.trainer,
    "parity": check_proof.parity,
    "resume": check_proof.resume,
    "learn": check_proof.learn,
    "ranks": check_proof.ranks,
    "speed": check_speed.speed,
    "race": check_speed.race,
    "kernels": check_speed.kernels,
    "fp8": check_proof.fp8,
    "gpt2": check_proof.gpt2,
    "shakespeare": None,  # below: it has a text of its own
    "sanitizer": check_proof.sanitizer,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--parts", default=",".join(PARTS),
                        help="which, separated by commas; default: all, in this order")
    parser.add_argument("--budget", type=float, default=3 * 3600, help="seconds for everything")
    parser.add_argument("--bin", type=Path, help="the folder of tutti and its test programs")
    parser.add_argument("--corpus", type=Path, help="a file or folder of text to train on")
    parser.add_argument("--shakespeare", type=Path, help="tinyshakespeare.txt")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    wanted = arguments.parts.split(",")
    unknown = set(wanted) - set(PARTS)
    if unknown:
        sys.exit(f"gpu_check: no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if arguments.corpus and not arguments.corpus.exists():
        sys.exit(f"gpu_check: --corpus {arguments.corpus}: no such file or folder")
    place, report = Machine(arguments), Report(arguments.out)
    machine(place, report)
    for name, part in PARTS.items():
        if name not in wanted:
            continue
        try:
            if name == "shakespeare":
                text = arguments.shakespeare and arguments.shakespeare.resolve()
                check_speed.shakespeare(place, report, text)
            else:
                part(place, report)
        except Exception as error:  # a part that breaks must not end the others
            report.add(name, f"the check itself broke: {error!r}", FAILED)
    shutil.rmtree(place.work, ignore_errors=True)
    print(f"The report is in {arguments.out}")
    return report.status()


if __name__ == "__main__":
    sys.exit(main())
