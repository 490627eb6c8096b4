"""Whole runs with corpus and checkpoints in a bucket, each met by one random fault: the command is killed at a
random moment or at a random request, or the network and the store fail at a random request, once or for a
while. The same command, given again, ends with the losses and the tensors of an undisturbed run, to the bit.

Before and after it every checkpoint that the store said yes to is there unless retention has removed it, the
newest above all, from which the run resumes; `checkpoint verify` finds all intact; nothing else is left.

  --faults N   trials (10)
  --seconds N  no further trial after so many (no limit)
  --seed N     of the draws (1); the same ones again
  --server K   moto, ceph or swift; default ceph where its packages are, else moto

The table says of each kind of fault how many trials there were and what came of them:

  survived   the result is that of the undisturbed run
  refused    given again, the command ends with an error
  silent     it ends well, and something is wrong: the test fails
  hung       it does not end: the test fails
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import s3_servers
from injector import Injector
from rank_runs import main as run_or_skip
from slurm_cluster import apart
import small_run

TUTTI = small_run.TUTTI
STEPS = 24
HANGS = 120  # seconds
# Large enough for uploads in parts.
RECIPE = small_run.RECIPE.replace("hidden: 64", "hidden: 256").replace("head_dim: 16", "head_dim: 64").replace(
    "ffn: 256", "ffn: 1024").replace("100000", str(STEPS))
OUTCOMES = ("survived", "refused", "silent", "hung")
# What happens at a request; how many requests in a row meet it.
NETWORK = [(what, times) for what in ("refuse", "reset", "lose", "fail", "truncate") for times in (1, 4)]
# "moment": the command is killed at one; else at a request, before or after the store has got it.
KILLS = ["moment", "before", "after"]
MANIFEST = re.compile(r"/lab/runs/([^/]+)/checkpoints/step-(\d+)/manifest\.json$")


class Trial:
    """What the store was asked for and said yes to, of one run."""

    def __init__(self, name):
        self.name = name
        self.committed = set()  # steps that are there
        self.ever = set()       # that were
        self.newest = 0         # of all that were
        self.problems = []

    def observe(self, request, status):
        found = MANIFEST.search(request.target)
        if not found or found[1] != self.name or status // 100 != 2:
            return
        step = int(found[2])
        if request.method == "PUT":
            self.committed.add(step)
            self.ever.add(step)
            self.newest = max(self.newest, step)
        if request.method == "DELETE":
            self.committed.discard(step)
            if step == self.newest:
                self.problems.append(f"the newest checkpoint, of step {step}, was removed")


class Bench:
    """One bucket, its corpus, and the undisturbed runs on one rank and on two."""

    def __init__(self, server, injector, folder):
        self.bucket = server.client()
        self.injector = injector
        self.folder = folder
        self.environment = {**os.environ, **server.environment(injector.endpoint),
                            "TUTTI_CACHE": os.path.join(folder, "cache")}
        self.bucket.create_bucket(Bucket="lab")
        text = os.path.join(folder, "text.txt")
        with open(text, "w") as file:
            for i in range(4000):
                file.write(f"line {i} of {i * i % 97} and {i % 13}\n")
        done = self.run("data", "prepare", text, "--tokenizer", "byte", "--out", "s3://lab/corpora/lines")
        assert done.returncode == 0, done.stderr
        self.recipe = os.path.join(folder, "recipe.yaml")
        with open(self.recipe, "w") as file:
            file.write(RECIPE + "data: {train: s3://lab/corpora/lines}\n")
        self.whole = {}
        for ranks in (1, 2):
            injector.requests.clear()
            begin = time.monotonic()
            trial = Trial(f"whole-{ranks}")
            injector.observe = trial.observe
            process = self.start(trial, ranks)
            assert self.finish(process) == 0, self.said(trial)
            seconds = time.monotonic() - begin
            run = self.path(trial)
            self.whole[ranks] = {"losses": dict(small_run.losses(run)), "tensors": self.tensors(trial),
                                 "requests": len(injector.requests), "seconds": seconds}
            assert sorted(self.whole[ranks]["losses"]) == list(range(1, STEPS + 1))
            assert len(self.whole[ranks]["tensors"]) == ranks, self.keys(trial)

    def path(self, trial):
        return os.path.join(self.folder, trial.name)

    def run(self, *words):
        return subprocess.run([TUTTI, *words], env=self.environment, capture_output=True, text=True, timeout=HANGS)

    def start(self, trial, ranks):
        more = ["--nproc", "2", "batch.micro=2"] if ranks == 2 else []
        log = open(self.path(trial) + ".log", "a")
        return subprocess.Popen(
            [TUTTI, "train", self.recipe, "--run", self.path(trial), "checkpoint.store=s3://lab/runs", *more],
            env=self.environment, stdout=log, stderr=log, start_new_session=True)

    @staticmethod
    def finish(process, kill_after=None):
        """Its exit code, or None: it hung. Killed with its ranks after so many seconds."""
        try:
            process.wait(timeout=HANGS if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            kill(process)
            process.wait()
            return None if kill_after is None else -signal.SIGKILL
        return process.returncode

    def said(self, trial):
        with open(self.path(trial) + ".log", errors="replace") as file:
            return file.read()[-600:]

    def keys(self, trial):
        pages = self.bucket.get_paginator("list_objects_v2").paginate(Bucket="lab", Prefix=f"runs/{trial.name}/")
        return {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", [])}

    def tensors(self, trial):
        """The stores' sums of the last checkpoint's shards."""
        return sorted(tag for key, tag in self.keys(trial).items()
                      if f"/step-{STEPS:08d}/" in key and key.endswith(".safetensors"))

    def check_committed(self, trial):
        there = {int(found[2]) for key in self.keys(trial) if (found := MANIFEST.search("/lab/" + key))}
        if there != trial.committed:
            trial.problems.append(f"checkpoints {sorted(there)} are there, {sorted(trial.committed)} were committed")
        if trial.newest not in there | {0}:
            trial.problems.append(f"the checkpoint of step {trial.newest} is lost")

    def check_end(self, trial, ranks):
        """Of a command that has ended well."""
        self.check_committed(trial)
        run, whole = self.path(trial), self.whole[ranks]
        losses = small_run.losses(run)
        wrong = [step for step, loss in losses if loss != whole["losses"][step]]
        if wrong:
            trial.problems.append(f"other losses at steps {wrong}")
        if {step for step, _ in losses} != set(whole["losses"]):
            trial.problems.append("steps are missing in the events")
        if self.tensors(trial) != whole["tensors"]:
            trial.problems.append("other tensors in the last checkpoint")
        saved = {event["step"] for event in small_run.events(run) if event["event"] == "checkpoint_saved"}
        if not saved <= trial.ever:  # a kill may come between a commit and its event
            trial.problems.append(f"checkpoints {sorted(saved)} were reported, {sorted(trial.ever)} were committed")
        verified = self.run("checkpoint", "verify", run)
        if verified.returncode != 0 or verified.stdout.count("intact") != len(trial.committed):
            trial.problems.append(f"not all intact: {verified.stdout}{verified.stderr}")
        self.check_nothing_else(trial)

    def check_nothing_else(self, trial):
        keys = self.keys(trial)
        named = set(keys)  # by a manifest, which is there
        for key in keys:
            folder, name = os.path.split(key)
            if "/checkpoints/" in key and name != "manifest.json":
                manifest = folder + "/manifest.json"
                text = self.bucket.get_object(Bucket="lab", Key=manifest)["Body"].read() if manifest in keys else b""
                if name.encode() not in text:
                    named.discard(key)
        if named != set(keys):
            trial.problems.append(f"{sorted(set(keys) - named)} are left")
        uploads = self.bucket.list_multipart_uploads(Bucket="lab").get("Uploads", [])
        if left := [upload["Key"] for upload in uploads if f"/{trial.name}/" in upload["Key"]]:
            trial.problems.append(f"uploads of {left} are left")

    def remove(self, trial):
        for key in self.keys(trial):
            self.bucket.delete_object(Bucket="lab", Key=key)
        shutil.rmtree(self.path(trial), ignore_errors=True)


def kill(process):
    """And its ranks."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def try_fault(bench, number, fault, chance):
    """One run that meets the fault, and the same again until it ends well: what came of it, and where."""
    trial = Trial(f"trial-{number}")
    ranks = chance.choice((1, 1, 2))
    whole = bench.whole[ranks]
    at = chance.randrange(whole["requests"])
    moment = chance.uniform(0, whole["seconds"])
    forget = chance.random() < 0.5  # what the cache holds
    where = f"{fault} at request {at} of {whole['requests']} ({moment:.1f} s), {ranks} ranks"
    if chance.random() < 0.7:
        shutil.rmtree(bench.environment["TUTTI_CACHE"], ignore_errors=True)
    injector = bench.injector
    process = None
    started = threading.Event()

    def decide(request):
        if fault in KILLS:
            if fault == "before" and request.number == at:
                started.wait()
                kill(process)
                return "reset"
            return None
        what, times = fault
        return what if at <= request.number < at + times else None

    def observe(request, status):
        trial.observe(request, status)
        if fault == "after" and request.number == at:
            started.wait()
            kill(process)

    injector.requests.clear()
    injector.decide, injector.observe = decide, observe
    process = bench.start(trial, ranks)
    started.set()
    code = bench.finish(process, moment if fault == "moment" else None)
    met = fault == "moment" or len(injector.requests) > at
    time.sleep(0.05)  # what was under way at the kill arrives
    injector.decide, injector.observe = lambda request: None, trial.observe
    bench.check_committed(trial)
    newest = trial.newest
    if code is not None and code != 0:
        if forget:
            shutil.rmtree(bench.environment["TUTTI_CACHE"], ignore_errors=True)
        before = len(small_run.losses(bench.path(trial)))
        code = bench.finish(bench.start(trial, ranks))
        again = small_run.losses(bench.path(trial))[before:]
        if code == 0 and again and again[0][0] != newest + 1:
            trial.problems.append(f"the run resumed at step {again[0][0]}, after {newest} was committed")
    if code is None:
        return "hung", f"{where}: {bench.said(trial)}", met
    if code != 0:
        return "refused", f"{where}: {bench.said(trial)}", met
    bench.check_end(trial, ranks)
    bench.remove(trial)
    return ("silent" if trial.problems else "survived"), f"{where}: {'; '.join(trial.problems)}", met


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=("moto", "ceph", "swift"))
    return parser.parse_args()


def open_server(kind, folder):
    try:
        return s3_servers.make(kind or "ceph", folder)
    except s3_servers.Skip as missing:
        if kind:
            raise
        print(f"moto's server instead of Ceph's: {missing}")
        return s3_servers.make("moto", folder)


def main():
    options = read_options()
    chance = random.Random(options.seed)
    faults = NETWORK + 3 * KILLS
    tally = collections.defaultdict(collections.Counter)
    unmet = 0
    with tempfile.TemporaryDirectory() as folder, open_server(options.server, folder) as server:
        with Injector(server.endpoint) as injector:
            bench = Bench(server, injector, os.path.realpath(folder))
            for ranks, whole in bench.whole.items():
                print(f"{ranks} ranks: {whole['requests']} requests in {whole['seconds']:.1f} s")
            drawn = []
            begin = time.monotonic()
            for number in range(options.faults):
                if time.monotonic() - begin > options.seconds:
                    break
                drawn = drawn or chance.sample(faults, len(faults))
                fault = drawn.pop()
                outcome, where, met = try_fault(bench, number, fault, chance)
                unmet += not met
                tally[f"kill, {fault}" if fault in KILLS else f"{fault[0]}, {fault[1]} in a row"][outcome] += 1
                print(f"{number + 1} {outcome}: {where}", flush=True)
    print(f"seed {options.seed}; in {unmet} trials the run had ended before the fault")
    print(f"{'':30} trials " + " ".join(OUTCOMES))
    tally["all"] = sum(tally.values(), collections.Counter())
    for name, found in tally.items():
        print(f"{name:30} {sum(found.values()):6} " + " ".join(f"{found[one]:{len(one)}}" for one in OUTCOMES))
    bad = {one: tally["all"][one] for one in OUTCOMES[1:] if tally["all"][one]}
    assert not bad, bad


if __name__ == "__main__":
    apart()
    sys.exit(run_or_skip(main))
