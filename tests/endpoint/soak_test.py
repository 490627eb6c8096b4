"""An endpoint under load for a minute (TUTTI_TEST_SECONDS: longer): requests of all kinds, clients that
leave, a queue that overflows. Afterwards nothing runs, no page is kept, no memory grows, and a text
is what it was."""

import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from endpoint_server import TEXT, Endpoint, train_tiny  # noqa: E402

SECONDS = float(os.environ.get("TUTTI_TEST_SECONDS", "60"))
CLIENTS = 12
MOST_GROWTH_BYTES = 64 << 20


def resident_bytes(process):
    pages = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def one_request(client, chance, counts):
    prompt = TEXT[chance.randrange(60):][:chance.randrange(1, 120)]
    options = {"max_tokens": chance.randrange(1, 100), "temperature": chance.choice([0, 1, 2]),
               "n": chance.choice([1, 1, 1, 3])}
    if chance.random() < 0.3:
        options["stop"] = [chance.choice(["the", " ", "\u00e9"])]
    if chance.random() < 0.3:
        stream = client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": prompt[:100]}], stream=True,
            **options)
    else:
        stream = client.completions.create(model="chat", prompt=prompt, stream=True, **options)
    leaves = chance.random() < 0.2
    for number, _ in enumerate(stream):
        if leaves and number > 3:
            stream.close()
            counts["left"] += 1
            return
    counts["answered"] += 1


def load(endpoint, seed, end, counts, failures):
    client = openai.OpenAI(base_url=endpoint.url + "v1", api_key="none", max_retries=0, timeout=60)
    chance = random.Random(seed)
    while time.monotonic() < end:
        try:
            one_request(client, chance, counts)
        except openai.RateLimitError:
            counts["refused"] += 1
            time.sleep(0.05)
        except Exception as error:
            failures.append(repr(error))
            return


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-soak-") as folder:
        _, chat = train_tiny(folder)
        endpoint = Endpoint(folder, chat, "--max-sequences", 4, "--max-waiting", 6,
                            "--batch-invariant", "--threads", 1, "--cache", "1MiB")
        probe = {"model": "chat", "prompt": "The quick", "max_tokens": 32, "temperature": 0}
        before = json.loads(endpoint.ask("POST", "/v1/completions", probe)[1])["choices"]
        counts = dict.fromkeys(("answered", "left", "refused"), 0)
        failures = []
        grown = []
        end = time.monotonic() + SECONDS
        threads = [threading.Thread(target=load, args=(endpoint, i, end, counts, failures))
                   for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            grown.append(resident_bytes(endpoint.process))
            time.sleep(0.5)
        for thread in threads:
            thread.join()
        assert not failures, failures
        settled = time.monotonic() + 30
        while endpoint.metrics()["vllm:num_requests_running"] > 0:
            assert time.monotonic() < settled, "requests still run"
            time.sleep(0.05)
        metrics = endpoint.metrics()
        assert metrics["vllm:num_requests_waiting"] == 0, metrics
        assert metrics["tutti_endpoint_cache_pages_used"] == 0, metrics
        after = json.loads(endpoint.ask("POST", "/v1/completions", probe)[1])["choices"]
        assert after == before, (before, after)
        half = len(grown) // 2
        growth = max(grown[half:]) - max(grown[:half])
        assert growth < MOST_GROWTH_BYTES, growth
        code, log = endpoint.close()
        assert code == 0, log
        assert counts["answered"] > 10 and counts["left"] > 0, counts
        print(f"{counts}, {metrics['vllm:num_preemptions_total']:.0f} preemptions, resident "
              f"{grown[-1] / 2**20:.0f} MiB, {growth / 2**20:+.1f} MiB in the second half")


if __name__ == "__main__":
    main()
