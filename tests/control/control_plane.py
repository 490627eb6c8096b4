"""A control plane in a folder of its own, as its users meet it: for tests."""

import glob
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE_DIR"], "tests", "fault"))
import small_run  # noqa: E402

TUTTI = small_run.TUTTI

RECIPE = """\
model:
  name: job-test
  layers: 1
  hidden: 32
  heads: 2
  kv_heads: 2
  head_dim: 16
  ffn: 64
  vocabulary: 257
  context: 16
precision: f32
threads: 1
batch: {global: 2, micro: 2, sequence: 16}
optimizer: {learning_rate: 1e-3}
train: {steps: 200, seed: 3}
checkpoint: {every_steps: 0, every_seconds: 0, keep_last: 1}
"""


class ControlPlane:
    """A control plane in a folder of its own."""

    def __init__(self, folder, control=None, **variables):
        self.folder = folder
        self.control = control or os.path.join(folder, "control")
        self.environment = dict(
            os.environ, TUTTI_CONTROL=self.control, OMP_NUM_THREADS="1", XDG_DATA_HOME=folder, **variables)
        small_run.write_corpus(folder, 400, "--licence", "CC0", "--data-class", "public")
        with open(os.path.join(folder, "recipe.yaml"), "w") as file:
            file.write(RECIPE + "data: {train: corpus}\n")

    def call(self, *words, code=0, environment=None):
        done = subprocess.run([TUTTI, *words, "--json"], cwd=self.folder, capture_output=True,
                              text=True, env=environment or self.environment, check=False)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def submit(self, *words, environment=None):
        return self.call("submit", "recipe.yaml", "--yes", "--no-start", *words, environment=environment)["job"]

    def as_user(self, name, role, project):
        """The environment of a user with that role; creates the account."""
        self.call("admin", "user", name)
        if role:
            self.call("admin", "grant", name, role, "--project", project)
        return dict(self.environment, TUTTI_TOKEN=self.call("admin", "token", "--user", name)["token"])

    def records(self):
        return os.path.join(self.control, "control.db")

    def run(self, name):
        return os.path.join(self.folder, name)

    def events(self, run, kind):
        return [event for event in small_run.events(self.run(run)) if event["event"] == kind]

    def show(self, job):
        return self.call("show", str(job))

    def controller(self):
        log = open(os.path.join(self.folder, "controller.log"), "a")
        return subprocess.Popen([TUTTI, "controller", "run"], cwd=self.folder, stdout=log, stderr=log,
                                env=self.environment)

    def wait_for_no_controller(self):
        """Those that commands start end when there is nothing left to do."""
        end = time.monotonic() + 60
        while subprocess.run(["pgrep", "-f", f"controller run .*{self.control}"], check=False,
                             stdout=subprocess.DEVNULL).returncode == 0:
            assert time.monotonic() < end, "the controller did not end"
            time.sleep(0.2)

    def wait_for(self, job, states, seconds=240):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            shown = self.show(job)
            if shown["state"] in states:
                return shown
            time.sleep(0.1)
        raise AssertionError(f"job {job} is {shown}")

    def wait_for_steps(self, run, count=1, seconds=240):
        """Until it has trained so far."""
        end = time.monotonic() + seconds
        while len(self.events(run, "step_done")) < count:
            assert time.monotonic() < end, f"no {count} steps of {run}"
            time.sleep(0.05)


def secret_is_nowhere(secret, *folders):
    """Not in the list of processes, nor in a file of any name below `folders`."""
    words = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert secret not in words, "in the list of processes"
    for folder in folders:
        for path in glob.glob(folder + "/**", recursive=True, include_hidden=True):
            try:
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        assert secret.encode() not in file.read(), path
            except FileNotFoundError:
                pass  # one that was written and renamed meanwhile


def report_state(plane, cluster):
    """What is needed to see why, on a Slurm."""
    print(subprocess.run("squeue --all --states=all; sinfo --Node --long", shell=True, check=False, capture_output=True,
                         text=True, env=cluster.environment).stdout)
    for path in [os.path.join(plane.folder, "controller.log"), *glob.glob(plane.control + "/jobs/*/output.log"),
                 *glob.glob(cluster.folder + "/slurm*.log")]:
        with open(path, errors="replace") as file:
            print(f"== {path}\n{file.read()[-3000:]}")
