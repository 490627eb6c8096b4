"""`tutti bench all` twice on a small model, and its history: the same figures, compared with the
row before. What a figure is does not matter here: the machine may be busy."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TUTTI = os.environ["TUTTI_BINARY"]


def run(*words):
    done = subprocess.run([TUTTI, "bench", *words], capture_output=True, text=True,
                          env=dict(os.environ, TUTTI_HOME=os.environ["TUTTI_SOURCE_DIR"]))
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as temporary:
        history = Path(temporary) / "state" / "bench.jsonl"
        measure = ["all", "--steps", "1", "--set", "model.layers=1", "model.vocabulary=257",
                   "--history", str(history)]
        assert run(*measure).endswith("nothing to compare with yet\n")
        second = json.loads(run(*measure, "--json"))
        rows = [json.loads(line) for line in history.read_text().splitlines()]
        assert len(rows) == 2 and rows[1] == second["row"], rows
        assert rows[0]["figures"].keys() == rows[1]["figures"].keys(), rows
        for key in ("cpu", "cores", "memory_gib", "kernel", "onednn"):
            assert key in rows[0]["machine"], rows[0]["machine"]
        assert any(name.endswith("share of GEMM peak") for name in rows[0]["figures"])
        assert any(name.endswith("tokens/s") for name in rows[0]["figures"])
        for one in second["judgements"]:
            assert one["rows"] == 1 and one["verdict"] in ("same", "slower", "faster"), one
            assert one["reference"] == rows[0]["figures"][one["figure"]]["value"], one
        shown = run("history", "--history", str(history))
        assert all(name in shown for name in rows[0]["figures"]), shown


sys.exit(main())
