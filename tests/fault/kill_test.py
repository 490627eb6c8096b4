"""kill -9 at 50 random moments while checkpoints are written: the run always resumes, and every loss
it ever reports is that of the undisturbed run, so no mixed state was ever loaded."""

import glob
import os
import random
import signal
import sys
import tempfile
import time

import small_run

KILLS = 50


def main():
    seed = int(os.environ.get("TUTTI_TEST_SEED", time.time_ns() % 2**32))
    print(f"seed {seed} (set TUTTI_TEST_SEED to repeat)")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        run = os.path.join(folder, "run")
        resumed = 0
        for kill in range(KILLS):
            before = len(small_run.losses(run))
            process = small_run.start(recipe if kill == 0 else run, run)
            # From the first new step on, any moment may be the last.
            small_run.wait_for(lambda: len(small_run.losses(run)) > before, process)
            if kill == 0:  # however slow the disk is, the others have a checkpoint to resume from
                small_run.wait_for(lambda: glob.glob(os.path.join(run, "checkpoints", "*", "manifest.json")), process)
            first_step = small_run.losses(run)[before][0]
            resumed += first_step > 1
            time.sleep(chance.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
            code = process.wait()
            assert code == -signal.SIGKILL, f"life {kill} ended by itself with {code}"
        disturbed = small_run.losses(run)
        last = max(step for step, _ in disturbed)
        whole = os.path.join(folder, "whole")
        process = small_run.start(recipe, whole, "--stop-after", str(last))
        code = process.wait(timeout=300)
        expected = dict(small_run.losses(whole))
        assert code == 75, f"the undisturbed run ended with {code}"
        wrong = [(s, l, expected.get(s)) for s, l in disturbed if expected.get(s) != l]
        assert not wrong, f"{len(wrong)} losses differ, first (step, got, expected): {wrong[0]}"
        assert resumed >= KILLS - 5, f"only {resumed} of {KILLS} lives started from a checkpoint"
    print(f"{KILLS} kills, {resumed} resumes, {len(disturbed)} steps, "
          f"{last} of them new: all losses equal")


if __name__ == "__main__":
    sys.exit(main())
