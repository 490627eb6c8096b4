"""Running the programs of a kit, bundle or source tree for the check of a GPU, within its time."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_bars import FAILED, NOT_RUN, PASSED, UNCHECKED, suites_of

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS_BYTES = 8 << 20
LEAST_SECONDS = 2  # for which a command is started at all
RESERVE_SECONDS = 5  # of the budget, for the end of what was cut off and the last report


class OutOfTime(Exception):
    """The budget ended a command, or is too short to start one."""


class Machine:
    """The programs, a work folder, and how much time is left. Several threads may run commands."""

    def __init__(self, arguments):
        folders = [arguments.bin.resolve()] if arguments.bin else [ROOT / "bin", ROOT / "build" / "cuda"]
        self.bin = next((folder for folder in folders if (folder / "tutti").exists()), None)
        if self.bin is None:
            sys.exit("gpu_check: no tutti in " + ", ".join(map(str, folders)) +
                     "; unpack a kit or bundle, or run `make cuda`")
        self.tutti = (self.bin / "tutti").resolve()
        self.end = time.monotonic() + arguments.budget - min(RESERVE_SECONDS, arguments.budget / 20)
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.text = arguments.corpus and arguments.corpus.resolve()
        self.jobs = arguments.jobs
        self.shakespeare = arguments.shakespeare and arguments.shakespeare.resolve()
        self.corpus_lock = threading.Lock()

    def left(self):
        return self.end - time.monotonic()

    def program(self, name):
        """Its path; None where it was not built."""
        paths = (self.bin / name, self.bin / "bin" / name)
        return next((path.resolve() for path in paths if path.exists()), None)

    def run(self, command, limit=600, **environment):
        """(exit status, output of both streams, standard output, seconds). Raises OutOfTime."""
        left = self.left()
        if left < LEAST_SECONDS:
            raise OutOfTime()
        begin = time.monotonic()
        settings = {"TUTTI_TUNING": str(self.work / "tuning"), **os.environ, **environment}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                # A session of its own, so that what it started ends with it.
                process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=err,
                                           cwd=self.work, env=settings, start_new_session=True)
            except OSError as error:
                return 127, str(error), "", 0
            try:
                status = process.wait(timeout=min(limit, left))
            except subprocess.TimeoutExpired:
                status = None
            finally:
                end_session(process)
            texts = [read_all(file) for file in (out, err)]
        if status is None and limit >= left:
            raise OutOfTime()
        if status is None:
            status, texts[1] = 124, texts[1] + f"\nended after {limit:.0f} s"
        return status, "".join(texts), texts[0], time.monotonic() - begin

    def json(self, command, limit=600):
        """(what it prints as JSON or None, output, seconds)"""
        status, text, out, seconds = self.run(command, limit)
        try:
            return (json.loads(out) if status == 0 else None), text, seconds
        except ValueError:
            return None, text, seconds

    def together(self, function, arguments):
        """Of each argument the result, by as many threads as --jobs says; of those for which the time
        was too short None."""
        def one(argument):
            try:
                return function(argument)
            except OutOfTime:
                return None
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(one, arguments))

    def suites(self, report, title, program, wanted=lambda suite: True, may_skip=True, wrap=(),
               limit=240, leave_out=""):
        """The suites of a test program, each in a process of its own: a fault on the device ends
        only that one. `wrap`: a command that runs it. A suite that does not run fails, and so does
        one whose tests are skipped unless they may be."""
        path = self.program(program)
        if path is None:
            report.add(title, f"{program} is not in {self.bin}: run `make cuda` or take a kit or bundle "
                              "with tests", UNCHECKED, f"no {program}")
            return
        environment = {"TUTTI_TEST_DEVICE": "cuda"}
        if self.jobs > 1:  # beside each other on the same cores
            environment["OMP_NUM_THREADS"] = str(max(1, cores() // self.jobs))
            environment["OMP_WAIT_POLICY"] = "passive"
        names = suites_of(self.run([path, "--gtest_list_tests"], 60, **environment)[2])
        names = [name for name in names if wanted(name)]

        def suite(name):
            chosen = f"--gtest_filter={name}.*" + (f"-{leave_out}" if leave_out else "")
            return self.run([*wrap, path, chosen], limit, **environment)

        rows = ["| suite | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
        details, bad, total, unfinished = [], [], 0, []
        for name, result in zip(names, self.together(suite, names)):
            if result is None:
                unfinished.append(name)
                continue
            status, text, _, seconds = result
            passed = len(re.findall(r"^\[       OK \]", text, re.M))
            failed = sorted(set(re.findall(r"^\[  FAILED  \] (\S+?),? \(", text, re.M)))
            skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", text, re.M))
            fine = status == 0 and (passed + skipped > 0 or leave_out) and (may_skip or skipped == 0)
            total += passed
            what = ", ".join(failed) if failed else ("" if status == 0 else f"exit status {status}")
            rows.append(f"| {name} | {passed} | {what} | {skipped} | {seconds:.1f} |")
            if not fine:
                bad.append(what or f"{name}: {skipped} skipped")
                details.append(f"\n{name}:\n```\n{text[-2500:]}\n```")
        if unfinished:
            details.append(f"\nThe time was too short for {', '.join(unfinished)}.")
        elif total == 0:
            details.append("\nNo test has passed.")
        verdict = FAILED if bad or (total == 0 and not unfinished) else (
            NOT_RUN if unfinished else PASSED)
        said = (f"{total} tests of {len(names) - len(unfinished)} suites passed" +
                (f"; failed: {', '.join(bad)}" if bad else "") +
                (f"; {len(unfinished)} suites not run" if unfinished else ""))
        report.add(title, "\n".join(rows + details), verdict, said)

    def corpus(self):
        """Real text by bytes, its last twentieth held out: what --corpus names, else Tutti's own
        sources where they are, the headers of this machine, Python's sources. Prefixes of both."""
        prefix = self.work / "corpus"
        with self.corpus_lock:
            if not Path(f"{prefix}.bin").exists():
                self.run([self.tutti, "data", "prepare", self.corpus_text(), "--tokenizer", "byte",
                          "--holdout", "0.05", "--split", "tail", "--out", prefix], 120)
        return prefix, Path(f"{prefix}-validation")

    def corpus_text(self):
        recipes = ROOT / "share" / "tutti" / "recipes"
        snapshot = (recipes if recipes.exists() else ROOT / "recipes") / "demo-corpus.jsonl.zst"
        if self.text is None and snapshot.exists():
            return snapshot
        sources = [self.text] if self.text else [Path("/usr/include"),
                                                 Path(sysconfig.get_paths()["stdlib"])]
        text = next((text for text in map(read_text, sources) if len(text) >= CORPUS_BYTES // 8), b"")
        file = self.work / "corpus.txt"
        file.write_bytes(text)
        return file

    def train(self, name, recipe, *words, limit=600):
        """(losses of its steps or None, summary or None, output, seconds)"""
        train, validation = self.corpus()
        folder = self.work / "runs" / name
        summary, text, seconds = self.json(
            [self.tutti, "train", recipe, f"data.train={train}", f"data.validation={validation}",
             "--run", folder, "train.target_loss=null", "--json", *words], limit)
        return (losses_of(folder) if summary else None), summary, text, seconds


def cores():
    return len(os.sched_getaffinity(0))


def end_session(process):
    """Whatever of it still runs."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def read_all(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def read_text(source):
    """The text of a file, or of a folder's files in the order of their names, up to CORPUS_BYTES."""
    if source.is_file():
        return source.read_bytes()[:CORPUS_BYTES]
    parts, left = [], CORPUS_BYTES
    for path in sorted(path for path in source.rglob("*.[hp]*") if path.suffix in (".h", ".hpp", ".py")):
        if left <= 0:
            break
        try:
            parts.append(path.read_bytes()[:left])
        except OSError:
            continue
        left -= len(parts[-1])
    return b"".join(parts)


def losses_of(folder):
    """Of a run's steps, in their order; None where the run left none."""
    events = folder / "events.jsonl"
    if not events.exists():
        return None
    return [event["loss"] for event in map(json.loads, events.open())
            if event["event"] == "step_done"]
