"""What a failing disk, a kill at any write, and flipped bits leave behind: the same command, given again,
ends with the bytes of an undisturbed one, or reports what is wrong; it never resumes with something else in
silence.

A trial is one fault, drawn from TUTTI_TEST_SEED: the n-th write, rename or fsync of a command kills it,
is torn, or fails (faulty_io.cpp); or one bit of one file flips between two commands. SUBJECTS are the
commands, FAULTS what happens to them, TEMPLATES what bits flip in: each is a list to add to. All kinds are
tried in turn until TUTTI_TEST_SECONDS (40) are over; a table shows

  survived   the result is that of the undisturbed command
  refused    given again, it ends with an error
  silent     it ends well, and something is wrong: the test fails
  hung       it does not end: the test fails
"""

import collections
import filecmp
import glob
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import small_run

TUTTI = small_run.TUTTI
LIBRARY = os.environ["TUTTI_FAULTY_IO"]
SETTINGS = ["train.steps=12", "checkpoint.keep_last=2", "run.name=faulty"]
FAULTS = [(op, what, times) for op in ("write", "rename", "fsync") for what, times in
          (("kill", 1), ("tear", 1), ("ENOSPC", 1), ("ENOSPC", 0), ("EIO", 1)) if what != "tear" or op == "write"]
HANGS = 120  # seconds
ATTEMPTS = 3  # of the same command after the fault
OUTCOMES = ("survived", "refused", "silent", "hung")
# Where a bit may flip unnoticed.
UNNOTICED = {}


def run(command, **variables):
    """As it ended, or, where it does not, with returncode None."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    with tempfile.TemporaryFile("w+", errors="replace") as said:  # which may quote flipped bytes
        process = subprocess.Popen(command, env={**environment, **variables}, stdout=subprocess.DEVNULL, stderr=said)
        try:
            process.wait(timeout=HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            process.returncode = None
        said.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, "", said.read())


def outcome_of(done, wrong, where):
    if done.returncode is None:
        return "hung", f"{where}: {done.stderr[-300:]}"
    if done.returncode != 0:
        return "refused", f"{where}: {done.stderr[-300:]}"
    return ("silent", f"{where}: {wrong}") if wrong else ("survived", where)


def same_files(found, expected):
    return (sorted(os.path.basename(path) for path in found) == sorted(os.path.basename(path) for path in expected)
            and all(filecmp.cmp(a, b, shallow=False) for a, b in zip(sorted(found), sorted(expected))))


class Train:
    """A run from its beginning to its end. Its result are the tensors of its last checkpoint."""
    name = "train"
    lasting = True  # faults that do not pass
    ranks = []

    def __init__(self, folder, recipe):
        self.recipe = recipe
        self.whole = os.path.join(folder, f"whole-{self.name}")
        done = run(self.command(self.whole))
        assert done.returncode == 0, done.stderr[-3000:]

    def command(self, out):
        return [TUTTI, "train", self.recipe, *SETTINGS, *self.ranks, "--run", out]

    def result(self, out):
        return glob.glob(os.path.join(out, "checkpoints", "step-00000012", "*.safetensors"))

    def is_wrong(self, out, said):
        """Of a command that has ended well."""
        if not same_files(self.result(out), self.result(self.whole)):
            return "other tensors"
        steps = {step for step, _ in small_run.losses(out)}
        if steps != set(range(1, 13)) and "events" not in said:
            return f"no record of steps {sorted(set(range(1, 13)) - steps)}"
        return ""


class TrainRanks(Train):
    """The same on two ranks, of which one has the fault; the command starts them again by itself."""
    name = "train on two ranks"
    ranks = ["--nproc", "2", "batch.micro=2"]
    rank = "1"


class Prepare:
    """A corpus of a text."""
    name = "data prepare"

    def __init__(self, folder, _):
        self.text = os.path.join(folder, "prepared.txt")
        with open(self.text, "w") as file:
            file.write("".join(f"line {i} of {i * i % 89}\n" for i in range(20000)))
        self.whole = os.path.join(folder, "whole-corpus")
        os.mkdir(self.whole)
        done = run(self.command(self.whole))
        assert done.returncode == 0, done.stderr[-3000:]

    def command(self, out):
        os.makedirs(out, exist_ok=True)
        return [TUTTI, "data", "prepare", self.text, "--tokenizer", "byte", "--out", os.path.join(out, "corpus")]

    def is_wrong(self, out, _):
        of = lambda folder: glob.glob(os.path.join(folder, "corpus.bin"))
        return "" if of(out) and same_files(of(out), of(self.whole)) else "other tokens"


class Export:
    """A model in the format of others, of a run that has ended."""
    name = "checkpoint export"
    words = ["checkpoint", "export"]

    def __init__(self, folder, recipe):
        self.run = os.path.join(folder, "exported")
        done = run([TUTTI, "train", recipe, *SETTINGS, "--run", self.run])
        assert done.returncode == 0, done.stderr[-3000:]
        self.whole = os.path.join(folder, "whole-export")
        done = run(self.command(self.whole))
        assert done.returncode == 0, done.stderr[-3000:]

    def command(self, out):
        return [TUTTI, *self.words, self.run, "--out", out]

    def is_wrong(self, out, _):
        of = lambda folder: glob.glob(os.path.join(folder, "*.safetensors"))
        return "" if of(out) and same_files(of(out), of(self.whole)) else "other tensors"


class OfTuned:
    """What a command makes of a run of adapters."""

    def __init__(self, folder, recipe):
        self.base, self.tuned = os.path.join(folder, "frozen"), os.path.join(folder, "tuned")
        for out, more in ((self.base, []),
                          (self.tuned, ["lora.rank=4", f"checkpoint.initialize_from={self.base}"])):
            if not os.path.exists(out):
                done = run([TUTTI, "train", recipe, *SETTINGS, *more, "--run", out])
                assert done.returncode == 0, done.stderr[-3000:]
        self.whole = os.path.join(folder, "whole-" + self.words[1])
        done = run(self.command(self.whole))
        assert done.returncode == 0, done.stderr[-3000:]

    def command(self, out):
        return [TUTTI, *self.words, self.tuned, "--out", out]

    def is_wrong(self, out, _):
        of = lambda folder: glob.glob(os.path.join(folder, "**", "*.safetensors"), recursive=True)
        return "" if of(out) and same_files(of(out), of(self.whole)) else "other tensors"


class Merge(OfTuned):
    """A plain run of a run of adapters."""
    name = "checkpoint merge"
    words = ["checkpoint", "merge"]


class ExportAdapter(OfTuned):
    """Adapters in the format of others."""
    name = "checkpoint export-adapter"
    words = ["checkpoint", "export-adapter"]


class Submit:
    """A job in the records of a control plane, once, whatever happens to the command."""
    name = "submit"

    def __init__(self, folder, recipe):
        self.recipe = recipe
        self.template = os.path.join(folder, "control-template")
        # The machine is measured once.
        done = run([TUTTI, "submit", recipe, "--dry-run", "--control", self.template])
        assert done.returncode == 0, done.stderr[-3000:]

    def command(self, out):
        if not os.path.exists(out):
            shutil.copytree(self.template, out)
        return [TUTTI, "submit", self.recipe, "--yes", "--no-start", "--key", "once", "--run",
                os.path.join(out, "run"), "--control", out]

    def is_wrong(self, out, _):
        ask = lambda *words: subprocess.run([TUTTI, *words, "--control", out, "--json"], check=False,
                                            capture_output=True, text=True)
        verified = ask("audit", "verify")
        if verified.returncode != 0:
            return f"the audit log: {verified.stdout} {verified.stderr}"
        jobs = json.loads(ask("queue", "--all").stdout)["jobs"]
        if len(jobs) != 1:
            return f"{len(jobs)} jobs"
        with open(jobs[0]["command"][1]) as recipe:
            return "" if "learning_rate" in recipe.read() else "no recipe"


SUBJECTS = [Train, TrainRanks, Prepare, Export, Merge, ExportAdapter, Submit]


def count_operations(subject, folder):
    """How many of each a command does in its result's folder."""
    out, log = os.path.join(folder, "counted"), os.path.join(folder, "operations")
    done = run(subject.command(out), LD_PRELOAD=LIBRARY, FAULTY_IO_UNDER=out, FAULTY_IO_LOG=log,
               FAULTY_IO_RANK=getattr(subject, "rank", ""))
    assert done.returncode == 0, done.stderr[-3000:]
    with open(log) as lines:
        counts = collections.Counter(line.split()[0] for line in lines)
    shutil.rmtree(out)
    os.remove(log)
    return counts


def try_fault(subject, counts, fault, chance, folder):
    """One command that meets the fault, and the same again until it ends well: what came of it."""
    op, what, times = fault
    nth = chance.randint(1, counts[op])
    out = os.path.join(folder, "trial")
    done = run(subject.command(out), LD_PRELOAD=LIBRARY, FAULTY_IO_UNDER=out, FAULTY_IO_OP=op,
               FAULTY_IO_NTH=str(nth), FAULTY_IO_DO=what, FAULTY_IO_TIMES=str(times),
               FAULTY_IO_RANK=getattr(subject, "rank", ""))
    said = done.stderr
    for _ in range(ATTEMPTS):
        if done.returncode in (0, None):
            break
        done = run(subject.command(out))
        said += done.stderr
    wrong = subject.is_wrong(out, said) if done.returncode == 0 else ""
    shutil.rmtree(out, ignore_errors=True)
    where = f"{subject.name}: {what} at {op} {nth} of {counts[op]}, {times or 'all'}"
    return outcome_of(done, wrong, where)


class Flips:
    """A run that has done a half of its steps, and its corpus, in whose files bits flip."""

    def __init__(self, folder, recipe, whole):
        self.folder, self.recipe, self.whole = folder, recipe, whole
        self.half = os.path.join(folder, "half")
        done = run([TUTTI, "train", recipe, *SETTINGS, "--run", self.half, "--stop-after", "6"])
        assert done.returncode == 75, done.stderr[-3000:]
        self.corpus = glob.glob(os.path.join(folder, "corpus*"))
        names = [os.path.join(at, name) for at, _, names in os.walk(self.half) for name in names]
        self.files = [path for path in sorted(names) + sorted(self.corpus) if os.path.getsize(path) > 0]

    def kind(self, path):
        return "corpus" + path.rsplit("corpus", 1)[1] if path in self.corpus else os.path.relpath(path, self.half)

    def flip(self, path, chance, folder):
        out = os.path.join(folder, "trial")
        shutil.copytree(self.half, out)
        target = path if path in self.corpus else os.path.join(out, os.path.relpath(path, self.half))
        bit = chance.randrange(8 * os.path.getsize(target))
        self.flip_bit(target, bit)
        try:
            done = run([TUTTI, "train", out])
        finally:
            if path in self.corpus:
                self.flip_bit(target, bit)
        wrong = ""
        if done.returncode == 0 and not same_files(self.whole.result(out), self.whole.result(self.whole.whole)):
            wrong = "other tensors"
        shutil.rmtree(out)
        return outcome_of(done, wrong, f"bit {bit} of {self.kind(path)}")

    @staticmethod
    def flip_bit(path, bit):
        with open(path, "r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))


def main():
    seed = int(os.environ.get("TUTTI_TEST_SEED", 1))
    seconds = float(os.environ.get("TUTTI_TEST_SECONDS", 40))
    print(f"seed {seed}, {seconds:g} s (set TUTTI_TEST_SEED and TUTTI_TEST_SECONDS for others)")
    chance = random.Random(seed)
    tally = collections.defaultdict(collections.Counter)
    shown = []
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        recipe = small_run.prepare(folder)
        subjects = [make(folder, recipe) for make in SUBJECTS]
        counts = {subject.name: count_operations(subject, folder) for subject in subjects}
        flips = Flips(folder, recipe, subjects[0])
        trials = []
        for subject in subjects:
            print(f"{subject.name}: {dict(counts[subject.name])}")
            for fault in FAULTS:
                if counts[subject.name][fault[0]] > 0 and (fault[2] > 0 or getattr(subject, "lasting", True)):
                    trials.append((subject.name, lambda s=subject, f=fault: try_fault(s, counts[s.name], f, chance, folder)))
        for path in flips.files:
            trials.append(("flip in " + flips.kind(path), lambda p=path: flips.flip(p, chance, folder)))
        chance.shuffle(trials)
        begin = time.monotonic()
        for name, trial in itertools.cycle(trials):
            if time.monotonic() - begin > seconds:
                break
            outcome, text = trial()
            tally[name][outcome] += 1
            if outcome != "survived":
                shown.append(f"{outcome}: {text}")
    print("\n".join(shown))
    print(f"{'':50} trials " + " ".join(OUTCOMES))
    tally["all"] = sum(tally.values(), collections.Counter())
    for name, found in tally.items():
        print(f"{name:50} {sum(found.values()):6} " + " ".join(f"{found[one]:{len(one)}}" for one in OUTCOMES))
    del tally["all"]
    bad = [name for name, found in tally.items() if found["hung"] or (found["silent"] and name not in UNNOTICED)]
    assert not bad, f"resumed silently, or not at all: {bad}"


if __name__ == "__main__":
    sys.exit(main())
