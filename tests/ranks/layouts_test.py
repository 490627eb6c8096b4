"""One run on 1, 2, 3, 4 and 6 processes: the same losses; and from any number of them to another in
the middle. About 25 s."""

import os
import re
import subprocess
import sys
import tempfile

import rank_runs

VALIDATION = ["evaluate.every_steps=10", "evaluate.samples=30"]


def test():
    with tempfile.TemporaryDirectory() as folder:
        recipe = rank_runs.prepare(folder)
        validation = [*VALIDATION, f"data.validation={folder}/corpus"]
        at = lambda name: os.path.join(folder, name)
        rank_runs.train(recipe, at("one"), *validation)
        expected = rank_runs.losses(at("one"))
        evaluated = rank_runs.last_evaluation(at("one"))
        for ranks, zero in [(2, 0), (2, 1), (3, 1), (4, 1), (6, 0)]:
            run = at(f"{ranks}-{zero}")
            rank_runs.train(recipe, run, *validation, f"parallel.zero={zero}", "--nproc", str(ranks))
            worst = rank_runs.compare(run, expected, 20)
            print(f"{ranks} ranks, zero {zero}: losses differ by at most {worst:.1e}")
            evaluation = rank_runs.last_evaluation(run)
            assert evaluation["tokens"] == evaluated["tokens"], (evaluation, evaluated)
            assert abs(evaluation["loss"] / evaluated["loss"] - 1) < 1e-5, (evaluation, evaluated)

        # Ten steps on four ranks, saved together; ten more on others.
        first = at("first")
        rank_runs.train(recipe, first, "parallel.zero=1", "--nproc", "4", "--stop-after", "10", code=75)
        for ranks in (1, 2, 3, 6):
            run = at(f"from-4-to-{ranks}")
            subprocess.run(["cp", "-r", first, run], check=True)
            rank_runs.train(run, run, "--nproc", str(ranks))
            worst = rank_runs.compare(run, expected, 20)
            print(f"4 ranks, then {ranks}: losses differ by at most {worst:.1e}")

        # Ranks that divide the layers, also where they outnumber the key/value heads.
        grouped = "model.kv_heads=2"
        rank_runs.train(recipe, at("grouped"), grouped)
        expected_grouped = rank_runs.losses(at("grouped"))
        for ranks, tp in [(2, 2), (4, 4), (4, 2)]:
            run = at(f"tp-{tp}-of-{ranks}")
            rank_runs.train(recipe, run, grouped, f"parallel.tp={tp}", "--nproc", str(ranks))
            worst = rank_runs.compare(run, expected_grouped, 20)
            print(f"{ranks} ranks, tp {tp}: losses differ by at most {worst:.1e}")
        divided = at("divided")
        rank_runs.train(recipe, divided, grouped, "parallel.tp=4", "--nproc", "4", "--stop-after", "10",
                        code=75)
        rank_runs.train(divided, divided, "parallel.tp=1", "--nproc", "3")
        worst = rank_runs.compare(divided, expected_grouped, 20)
        print(f"tp 4, then dp 3: losses differ by at most {worst:.1e}")

        # Expert parallel ranks need no dp beside them.
        run = at("experts")
        rank_runs.train(recipe, run, "model.moe.experts=4", "model.moe.top_k=2", "model.moe.expert_ffn=64",
                        "parallel.ep=4", "--nproc", "4", steps=2)
        with open(os.path.join(run, "recipe.yaml")) as file:
            assert re.search(r"\bdp: 4\b", file.read())

        # The mesh that cannot be names those that can.
        error = rank_runs.train(recipe, at("none"), "--nproc", "5", code=2)
        assert "nearest: 4 ranks as dp 4, 6 ranks as dp 6" in error, error
        # A mesh without ranks for it names how to start them.
        error = rank_runs.train(recipe, at("none"), "parallel.dp=2", code=2)
        assert "--nproc 2" in error, error

        # A start that is refused leaves nothing, whichever rank says so first.
        for setting in ("checkpoint.initialize_from=nope", "checkpoint.key_file=/nope", "model.vocabulary=100",
                        f"checkpoint.initialize_from={at('experts')}"):
            for ranks in ((), ("--nproc", "2")):
                error = rank_runs.train(recipe, at("refused"), setting, *ranks, code=1 if "key" in setting else 2)
                assert not os.path.exists(at("refused")), (setting, ranks, error)

        # One JSON object, with the ranks in it.
        done = subprocess.run(
            rank_runs.command(recipe, at("json"), "--nproc", "2", "--json", steps=3),
            env=rank_runs.environment(), capture_output=True, text=True, check=True)
        summary = rank_runs.result(done.stdout)
        assert summary["mesh"] == "dp 2" and len(summary["ranks"]) == 2, summary
        assert all(rank["peak_memory_bytes"] > 0 for rank in summary["ranks"]), summary


if __name__ == "__main__":
    sys.exit(rank_runs.main(test))
