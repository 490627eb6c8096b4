"""A real Prometheus scrapes a running training: its query API returns what the run says in
events.jsonl, promtool finds nothing to criticise, and a taken port is a clear error."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import small_run

if not shutil.which("prometheus") or not shutil.which("promtool"):
    print("skipped: Prometheus is not installed")
    sys.exit(77)

CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: tutti
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


class Query:
    def __init__(self, port):
        self.port = port

    def __call__(self, expression):
        """[(labels, value)] of an instant query; nothing while Prometheus starts."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            answer = json.loads(get(self.port, path))
        except OSError:
            return []
        assert answer["status"] == "success", answer
        return [(r["metric"], float(r["value"][1])) for r in answer["data"]["result"]]

    def some(self, expression):
        """As soon as there are values: a scrape that took too long leaves a gap until the next."""
        end = time.monotonic() + 60
        while not (results := self(expression)):
            assert time.monotonic() < end, expression
            time.sleep(0.2)
        return results

    def one(self, expression):
        results = self.some(expression)
        assert len(results) == 1, (expression, results)
        return results[0][1]


def check_values(query, run):
    end = time.monotonic() + 60
    while not (query("tutti_validation_loss") and query("tutti_tokens_total > 0")):
        assert time.monotonic() < end, "nothing was scraped"
        time.sleep(0.2)
    loss, count = query.one("tutti_loss"), query.one("tutti_step_seconds_count")
    events = small_run.events(run)  # all that these values can know of
    steps = [e for e in events if e["event"] == "step_done"]
    assert any(e["loss"] == loss for e in steps), loss
    assert query.one("tutti_learning_rate") == steps[0]["learning_rate"]
    tokens = query.one("tutti_tokens_total")
    assert tokens > 0 and tokens % 128 == 0, tokens  # 4 sequences of 32
    assert 0 < count <= len(steps), (count, len(steps))
    assert query.one("tutti_step_seconds_sum") > 0
    assert query.one('tutti_step_seconds_bucket{le="+Inf"}') > 0
    assert 0 < query.one("tutti_mfu_ratio") < 2
    assert query.one("tutti_gradient_norm") > 0
    query.some("tutti_checkpoint_stall_seconds_count > 0")  # once the first is written
    assert query.one("tutti_target_loss") == 0.001
    info = query.some("tutti_info")
    assert info[0][1] == 1 and info[0][0]["run"] == run, info
    kinds = {labels["kind"]: value for labels, value in query.some("tutti_memory_bytes")}
    assert kinds["resident"] > 1 << 20 and kinds["weights"] > 0, kinds
    memory = [e for e in events if e["event"] == "memory_measured"][-1]
    assert kinds["weights"] == dict((k["kind"], k["bytes"]) for k in memory["kinds"])["weights"]
    # Two scrapes later there is a rate to take.
    end = time.monotonic() + 60
    while not query("rate(tutti_tokens_total[60s]) > 0"):
        assert time.monotonic() < end, "no rate"
        time.sleep(0.2)


def check_lint(port):
    text = get(port, "/metrics")
    assert text.endswith("\n")
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                          capture_output=True)
    assert lint.returncode == 0 and not lint.stderr, (lint.stdout, lint.stderr)


def check_taken_port(recipe, folder, port):
    second = subprocess.run(
        [small_run.TUTTI, "train", recipe, "--run", os.path.join(folder, "second"),
         f"telemetry.metrics_port={port}"], capture_output=True, text=True)
    assert second.returncode == 1, second
    message = second.stderr.strip().split("\n")[-1]
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in message, message


def main():
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        run, corpus = os.path.join(folder, "run"), os.path.join(folder, "corpus")
        port, own_port = free_port(), free_port()
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w") as file:
            file.write(CONFIG.format(port=port))
        processes = []
        try:
            processes.append(small_run.start(
                recipe, run, f"telemetry.metrics_port={port}", f"data.validation={corpus}",
                "evaluate.every_steps=20", "evaluate.samples=4", "train.target_loss=0.001",
                "schedule.kind=constant"))
            processes.append(subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address=127.0.0.1:{own_port}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            check_values(Query(own_port), run)
            check_lint(port)
            check_taken_port(recipe, folder, port)
            # A run with metrics ends as soon as one without.
            asked = time.monotonic()
            processes[0].send_signal(signal.SIGTERM)
            assert processes[0].wait(timeout=120) == 75
            ended = time.monotonic() - asked
        finally:
            for process in processes:
                process.kill()
                process.wait()
    print(f"Prometheus scraped a running training, which ended {ended:.2f} s after SIGTERM")


if __name__ == "__main__":
    main()
