"""Packs the kit that checks a GPU (`make gpu-kit`), unpacks it elsewhere and starts it as a machine would that
has none of our packages: every library comes from the kit, from glibc, or from a folder like those that
PyTorch's wheels make. There is no GPU, so that what needs one says so; what needs none runs. Where the host
device's programs are built, the kit's own scripts run the proof over them.

Skipped where there is no nvcc, and where build/kit is not built unless TUTTI_KIT=1 asks for it: the first
build takes as long as `make cuda`.

Usage: kit_test.py BUILD
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
BUILD = Path(sys.argv[1]).resolve()
KIT_BUILD = SOURCE / "build" / "kit"
MOST_BYTES = 56 << 20
GLIBC = re.compile(r"(ld-linux-x86-64|/lib(c|m|mvec|pthread|dl|rt|resolv|util)\.so)")
NVIDIA = re.compile(r"lib(cudart|cublas|cublasLt|cudnn\w*|nccl)\.so")


def skip(why):
    print(f"SKIPPED: the kit that checks a GPU was NOT built and NOT tested: {why}", file=sys.stderr)
    sys.exit(77)


def find_nvcc():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return nvcc if os.path.exists(nvcc) else None


def run(*command, **options):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)


def cached(name):
    """Of the kit's build tree; None where it is not configured."""
    cache = KIT_BUILD / "CMakeCache.txt"
    value = cache.exists() and re.search(rf"^{name}:\w+=(.*)$", cache.read_text(), re.M)
    return value[1] if value else None


def build():
    """The archive. A tree that is there keeps its options: others would recompile everything."""
    architecture = (cached("CMAKE_CUDA_ARCHITECTURES") or "90a-real").split("-")[0]
    words = [f"JOBS={os.cpu_count()}", f"ARCH={architecture}"]
    if cached("TUTTI_WERROR"):
        words.append(f"WERROR={'1' if cached('TUTTI_WERROR') == 'ON' else ''}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = run("make", "--no-print-directory", "gpu-kit", *words, cwd=SOURCE, env=environment)
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout.splitlines()[-1])
    kit = SOURCE / "build" / f"tutti-gpu-kit-sm_{architecture}.tar.xz"
    size = kit.stat().st_size
    assert size <= MOST_BYTES, f"{size / 2**20:.1f} MiB"
    return kit


class Wheels:
    """A folder of Python packages with NVIDIA's libraries where the wheels put them."""

    FOLDERS = {"libcudart": "cu13", "libcublasLt": "cu13", "libnvrtc": "cu13", "libcudnn": "cudnn",
               "libnccl": "nccl"}

    def __init__(self, folder, toolkit):
        self.folder = folder
        for library in toolkit.glob("*.so.*"):
            name = re.match(r"lib(cudart|cublasLt|nvrtc|cudnn|nccl)", library.name)
            if name:
                target = folder / "nvidia" / self.FOLDERS[name[0]] / "lib"
                target.mkdir(parents=True, exist_ok=True)
                (target / library.name).symlink_to(library.resolve())


def check_libraries(kit):
    """The loader finds each library in the kit or in glibc; NVIDIA's are not in it."""
    for program in sorted((kit / "bin").iterdir()):
        assert ".symtab" not in run("objdump", "-h", "-w", program).stdout, f"{program.name}: not stripped"
        for line in run("ldd", program).stdout.splitlines():
            match = re.search(r"=> (\S+)", line)
            if not match or GLIBC.search(match[1]) or NVIDIA.search(line):
                continue
            assert Path(match[1]).resolve().is_relative_to(kit.resolve()), f"{program.name}: {line}"
    assert not [path for path in kit.rglob("*") if NVIDIA.search(path.name)]


# What kit/run asks of the driver; one GPU of compute capability 9.0.
DRIVER = """
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? device : -1;
  return 0;
}
"""


def driver(folder, version=13000, count=1):
    """A value of LD_LIBRARY_PATH with a driver that knows that CUDA and has so many GPUs."""
    target = folder / f"driver-{version}-{count}"
    target.mkdir()
    (target / "driver.c").write_text(DRIVER)
    done = run("cc", "-shared", "-fPIC", f"-DVERSION={version}", f"-DCOUNT={count}",
               "-Wl,-soname,libcuda.so.1", "-o", target / "libcuda.so.1", target / "driver.c")
    assert done.returncode == 0, done.stdout
    return {"LD_LIBRARY_PATH": str(target)}


def check_driver(kit, environment, work):
    """`kit/run check` says whether the driver and its GPUs are those that the kit needs."""
    def check(what="check", **driver_words):
        done = run(kit / "run", what, cwd=work, env={**environment, **driver(work, **driver_words)})
        shutil.rmtree(next(work.glob("driver-*")))
        return done

    kit_json = kit / "kit.json"
    built = json.loads(kit_json.read_text())
    try:
        kit_json.write_text(json.dumps({**built, "architecture": "90a"}))
        done = check()
        assert done.returncode == 0 and "GPUs: 1; a driver for CUDA 13.0" in done.stdout, done.stdout
        for what in ("check", "proof", "speed"):
            done = check(what, version=12080)
            assert done.returncode == 2, done.stdout
            assert "CUDA 12.8 at most, and 13.0 is needed" in done.stdout, done.stdout
            assert "580" in done.stdout and "Install PyTorch" not in done.stdout, done.stdout
        done = check(count=0)
        assert done.returncode == 2 and "finds no GPU" in done.stdout, done.stdout
        done = check(count=2)  # the second is of compute capability 9.1
        assert done.returncode == 2 and "is for sm_90a" in done.stdout, done.stdout
        assert "compute capability 9.1" in done.stdout, done.stdout
    finally:
        kit_json.write_text(json.dumps(built))


def has_driver():
    return shutil.which("nvidia-smi") is not None and run("nvidia-smi").returncode == 0


def check_starts(kit, wheels, work):
    """With a Python that has the wheels everything is found; without a GPU it says so."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": str(work)}
    with_wheels = {**environment, "PYTHONPATH": str(wheels.folder)}
    done = run(kit / "run", "check", env=with_wheels, cwd=work)
    for name, folder in (("cuBLAS", "cu13"), ("cuDNN", "cudnn"), ("NCCL", "nccl")):
        assert re.search(rf"{name} [\d.]+ in {wheels.folder}/nvidia/{folder}/lib", done.stdout), done.stdout
    if not has_driver():
        assert done.returncode == 2, done.stdout
        assert "libcuda.so.1 (the NVIDIA driver) is not here" in done.stdout, done.stdout
        check_driver(kit, with_wheels, work)
        done = run(kit / "run", "proof", "--budget", "60", env=with_wheels, cwd=work)
        assert done.returncode == 77 and "no GPU" in done.stdout, done.stdout
    for words in ((), ("prof",), ("check", "--budget", "60")):
        done = run(kit / "run", *words, env=with_wheels, cwd=work)
        assert done.returncode == 2 and "usage: kit/run proof" in done.stdout, done.stdout

    tutti = {"LD_LIBRARY_PATH": ":".join(str(path) for path in wheels.folder.glob("nvidia/*/lib"))}
    text = work / "text.txt"
    text.write_text("all the world's a stage, " * 400)
    done = run(kit / "bin/tutti", "data", "prepare", text, "--tokenizer", "byte", "--out",
               work / "corpus", env=tutti, cwd=work)
    assert done.returncode == 0, done.stdout
    done = run(kit / "bin/tutti", "train", "demo", f"data.train={work}/corpus",
               f"data.validation={work}/corpus", "run.name=kit", "train.steps=2",
               "schedule.warmup_steps=1", "train.target_loss=null",
               "batch={global: 2, micro: 2, sequence: 32}", env={**tutti, "HOME": str(work)}, cwd=work)
    assert done.returncode == 0, done.stdout
    done = run(kit / "bin/engine_test", "--gtest_filter=Norm.*", env=tutti, cwd=work)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout


def check_messages(kit):
    """What is missing is named, with the wheel that brings it and what to do."""
    sys.path.insert(0, str(kit / "benchmarks" / "gpu"))
    import kit_run
    built = json.loads((kit / "kit.json").read_text())["libraries"]
    assert set(built) == set(kit_run.LIBRARIES), built
    found = kit_run.find(built, [])
    assert set(found.values()) == {None}
    version_of, kit_run.version_of = kit_run.version_of, lambda soname, path: {
        "libcudnn.so.9": None, "libnccl.so.2": 21000}.get(soname, built[soname])
    try:
        path, wrong, notes = kit_run.check_libraries(built, [])
    finally:
        kit_run.version_of = version_of
    assert len(wrong) == 2 and len(notes) == 2, (wrong, notes)
    assert "libcudnn.so.9 (cuDNN; of PyTorch's wheels nvidia-cudnn-cu13) is not here" in wrong, wrong
    assert any("NCCL 2.10.0" in one and "at least 2.26.0" in one for one in wrong), wrong
    assert kit_run.fits("90a", 90) and not kit_run.fits("90a", 91) and not kit_run.fits("90a", 100)
    assert kit_run.fits("80", 86) and not kit_run.fits("86", 80) and not kit_run.fits("80", 90)
    done = run(kit / "run", "proof", env={"PATH": "/usr/bin:/bin", "PYTHON": "/no/such/python3"})
    assert done.returncode == 2 and "PYTHON=" in done.stdout, done.stdout
    done = run(SOURCE / "benchmarks/gpu/kit_run", "check")
    assert done.returncode == 2 and "not a whole kit" in done.stdout, done.stdout


def check_on_host(kit, work):
    """The kit's scripts, over programs whose device is the host."""
    tutti = BUILD / "bin" / "on_host" / "tutti_on_host"
    if not tutti.exists():
        print("skipped: no programs of the host device in this build")
        return
    target = work / "on_host"
    target.mkdir()
    (target / "tutti").symlink_to(tutti)
    done = run(sys.executable, kit / "benchmarks/gpu/gpu_check.py", "--profile", "proof", "--bin", target,
               "--parts", "resume,learn", "--out", work / "report.md", cwd=work,
               env={**os.environ, "TUTTI_HOME": str(SOURCE)})
    assert done.returncode == 0 and "3 PASSED: exit status 0" in done.stdout, done.stdout


def main():
    nvcc = find_nvcc()
    if nvcc is None:
        skip("there is no nvcc; install the CUDA toolkit 13 with cuBLAS, cuDNN and NCCL")
    if not (KIT_BUILD / "tutti").exists() and os.environ.get("TUTTI_KIT") != "1":
        skip("build/kit is not built, and its first build takes as long as `make cuda`; run `make gpu-kit` "
             "before, or set TUTTI_KIT=1 and this test builds it")
    archive = build()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        assert run("tar", "-xf", archive, "-C", folder).returncode == 0
        kit, work = folder / "kit", folder / "work"
        work.mkdir()
        toolkit = Path(nvcc).resolve().parent.parent / "lib64"
        check_libraries(kit)
        check_messages(kit)
        check_starts(kit, Wheels(folder / "site", toolkit), work)
        check_on_host(kit, work)


main()
