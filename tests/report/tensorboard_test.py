"""TensorBoard's own reader finds in a run's event files what is in events.jsonl, also after the run
was resumed."""

import os
import subprocess
import sys
import tempfile

import numpy as np

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: TensorBoard is not installed")
    sys.exit(77)

import small_run

STEP_TAGS = {
    "loss/train": "loss",
    "throughput/tokens_per_second": "tokens_per_second",
    "throughput/mfu": "mfu",
    "optimizer/learning_rate": "learning_rate",
    "optimizer/gradient_norm": "gradient_norm",
}


def train(recipe, run, steps, corpus):
    subprocess.run(
        [small_run.TUTTI, "train", recipe, "--run", run, f"train.steps={steps}",
         f"data.validation={corpus}", "evaluate.every_steps=10", "evaluate.samples=4",
         "schedule.kind=constant"],
        check=True, capture_output=True)


def compare(scalars, events, member):
    assert [s.step for s in scalars] == [e["step"] for e in events]
    assert [np.float32(s.value) for s in scalars] == [np.float32(e[member]) for e in events], member
    assert all(abs(s.wall_time - e["wall_seconds"]) < 0.001 for s, e in zip(scalars, events))


def main():
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        run = os.path.join(folder, "run")
        for steps in (25, 40):  # the second resumes the first
            train(recipe, run, steps, os.path.join(folder, "corpus"))
        files = [name for name in os.listdir(run) if name.startswith("events.out.tfevents.")]
        assert len(files) == 2, files

        reader = EventAccumulator(run, size_guidance={"scalars": 0})
        reader.Reload()
        assert set(reader.Tags()["scalars"]) == {*STEP_TAGS, "loss/validation"}, reader.Tags()
        events = small_run.events(run)
        steps = [e for e in events if e["event"] == "step_done"]
        assert len(steps) == 40, len(steps)
        for tag, member in STEP_TAGS.items():
            compare(reader.Scalars(tag), steps, member)
        evaluations = [e for e in events if e["event"] == "evaluation_done"]
        assert len(evaluations) >= 4, evaluations
        compare(reader.Scalars("loss/validation"), evaluations, "loss")
    print(f"TensorBoard read {len(steps)} steps and {len(evaluations)} evaluations")


if __name__ == "__main__":
    main()
