"""The demo's recipe as an installed package has it: recipes in a read-only folder, text
prepared by the first run, by two first runs at once, and not at all when it is another text.
Sampling shows text and changes no loss."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
TUTTI = os.environ["TUTTI_BINARY"]
# The model shrunk, and few steps of it.
SMALL = ["threads=1", "model.layers=1", "model.hidden=64", "model.heads=2", "model.kv_heads=2",
         "model.ffn=128", "batch.sequence=64", "train.steps=4", "schedule.warmup_steps=2",
         "evaluate.every_steps=2", "evaluate.samples=4", "train.target_loss=1.0"]


def start(home, folder, run, *keys):
    """`tutti train demo` in the background, of a user whose cache is in `folder`."""
    environment = {**os.environ, "TUTTI_HOME": str(home), "XDG_CACHE_HOME": str(folder / "cache"),
                   "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([TUTTI, "train", "demo", "--run", str(folder / run), "--json", *SMALL, *keys],
                            env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def finished(process):
    out, error = process.communicate(timeout=180)
    assert process.returncode == 0, error
    return json.loads(out), error


def events(folder, run, kind):
    lines = (folder / run / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def losses(folder, run):
    return [event["loss"] for kind in ("step_done", "evaluation_done") for event in events(folder, run, kind)]


def check_first_runs_at_once(home, folder):
    both = [start(home, folder, run) for run in ("a", "b")]
    shown = [finished(process)[1] for process in both]
    (corpora,) = (folder / "cache/tutti/corpora").iterdir()
    assert corpora.name.startswith("demo-corpus-"), corpora
    assert (corpora / "corpus.idx").exists() and (corpora / "corpus-validation.idx").exists()
    assert losses(folder, "a") == losses(folder, "b")
    assert "the model writes" in shown[0], shown[0]
    return corpora


def check_samples(home, folder):
    saved = [event["step"] for event in events(folder, "a", "checkpoint_saved")]
    written = events(folder, "a", "text_generated")
    assert saved and [event["step"] for event in written] == saved, (saved, written)
    assert all(event["prompt"] and event["tokens"] > 0 for event in written), written
    assert "What it writes" in (folder / "a/report.html").read_text()

    finished(start(home, folder, "silent", "checkpoint.sample_tokens=0"))
    assert losses(folder, "silent") == losses(folder, "a")
    assert not events(folder, "silent", "text_generated")


def check_resume(home, folder):
    stopped = start(home, folder, "parts", "--stop-after", "2")
    stopped.communicate(timeout=180)
    assert stopped.returncode == 75, stopped.returncode
    finished(start(home, folder, "parts"))
    assert losses(folder, "parts")[:4] == losses(folder, "a")[:4]


def check_another_text(home, folder):
    """Nothing is prepared of it, and the error says what to do."""
    wrong = start(home, folder, "wrong", "data.prepare.xxh3=0123456789abcdef")
    error = wrong.communicate(timeout=180)[1]
    assert wrong.returncode == 2, (wrong.returncode, error)
    for part in ("data.prepare.xxh3: '", "demo-corpus.jsonl.zst' has the hash ", "not 0123456789abcdef",
                 "or set data.prepare.xxh3="):
        assert part in error, error


def check_folders(home, folder, corpora):
    """Prepared again where it was removed; elsewhere on request."""
    shutil.rmtree(corpora)
    finished(start(home, folder, "again"))
    assert losses(folder, "again") == losses(folder, "a")
    finished(start(home, folder, "elsewhere", f"data.prepare.folder={folder}/here", "train.steps=1",
                   "schedule.warmup_steps=0"))
    assert len(list((folder / "here").iterdir())) == 1


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    home = folder / "share/tutti"
    shutil.copytree(SOURCE / "recipes", home / "recipes")
    for path in [*home.rglob("*"), home]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(path for path in home.rglob("*"))
    try:
        corpora = check_first_runs_at_once(home, folder)
        check_samples(home, folder)
        check_resume(home, folder)
        check_another_text(home, folder)
        check_folders(home, folder, corpora)
        assert sorted(path for path in home.rglob("*")) == before  # root may write everywhere
    finally:
        for path in [home, *home.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
