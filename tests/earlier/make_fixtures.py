#!/usr/bin/env python3
"""Makes fixtures.tar.gz and expected.json with the program of an earlier version.

    make_fixtures.py PROGRAM SOURCE COMMIT

PROGRAM was built from COMMIT, of which SOURCE is a checkout (its recipes and catalog are used). Run it as root on
Linux: host name, account and folder (/tmp/tutti-earlier, which must not exist) become neutral ones, because they
stay in events and records. What is there now was made by

    git worktree add /tmp/earlier-source 46a2ae3
    cd /tmp/earlier-source && cmake --preset release -DTUTTI_TESTS=OFF -DTUTTI_BENCHMARKS=OFF
    cmake --build --preset release --target tutti
    tests/earlier/make_fixtures.py build/release/tutti /tmp/earlier-source 46a2ae3

(which needs Debian's libcpp-httplib-dev), kernels and optimizer at -O3, everything else at -O0 and -O1 to save time:
no arithmetic there depends on it.

The archive holds what users have: corpora, run folders stopped halfway and finished, resolved recipes and the folder
of a control plane. expected.json says what the earlier program itself makes of them when it resumes, evaluates and
generates. A test must never replace them: they are made again only to add what an earlier version could write.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time

import earlier_data
from earlier_data import call, call_json

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(earlier_data.FOLDER)
RESUMED = pathlib.Path(f"{FOLDER}-resumed")
HOME = pathlib.Path(f"{FOLDER}-program")
HOST = "tutti-earlier"
HUNDRED_YEARS = "36500d"

MODEL = "layers: {}, hidden: 16, heads: 2, head_dim: 8, ffn: 32, vocabulary: {}, context: 16"
LLAMA = "norm: rms, activation: swiglu, positions: rope, linear_bias: false, norm_bias: false, kv_heads: 1"
GPT = f"model: {{name: earlier-base, {MODEL.format(2, 257)}, dropout: 0.1, tied_embeddings: true}}"
COMMON = """\
threads: 1
optimizer: {learning_rate: 3e-3}
checkpoint: {every_steps: 0, every_seconds: 0, keep_last: 1%s}
"""
DATA = "data: {train: corpora/text, validation: corpora/text-validation}\n"
BATCH = "batch: {global: 4, micro: %d, sequence: 16}\n"

RECIPES = {
    # GPT with dropout, bytes, warm-up and cosine.
    "base": f"""\
{GPT}
precision: f32
data: {{train: corpora/bytes}}
schedule: {{kind: cosine, warmup_steps: 3, minimum_ratio: 0.1}}
train: {{steps: 10, seed: 3}}
{COMMON % ""}{BATCH % 4}""",
    # Mixtral, two micro-batches per step, evaluated while it trains.
    "experts": f"""\
model: {{name: earlier-experts, {MODEL.format(2, "CHARACTERS")}, {LLAMA}, tied_embeddings: false,
        moe: {{experts: 4, top_k: 2, expert_ffn: 8, balance_loss: 0.02, z_loss: 0.001}}}}
precision: f32
train: {{steps: 12, seed: 4}}
evaluate: {{every_steps: 3, samples: 8}}
{COMMON % ""}{DATA}{BATCH % 2}""",
    # Adapters on the checkpoint of base; packed answers beside plain text.
    "adapters": f"""\
{GPT.replace("dropout: 0.1, ", "")}
lora: {{rank: 2, alpha: 4, dropout: 0.1, targets: [qkv, output]}}
precision: f32
data:
  train: [{{prefix: corpora/answers, weight: 0.75}}, {{prefix: corpora/bytes, weight: 0.25}}]
  packing: documents
train: {{steps: 8, seed: 5}}
{COMMON % ", initialize_from: runs/base"}{BATCH % 4}""",
    # A student of experts.
    "student": f"""\
model: {{name: earlier-student, {MODEL.format(1, "CHARACTERS")}, {LLAMA}, tied_embeddings: true}}
distill: {{teacher: runs/experts, temperature: 2, weight: 0.7}}
precision: f32
train: {{steps: 9, seed: 6}}
{COMMON % ""}{DATA}{BATCH % 4}""",
    # Its checkpoints can be read with the key only.
    "sealed": f"""\
model: {{name: earlier-sealed, {MODEL.format(1, "CHARACTERS")}, {LLAMA}, tied_embeddings: true}}
precision: f32
train: {{steps: 8, seed: 7}}
{COMMON % ", key_file: key"}{DATA}{BATCH % 4}""",
    # bf16, ended and evaluated.
    "finished": f"""\
model: {{name: earlier-finished, {MODEL.format(1, "CHARACTERS")}, {LLAMA}, tied_embeddings: true}}
precision: bf16
schedule: {{kind: constant, warmup_steps: 2}}
train: {{steps: 12, seed: 8}}
evaluate: {{every_steps: 4}}
{COMMON % ""}{DATA}{BATCH % 4}""",
    # Of the control plane's jobs.
    "job": """\
model: {name: earlier-job, layers: 1, hidden: 8, heads: 2, head_dim: 4, ffn: 16, vocabulary: CHARACTERS, context: 16}
precision: f32
threads: 1
batch: {global: 2, micro: 2, sequence: 16}
data: {train: corpora/text}
optimizer: {learning_rate: 1e-3}
train: {steps: 20, seed: 9}
checkpoint: {every_steps: 0, every_seconds: 0, keep_last: 1}
run: {data_class: public}
""",
}
# Of the job that is cancelled: a step takes so long that few are recorded until then.
LONG_STEPS = ["batch.global=1024", "batch.micro=64"]


def neutral_host():
    """A host name of our own, for this process and those it starts."""
    new_uts_namespace = 0x04000000
    if ctypes.CDLL(None, use_errno=True).unshare(new_uts_namespace) != 0:
        sys.exit(f"make_fixtures: unshare: {os.strerror(ctypes.get_errno())}; run it as root")
    socket.sethostname(HOST)


def write_texts():
    for folder in ("texts", "corpora", "recipes", "resolved", "runs"):
        (FOLDER / folder).mkdir(parents=True)
    lines = "".join(f"line {i} of {i * i % 97} and {i % 13}\n" for i in range(150))
    (FOLDER / "texts" / "lines.txt").write_text(lines)
    pairs = [{"prompt": f"{i} and {i % 7}? ", "completion": f"{i + i % 7}."} for i in range(60)]
    (FOLDER / "texts" / "answers.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    key = FOLDER / "key"
    key.write_text("0123456789abcdef" * 4 + "\n")
    key.chmod(0o600)


def prepare(program):
    labels = ["--licence", "CC0", "--data-class", "public", "--threads", "1"]
    text = call_json(program, FOLDER, "data", "prepare", "texts/lines.txt", "--tokenizer", "char", "--out",
                     "corpora/text", "--holdout", "0.1", *labels)
    call(program, FOLDER, "data", "prepare", "texts/lines.txt", "--tokenizer", "byte", "--out", "corpora/bytes",
         *labels)
    call(program, FOLDER, "data", "prepare", "texts/answers.jsonl", "--tokenizer", "byte", "--prompt-key", "prompt",
         "--completion-key", "completion", "--out", "corpora/answers", *labels)
    for name, recipe in RECIPES.items():
        recipe = recipe.replace("CHARACTERS", str(text["vocabulary"]))
        (FOLDER / "recipes" / f"{name}.yaml").write_text(recipe)


def train(program):
    for name, step in earlier_data.STOPPED.items():
        call(program, FOLDER, "train", f"recipes/{name}.yaml", "--run", f"runs/{name}", "--stop-after", step, code=75)
    name = earlier_data.FINISHED
    call(program, FOLDER, "train", f"recipes/{name}.yaml", "--run", f"runs/{name}")


def resolve_shipped_recipes(program):
    """As the earlier program resolves the recipes that it shipped; their corpora need not be there. A student's
    teacher must be: the run `student` has such a recipe."""
    shipped = HOME / "recipes"
    for path in sorted(shipped.rglob("*.yaml")):
        name = str(path.relative_to(shipped).with_suffix(""))
        if path.parent.name == "models" or name == "shakespeare-distill":
            continue
        words = ["mlperf/gpt3-175b", "--with", name] if name == "mlperf/tiny" else [name]
        done = subprocess.run([program, "train", *words, "--dry-run"], cwd=FOLDER, capture_output=True, text=True,
                              check=False, env={**earlier_data.environment(FOLDER), "TUTTI_HOME": str(HOME)})
        begin = re.search(r"^model:$", done.stderr, re.MULTILINE)
        assert begin, (name, done.stderr)
        # What follows is not of the recipe.
        text = "".join(line + "\n" for line in done.stderr[begin.start():].splitlines()
                       if re.match(r" *[a-z_0-9]+:( |$)", line) and not line.startswith("tutti:"))
        (FOLDER / "resolved" / f"{name.replace('/', '-')}.yaml").write_text(text)


def wait(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def control_plane(program):
    """Users, projects with quotas and budgets, a job that ended, one that was cancelled while it ran, one that is
    held."""
    home = {"TUTTI_HOME": str(HOME)}

    def ask(*words):
        return call_json(program, FOLDER, *words, variables=home)

    ask("admin", "site", "--name", "earlier", "--region", "eu", "--data", "internal", "--usd-per-node-hour", "3.60",
        "--watts-per-node", "400")
    ask("admin", "project", "letters", "--max-jobs", "4", "--usd", "250", "--regions", "eu")
    ask("admin", "user", "ada")
    ask("admin", "grant", "ada", "submitter", "--project", "letters")
    ask("admin", "user", "admin")
    ask("admin", "grant", "admin", "admin", "--project", "*")
    tokens = {user: ask("admin", "token", "--user", user, "--lifetime", HUNDRED_YEARS)["token"]
              for user in ("admin", "ada")}
    (FOLDER / "tokens.json").write_text(json.dumps(tokens) + "\n")
    ada = {**home, "TUTTI_TOKEN": tokens["ada"]}

    def submit(*words):
        return call_json(program, FOLDER, "submit", "recipes/job.yaml", "--yes", "--no-start", "--project", "letters",
                         *words, variables=ada)["job"]

    ended = submit("--run", "runs/job-ended", "--key", "first")
    cancelled = submit("--run", "runs/job-cancelled", "train.steps=100000",
                       *LONG_STEPS)
    held = submit("--run", "runs/job-held", "--time-limit", "1h", "--usd", "5", "--name", "patience")
    call(program, FOLDER, "hold", held, variables=ada)
    with open(FOLDER / "controller.log", "w") as log:
        controller = subprocess.Popen([program, "controller", "run"], cwd=FOLDER, stdout=log, stderr=log,
                                      env={**earlier_data.environment(FOLDER), **home})
        state = lambda job: ask("show", str(job))["state"]  # noqa: E731
        record = FOLDER / "runs" / "job-cancelled" / "events.jsonl"
        try:
            wait(lambda: state(ended) == "COMPLETED", "the first job did not complete")
            wait(lambda: record.exists() and "step_done" in record.read_text(), "the second job does not train")
            call(program, FOLDER, "cancel", cancelled, variables=ada)
            wait(lambda: state(cancelled) == "CANCELLED", "the second job was not cancelled")
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait()
    assert controller.returncode == 0
    return {"jobs": {"ended": ended, "cancelled": cancelled, "held": held},
            "ledger": ask("ledger", "--month", "all"),
            "costs": {str(job): ask("cost", str(job))["spent"] for job in (ended, cancelled)},
            "audit": {key: ask("audit", "verify")[key] for key in ("intact", "lines")}}


def observe(program):
    """What the earlier program makes of its own folders, in a copy."""
    shutil.copytree(FOLDER, RESUMED)
    runs = {}
    for name in earlier_data.RUNS:
        seen = {"saved": earlier_data.losses(earlier_data.last_session(RESUMED / "runs" / name)),
                "text": call(program, RESUMED, "generate", f"runs/{name}", *earlier_data.PROMPT).stdout,
                "evaluation": call_json(program, RESUMED, "eval", f"runs/{name}", "--data",
                                        evaluated_corpus(name))["sets"][0]["loss"]}
        runs[name] = seen
    for name in earlier_data.RUNS:
        target = [f"runs/{name}"] + ([f"train.steps={earlier_data.EXTENDED_STEPS}"]
                                     if name == earlier_data.FINISHED else [])
        # The base of adapters and the teacher of a student stay as they were.
        folder = pathlib.Path(f"{RESUMED}-{name}")
        shutil.copytree(FOLDER, folder)
        call(program, folder, "train", *target)
        events = earlier_data.last_session(folder / "runs" / name)
        runs[name]["resumed"] = earlier_data.losses(events)
        runs[name]["machine"] = earlier_data.machine(events)
        shutil.rmtree(folder)
    return runs


def evaluated_corpus(name):
    return "corpora/bytes" if name in ("base", "adapters") else "corpora/text-validation"


def trim():
    """Without what a program writes again by itself and what only fills the archive."""
    for run in (FOLDER / "runs").iterdir():
        for path in run.glob("events.out.tfevents.*"):
            path.unlink()
        if run.name != earlier_data.FINISHED:
            (run / "report.html").unlink(missing_ok=True)
        elif not (run / "report.html").exists():
            sys.exit("make_fixtures: the finished run has no report")
    shutil.rmtree(FOLDER / "texts")
    shutil.rmtree(FOLDER / "data", ignore_errors=True)
    shutil.rmtree(FOLDER / "cache", ignore_errors=True)


def pack():
    def neutral(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(HERE / "fixtures.tar.gz", "w:gz", compresslevel=9) as archive:
        for path in sorted(FOLDER.iterdir()):
            archive.add(path, path.name, filter=neutral)


def main():
    program, source, commit = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    for folder in (FOLDER, RESUMED, HOME):
        if folder.exists():
            sys.exit(f"make_fixtures: {folder} is there already: remove it")
    neutral_host()
    HOME.mkdir()
    for part in ("catalog", "recipes"):
        shutil.copytree(source / part, HOME / part)
    program = shutil.copy(program, HOME / "tutti")
    write_texts()
    prepare(program)
    train(program)
    resolve_shipped_recipes(program)
    runs = observe(program)
    control = control_plane(program)
    expected = {"commit": commit, "version": call(program, FOLDER, "--version").stdout.strip(), "runs": runs,
                "control": control}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    trim()
    pack()
    for folder in (FOLDER, RESUMED, HOME):
        shutil.rmtree(folder)
    print(f"fixtures.tar.gz: {(HERE / 'fixtures.tar.gz').stat().st_size} bytes")


if __name__ == "__main__":
    main()
