#!/usr/bin/env python3
"""Stands in for tutti, its test programs and compute-sanitizer on a machine with a GPU: answers as
they do, with the figures of the JSON file that STAND_IN names in place of its own.

Installed under the name of what it stands in for.
"""

import json
import os
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

FIGURES = {
    "gpu": "NVIDIA H200", "gpus": 1, "free_bytes": 150e9, "mfu": 0.7, "fp8_gain": 1.5, "host_seconds": 1e-4, "kernel_share": 0.95,
    "loss_shift": {}, "fails": [], "tests": "OK", "resumed": 0.0, "says": "share the GPU",
    "sanitizer": 0, "shakespeare": 1.45, "seconds": {},
}
TESTS = ("NormTest.One", "DeviceTrainer.Two", "DeviceEach.Three", "GemmDeathTest.Four",
         "Workspace.Five")
LAYER_BYTES, OTHER_BYTES = 5e9, 20e9  # of the memory map


def option(words, name, default=""):
    return words[words.index(name) + 1] if name in words else default


def chosen_tests(word):
    """That a filter of GoogleTest takes: patterns, and after a minus those that it does not."""
    taken, _, left_out = word.split("=", 1)[1].partition("-")

    def matches(test, patterns):
        return any(fnmatchcase(test, pattern) for pattern in patterns.split(":"))
    return [test for test in TESTS if matches(test, taken) and not matches(test, left_out)]


def bench(words, figures):
    layers = int(option(words, "--set", "model.layers=12").split("=")[1])
    if words[1] == "memory":
        device = {"name": figures["gpu"], "architecture": "9.0", "memory_bytes": 2**37,
                  "driver": "13.0", "runtime": "13.0"}
        return {"memory_map_bytes": OTHER_BYTES + LAYER_BYTES * layers,
                "free_bytes": figures["free_bytes"], "devices": [device] * figures["gpus"]}
    if words[1] == "kernels":
        kernel = {"shape": "1x2", "median_seconds": 5e-4, "bound": "memory"}
        return {"kernels": [{**kernel, "name": "norm_forward", "share_of_ceiling": figures["kernel_share"]},
                            {**kernel, "name": "gemm", "share_of_ceiling": 0.1},
                            {**kernel, "name": "copy", "median_seconds": 1e-6, "share_of_ceiling": 0.1}]}
    gain = figures["fp8_gain"] if option(words, "--precision") == "fp8" else 1
    seconds = 0.01 / gain
    return {"step_seconds": {"median": seconds}, "tokens_per_second": 1e3 * gain,
            "model_flops_per_step": figures["mfu"] * 989e12 * 0.01, "host_seconds": figures["host_seconds"],
            "mfu_of_gemm_peak": 0.8, "gemm_peak_flops": 7e14, "notes": [], "peak_memory_bytes": 2**30,
            "memory_map_bytes": OTHER_BYTES + LAYER_BYTES * layers,
            "setting": {"accumulate": int(option(words, "--accumulate", "1"))}}


def train(words, figures):
    keys = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    folder = Path(words[words.index("--run") + 1] if "--run" in words else words[1])
    if any(one in str(folder) for one in figures["fails"]):
        print("error: it failed", file=sys.stderr)
        sys.exit(1)
    folder.mkdir(parents=True, exist_ok=True)
    events = folder / "events.jsonl"
    first = len(events.read_text().splitlines()) if events.exists() else 0
    if not (folder / "steps").exists():
        (folder / "steps").write_text(keys.get("train.steps", "30"))
    last = int(option(words, "--stop-after", (folder / "steps").read_text()))
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
    time.sleep(figures["seconds"].get(name, 0))
    if name == "compute-sanitizer":
        chosen = chosen_tests(next(word for word in words if word.startswith("--gtest_filter=")))
        for test in chosen:
            print(f"[       OK ] {test} (1 ms)")
        # A fault is one to it, also where a test wants it.
        faults = any("DeathTest" in test or test.startswith("Workspace.") for test in chosen)
        sys.exit(9 if faults else figures["sanitizer"])
    if name != "tutti":
        if "--gtest_list_tests" in words:
            print("Running main()")
            for test in TESTS:
                print(test.replace(".", ".\n  "))
            return
        if "DeviceEach" in words[0] and figures["gpus"] < 2:  # as the test itself says
            print("[  SKIPPED ] DeviceEach.Three (0 ms)")
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
