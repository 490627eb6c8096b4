"""Installs to a prefix, builds examples/two_steps against it with find_package(Tutti), and runs it:
the losses are those of the program, to the digits printed. Usage: library_test.py BUILD"""

import os
import re
import sys
import tempfile
from pathlib import Path

from installed import prepare, run, trains_two_steps

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
BUILD = Path(sys.argv[1])


def check_symbols(library):
    """Nothing but what tutti.h declares."""
    names = run("nm", "--dynamic", "--defined-only", "--demangle", "--format=just-symbols",
                library).splitlines()
    strange = [name for name in names if not re.match(
        r"(tutti::(Training|TrainingError)::|tutti::version\(|"
        r"(typeinfo|typeinfo name|vtable) for tutti::TrainingError)", name)]
    assert names and not strange, strange


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prefix = folder / "prefix"
        for component in ("program", "development"):
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
        headers = [path.name for path in (prefix / "include").rglob("*.h")]
        assert headers == ["tutti.h"], headers
        (library,) = prefix.rglob("libtutti.so.*.*.*")
        check_symbols(library)
        build = folder / "build"
        run("cmake", "-S", SOURCE / "examples" / "two_steps", "-B", build,
            f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        trained = trains_two_steps(prefix / "bin" / "tutti", folder / "work")
        keys = prepare(prefix / "bin" / "tutti", folder)
        recipe = prefix / "share" / "tutti" / "recipes" / "demo.yaml"
        printed = run(build / "two_steps", recipe, folder / "run", *keys, env={}, cwd=folder)
        losses = re.findall(r"^step (\d): loss ([0-9.]+)$", printed, re.M)
        assert [step for step, _ in losses] == ["1", "2"], printed
        assert losses[1][1] == f"{trained['final_loss']:.4f}", (losses, trained)
        assert (folder / "run" / "checkpoints").is_dir(), printed
        # A run that has taken two steps takes two more.
        longer = [recipe, folder / "longer", *keys, "train.steps=4"]
        printed = "".join(run(build / "two_steps", *longer, env={}, cwd=folder) for _ in range(2))
        assert re.findall(r"^step (\d):", printed, re.M) == ["1", "2", "3", "4"], printed
        # A wrong key is an error of the interface, not the end of the process.
        try:
            run(build / "two_steps", recipe, folder / "other", "train.stps=1", env={}, cwd=folder)
        except AssertionError as error:
            assert "train.stps" in str(error) and "two_steps: " in str(error), error
        else:
            raise AssertionError("a wrong key was accepted")


sys.exit(main())
