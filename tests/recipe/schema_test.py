"""The JSON schema of recipes accepts every recipe that is shipped and refuses what the program
refuses; the documentation lists the keys that there are."""

import copy
import json
import os
import subprocess
import sys
import tempfile

import jsonschema
import yaml

TUTTI = os.environ["TUTTI_BINARY"]
SOURCE = os.environ["TUTTI_SOURCE_DIR"]
GOOD = (
    ("batch.global", "10k"), ("checkpoint.every_seconds", "1.5h"),
    ("recompute", {"parts": ["mlp"], "layers": "all"}), ("recompute", "full"),
    ("precision", {"compute": "fp8", "head": True}), ("train.seed", 2**63),
    ("data.train", [{"prefix": "a", "weight": 0.5}, {"prefix": "b"}]),
    ("model", {"preset": "gpt2-124m", "moe": {"experts": 4}}),
    ("distill.model", {"preset": "gpt2-124m"}),
)
BAD = (
    ("batch.globl", 8), ("batch.global", 0), ("batch.global", "many"),
    ("trian", {}), ("recompute", "some"), ("recompute", {"layer": 3}),
    ("parallel.zero", 4), ("device", "tpu"), ("optimizer.beta1", "fast"),
    ("telemetry.metrics_port", 70000), ("checkpoint.every_seconds", "10 parsecs"),
    ("data.train", [{"wieght": 1}]), ("model", {"moe": {"exprts": 4}}),
    ("distill.model", {"hiden": 4}), ("model", 12),
)
MARK = "<!-- tutti recipe keys --markdown -->\n"


def output(*arguments):
    done = subprocess.run([TUTTI, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def recipes():
    """{path: its value} of all recipes, presets of models among them as the model of one."""
    found = {}
    for folder, _, names in os.walk(os.path.join(SOURCE, "recipes")):
        for name in names:
            if not name.endswith(".yaml"):
                continue
            path = os.path.join(folder, name)
            with open(path) as file:
                value = yaml.safe_load(file)
            found[path] = {"model": value} if os.path.basename(folder) == "models" else value
    return found


def change(recipe, path, value):
    changed = copy.deepcopy(recipe)
    *sections, key = path.split(".")
    at = changed
    for section in sections:
        at = at.setdefault(section, {})
    at[key] = value
    return changed


def dry_run(recipe, folder):
    path = os.path.join(folder, "recipe.yaml")
    with open(path, "w") as file:
        yaml.safe_dump(recipe, file)
    return subprocess.run([TUTTI, "train", path, "--dry-run"], capture_output=True, text=True,
                          cwd=folder, timeout=60)


def check_values(validator, folder):
    """What the schema accepts and refuses; the program refuses the same."""
    with open(os.path.join(folder, "text"), "w") as file:
        file.write("to be, or not to be\n" * 2000)
    output("data", "prepare", os.path.join(folder, "text"), "--tokenizer", "byte", "--out",
           os.path.join(folder, "corpus"))
    plain = {"model": "gpt2-124m", "data": {"train": os.path.join(folder, "corpus")}}
    done = dry_run(plain, folder)
    assert done.returncode == 0, done.stderr
    for path, good in GOOD:
        errors = list(validator.iter_errors(change(plain, path, good)))
        assert not errors, (path, errors)
    for path, bad in BAD:
        wrong = change(plain, path, bad)
        assert list(validator.iter_errors(wrong)), f"accepted {path}: {bad}"
        done = dry_run(wrong, folder)
        assert done.returncode == 2, (path, bad, done.stderr)


def main():
    schema = json.loads(output("recipe", "schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    shipped = recipes()
    assert len(shipped) > 20, len(shipped)
    for path, recipe in shipped.items():
        errors = [f"{'.'.join(map(str, e.absolute_path))}: {e.message}"
                  for e in validator.iter_errors(recipe)]
        assert not errors, (path, errors)

    with tempfile.TemporaryDirectory() as folder:
        check_values(validator, folder)

    with open(os.path.join(SOURCE, "docs", "recipe.md")) as file:
        page = file.read()
    assert page.split(MARK)[1] == output("recipe", "keys", "--markdown"), (
        "docs/recipe.md: replace what follows its mark by what `tutti recipe keys --markdown` prints")
    print(f"{len(shipped)} recipes pass the schema")


if __name__ == "__main__":
    sys.exit(main())
