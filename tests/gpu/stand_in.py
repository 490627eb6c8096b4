#!/usr/bin/env python3
"""Stands in for tutti, its test programs and compute-sanitizer on a machine with a GPU: answers as
they do, with the figures of the JSON file that STAND_IN names in place of its own.

Installed under the name of what it stands in for.
"""

import json
import os
import sys
from pathlib import Path

FIGURES = {
    "gpu": "NVIDIA H200", "mfu": 0.7, "fp8_gain": 1.5, "host_seconds": 1e-4, "kernel_share": 0.95,
    "loss_shift": {}, "fails": [], "tests": "OK", "resumed": 0.0, "says": "share the GPU",
    "sanitizer": 0, "shakespeare": 1.45,
}


def bench(words, figures):
    if words[1] == "kernels":
        kernel = {"shape": "1x2", "median_seconds": 5e-4, "bound": "memory"}
        return {"kernels": [{**kernel, "name": "norm_forward", "share_of_ceiling": figures["kernel_share"]},
                            {**kernel, "name": "gemm", "share_of_ceiling": 0.1},
                            {**kernel, "name": "copy", "median_seconds": 1e-6, "share_of_ceiling": 0.1}]}
    gain = figures["fp8_gain"] if words[words.index("--precision") + 1] == "fp8" else 1
    seconds = 0.01 / gain
    return {"step_seconds": {"median": seconds}, "tokens_per_second": 1e3 * gain,
            "model_flops_per_step": figures["mfu"] * 989e12 * 0.01, "host_seconds": figures["host_seconds"],
            "mfu_of_gemm_peak": 0.8, "gemm_peak_flops": 7e14, "notes": [],
            "devices": [{"name": figures["gpu"], "architecture": "9.0", "memory_bytes": 2**37,
                         "driver": "13.0", "runtime": "13.0"}]}


def train(words, figures):
    keys = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    folder = Path(words[words.index("--run") + 1] if "--run" in words else words[1])
    if any(one in str(folder) for one in figures["fails"]):
        print("error: it failed", file=sys.stderr)
        sys.exit(1)
    folder.mkdir(parents=True, exist_ok=True)
    events = folder / "events.jsonl"
    first = len(events.read_text().splitlines()) if events.exists() else 0
    last = int(keys.get("train.steps", 30))
    if "--stop-after" in words:
        last = int(words[words.index("--stop-after") + 1])
    shift = sum(by for part, by in figures["loss_shift"].items() if part in str(folder))
    shift += figures["resumed"] if first else 0
    with events.open("a") as out:
        for step in range(first, last):
            out.write(json.dumps({"event": "step_done", "loss": 5 - 1e-3 * step + shift}) + "\n")
    print(figures["says"], file=sys.stderr)
    print(json.dumps({"validation_loss": figures["shakespeare"] if "shakespeare" in str(folder) else 3.0}))
    sys.exit(75 if "--stop-after" in words else 0)


def main():
    figures = {**FIGURES, **json.loads(Path(os.environ["STAND_IN"]).read_text())}
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if name == "compute-sanitizer":
        print("[       OK ] Suite.test (1 ms)")
        sys.exit(figures["sanitizer"])
    if name != "tutti":
        if "--gtest_list_tests" in words:
            print("Running main()\nNormTest.\n  One\nDeviceTrainer.\n  Two")
            return
        print(f"[{figures['tests']:>9} ] Suite.test (1 ms)")
        sys.exit(1 if "FAILED" in figures["tests"] else 0)
    if words[0] == "--version":
        print("tutti 0")
    elif words[0] == "bench":
        if "bench" in figures["fails"]:
            sys.exit("error: device: cuda: no GPU: no NVIDIA driver is installed")
        print(json.dumps(bench(words, figures)))
    elif words[0] == "data":
        Path(words[words.index("--out") + 1]).with_suffix(".bin").write_text("")
    else:
        train(words, figures)


main()
