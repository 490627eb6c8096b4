"""`apply`: every planted defect applies to the sources as they are. `try`: one is found in the
worktree of tools/try_defect. Skipped outside a git checkout. Usage: defects_test.py apply|try"""

import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(os.environ["TUTTI_SOURCE_DIR"]) / "tools" / "try_defect"


def run(*arguments):
    done = subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode == 77:
        print(done.stdout)
        sys.exit(77)
    return done.returncode, done.stdout


def apply():
    status, printed = run("--check")
    assert status == 0, printed
    status, printed = run("1000")
    assert status == 2 and "no such defect" in printed, printed
    status, printed = run("--table")
    assert status == 0 and printed.count("\n| ") == 40, printed


def find():
    # A small program: only the folder that all others stand on is built.
    status, printed = run("2")
    assert status == 0 and "found by PermuteIndex." in printed, printed


{"apply": apply, "try": find}[sys.argv[1]]()
