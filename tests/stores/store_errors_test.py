"""What users get wrong, and stores, against Ceph's gateway: credentials, names of buckets, clocks, quotas, and
answers that are not what they should be. Each is an error that names what is wrong and what to do; nothing that
was in the bucket is lost, nothing new stays there, and the run resumes from its newest checkpoint once all is well
again."""

import glob
import json
import os
import subprocess
import sys
import tempfile

import s3_servers
from injector import Injector
from rank_runs import main as run_or_skip
from slurm_cluster import apart
import small_run

TUTTI = small_run.TUTTI
RECIPE = small_run.RECIPE.replace("keep_last: 2", "keep_last: 3")
CORPUS, STORE = "s3://lab/corpora/lines", "s3://lab/runs"


class Lab:
    """A bucket with a corpus and the checkpoints of a run of 10 steps."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.environment = {**os.environ, **server.environment(), "TUTTI_CACHE": os.path.join(folder, "cache")}
        self.bucket = server.client()
        self.bucket.create_bucket(Bucket="lab")
        self.text = os.path.join(folder, "text.txt")
        with open(self.text, "w") as file:
            for i in range(4000):
                file.write(f"line {i} of {i * i % 97} and {i % 13}\n")
        self.tutti("data", "prepare", self.text, "--tokenizer", "byte", "--out", CORPUS)
        self.recipe = os.path.join(folder, "recipe.yaml")
        with open(self.recipe, "w") as file:
            file.write(RECIPE)
        self.run_folder = os.path.join(folder, "mine")
        self.settings = [f"data.train={CORPUS}", f"checkpoint.store={STORE}"]
        self.train(self.run_folder, 10)
        self.kept = self.objects()

    def tutti(self, *words, code=0, **variables):
        done = subprocess.run([TUTTI, *words], env={**self.environment, **variables}, capture_output=True, text=True,
                              timeout=120)
        expected = {"any": done.returncode >= 0, "error": done.returncode > 0}.get(code, done.returncode == code)
        assert expected, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert s3_servers.SECRET not in done.stdout + done.stderr
        return done

    def train(self, run, last, code=75):
        """To this step."""
        return self.tutti("train", self.recipe, "--run", run, "--stop-after", str(last), *self.settings, code=code)

    def newest(self):
        """The step of the newest checkpoint."""
        return max(int(key.split("step-")[1][:8]) for key in self.objects() if key.endswith("manifest.json"))

    def objects(self):
        pages = self.bucket.list_objects_v2(Bucket="lab")
        return {entry["Key"]: entry["ETag"] for entry in pages.get("Contents", [])}

    def commands(self):
        """That read or write the bucket in every way."""
        yield ["train", self.recipe, "--run", self.run_folder, "--stop-after", "1000", *self.settings]
        yield ["train", self.recipe, "--run", os.path.join(self.folder, "new"), "--stop-after", "5", *self.settings]
        yield ["train", self.recipe, "--run", os.path.join(self.folder, "near"), "--stop-after", "5", self.settings[0]]
        yield ["data", "prepare", self.text, "--tokenizer", "byte", "--out", "s3://lab/corpora/other"]
        yield ["data", "inspect", CORPUS]
        yield ["checkpoint", "list", self.run_folder]
        yield ["checkpoint", "verify", STORE + "/mine"]
        yield ["eval", STORE + "/mine", "--data", CORPUS]
        yield ["bench", "storage", "s3://lab/bench", "--size", "16MiB", "--seconds", "1"]

    def all_say(self, *said, **variables):
        """Every one of these commands ends with an error of these words, and nothing has changed."""
        for words in self.commands():
            error = self.tutti(*words, code="error", **variables).stderr
            assert all(word in error for word in said), f"{words}: {error}"
            assert self.objects() == self.kept, f"{words}: {sorted(set(self.objects()) ^ set(self.kept))}"
        assert not self.uploads(), self.uploads()

    def uploads(self):
        return [upload["Key"] for upload in self.bucket.list_multipart_uploads(Bucket="lab").get("Uploads", [])]

    def resumes(self, steps):
        """The run, from its newest checkpoint."""
        before = len(small_run.losses(self.run_folder))
        newest = self.newest()
        self.train(self.run_folder, newest + steps)
        again = small_run.losses(self.run_folder)[before:]
        assert [step for step, _ in again] == list(range(newest + 1, newest + steps + 1)), again
        verified = self.tutti("checkpoint", "verify", self.run_folder).stdout
        assert verified.count("intact") == len([key for key in self.objects() if key.endswith("manifest.json")])
        self.kept = self.objects()


def credentials(lab):
    what = ("does not accept the credentials", "AWS_ACCESS_KEY_ID", lab.server.endpoint)
    lab.all_say(*what, "SignatureDoesNotMatch", AWS_SECRET_ACCESS_KEY="not-the-secret")
    lab.all_say(*what, "InvalidAccessKeyId", AWS_ACCESS_KEY_ID="NOBODY")
    lab.resumes(5)


def buckets(lab):
    for words in lab.commands():
        words = [word.replace("s3://lab/", "s3://nowhere/") for word in words]
        if words[0] == "checkpoint" and words[-1] == lab.run_folder:
            continue  # its recipe names the bucket
        error = lab.tutti(*words, code="error").stderr
        assert "there is no bucket 'nowhere'" in error or "checkpoints" in error and STORE in error, f"{words}: {error}"
        assert lab.objects() == lab.kept
    lab.resumes(5)


def clocks(lab):
    library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not library:
        return print("no faketime (package faketime): clocks that are wrong are not tried")
    for offset in ("+2h", "-2h"):
        lab.all_say("the clocks differ too much", "timedatectl", LD_PRELOAD=library[0], FAKETIME=offset,
                    FAKETIME_DONT_FAKE_MONOTONIC="1")
    lab.resumes(5)


def full(lab):
    def unchanged():
        """But for the notes of a corpus that is not there: preparing it again replaces them."""
        now = lab.objects()
        more = set(now) - set(lab.kept)
        assert {key: now[key] for key in lab.kept} == lab.kept and not lab.uploads(), sorted(set(lab.kept) ^ set(now))
        assert all(key.startswith("corpora/other.") and not key.endswith((".idx", ".bin")) for key in more), more

    prepare = ["data", "prepare", lab.text, "--tokenizer", "byte", "--out", "s3://lab/corpora/other"]
    size = sum(entry["Size"] for entry in lab.bucket.list_objects_v2(Bucket="lab")["Contents"])
    quota = ("quota", "--quota-scope=bucket", "--uid=lab")
    lab.server.admin("quota", "set", *quota[1:], f"--max-size={size + 100_000}")
    lab.server.admin("quota", "enable", *quota[1:])
    error = lab.tutti(*prepare, code="error").stderr
    assert "is full (QuotaExceeded)" in error and "raise the quota" in error, error
    unchanged()
    # A run continues without its checkpoints, says so, and ends with what was saved before.
    before = len(small_run.losses(lab.run_folder))
    done = lab.train(lab.run_folder, lab.newest() + 10, code="error")
    assert "is full (QuotaExceeded)" in done.stderr, done.stderr
    assert len(small_run.losses(lab.run_folder)) == before + 10, done.stderr
    unchanged()
    lab.server.admin("quota", "disable", *quota[1:])
    lab.tutti(*prepare)
    assert "corpora/other.pending" not in lab.objects(), lab.objects()
    lab.resumes(10)
    losses = {}
    for step, loss in small_run.losses(lab.run_folder):
        assert losses.setdefault(step, loss) == loss, f"step {step}: another loss when it was repeated"


PAGE = b"<html><body>Please log in</body></html>"


def answers(lab):
    """Lists that end in the middle, and a page of a hotel's network instead of them."""
    for fault, said in (("malform", "the answer is not XML"), (PAGE, "the answer is <html>")):
        with Injector(lab.server.endpoint) as injector:
            lists = []

            def decide(request):
                if "list-type=" not in request.target:
                    return None
                lists.append(request)
                return fault

            injector.decide = decide
            met = 0
            for words in lab.commands():
                lists.clear()
                done = lab.tutti(*words, code="any", AWS_ENDPOINT_URL_S3=injector.endpoint)
                met += bool(lists)
                said_so = done.returncode != 0 and said in done.stdout + done.stderr
                assert said_so or not lists, f"{words}: {done.stdout}{done.stderr}"
                kept = {key: tag for key, tag in lab.objects().items() if key in lab.kept}
                assert kept == lab.kept, f"{words}: something is lost"
            assert met >= 5, f"only {met} commands ask for a list"
    lab.resumes(5)


def main():
    with tempfile.TemporaryDirectory() as folder, s3_servers.make("ceph", folder) as server:
        lab = Lab(server, os.path.realpath(folder))
        for case in (credentials, buckets, clocks, full, answers):
            case(lab)
            print(f"{case.__name__}: well", flush=True)


if __name__ == "__main__":
    apart()
    sys.exit(run_or_skip(main))
