"""benchmarks/gpu/gpu_check.py over programs that stand in for those of a machine with a GPU: what
holds passes, every demand can fail, and what is missing is told and is no pass.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
CHECK = SOURCE / "benchmarks" / "gpu"
sys.path.insert(0, str(CHECK))

import check_bars  # noqa: E402

FAST = "operations,trainer,resume,learn,ranks,speed,kernels,fp8,gpt2,shakespeare,sanitizer"


class Place:
    """A folder like a bundle's bin/, and the check run over it."""

    def __init__(self, folder):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in ("tutti", "engine_test", "train_test", "compute-sanitizer"):
            program = self.bin / name
            program.write_text((SOURCE / "tests/gpu/stand_in.py").read_text())
            program.chmod(0o755)
        (folder / "text.txt").write_text("a real text " * 100000)

    def check(self, parts, *words, **figures):
        """(exit status, verdict of each part, report)"""
        (self.folder / "figures.json").write_text(json.dumps(figures))
        report = self.folder / "report.md"
        report.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, CHECK / "gpu_check.py", "--bin", self.bin, "--out", report, "--corpus",
             self.folder / "text.txt", "--parts", parts, *words], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin",
                 "STAND_IN": str(self.folder / "figures.json")})
        verdicts = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines()
                        if line.endswith((check_bars.PASSED, check_bars.FAILED, check_bars.UNCHECKED)))
        return done.returncode, verdicts, report.read_text()


def check_good(place):
    status, verdicts, report = place.check(FAST, "--shakespeare", str(place.folder / "text.txt"))
    assert status == 0 and set(verdicts.values()) == {"PASSED"}, (status, verdicts, report)
    assert len(verdicts) == 13, verdicts  # of 11 parts, the machine, and one more of the sanitizer
    assert "NVIDIA H200" in report and '"tokens_per_second"' in report


def check_every_demand_can_fail(place):
    status, verdicts, report = place.check(
        FAST, "--shakespeare", str(place.folder / "text.txt"), tests="  FAILED ", resumed=1e-12,
        loss_shift={"demo-on-CPU-and-GPU-cuda": 2e-4, "gpt2-124m-on-CPU-and-GPU-cuda": 2e-4,
                    "ranks-tp=2": 2e-3, "gpt2-fp8": 0.1}, mfu=0.5, fp8_gain=1.2, host_seconds=1e-3,
        kernel_share=0.8, shakespeare=1.5, sanitizer=9)
    assert status == 1 and verdicts.pop("Machine") == "PASSED", (status, verdicts)
    assert set(verdicts.values()) == {"FAILED"} and len(verdicts) == 12, (verdicts, report)
    for row in ("MFU", "fp8 / bf16", "host's share"):
        assert any(row in line and "FAILED" in line for line in report.splitlines()), (row, report)
    # A test of the trainer must not be skipped where there is a GPU.
    assert place.check("trainer", tests=" SKIPPED ")[0] == 1


def check_missing_is_no_pass(place):
    status, verdicts, report = place.check(
        "learn,ranks,speed,race,parity,fp8,shakespeare", gpu="NVIDIA Unheard-of",
        fails=["gpt2-fp8", "GPU-cuda", "ranks-pp=2"])
    assert status == 1 and "PEAKS" in report, report
    unchecked = {title for title, verdict in verdicts.items() if verdict == "NOT CHECKED"}
    assert len(unchecked) == 3 and list(verdicts.values()).count("FAILED") == 4, verdicts
    assert place.check("shakespeare")[0] == 3
    assert place.check("operations", fails=["bench"])[0] == 77


def check_figures():
    bars = check_bars
    assert bars.peak_flops("NVIDIA GH200 480GB") == bars.peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert bars.peak_flops("Tesla T4") is None
    assert bars.worst_difference([1.0, 2.0], [1.0, 2.5], 2) == 0.5
    for broken in ([1.0], [1.0, float("nan")], None, []):
        assert bars.worst_difference([1.0, 2.0], broken, 2) is None
    assert not bars.Bar("", float("nan"), 1, at_least=False).met()
    assert bars.verdict_of([]) == bars.UNCHECKED
    assert bars.verdict_of([bars.PASSED, bars.UNCHECKED, bars.FAILED]) == bars.FAILED
    assert bars.suites_of("Running main()\nA.\n  b\nC/0.  # x\n  d\n") == ["A", "C/0"]


def main():
    check_figures()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        check_good(place)
        check_every_demand_can_fail(place)
        check_missing_is_no_pass(place)


main()
