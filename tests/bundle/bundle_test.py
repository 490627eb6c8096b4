"""Packs this build, unpacks it elsewhere and runs it there with an empty environment: libraries,
recipes and catalog are found, and every library but glibc's comes from the bundle.

With CUDA, machine code for the GPUs that the build was configured for is in it (where cuobjdump is).

Usage: bundle_test.py BUILD
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
BUILD = Path(sys.argv[1])
GLIBC = re.compile(r"(ld-linux-x86-64|/lib(c|m|mvec|pthread|dl|rt|resolv|util)\.so)")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True, **options).stdout


def check_runs(bundle, folder):
    tutti = bundle / "bin" / "tutti"
    assert run(tutti, "--version", env={}, cwd=folder).strip()
    plan = json.loads(run(tutti, "plan", "predict", "gpt2-124m", "--system", "dgx-h100", "--gpus",
                          "8", "--json", env={}, cwd=folder))
    assert plan["tokens_per_second_per_gpu"] > 0, plan
    text = folder / "text.txt"
    text.write_text("all the world's a stage, " * 400)
    run(tutti, "data", "prepare", text, "--tokenizer", "byte", "--out", folder / "corpus", env={},
        cwd=folder)
    result = json.loads(run(
        tutti, "train", "demo", f"data.train={folder}/corpus", f"data.validation={folder}/corpus",
        "run.name=bundled", "train.steps=3", "schedule.warmup_steps=1", "train.target_loss=null",
        "batch={global: 2, micro: 2, sequence: 32}", "--json", env={"HOME": str(folder)},
        cwd=folder))
    assert result["steps"] == 3, result


def check_libraries(bundle):
    """The loader finds each library in the bundle or in glibc."""
    for program in sorted((bundle / "bin").iterdir()):
        for line in run("ldd", program, env={}).splitlines():
            assert "not found" not in line, f"{program.name}: {line}"
            match = re.search(r"=> (\S+)", line)
            if not match or GLIBC.search(match[1]):
                continue
            assert Path(match[1]).resolve().is_relative_to(bundle.resolve()), (
                f"{program.name} takes {match[1]} from the machine")


def check_architectures(bundle):
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "TUTTI_CUDA:BOOL=ON" not in cache:
        return
    cuobjdump = shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    if not os.path.exists(cuobjdump):
        print("skipped: no cuobjdump, so the architectures were not listed")
        return
    wanted = re.search(r"CMAKE_CUDA_ARCHITECTURES:\w+=(\S+)", cache)[1].split(";")
    code = run(cuobjdump, "--list-elf", bundle / "bin" / "tutti")
    ptx = run(cuobjdump, "--list-ptx", bundle / "bin" / "tutti")
    for architecture in wanted:
        number, kind = architecture.split("-")
        where = code if kind == "real" else ptx
        assert f"sm_{number}." in where, f"no {kind} code for sm_{number}:\n{where}"


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        archive = folder / "bundle.tar"
        print(run(SOURCE / "tools" / "bundle", BUILD, archive), end="")
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "unpacked")
        archive.unlink()
        (bundle,) = (folder / "unpacked").iterdir()
        work = folder / "work"
        work.mkdir()
        check_libraries(bundle)
        check_architectures(bundle)
        check_runs(bundle, work)


main()
