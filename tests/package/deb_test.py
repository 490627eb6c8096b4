"""Builds the Debian package, looks at it, and runs what it holds from another folder with an empty
environment. Usage: deb_test.py BUILD"""

import shutil
import sys
import tempfile
from pathlib import Path

from installed import run, trains_two_steps

BUILD = Path(sys.argv[1])
FILES = ["usr/bin/tutti", "usr/share/tutti/recipes/demo.yaml", "usr/share/tutti/catalog",
         "usr/share/man/man1/tutti.1", "usr/share/man/man1/tutti-data-prepare.1",
         "usr/share/bash-completion/completions/tutti", "usr/share/zsh/vendor-completions/_tutti",
         "usr/share/fish/vendor_completions.d/tutti.fish", "usr/share/doc/tutti/copyright",
         "usr/share/doc/tutti/CHANGELOG.md"]


def main():
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file"):
        if not shutil.which(tool):
            print(f"skipped: no {tool} here")
            return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder / "deb",
            cwd=folder)
        (package,) = (folder / "deb").glob("*.deb")
        version = run(BUILD / "tutti", "--version").split()[-1]
        assert run("dpkg-deb", "--field", package, "Version").strip() == (
            version.partition("+")[0].partition("-")[0] + "-1")
        depends = run("dpkg-deb", "--field", package, "Depends")
        for name in ("libc6 (>=", "libdnnl", "libyaml-cpp", "libfmt", "libstdc++6"):
            assert name in depends, f"no {name} among the dependencies: {depends}"
        root = folder / "root"
        run("dpkg-deb", "--extract", package, root)
        for file in FILES:
            assert (root / file).exists(), f"no {file} in the package"
        assert not list(root.rglob("*.so*")), "the package brings libraries"
        trains_two_steps(root / "usr" / "bin" / "tutti", folder / "work")
    return 0


sys.exit(main())
