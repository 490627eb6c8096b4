"""A run small enough to be started and killed many times a minute."""

import json
import os
import subprocess
import time

TUTTI = os.environ["TUTTI_BINARY"]

RECIPE = """\
model:
  name: fault-test
  layers: 2
  hidden: 64
  heads: 4
  kv_heads: 4
  head_dim: 16
  ffn: 256
  vocabulary: 257
  context: 32
precision: f32
threads: 1
batch: {global: 4, micro: 4, sequence: 32}
optimizer: {learning_rate: 1e-3}
train: {steps: 100000, seed: 3}
checkpoint: {every_steps: 5, every_seconds: 0, keep_last: 2}
"""


def write_corpus(folder, lines, *options):
    """FOLDER/corpus, of so many lines of text."""
    text = os.path.join(folder, "text.txt")
    with open(text, "w") as file:
        for i in range(lines):
            file.write(f"line {i} of {i * i % 97} and {i % 13}\n")
    subprocess.run(
        [TUTTI, "data", "prepare", text, "--tokenizer", "byte", "--out", os.path.join(folder, "corpus"),
         *options], check=True, capture_output=True)


def prepare(folder):
    """Writes a corpus and a recipe into `folder`; returns the recipe's path."""
    write_corpus(folder, 4000)
    recipe = os.path.join(folder, "recipe.yaml")
    with open(recipe, "w") as file:
        file.write(RECIPE + f"data: {{train: {folder}/corpus}}\n")
    return recipe


def start(target, run, *arguments):
    """`tutti train` in the background; its output goes to RUN.log."""
    log = open(run + ".log", "a")
    return subprocess.Popen(
        [TUTTI, "train", target, "--run", run, *arguments], stdout=log, stderr=log)


def parsed(line):
    """Its event, in a list; none of the last line of a killed process."""
    try:
        return [json.loads(line)]
    except ValueError:
        return []


READ = {}  # of each record: its inode, how many bytes of it have been read, its events


def events(run):
    """The events written so far; a line that is still being written is left out. A waiter asks
    a hundred times a second, so that what has been read is kept."""
    path = os.path.join(run, "events.jsonl")
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        return []
    with file:
        now = os.fstat(file.fileno())
        inode, end, found = READ.get(path, (now.st_ino, 0, []))
        if inode != now.st_ino or end > now.st_size:  # another file
            end, found = 0, []
        file.seek(end)
        text = file.read()
    lines = text[:text.rfind(b"\n") + 1]
    found = found + [event for line in lines.splitlines() for event in parsed(line)]
    READ[path] = (now.st_ino, end + len(lines), found)
    return list(found)


def losses(run):
    """[(step, loss)] in the order of execution; a step may come again after a resume."""
    return [(e["step"], e["loss"]) for e in events(run) if e["event"] == "step_done"]


def wait_for(condition, process, seconds=240):
    """Waits until condition() holds while the process lives."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        if process.poll() is not None:
            raise AssertionError(f"the process ended early with {process.returncode}")
        time.sleep(0.01)
    raise AssertionError("waited too long")
