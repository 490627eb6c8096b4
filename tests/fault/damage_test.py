"""Every file of a run folder flipped, cut, emptied and removed: the run then resumes with the losses of
the undisturbed one, or is refused; it never resumes with others."""

import os
import random
import shutil
import subprocess
import sys
import tempfile

import small_run

FLIPS = 4  # of each file
SETTINGS = ["train.steps=16", "checkpoint.every_steps=4", "checkpoint.keep_last=3"]


def train(target, run, *arguments):
    done = subprocess.run([small_run.TUTTI, "train", target, "--run", run, *arguments],
                          capture_output=True, text=True, errors="replace", timeout=120)
    return done.returncode, done.stderr


def files_of(run):
    return sorted(os.path.relpath(os.path.join(folder, name), run)
                  for folder, _, names in os.walk(run) for name in names)


def last_session(run, code):
    """Its losses, of a resumed run."""
    if code != 0:
        return []
    events = small_run.events(run)
    begin = max(i for i, event in enumerate(events) if event["event"] == "run_started")
    return [(e["step"], e["loss"]) for e in events[begin:] if e["event"] == "step_done"]


def flip(path, chance):
    size = os.path.getsize(path)
    at, bit = chance.randrange(size), chance.randrange(8)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {at} flipped"


def cut(path, chance):
    size = chance.randrange(os.path.getsize(path))
    os.truncate(path, size)
    return f"cut to {size} bytes"


def empty(path, _):
    os.truncate(path, 0)
    return "emptied"


def remove(path, _):
    os.remove(path)
    return "removed"


def main():
    seed = int(os.environ.get("TUTTI_TEST_SEED", 1))
    print(f"seed {seed} (set TUTTI_TEST_SEED for another)")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        at = lambda name: os.path.join(folder, name)
        code, shown = train(recipe, at("whole"), *SETTINGS)
        assert code == 0, shown
        whole = dict(small_run.losses(at("whole")))
        assert len(whole) == 16
        code, shown = train(recipe, at("stopped"), *SETTINGS, "--stop-after", "10")
        assert code == 75, shown
        before = len(small_run.losses(at("stopped")))

        trials, refused, wrong = 0, 0, []
        for name in files_of(at("stopped")):
            damages = [flip] * FLIPS + [cut] * (FLIPS if name.endswith(".yaml") else 1) + [empty, remove]
            if os.path.getsize(at(os.path.join("stopped", name))) == 0:
                damages = [remove]
            for damage in damages:
                run = at(f"trial-{trials}")
                trials += 1
                shutil.copytree(at("stopped"), run)
                what = f"{name} {damage(os.path.join(run, name), chance)}"
                code, shown = train(run, run)
                assert code in (0, 1, 2), (what, code, shown)
                if code != 0:
                    assert "tutti: error: " in shown, (what, shown)
                    refused += 1
                # The earlier record may be the damage.
                new = last_session(run, code) if name == "events.jsonl" else small_run.losses(run)[before:]
                wrong += [(what, step, loss) for step, loss in new
                          if step in whole and loss != whole[step]]
                if code == 0 and name != "recipe.yaml" and not new:
                    wrong.append((what, "no step was taken", shown))
                shutil.rmtree(run)
    assert not wrong, wrong
    print(f"{trials} damages: {trials - refused} runs resumed with the same losses, {refused} were "
          "refused, none resumed with others")


if __name__ == "__main__":
    sys.exit(main())
