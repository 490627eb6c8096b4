"""Running the programs of a bundle or source tree for the check of a GPU, and the report file."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from check_bars import FAILED, PASSED, UNCHECKED, bar_table, suites_of, verdict_of

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS_BYTES = 8 << 20


class Report:
    """Written anew after each part, so that what is done is kept whatever comes after."""

    def __init__(self, path):
        self.path, self.parts, self.verdicts, self.facts = path, [], {}, {}

    def add(self, title, text, verdict):
        self.verdicts[title] = verdict
        self.parts.append(f"## {title}: {verdict}\n\n{text.rstrip()}\n")
        print(f"{title}: {verdict}", flush=True)
        self.write()

    def add_bars(self, title, bars, text=""):
        self.add(title, bar_table(bars) + (f"\n\n{text}" if text else ""),
                 verdict_of(bar.verdict() for bar in bars))

    def named(self, verdict):
        return [title for title, found in self.verdicts.items() if found == verdict]

    def status(self):
        """0: all that was asked for holds; 1: something failed; 3: nothing did, not all was checked."""
        if self.named(FAILED):
            return 1
        return 3 if self.named(UNCHECKED) or not self.verdicts else 0

    def write(self):
        head = [f"# GPU report, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n"]
        for verdict in (FAILED, UNCHECKED, PASSED):
            if self.named(verdict):
                head.append(f"{verdict}: {'; '.join(self.named(verdict))}\n")
        figures = "## Figures\n\n```json\n" + json.dumps(self.facts, indent=1) + "\n```\n"
        temporary = self.path.with_suffix(".part")
        temporary.write_text("\n".join([*head, *self.parts, figures]))
        os.replace(temporary, self.path)


class Machine:
    """The programs, a work folder, and how much time is left."""

    def __init__(self, arguments):
        folders = [arguments.bin] if arguments.bin else [ROOT / "bin", ROOT / "build" / "cuda"]
        self.bin = next((folder for folder in folders if (folder / "tutti").exists()), None)
        if self.bin is None:
            sys.exit("gpu_check: no tutti in " + ", ".join(map(str, folders)) +
                     "; unpack a bundle or run `make cuda`")
        self.tutti = (self.bin / "tutti").resolve()
        self.end = time.monotonic() + arguments.budget
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.text = arguments.corpus

    def program(self, name):
        """Its path; None where it was not built."""
        paths = (self.bin / name, self.bin / "bin" / name)
        return next((path.resolve() for path in paths if path.exists()), None)

    def run(self, command, limit=600, **environment):
        """(exit status, output of both streams, standard output, seconds)"""
        limit = min(limit, self.end - time.monotonic())
        if limit < 5:
            return 124, "no time left of --budget", "", 0
        begin = time.monotonic()
        tuning = str(self.work / "tuning")
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  errors="replace", timeout=limit, cwd=self.work,
                                  env={**os.environ, "TUTTI_TUNING": tuning, **environment})
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode(errors="replace")
            return 124, out + f"\nended after {limit:.0f} s", out, limit
        except OSError as error:
            return 127, str(error), "", 0
        return done.returncode, done.stdout + done.stderr, done.stdout, time.monotonic() - begin

    def json(self, command, limit=600):
        """(what it prints as JSON or None, output, seconds)"""
        status, text, out, seconds = self.run(command, limit)
        try:
            return (json.loads(out) if status == 0 else None), text, seconds
        except ValueError:
            return None, text, seconds

    def suites(self, report, title, program, only="", may_skip=True, wrap=(), limit=240,
               leave_out=""):
        """The suites of a test program, each in a process of its own: a fault on the device ends
        only that one. `wrap`: a command that runs it. A suite that does not run fails, and so does
        one whose tests are skipped unless they may be."""
        path = self.program(program)
        if path is None:
            report.add(title, f"{program} is not in {self.bin}: run `make cuda` or take a bundle with "
                              "tests", UNCHECKED)
            return
        names = suites_of(self.run([path, "--gtest_list_tests"], 60, TUTTI_TEST_DEVICE="cuda")[2])
        rows = ["| suite | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
        details, good, total = [], True, 0
        for suite in (name for name in names if only in name):
            wanted = f"--gtest_filter={suite}.*" + (f"-{leave_out}" if leave_out else "")
            status, text, _, seconds = self.run([*wrap, path, wanted], limit,
                                                TUTTI_TEST_DEVICE="cuda")
            passed = len(re.findall(r"^\[       OK \]", text, re.M))
            failed = re.findall(r"^\[  FAILED  \] (\S+) \(", text, re.M)
            skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", text, re.M))
            fine = status == 0 and (passed + skipped > 0 or leave_out) and (may_skip or skipped == 0)
            good, total = good and fine, total + passed
            what = ", ".join(failed) if failed else ("" if status == 0 else f"exit status {status}")
            rows.append(f"| {suite} | {passed} | {what} | {skipped} | {seconds:.1f} |")
            if not fine:
                details.append(f"\n{suite}:\n```\n{text[-2500:]}\n```")
        if total == 0:
            details.append("\nNo test has passed.")
        report.add(title, "\n".join(rows + details), PASSED if good and total > 0 else FAILED)

    def corpus(self):
        """Real text by bytes, its last twentieth held out: what --corpus names, else the headers of
        this machine, else Python's own sources. Prefixes of both parts."""
        prefix = self.work / "corpus"
        if not prefix.with_suffix(".bin").exists():
            sources = [self.text] if self.text else [Path("/usr/include"),
                                                     Path(sysconfig.get_paths()["stdlib"])]
            text = next((text for text in map(read_text, sources) if len(text) >= CORPUS_BYTES // 8),
                        b"")
            file = self.work / "corpus.txt"
            file.write_bytes(text)
            self.run([self.tutti, "data", "prepare", file, "--tokenizer", "byte", "--holdout", "0.05",
                      "--split", "tail", "--out", prefix], 120)
        return prefix, Path(f"{prefix}-validation")

    def train(self, name, recipe, *words, limit=600):
        """(losses of its steps or None, summary or None, output, seconds)"""
        train, validation = self.corpus()
        folder = self.work / "runs" / name
        summary, text, seconds = self.json(
            [self.tutti, "train", recipe, f"data.train={train}", f"data.validation={validation}",
             "--run", folder, "train.target_loss=null", "--json", *words], limit)
        return (losses_of(folder) if summary else None), summary, text, seconds


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
