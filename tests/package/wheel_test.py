"""Builds the wheel, installs it with pip into an empty virtual environment, and runs it with an
empty environment: every library but glibc's comes from the wheel. Usage: wheel_test.py BUILD"""

import os
import re
import sys
import tempfile
from pathlib import Path

from installed import run, trains_two_steps

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
BUILD = Path(sys.argv[1])
GLIBC = re.compile(r"(ld-linux-x86-64|/lib(c|m|mvec|pthread|dl|rt|resolv|util)\.so)")


def newest_glibc(files):
    """From the dynamic symbols, which the tag was not computed from."""
    versions = set()
    for file in files:
        symbols = run("objdump", "--dynamic-syms", file)
        versions |= {tuple(map(int, match.split(".")))
                     for match in re.findall(r"\*UND\*.*\(?GLIBC_([0-9.]+)\)? ", symbols)}
    return max(versions)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = Path(run(SOURCE / "tools" / "wheel", BUILD, folder / "wheels").splitlines()[-1])
        environment = folder / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", environment)
        run(sys.executable, "-m", "pip", "--python", environment / "bin" / "python3", "install",
            "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
        tutti = environment / "bin" / "tutti"
        (package,) = environment.glob("lib/python3*/site-packages/tutti")
        for line in run("ldd", package / "bin" / "tutti", env={}).splitlines():
            assert "not found" not in line, line
            match = re.search(r"=> (\S+)", line)
            if match and not GLIBC.search(match[1]):
                assert Path(match[1]).resolve().is_relative_to(package.resolve()), line
        glibc = newest_glibc([package / "bin" / "tutti", *package.glob("lib/tutti/*.so*")])
        assert f"manylinux_{glibc[0]}_{glibc[1]}_" in wheel.name, f"{wheel.name}: {glibc}"
        trains_two_steps(tutti, folder / "work")
        assert run(environment / "bin" / "python3", "-m", "tutti", "--version", env={}).strip()


sys.exit(main())
