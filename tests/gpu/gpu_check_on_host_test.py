"""The profile `proof` of benchmarks/gpu/gpu_check.py on the host device, where the backend's own kernels are
executed: everything holds and the exit status is 0. Over programs in which one sign of one kernel is
wrong it fails, in the operations and in training.

Usage: gpu_check_on_host_test.py BUILD
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
BUILD = Path(sys.argv[1]).resolve()
ON_HOST = BUILD / "bin" / "on_host"
# Parity has a test of its own on this device, parity_test_cuda.
PARTS = "operations,gpt2,trainer,resume,learn,gpt2-curve,ranks,fp8,sanitizer"
PLANTED_PARTS = "operations,learn"


def check(folder, programs, parts):
    """(exit status, {title: verdict}, what it printed)"""
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    for name, program in programs.items():
        (bin_folder / name).symlink_to(program)
    report = folder / "report.md"
    done = subprocess.run(
        [sys.executable, SOURCE / "benchmarks/gpu/gpu_check.py", "--profile", "proof", "--bin", bin_folder,
         "--out", report, "--parts", parts, "--budget", "1000", "--jobs", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TUTTI_HOME": str(SOURCE)})
    result = json.loads((folder / "report.json").read_text())
    assert result["status"] == done.returncode, done.stdout
    table = done.stdout[done.stdout.index("GPU check, "):]
    assert len(table.splitlines()) <= 60, table
    return done.returncode, {part["title"]: part["verdict"] for part in result["parts"]}, done.stdout


def check_bench_memory(tutti):
    """Logits of a micro-batch that do not fit at once are counted as a step has them, in parts."""
    done = subprocess.run(
        [tutti, "bench", "memory", "--device", "cuda", "--model", "gpt2-124m", "--precision", "bf16",
         "--batch", "80", "--seq", "1024", "--recompute", "full", "--json"],
        stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TUTTI_HOME": str(SOURCE)})
    shown = json.loads(done.stdout)
    logits_bytes = 80 * 1024 * 50304 * 2
    loss_bytes = next(use["bytes"] for use in shown["uses"] if use["name"] == "loss")
    assert loss_bytes < logits_bytes, shown
    assert shown["memory_map_bytes"] <= shown["devices"][0]["memory_bytes"] / 16 * 15, shown


def main():
    check_bench_memory(ON_HOST / "tutti_on_host")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        programs = {"tutti": ON_HOST / "tutti_on_host", "engine_test": BUILD / "bin" / "engine_test",
                    "train_test": BUILD / "bin" / "train_test"}
        status, verdicts, printed = check(folder / "good", programs, PARTS)
        print(printed)
        assert status == 0 and set(verdicts.values()) == {"PASSED"}, verdicts
        assert len(verdicts) == 9, verdicts  # the machine, and each part but the sanitizer
        assert "left out: DeviceEach" in printed and "left out: compute-sanitizer" in printed

        planted = {"tutti": ON_HOST / "tutti_planted", "engine_test": ON_HOST / "engine_test_planted"}
        status, verdicts, printed = check(folder / "planted", planted, PLANTED_PARTS)
        print(printed)
        failed = sorted(title.split()[0] for title, verdict in verdicts.items() if verdict == "FAILED")
        assert status == 1 and failed == ["Losses", "Operations"], verdicts
        assert "Activation" in printed, "the table names the tests that failed"


main()
