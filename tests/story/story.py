"""One story through the whole machine, in minutes: `make story`.

A real Slurm of four virtual nodes and an S3 server start. A restricted corpus is prepared into a
bucket; who may not train on it is refused, and by which rule. The plan says time, money and energy; a
job within a budget trains on two nodes until one of them dies and a spare takes over; its checkpoints
land in the bucket; the target is reached, and the forecast stands beside what happened. An MLPerf run
is checked and scored. The checkpoint is verified, approved, exported and answers a prompt; the audit
log verifies and the ledger adds up.

Every number that is printed is checked. Writes OUT/index.html and what it links to. Needs root for
Slurm's daemons and network of this host only."""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.setdefault("TUTTI_SOURCE_DIR", os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..")))
os.environ.setdefault("TUTTI_BINARY", os.path.join(SOURCE, "build", "release", "tutti"))
for folder in ("ranks", "serve", "endpoint"):
    sys.path.insert(0, os.path.join(SOURCE, "tests", folder))
from endpoint_server import Endpoint  # noqa: E402
import rank_runs  # noqa: E402
import slurm_cluster  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402
from page_server import Server  # noqa: E402
from slurm_cluster import wait_until  # noqa: E402
from story_page import loss_curve, table, write_page  # noqa: E402

TUTTI = rank_runs.TUTTI

# Silence of a node counts as its end after ten seconds.
SLURM = "SlurmdTimeout=10\nKillWait=15\n"
USD_PER_NODE_HOUR = 3.60
WATTS_PER_NODE = 400
BUDGET_USD = 20
RECIPE = "mlperf/tutti-mini"
STEPS = 640  # more than it takes: about 520 reach the target
CORPUS = "s3://story/corpora/letters"
DATA = [f"data.train={CORPUS}", f"data.validation={CORPUS}-validation"]
# The same model and target without the clock of MLPerf: such a run may be resumed, and saves.
PRODUCTION = ['mlperf.benchmark=""', "checkpoint.every_steps=100", "checkpoint.every_seconds=0",
              "checkpoint.store=s3://story/runs", *DATA]


class Story:
    """What has happened so far: chapters for the page, and the commands' folder and environment."""

    def __init__(self, folder, environment):
        self.folder = folder
        self.environment = dict(environment, XDG_DATA_HOME=folder, OMP_NUM_THREADS="1",
                                TUTTI_CONTROL=os.path.join(folder, "control"))
        self.users = {}
        self.chapters = []
        self.begin = time.monotonic()

    def chapter(self, need, title):
        """Begins a chapter that answers `need`."""
        self.chapters.append({"need": need, "title": title, "lines": [], "pictures": []})
        print(f"\n[{time.monotonic() - self.begin:4.0f} s] {title}\n         \"{need}\"", flush=True)

    def say(self, text):
        self.chapters[-1]["lines"].append(("fact", text))
        print(f"         {text}", flush=True)

    def run(self, *words, user=None, code=0, shown=True, **variables):
        """Runs `tutti` with --json as a user; its parsed result."""
        if shown:
            line = "tutti " + " ".join(words)
            self.chapters[-1]["lines"].append(("command", (f"{user}$ " if user else "$ ") + line))
        done = subprocess.run([TUTTI, *words, "--json"], cwd=self.folder, capture_output=True, text=True,
                              env={**self.users.get(user, self.environment), **variables}, check=False)
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def refused(self, *words, user, code):
        message = self.run(*words, user=user, code=code)["error"]["message"]
        self.say(f"refused: {message}")
        return message

    def add_user(self, name, role=None):
        self.run("admin", "user", name, shown=False)
        if role:
            self.run("admin", "grant", name, role, "--project", "vision", shown=False)
        token = self.run("admin", "token", "--user", name, shown=False)["token"]
        self.users[name] = dict(self.environment, TUTTI_TOKEN=token)

    def events(self, run, kind):
        return [event for event in rank_runs.events(os.path.join(self.folder, run)) if event["event"] == kind]

    def wait_for_job(self, job, seconds):
        state = {}

        def ended():
            state.update(self.run("show", str(job), shown=False))
            return state["state"] not in ("PENDING", "CONFIGURING", "RUNNING", "REQUEUED", "COMPLETING")

        wait_until(ended, f"the end of job {job}", seconds, why=lambda: json.dumps(state, indent=1)[-3000:])
        return state


class Store:
    """An S3 server of this process with one bucket. Its credentials are in a file whose path jobs get."""

    def __init__(self, folder):
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        secrets = os.path.join(folder, "credentials")
        with open(secrets, "w") as file:
            file.write("[default]\naws_access_key_id = story\naws_secret_access_key = story-secret\n")
        os.environ.update(AWS_SHARED_CREDENTIALS_FILE=secrets, AWS_ENDPOINT_URL_S3=f"http://{host}:{port}",
                          AWS_REGION="us-east-1", TUTTI_CACHE=os.path.join(folder, "cache"), no_proxy="*")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            os.environ.pop(name, None)
        import boto3
        self.client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"], region_name="us-east-1",
                                   aws_access_key_id="story", aws_secret_access_key="story-secret")
        self.client.create_bucket(Bucket="story")

    def objects(self, prefix):
        """Size in bytes of every object, by key."""
        found = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket="story", Prefix=prefix):
            found.update({entry["Key"]: entry["Size"] for entry in page.get("Contents", [])})
        return found


def close(value, expected, share):
    return abs(value - expected) <= share * abs(expected)


def the_site(story, cluster):
    story.chapter("Which machines are there, what do they cost, and what may they hold?", "Four nodes under Slurm")
    story.say(f"slurmctld and {slurm_cluster.NODES} slurmd run; {slurm_cluster.NODES} nodes are idle")
    assert cluster.is_ready()
    site = story.run("admin", "site", "--name", "lab", "--region", "eu", "--data", "restricted", "--scheduler", "slurm",
                     "--allow-keys", "checkpoint.store", "--usd-per-node-hour", str(USD_PER_NODE_HOUR), "--watts-per-node", str(WATTS_PER_NODE))
    assert site["usd_per_node_hour"] == USD_PER_NODE_HOUR and site["highest_data_class"] == "restricted", site
    story.run("admin", "project", "vision", "--usd", str(BUDGET_USD))
    for name, role in (("ada", "submitter"), ("eve", None), ("olga", "operator")):
        story.add_user(name, role)
    story.say(f"project vision may spend {BUDGET_USD:.2f} USD; ada may submit, olga operates, eve may do nothing")


def the_data(story, store):
    story.chapter("Whose data is it, and what may be done with it?", "A restricted corpus in a bucket, with its licence")
    story.run("data", "synthesize", "--documents", "6000", "--out", "letters.jsonl")
    made = story.run("data", "prepare", "letters.jsonl", "--out", CORPUS, "--tokenizer", "byte", "--holdout",
                     "0.05", "--data-class", "restricted", "--licence", "proprietary")
    training, held_out = made["training"], made["validation"]
    assert training["documents"] + held_out["documents"] == 6000, made
    assert made["sources"][0]["data_class"] == "restricted", made
    story.say(f"{training['documents']:,} documents, {training['tokens']:,} tokens to train on, "
              f"{held_out['documents']} documents held out")
    kept = store.objects("corpora/")
    assert {f"corpora/letters{part}.bin" for part in ("", "-validation")} <= set(kept), kept
    story.say(f"{len(kept)} objects, {sum(kept.values()) / 1e6:.1f} MB, are in the bucket; nothing of it is on this disk")


def the_refusals(story):
    story.chapter("Who may train on it, and what stops everybody else?", "Refused, each by its rule")
    words = ("submit", RECIPE, "--project", "vision", *PRODUCTION, "--yes")
    assert "may not submit" in story.refused(*words, user="eve", code=1)
    assert "rule 3" in story.refused(*words, user="ada", code=2)
    story.run("admin", "project", "vision", "--regions", "eu")
    assert "left" in story.refused(*words, "train.steps=400000", user="ada", code=2)
    assert story.run("queue", "--all", shown=False)["jobs"] == [], "a refused submission left a job"
    story.say("nothing of these reached Slurm")


def production(steps):
    return (RECIPE, "--project", "vision", "--nodes", "2", "--spares", "1", *PRODUCTION, f"train.steps={steps}")


def the_plan(story, steps):
    story.chapter("What will it cost, in time, money and energy, before anything runs?", "The plan, from a short measured run")
    story.run("train", RECIPE, *PRODUCTION, "checkpoint.store=", "train.steps=40", "--trace", "8", "--run", "probe", OMP_NUM_THREADS="2")
    probe = sorted(event["step_seconds"] for event in story.events("probe", "step_done")[10:])
    story.run("plan", "calibrate", "probe", "--out", "catalog", OMP_NUM_THREADS="2")
    forecast = story.run("submit", *production(steps), "--catalog", "catalog", "--dry-run", user="ada")["forecast"]
    assert forecast["seconds"] > 0 and forecast["usd"] > 0 and forecast["kwh"] > 0, forecast
    story.say(f"{steps} steps: {forecast['seconds']:.0f} s, {forecast['usd']:.4f} USD, {forecast['kwh']:.5f} kWh "
              f"({forecast['basis']}); a step of the probe took {1000 * probe[len(probe) // 2]:.0f} ms")
    return forecast


def the_fault(story, cluster, store, steps):
    story.chapter("What happens when a node dies at hour nine?", "A node is killed, a spare takes over")
    job = story.run("submit", *production(steps), "--catalog", "catalog", "--run", "model", "--usd", str(BUDGET_USD / 2), "--yes",
                    "--no-start", user="ada")["job"]
    wait_until(lambda: len(story.events("model", "step_done")) >= 150, "step 150", 600)
    nodes = story.run("show", str(job), shown=False)["launches"][-1]["nodes"]
    story.say(f"job {job} trains on {nodes[0]} and {nodes[1]}, {nodes[2]} is its spare; step 150 is done")
    cluster.kill_node(nodes[1])
    for path in glob.glob(os.path.join(story.folder, f"tutti-*-{nodes[1]}")):  # its memory goes with it
        shutil.rmtree(path)
    ended = story.wait_for_job(job, 900)
    assert ended["state"] == "COMPLETED" and len(ended["launches"]) == 1, ended
    incident, = ended["incidents"]
    assert incident["node"] == nodes[1] and nodes[2] in incident["action"], incident
    assert incident["lost_steps"] <= 1 and incident["lost_usd"] > 0, incident
    done = [event["step"] for event in story.events("model", "step_done")]
    assert set(done) == set(range(1, max(done) + 1)), "a step was left out"
    assert len(done) - max(done) <= 2, "more than the step of the fault was computed again"
    story.say(f"{nodes[1]} was killed after step {150}; {incident['detail']}; {incident['action']}; lost: "
              f"{incident['lost_steps']} steps, {incident['lost_seconds']:.1f} s, {incident['lost_usd']:.4f} USD")
    saved = store.objects("runs/model/checkpoints/")
    manifests = sorted(key for key in saved if key.endswith("/manifest.json"))
    assert manifests and not os.path.exists(os.path.join(story.folder, "model", "checkpoints")), saved
    story.say(f"checkpoints are in the bucket alone: {len(manifests)} manifests, {sum(saved.values()) / 1e6:.1f} MB")
    with open(os.path.join(story.folder, "control", "incidents", f"{incident['incident']:06}.json")) as file:
        assert json.load(file)["job"] == job
    return ended, incident


def the_target(story, ended, incident, forecast, steps):
    story.chapter("Did it reach the quality that was asked for, and at the forecast cost?", "Forecast beside actual")
    finished = story.events("model", "run_finished")[-1]["summary"]
    assert finished["reached_target"] and finished["validation_loss"] <= 0.75, finished
    spent, share = ended["spent"], finished["steps"] / steps
    hours = ended["run_seconds"] * 3 / 3600  # two nodes and the spare
    assert close(spent["node_hours"], hours, 0.01), spent
    assert close(spent["usd"], spent["node_hours"] * USD_PER_NODE_HOUR, 0.001), spent
    assert close(spent["kwh"], spent["node_hours"] * WATTS_PER_NODE / 1000, 0.001), spent
    story.say(f"target 0.75 reached at step {finished['steps']} of {steps}: {finished['validation_loss']:.4f} nats per "
              f"byte on documents held out")
    rows = []
    for name, unit, expected, actual in (
            ("time", "s", forecast["seconds"] * share, ended["run_seconds"]),
            ("money", "USD", forecast["usd"] * share, spent["usd"]), ("energy", "kWh", forecast["kwh"] * share, spent["kwh"])):
        rows.append((f"{name}, {unit}", f"{expected:.4g}", f"{actual:.4g}", f"{100 * (expected / actual - 1):+.0f}%"))
        story.say(f"{name}: forecast {expected:.4g} {unit} for these steps, actual {actual:.4g} ({rows[-1][3]})")
        assert 1 / 4 < expected / actual < 4, rows[-1]
    story.say(f"CO2e {spent['co2e_kg'] * 1000:.2f} g, water {spent['water_liters']:.3f} l")
    losses = [(event["step"], event["loss"]) for event in story.events("model", "step_done")]
    killed = max(step for step, _ in losses[:150])
    story.chapters[-1]["pictures"] += [loss_curve(losses, [(killed, f"{incident['node']} dies")], 0.75),
                                       table(("", "forecast", "actual", "error"), rows)]


def the_result(story):
    story.chapter("Is the result one that others can check?", "An MLPerf run, checked and scored")
    job = story.run("submit", RECIPE, "--project", "vision", *DATA, "train.steps=640", "--run", "measured", "--name", "measured", "--yes",
                    "--no-start", user="ada")["job"]
    ended = story.wait_for_job(job, 900)
    assert ended["state"] == "COMPLETED", ended
    results = os.path.join(story.folder, "results")
    os.mkdir(results)
    shutil.copy(os.path.join(story.folder, "measured", "mlperf.log"), os.path.join(results, "result_0.txt"))
    checked = story.run("mlperf", "check", "results/result_0.txt", "--ruleset", "tutti-1")
    assert checked["compliant"], checked
    result, = story.run("mlperf", "score", "results", "--ruleset", "tutti-1", code=1)["results"]
    stretch = story.events("measured", "run_finished")[-1]["summary"]["time_to_target_seconds"]
    assert close(result["raw_minutes"] * 60, stretch, 0.05), (result, stretch)
    story.say(f"the log complies; {result['raw_minutes']:.3f} minutes to the target, one run; a score takes five")
    return ended


def the_model(story):
    story.chapter("Where did this model come from, who approved it, and what can it do?", "Verified, approved, exported, served, asked")
    assert story.run("checkpoint", "verify", "model")["intact"]
    assert "ada may not" in story.refused("checkpoint", "approve", "model", "--remark", "fit for use", user="ada", code=1)
    approved = story.run("checkpoint", "approve", "model", "--remark", "fit for use", user="olga")
    lineage = story.run("checkpoint", "lineage", "model")
    assert lineage["approvals"][-1]["who"] == approved["who"] == "olga", lineage["approvals"]
    assert lineage["manifest_sha256"] == approved["manifest_sha256"], lineage
    assert {corpus["data_class"] for corpus in lineage["corpora"]} == {"restricted"}, lineage["corpora"]
    assert lineage["job"]["user"] == "ada" and lineage["recipe"]["is_the_recorded_one"], lineage["job"]
    story.say(f"lineage: {len(lineage['corpora'])} corpora, licence {lineage['corpora'][0]['licence']}, restricted; recipe "
              f"{lineage['recipe']['hash']}; job {lineage['job']['job']} of ada; approved by olga")
    story.run("checkpoint", "export", "model", "--out", "exported", "--dtype", "bf16")
    assert os.path.getsize(os.path.join(story.folder, "exported", "model.safetensors")) > 0
    with open(os.path.join(story.folder, "letters.jsonl")) as file:
        words = json.loads(file.readline())["text"]
    answer = story.run("generate", "model", "--prompt", words[:40], "--tokens", "60", "--temperature", "0")["text"]
    with open(os.path.join(story.folder, "letters.jsonl")) as file:
        known = set(file.read().replace(".", " ").replace("\\n", " ").split())
    whole = answer.replace(".", " ").split()[1:-1]  # the first and the last may be cut
    assert sum(word in known for word in whole) >= 0.7 * len(whole), (answer, whole)
    story.chapters[-1]["lines"].append(("command", "$ tutti endpoint model --port 8000"))
    endpoint = Endpoint(story.folder, os.path.join(story.folder, "model"))
    try:
        status, text, _ = endpoint.ask("POST", "/v1/completions", {
            "model": "model", "prompt": words[:40], "max_tokens": 60, "temperature": 0})
        served = json.loads(text)
        assert status == 200 and served["usage"]["completion_tokens"] <= 60, served
        assert served["choices"][0]["text"] == answer, (served, answer)
    finally:
        endpoint.process.terminate()
        assert endpoint.process.wait(timeout=60) == 0
    story.say(f"asked to continue {words[:40]!r} it writes {answer!r}: words of the language that it was taught; its HTTP endpoint answers the same")


def the_books(story, jobs):
    story.chapter("Who did what, what was spent, and can anyone change the record?", "Audit log and ledger")
    verified = story.run("audit", "verify")
    assert verified["intact"], verified
    lines = story.run("audit", "show", "--most", "1000", shown=False)["lines"]
    denied = [line for line in lines if not line["allowed"]]
    assert len(denied) >= 3 and {"fault", "node down", "approve"} <= {line["what"] for line in lines}, lines
    ledger = story.run("ledger", "--month", "all")
    by_job = {entry["job"]: entry for entry in ledger["jobs"]}
    assert set(by_job) == {job["job"] for job in jobs}, by_job
    total, = ledger["projects"]
    for unit in ("node_hours", "usd", "kwh"):
        assert abs(sum(entry[unit] for entry in by_job.values()) - total[unit]) < 2e-6, (unit, ledger)
    assert total["usd"] <= BUDGET_USD, total
    story.say(f"{len(lines)} lines, each with the hash of the one before: intact; {len(denied)} requests were denied")
    story.say(f"{len(by_job)} jobs, {total['usd']:.4f} of {BUDGET_USD:.2f} USD, {total['kwh']:.5f} kWh: the ledger's sums agree")


def the_page(story):
    story.chapter("Where do I see all of it?", "One page for everybody, each with their own view")
    server = Server(story)
    try:
        for name, sees in (("olga", True), ("eve", False)):
            token = story.users[name]["TUTTI_TOKEN"]
            status, text, _ = server.ask("GET", "/", cookie=server.log_in(token))
            assert status == 200 and ("measured" in text) == sees, (name, status)
        story.say("tutti serve: olga sees jobs, nodes, budgets, incidents and the audit log; eve sees none of them")
    finally:
        code, log = server.close()
        assert code == 0, log


def run_story(out, steps):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cluster_folder:
        store = Store(folder)
        with slurm_cluster.Cluster(cluster_folder, SLURM) as cluster:
            story = Story(folder, dict(cluster.environment, MASTER_ADDR="127.0.0.1", TUTTI_MEMORY_ROOT=folder))
            the_site(story, cluster)
            the_data(story, store)
            the_refusals(story)
            forecast = the_plan(story, steps)
            with open(os.path.join(folder, "controller.log"), "w") as log:
                controller = subprocess.Popen([TUTTI, "controller", "run"], cwd=folder, stdout=log, stderr=log,
                                              env=story.environment)
            try:
                ended, incident = the_fault(story, cluster, store, steps)
                the_target(story, ended, incident, forecast, steps)
                measured = the_result(story)
                the_model(story)
            finally:
                controller.terminate()
                controller.wait()
            the_books(story, [ended, measured])
            the_page(story)
            shutil.copy(os.path.join(folder, "model", "report.html"), os.path.join(out, "run.html"))
        store.server.stop()
    seconds = time.monotonic() - story.begin
    write_page(out, story.chapters, seconds)
    print(f"\n{len(story.chapters)} chapters in {seconds:.0f} s: {os.path.join(out, 'index.html')}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", help="folder for the page; default: a temporary one, removed at the end")
    out = arguments.parse_args().out
    if out:
        os.makedirs(out, exist_ok=True)
        return rank_runs.main(lambda: run_story(os.path.abspath(out), STEPS))
    with tempfile.TemporaryDirectory() as folder:
        return rank_runs.main(lambda: run_story(folder, STEPS))


if __name__ == "__main__":
    slurm_cluster.apart()
    sys.exit(main())
