"""What make_fixtures.py and earlier_test.py share: the runs of the fixtures, the environment in which both programs
run, and what is compared."""

import json
import os
import pathlib
import subprocess

# Where the earlier program worked. Its records name this folder and no other.
FOLDER = "/tmp/tutti-earlier"

# Runs that were stopped halfway, and the step of their only checkpoint.
STOPPED = {"base": 5, "experts": 6, "adapters": 4, "student": 5, "sealed": 4}
# One that ended, and the steps to which it is extended.
FINISHED, EXTENDED_STEPS = "finished", 16
RUNS = [*STOPPED, FINISHED]
PROMPT = ["--prompt", "line 7", "--tokens", "12", "--temperature", "0"]


def environment(folder):
    """Of a program in FOLDER. The same instruction set on every CPU that has it."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("TUTTI_", "OMP_", "SLURM_"))}
    folder = str(folder)
    variables.update(HOME=folder, XDG_DATA_HOME=f"{folder}/data", XDG_CACHE_HOME=f"{folder}/cache",
                     TUTTI_CONTROL=f"{folder}/control", TUTTI_CHECKPOINT_KEY=f"{folder}/key", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    if " avx2 " in pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " "):
        variables["TUTTI_CPU_ISA"] = "avx2"
    return variables


def call(program, folder, *words, code=0, variables=None):
    """What the command prints; with the exit code CODE."""
    done = subprocess.run([str(program), *map(str, words)], cwd=folder, capture_output=True, text=True, check=False,
                          env={**environment(folder), **(variables or {})}, timeout=300)
    if done.returncode != code:
        raise AssertionError(f"tutti {' '.join(map(str, words))}: exit code {done.returncode}, not {code}\n"
                             f"{done.stdout}{done.stderr}")
    return done


def call_json(program, folder, *words, code=0, variables=None):
    return json.loads(call(program, folder, *words, "--json", code=code, variables=variables).stdout)


def last_session(run):
    """The events since the run was started or resumed last."""
    lines = (pathlib.Path(run) / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    begin = max(i for i, event in enumerate(events) if event["event"] == "run_started")
    return events[begin:]


def losses(events):
    """{"train STEP": loss, "validation STEP": loss}"""
    kinds = {"step_done": "train", "evaluation_done": "validation"}
    return {f"{kinds[e['event']]} {e['step']}": e["loss"] for e in events if e["event"] in kinds}


def machine(events):
    """What decides the last bits of a sum: the CPU, instruction set, threads, and the library of products."""
    described, = [event for event in events if event["event"] == "machine_described"]
    library = [name for name in described["libraries"].split(", ") if "dnnl" in name]
    return {key: described[key] for key in ("cpu", "instruction_set", "threads")} | {"products": library}
