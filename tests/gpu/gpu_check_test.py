"""benchmarks/gpu/gpu_check.py over programs that stand in for those of a machine with a GPU: what
holds passes, every demand can fail, what is missing is reported and not a pass, and the time limit holds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
CHECK = SOURCE / "benchmarks" / "gpu"
sys.path.insert(0, str(CHECK))

import check_bars  # noqa: E402
import check_report  # noqa: E402
import check_speed  # noqa: E402
import peaks  # noqa: E402

PROOF = "operations,gpt2,trainer,resume,learn,gpt2-curve,ranks,fp8,sanitizer"
SPEED = "gpt2-124m,kernels,llama,fp8-speed,gpt2-1558m,shakespeare"
VERDICTS = (check_bars.PASSED, check_bars.FAILED, check_bars.UNCHECKED, check_bars.NOT_RUN)


class StandInBundle:
    """A folder like a bundle's bin/, and the check run over it."""

    def __init__(self, folder):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in ("tutti", "engine_test", "train_test", "compute-sanitizer"):
            program = self.bin / name
            program.write_text((SOURCE / "tests/gpu/stand_in.py").read_text())
            program.chmod(0o755)
        (folder / "text.txt").write_text("a real text " * 100000)

    def check(self, profile, parts, *words, **figures):
        """(exit status, verdict of each part, report, what it printed)"""
        (self.folder / "figures.json").write_text(json.dumps(figures))
        report = self.folder / "report.md"
        report.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, CHECK / "gpu_check.py", "--profile", profile, "--bin", self.bin, "--out",
             report, "--corpus", self.folder / "text.txt", "--parts", parts, *words],
            capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin",
                 "STAND_IN": str(self.folder / "figures.json")})
        assert report.exists(), done.stdout + done.stderr
        found = json.loads(report.with_suffix(".json").read_text())
        verdicts = {part["title"]: part["verdict"] for part in found["parts"]}
        if done.returncode != 77:
            table = done.stdout[done.stdout.index("GPU check, "):]
            assert len(table.splitlines()) <= 60, table
            assert found["status"] == done.returncode, (found["status"], done.returncode)
            assert all(title in table for title in verdicts), table
        return done.returncode, verdicts, report.read_text(), done.stdout

    def facts(self):
        return json.loads((self.folder / "report.json").read_text())["facts"]


def check_good(bundle):
    status, verdicts, report, printed = bundle.check("proof", PROOF)
    assert status == 0 and set(verdicts.values()) == {"PASSED"}, (status, verdicts, report)
    assert len(verdicts) == 11, verdicts  # of 9 parts, the machine, and one more of the sanitizer
    # One GPU: what needs two is left out, and said.
    assert "left out: DeviceEach" in printed and "NVIDIA H200" in printed, printed
    curves = bundle.facts()["200 losses of gpt2-124m on CPU and GPU"]
    assert len(curves["cuda"]) == len(curves["cpu"]) == 200, curves
    status, verdicts, report, _ = bundle.check("speed", SPEED, "--shakespeare",
                                              str(bundle.folder / "text.txt"))
    assert status == 0 and set(verdicts.values()) == {"PASSED"}, (status, verdicts, report)
    assert len(verdicts) == 7, verdicts
    steps = bundle.facts()["gpt2-124m T1024 32x16 bf16"]
    assert steps["setting"]["accumulate"] == 16, steps


def check_two_gpus(bundle):
    status, _, report, printed = bundle.check("proof", "trainer", gpus=2, says="collectives: NCCL")
    assert status == 0 and "left out" not in printed and "DeviceEach" in report, report


def check_every_demand_can_fail(bundle):
    status, verdicts, report, printed = bundle.check(
        "proof", PROOF, tests="  FAILED ", resumed=1e-12,
        loss_shift={"learn-cuda": 2e-4, "gpt2-cuda": 3e-3, "ranks-tp=2": 2e-3, "gpt2-fp8": 0.1},
        sanitizer=9)
    assert status == 1 and verdicts.pop("Machine") == "PASSED", (status, verdicts)
    assert set(verdicts.values()) == {"FAILED"} and len(verdicts) == 10, (verdicts, report)
    assert "tp=2: largest difference of 30 losses: 0.002 (<= 0.001)" in printed, printed
    # The first 20 steps are held to more than all 200.
    verdicts = bundle.check("proof", "gpt2,gpt2-curve", loss_shift={"gpt2-cuda": 1e-3})[1]
    assert list(verdicts.values()) == ["PASSED", "FAILED", "PASSED"], verdicts
    # A test of the trainer must not be skipped where there is a GPU.
    assert bundle.check("proof", "trainer", tests=" SKIPPED ")[0] == 1

    status, verdicts, report, printed = bundle.check(
        "speed", SPEED, "--shakespeare", str(bundle.folder / "text.txt"), mfu=0.39, fp8_gain=1.2,
        host_seconds=1e-3, kernel_share=0.8, shakespeare=1.5)
    assert status == 1 and verdicts.pop("Machine") == "PASSED", (status, verdicts)
    assert set(verdicts.values()) == {"FAILED"} and len(verdicts) == 6, (verdicts, report)
    for row in ("MFU", "fp8 / bf16", "host's share"):
        assert any(row in line and "FAILED" in line for line in report.splitlines()), (row, report)
    # Each model has a bar of its own.
    verdicts = bundle.check("speed", "gpt2-124m,llama,gpt2-1558m", mfu=0.53)[1]
    failed = [title for title, verdict in verdicts.items() if verdict == "FAILED"]
    assert len(failed) == 1 and "llama" in failed[0], verdicts


def check_missing_is_no_pass(bundle):
    status, verdicts, report, _ = bundle.check("proof", "learn,ranks,parity,fp8",
                                              fails=["gpt2-fp8", "learn-cuda", "ranks-pp=2"])
    assert status == 1 and list(verdicts.values()).count("FAILED") == 3, (verdicts, report)
    assert list(verdicts.values()).count("NOT CHECKED") == 1, verdicts
    status, verdicts, report, _ = bundle.check("speed", "gpt2-124m,race,shakespeare",
                                              gpu="NVIDIA H200 of another kind")
    assert status == 1 and "peaks.py" in report, report
    unchecked = [title for title, verdict in verdicts.items() if verdict == "NOT CHECKED"]
    assert len(unchecked) == 2, verdicts
    assert bundle.check("speed", "shakespeare")[0] == 3
    status, _, _, printed = bundle.check("proof", "operations", fails=["bench"])
    assert status == 77 and "no GPU" in printed, printed


def check_time_is_kept(bundle):
    """What does not fit is not begun; what is begun and too long is cut off; neither is a pass."""
    status, verdicts, _, printed = bundle.check("proof", "operations,sanitizer", "--budget", "100")
    assert status == 4, printed
    assert verdicts == {"Machine": "PASSED", "Operations against the CPU's references": "PASSED",
                        "sanitizer": "NOT RUN"}, verdicts
    begin = time.monotonic()
    status, verdicts, report, printed = bundle.check("proof", "operations,trainer", "--budget", "26",
                                                    "--jobs", "3", seconds={"engine_test": 60})
    assert status == 4 and time.monotonic() - begin < 26, (printed, time.monotonic() - begin)
    assert set(verdicts.values()) == {"PASSED", "NOT RUN"} and len(verdicts) == 3, verdicts
    # What failed before the end is no less a failure.
    status, verdicts, _, _ = bundle.check("proof", "operations,sanitizer", "--budget", "100",
                                         tests="  FAILED ")
    assert status == 1 and "NOT RUN" in verdicts.values(), verdicts


def check_layers(bundle):
    """As many as the program's own memory map says fit, beside the reserve."""
    bundle.check("speed", "llama", free_bytes=85e9)  # (85e9 - 6 GiB - 20e9) / 5e9
    assert bundle.facts()["layers of llama3.1-8b"] == 11, bundle.facts()
    bundle.check("speed", "llama", free_bytes=150e9)
    assert bundle.facts()["layers of llama3.1-8b"] == 24, bundle.facts()
    bundle.check("speed", "llama", free_bytes=1e12)
    assert bundle.facts()["layers of llama3.1-8b"] == check_speed.LLAMA_LAYERS
    status, _, _, printed = bundle.check("speed", "llama", free_bytes=20e9)
    assert status == 0 and "not one layer fits" in printed, printed


def check_options(bundle):
    """What cannot work is refused at once, with what to write instead, and not after minutes."""
    for words, said in ((("--out", "/no/such/folder/report.md"), "/no/such/folder/report.md: No such file"),
                        (("--out", str(bundle.bin)), "it is a folder"),
                        (("--parts", "gpt3"), "there are operations, gpt2,"),
                        (("--jobs", "0"), "at least 1"),
                        (("--corpus", "/no/such/text"), "--corpus /no/such/text: no such file")):
        done = subprocess.run([sys.executable, CHECK / "gpu_check.py", "--bin", bundle.bin, *words],
                              capture_output=True, text=True, cwd=bundle.folder)
        assert done.returncode == 2 and said in done.stderr, (words, done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and not done.stdout, (done.stdout, done.stderr)


def check_figures():
    bars = check_bars
    assert peaks.peak_flops("NVIDIA H100 80GB HBM3") == peaks.peak_flops("NVIDIA GH200 480GB") == 989e12
    assert peaks.peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peaks.peak_flops("NVIDIA H100 NVL") == peaks.peak_flops("NVIDIA H200 NVL") == 835e12
    for unknown in ("Tesla T4", "NVIDIA H100", "H100", "NVIDIA H200 MIG 1g.18gb"):
        assert peaks.peak_flops(unknown) is None, unknown
    assert all(flops > 1e14 and source for flops, source in peaks.PEAKS.values())
    assert bars.worst_difference([1.0, 2.0], [1.0, 2.5], 2) == 0.5
    for broken in ([1.0], [1.0, float("nan")], None, []):
        assert bars.worst_difference([1.0, 2.0], broken, 2) is None
    assert not bars.Bar("", float("nan"), 1, at_least=False).met()
    assert bars.verdict_of([]) == bars.UNCHECKED
    assert bars.verdict_of([bars.PASSED, bars.UNCHECKED, bars.FAILED]) == bars.FAILED
    assert bars.verdict_of([bars.PASSED, bars.UNCHECKED, bars.NOT_RUN]) == bars.NOT_RUN
    near, far, short = bars.Bar("near", 0.9, 0.85), bars.Bar("far", 2, 1), bars.Bar("short", None, 1)
    assert bars.summary_of([far, near]) == "near: 0.9 (>= 0.85); 2 held"
    assert bars.summary_of([far, short]) == "short: not measured (>= 1); 1 of 2 failed"
    assert bars.suites_of("Running main()\nA.\n  b\nC/0.  # x\n  d\n") == ["A", "C/0"]


def check_the_table_is_short():
    """However many demands failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = check_report.Report(Path(folder) / "r.md", "speed", 600)
        for part in range(8):
            report.add_bars(f"part {part}", [check_bars.Bar(f"kernel {i}", 0.5, 0.85) for i in range(40)])
        lines = report.table().splitlines()
        assert len(lines) == 60 and "exit status 1" in lines[-2] and "more in the report" in lines[-3], lines


def main():
    check_figures()
    check_the_table_is_short()
    with tempfile.TemporaryDirectory() as folder:
        bundle = StandInBundle(Path(folder))
        check_good(bundle)
        check_two_gpus(bundle)
        check_every_demand_can_fail(bundle)
        check_missing_is_no_pass(bundle)
        check_time_is_kept(bundle)
        check_layers(bundle)
        check_options(bundle)


main()
