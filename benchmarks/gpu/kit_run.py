"""What kit/run does once it has a Python: finds NVIDIA's libraries, checks their versions, and hands over
to gpu_check.py.

The libraries are looked for in the folders of this Python's packages (nvidia/*/lib, where the wheels that
PyTorch requires put them), then in LD_LIBRARY_PATH, then where the machine's loader looks. kit.json says
which the programs need, with which versions they were built, and for which GPU.
"""

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent.parent
PROFILES = ("proof", "speed")
LEAST_PYTHON = (3, 9)
LEAST_GLIBC = (2, 36)  # of Debian 12, where the kit is built
USAGE = """usage: kit/run proof [OPTIONS]   that this machine's GPU computes what it should
       kit/run speed [OPTIONS]   how fast it is
       kit/run check             whether all that is needed is here
OPTIONS: python3 """ + str(KIT / "benchmarks/gpu/gpu_check.py") + " --help"


class Library:
    """`least`: the oldest version that the program's calls are made for (docs/gpu-library-calls.md)."""

    def __init__(self, title, wheel, function, by_pointer, step, least):
        self.title, self.wheel, self.function = title, wheel, function
        self.by_pointer, self.step, self.least = by_pointer, step, least

    def text(self, version):
        """NVIDIA's numbers: major * 10000 + minor * 100 + patch, or major * 1000 + minor * 10."""
        if self.step == 1000:
            return f"{version // 1000}.{version % 1000 // 10}"
        return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"


LIBRARIES = {
    "libcudart.so.13": Library("the CUDA runtime", "nvidia-cuda-runtime", "cudaRuntimeGetVersion", True,
                               1000, 13000),
    "libcublasLt.so.13": Library("cuBLAS", "nvidia-cublas", "cublasLtGetVersion", False, 10000, 130000),
    "libcudnn.so.9": Library("cuDNN", "nvidia-cudnn-cu13", "cudnnGetVersion", False, 10000, 90000),
    "libnccl.so.2": Library("NCCL", "nvidia-nccl-cu13", "ncclGetVersion", True, 10000, 22600),
}
DRIVER = "libcuda.so.1"
# Its version is that of the newest CUDA it knows. CUDA 13 needs a driver of release 580 (its release notes).
DRIVER_LIBRARY = Library("the NVIDIA driver", None, "cuDriverGetVersion", True, 1000, 13000)
DRIVER_REMEDY = "install release 580 or later; in a container, start it with the GPUs (--gpus all)"
# Prints the compute capability of each GPU, as 90 for 9.0; 75 and 76 are the attributes' numbers in cuda.h.
CAPABILITIES = f"""
import ctypes
cuda, count, major, minor = ctypes.CDLL("{DRIVER}"), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for device in range(count.value):
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        print(10 * major.value + minor.value)
"""


def fail(text):
    print(f"kit/run: {text}", file=sys.stderr)
    sys.exit(2)


def run_python(text, library_path):
    """What a new process of this Python prints; None where it fails."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": library_path})
    return done.stdout if done.returncode == 0 else None


def package_folders():
    """Where this Python's packages keep shared libraries."""
    return [folder for entry in dict.fromkeys(sys.path) if entry
            for folder in sorted(Path(entry).glob("nvidia/*/lib"))]


def search_folders():
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return package_folders() + [Path(path) for path in paths if path]


def find(sonames, folders):
    """soname -> its folder; None where only the machine's loader may know it."""
    return {soname: next((folder for folder in folders if (folder / soname).exists()), None)
            for soname in sonames}


def version_of(soname, library_path):
    """As a new process loads it; None where it cannot."""
    library = DRIVER_LIBRARY if soname == DRIVER else LIBRARIES[soname]
    call = ("v = ctypes.c_int(); f(ctypes.byref(v)); print(v.value)" if library.by_pointer
            else "f.restype = ctypes.c_size_t; print(f())")
    printed = run_python(f"import ctypes; f = ctypes.CDLL('{soname}').{library.function}; {call}",
                         library_path)
    return int(printed) if printed and printed.strip().isdigit() else None


def fits(architecture, capability):
    """Whether code for `architecture`, as nvcc names it, runs on a GPU of that compute capability: with a
    letter on that one alone, else also on later ones of the same generation."""
    number = int(re.match(r"\d+", architecture)[0])
    if not architecture.isdigit():
        return capability == number
    return capability // 10 == number // 10 and capability >= number


def check_gpus(architecture, library_path):
    """(what is wrong, notes, whether a GPU is here at all)"""
    version = version_of(DRIVER, library_path)
    if version is None:
        return [f"{DRIVER} (the NVIDIA driver) is not here: {DRIVER_REMEDY}"], [], False
    if version < DRIVER_LIBRARY.least:
        return [f"the NVIDIA driver knows CUDA {DRIVER_LIBRARY.text(version)} at most, and "
                f"{DRIVER_LIBRARY.text(DRIVER_LIBRARY.least)} is needed: {DRIVER_REMEDY}"], [], True
    found = [int(word) for word in (run_python(CAPABILITIES, library_path) or "").split()]
    if not found:
        return [f"the NVIDIA driver finds no GPU: {DRIVER_REMEDY}"], [], False
    others = [f"{one / 10:.1f}" for one in found if not fits(architecture, one)]
    wrong = [f"the kit is for sm_{architecture}, and this machine has a GPU of compute capability "
             f"{', '.join(dict.fromkeys(others))}: build one with `make gpu-kit ARCH=...`, or choose GPUs "
             "with CUDA_VISIBLE_DEVICES"] if others else []
    return wrong, [f"GPUs: {len(found)}; a driver for CUDA {DRIVER_LIBRARY.text(version)}"], True


def python_notes():
    """Parts that compare with PyTorch are NOT CHECKED without these; the others run."""
    absent = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
    return [f"{' and '.join(absent)} cannot be imported by {sys.executable}: what compares with PyTorch will "
            "be NOT CHECKED"] if absent else []


def check_libraries(built, folders):
    """(value for LD_LIBRARY_PATH, what is wrong, what is worth a note)"""
    found = find(built, folders)
    path = ":".join(dict.fromkeys(str(folder) for folder in found.values() if folder))
    path += ":" * bool(path) + os.environ.get("LD_LIBRARY_PATH", "")
    wrong, notes = [], []
    for soname, with_version in built.items():
        library, version = LIBRARIES[soname], version_of(soname, path)
        where = found[soname] or "the loader's folders"
        if version is None and found[soname] is None:
            wrong.append(f"{soname} ({library.title}; of PyTorch's wheels {library.wheel}) is not here")
        elif version is None:
            wrong.append(f"{where}/{soname} ({library.title}) cannot be loaded")
        elif version < library.least:
            wrong.append(f"{library.title} {library.text(version)} in {where}: at least "
                         f"{library.text(library.least)} is needed")
        else:
            older = version < with_version
            notes.append(f"{library.title} {library.text(version)} in {where}" +
                         (f", older than the {library.text(with_version)} that the kit was built with"
                          if older else ""))
    return path, wrong, notes


def check_machine():
    """What is wrong with the machine itself."""
    wrong = []
    if platform.machine() != "x86_64":
        wrong.append(f"the programs are for x86_64, and this machine is {platform.machine()}")
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name != "glibc" or numbers < LEAST_GLIBC:
        wrong.append(f"the programs need glibc {'.'.join(map(str, LEAST_GLIBC))}, and this machine has "
                     f"{name or 'another C library'} {version}")
    if sys.version_info < LEAST_PYTHON:
        wrong.append(f"{sys.executable} is Python {platform.python_version()}; "
                     f"{'.'.join(map(str, LEAST_PYTHON))} is needed: set PYTHON")
    return wrong


def remedy():
    folders = ", ".join(map(str, package_folders())) or "none"
    return [f"Looked in the packages of {sys.executable} (folders nvidia/*/lib: {folders}), LD_LIBRARY_PATH, "
            "the loader's folders.",
            "Install PyTorch for CUDA 13 into that Python, or set PYTHON to one that has it, or "
            "LD_LIBRARY_PATH."]


def main():
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(USAGE)
        return
    if not words or words[0] not in (*PROFILES, "check"):
        fail((f"{words[0]}: no such check\n" if words else "say what to do\n") + USAGE)
    if words[0] == "check" and len(words) > 1:
        fail(f"check takes no options, and there are: {' '.join(words[1:])}\n" + USAGE)
    kit = json.loads((KIT / "kit.json").read_text())
    path, libraries_wrong, notes = check_libraries(kit["libraries"], search_folders())
    gpus_wrong, gpu_notes, has_gpu = check_gpus(kit["architecture"], path)
    for note in notes + gpu_notes + python_notes():
        print(f"kit/run: {note}", flush=True)
    wrong = check_machine() + libraries_wrong + (remedy() if libraries_wrong else [])
    # That there is no GPU gpu_check.py says itself, with an exit status of its own.
    if has_gpu or words[0] == "check":
        wrong += gpus_wrong
    if wrong:
        fail("\n  ".join(wrong))
    if words[0] == "check":
        print("kit/run: all that is needed is here")
        return
    check = [sys.executable, str(KIT / "benchmarks/gpu/gpu_check.py"), "--profile", *words]
    text = KIT / "text" / "tinyshakespeare.txt"
    if words[0] == "speed" and text.exists() and "--shakespeare" not in words:
        check += ["--shakespeare", str(text)]
    os.execve(sys.executable, check, {**os.environ, "LD_LIBRARY_PATH": path})


if __name__ == "__main__":
    main()
