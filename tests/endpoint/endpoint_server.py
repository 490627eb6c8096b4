"""A tiny trained model and `tutti endpoint` on it: for tests."""

import http.client
import json
import os
import pathlib
import re
import subprocess
import tempfile

TUTTI = os.environ["TUTTI_BINARY"]

# As ChatML, in bytes.
CHAT_TEMPLATE = """{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""

TEXT = "The quick brown fox jumps over the lazy dog. It is 7 o'clock, caf\u00e9 time: \u20ac 5. " * 40


def tutti(folder, *arguments):
    done = subprocess.run([TUTTI, *map(str, arguments), "--json"], cwd=folder, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, (arguments, done.stderr)
    return json.loads(done.stdout)


def train_tiny(folder):
    """Two run folders of a model of bytes: plain, and chat with a chat template."""
    folder = pathlib.Path(folder)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    tutti(folder, "data", "prepare", "text.txt", "--out", "corpus", "--tokenizer", "byte")
    (folder / "tiny.yaml").write_text("""
model: {name: tiny, layers: 2, hidden: 32, heads: 2, kv_heads: 1, ffn: 64, vocabulary: 257,
        context: 256, norm: rms, activation: swiglu, positions: rope, linear_bias: false,
        tied_embeddings: true}
precision: f32
threads: 1
run: {name: plain}
data: {train: corpus}
batch: {global: 4, micro: 4, sequence: 64}
optimizer: {learning_rate: 1e-2}
train: {steps: 300, seed: 1}
""")
    tutti(folder, "train", "tiny.yaml")
    plain = folder / "runs" / "plain"
    assert plain.is_dir(), list((folder / "runs").iterdir())
    chat = folder / "runs" / "chat"
    subprocess.run(["cp", "-r", plain, chat], check=True)
    (chat / "tokenizer").mkdir(exist_ok=True)
    (chat / "tokenizer" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return plain, chat


def train_adapter(folder, name, text, targets):
    """A run of adapters on the plain model, tuned to another text."""
    folder = pathlib.Path(folder)
    (folder / f"{name}.txt").write_text(text * 60, encoding="utf-8")
    tutti(folder, "data", "prepare", f"{name}.txt", "--out", f"{name}-corpus", "--tokenizer",
          "byte")
    tutti(folder, "train", "tiny.yaml", f"run.name={name}", f"data.train={name}-corpus",
          "checkpoint.initialize_from=runs/plain", "lora.rank=4", f"lora.targets={targets}",
          "train.steps=60")
    return folder / "runs" / name


class Endpoint:
    """`tutti endpoint`, and plain requests to it."""

    def __init__(self, folder, *arguments):
        command = [TUTTI, "endpoint", "--port", "0", "--json", *map(str, arguments)]
        self.log = tempfile.TemporaryFile("w+", dir=folder)
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True,
                                        stderr=self.log)
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise AssertionError(self.log.read())
        self.start = json.loads(line)
        self.port = self.start["port"]
        self.url = self.start["url"]

    def ask(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text, answer.headers

    def metrics(self):
        """Values by name and, where there are several models, the first one's."""
        status, text, _ = self.ask("GET", "/metrics")
        assert status == 200, text
        found = {}
        for line in text.decode().splitlines():
            match = re.match(r"([a-z_:0-9]+)(\{.*\})? (\S+)$", line)
            if match and not line.startswith("#"):
                found.setdefault(match.group(1), float(match.group(3)))
        return found

    def close(self, signalled=False):
        """Ends it by SIGTERM, if it has not got one; its exit code and its log."""
        if self.process.poll() is None and not signalled:
            self.process.terminate()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.seek(0)
        text = self.log.read()
        self.log.close()
        return code, text
