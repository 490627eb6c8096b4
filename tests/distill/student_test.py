"""A student taught by a teacher is better than the same student on its own, for every seed.

The language is a random chain: the next of 16 letters depends on the two before. The teacher reads
600,000 letters of a corpus of 300,000; the students, smaller and of another architecture, a quarter of
that from a corpus of 8,000, which shows each pair of letters some thirty times. What the plain
student learns of the language are those few cases; the taught one, from the same letters and the
same seed, sees at each of them what the teacher expects there. Judged is the cross-entropy of
held-out letters: of the plain student the lowest of its evaluations, so that it is not
judged after it began to learn by heart; of the taught one the last, which any user would get.

Also through the program: a student of the teacher's import from Hugging Face's format takes the
same steps as one of the teacher itself; a run that was stopped resumes to the bit; the report names
the teacher; and what does not fit is refused.
"""

import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

TUTTI = os.environ["TUTTI_BINARY"]
LETTERS = "abcdefghijklmnop"
SEEDS = (1, 2, 3)
MARGIN = 0.2  # nats per letter; students of one kind differ by up to 0.07 between seeds

TEACHER = """\
model:
  name: teacher
  layers: 2
  hidden: 64
  heads: 4
  vocabulary: 16
  context: 32
  tied_embeddings: true
precision: f32
threads: 2
batch: {global: 32}
optimizer: {learning_rate: 4e-3}
schedule: {kind: cosine, warmup_steps: 20, minimum_ratio: 0.05}
train: {steps: 600, seed: 7}
checkpoint: {every_seconds: 0}
data: {train: large, validation: unread}
"""

STUDENT = """\
model:
  name: student
  layers: 1
  hidden: 48
  heads: 4
  ffn: 128
  vocabulary: 16
  context: 32
  norm: rms
  activation: swiglu
  positions: rope
  linear_bias: false
precision: f32
threads: 2
batch: {global: 16}
optimizer: {learning_rate: 4e-3}
schedule: {kind: constant, warmup_steps: 20}
train: {steps: 300}
evaluate: {every_steps: 20}
checkpoint: {every_seconds: 0, keep_best: 0}
data: {train: small, validation: unread}
"""
TAUGHT = ["distill.teacher=teacher", "distill.weight=0.9", "distill.temperature=2"]


def tutti(*arguments, accept=(0,)):
    """Runs a command with --json; its result, or with an exit code not in `accept` the end."""
    done = subprocess.run([TUTTI, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode not in accept:
        sys.exit(f"tutti {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def train(recipe, run, *overrides, accept=(0,)):
    return tutti("train", recipe, "--run", run, *overrides, accept=accept)


def events(run, kind):
    lines = pathlib.Path(run, "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def losses(run):
    return [(e["step"], e["loss"]) for e in events(run, "step_done")]


def evaluations(run):
    return [e["loss"] for e in events(run, "evaluation_done")]


def chain(generator):
    """Weights of the next letter after each pair: a few likely ones, a tail of the rest."""
    return {
        (a, b): [generator.gammavariate(0.4, 1) + 1e-3 for _ in LETTERS]
        for a in LETTERS
        for b in LETTERS
    }


def write(path, weights, count, generator):
    text = ["a", "b"]
    while len(text) < count:
        text += generator.choices(LETTERS, weights[text[-2], text[-1]])
    path.write_text("".join(text))


def entropy(path, weights):
    """The loss of an oracle of the chain: the floor of every model's."""
    text = path.read_text()
    total = 0
    for a, b, c in zip(text, text[1:], text[2:]):
        row = weights[a, b]
        total -= math.log(row[LETTERS.index(c)] / sum(row))
    return total / (len(text) - 2)


def prepare():
    """Writes the corpora; the entropy of the one that is judged."""
    generator = random.Random(5)
    weights = chain(generator)
    for name, count in (("large", 300_000), ("small", 8_000), ("unread", 20_000)):
        write(pathlib.Path(f"{name}.txt"), weights, count, generator)
        tokenizer = "char" if name == "large" else "large.tokenizer.json"
        tutti("data", "prepare", f"{name}.txt", "--out", name, "--tokenizer", tokenizer)
    return entropy(pathlib.Path("unread.txt"), weights)


def taught_students_are_better(floor):
    failures = 0
    for seed in SEEDS:
        train("student.yaml", f"plain-{seed}", f"train.seed={seed}")
        train("student.yaml", f"taught-{seed}", f"train.seed={seed}", *TAUGHT)
        plain, taught = min(evaluations(f"plain-{seed}")), evaluations(f"taught-{seed}")[-1]
        passed = floor < taught < plain - MARGIN and plain < math.log(len(LETTERS)) - 0.05
        failures += not passed
        print(
            f"seed {seed}: plain {plain:.4f}, taught {taught:.4f}, difference {plain - taught:.4f} "
            f"{'ok' if passed else 'FAILED'}",
            flush=True,
        )
    assert failures == 0, f"{failures} of {len(SEEDS)} seeds"


def the_run_tells_of_its_teacher():
    run = pathlib.Path("taught-1")
    checkpoint = max(pathlib.Path("teacher/checkpoints").glob("step-*"))
    manifest = json.loads((max((run / "checkpoints").glob("step-*")) / "manifest.json").read_text())
    assert manifest["teacher"]["path"].endswith(str(checkpoint)), manifest["teacher"]
    assert manifest["teacher"]["step"] == 600
    begun = events(run, "run_started")[0]["teacher"]
    assert begun["manifest_hash"] == manifest["teacher"]["manifest_xxh3"]
    for event in events(run, "step_done"):
        mixture = 0.1 * event["ce_loss"] + 0.9 * event["kl_loss"]
        assert math.isclose(event["loss"], mixture, rel_tol=1e-9), event
    page = (run / "report.html").read_text()
    for text in (checkpoint.name, begun["manifest_hash"], "divergence from the teacher"):
        assert text in page, text
    # Evaluation is plain cross-entropy.
    measured = tutti("eval", run, "--data", "unread")["loss"]
    assert measured == evaluations(run)[-1], measured


def a_stopped_run_goes_on_to_the_bit():
    short = ["train.steps=40", "train.seed=1", "model.dropout=0.1", *TAUGHT]
    train("student.yaml", "whole", *short)
    train("student.yaml", "parts", "--stop-after", 15, *short, accept=(75,))
    train("parts", "parts")
    assert losses("parts") == losses("whole")


def an_imported_teacher_teaches_the_same():
    tutti("checkpoint", "export", "teacher", "--out", "exported")
    tutti("checkpoint", "import", "exported", "--out", "imported")
    short = ["train.steps=20", "train.seed=1", *TAUGHT]
    train("student.yaml", "from-run", *short)
    train("student.yaml", "from-import", *short, "distill.teacher=imported")
    assert losses("from-run") == losses("from-import")


def what_does_not_fit_is_refused():
    def refused(words, *overrides):
        command = [TUTTI, "train", "student.yaml", "--run", "refused", *overrides]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode not in (0, 75), overrides
        for word in words:
            assert word in done.stderr, f"{word!r} not in:\n{done.stderr}"

    refused(["distill.teacher", "nowhere"], "distill.teacher=nowhere")
    refused(["distill.teacher", "32 tokens"], *TAUGHT, "batch.sequence=64")
    refused(["distill.weight: 2"], "distill.teacher=teacher", "distill.weight=2")
    pathlib.Path("other.txt").write_text("ABCDEFGHIJKLMNOP" * 200)
    tutti("data", "prepare", "other.txt", "--out", "other", "--tokenizer", "char")
    refused(
        ["distill.teacher: 'teacher' has another tokenizer"],
        *TAUGHT,
        "data.train=other",
        "data.validation=other",
    )


def main():
    folder = tempfile.mkdtemp(prefix="tutti-distill-")
    os.chdir(folder)
    try:
        pathlib.Path("teacher.yaml").write_text(TEACHER)
        pathlib.Path("student.yaml").write_text(STUDENT)
        floor = prepare()
        teacher = train("teacher.yaml", "teacher")["validation_loss"]
        print(f"entropy {floor:.4f}, teacher {teacher:.4f}", flush=True)
        assert floor < teacher < floor + MARGIN
        taught_students_are_better(floor)
        the_run_tells_of_its_teacher()
        a_stopped_run_goes_on_to_the_bit()
        an_imported_teacher_teaches_the_same()
        what_does_not_fit_is_refused()
    finally:
        os.chdir("/")
        shutil.rmtree(folder)
    print("passed")


if __name__ == "__main__":
    main()
