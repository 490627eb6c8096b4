"""Every route of `tutti endpoint` through OpenAI's client and plain requests: answers, streams, equal
answers alone and side by side, clients that leave, invalid requests, limits, keys, and its end."""

import concurrent.futures
import contextlib
import json
import pathlib
import re
import resource
import signal
import socket
import sys
import tempfile
import time

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from endpoint_server import TEXT, Endpoint, train_adapter, train_tiny, tutti  # noqa: E402

PATIENCE_SECONDS = 60
IDLE_CONNECTIONS = 1000


def client_of(endpoint, key="none"):
    return openai.OpenAI(base_url=endpoint.url + "v1", api_key=key, max_retries=0, timeout=60)


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def completions(client):
    answer = client.completions.create(model="plain", prompt="The quick", max_tokens=24,
                                       temperature=0)
    text = answer.choices[0].text
    assert answer.object == "text_completion" and answer.model == "plain"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == 9 and answer.usage.completion_tokens == 24
    assert text.startswith(" brown"), text  # it has learnt its text
    # As tokens, with an echo, several at once.
    same = client.completions.create(model="plain", prompt=list(b"The quick"), max_tokens=24,
                                     temperature=0, echo=True)
    assert same.choices[0].text == "The quick" + text, same
    several = client.completions.create(model="plain", prompt=["The quick", "It is 7"], n=2,
                                        max_tokens=8, temperature=0)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text == text[:8]
    assert several.choices[2].text == several.choices[3].text != text[:8]
    assert several.usage.prompt_tokens == 16 and several.usage.completion_tokens == 32

    stream = client.completions.create(model="plain", prompt="The quick", max_tokens=24,
                                       temperature=0, stream=True,
                                       stream_options={"include_usage": True})
    events = list(stream)
    assert "".join(c.text for e in events for c in e.choices) == text
    assert len(events) > 10, "the text comes as it is made"
    assert events[-1].usage.completion_tokens == 24 and not events[-1].choices
    return text


def stops(client, text):
    word = text[3:7]
    for stream in (False, True):
        answer = client.completions.create(model="plain", prompt="The quick", max_tokens=24,
                                           temperature=0, stop=[word], stream=stream)
        events = list(answer) if stream else [answer]
        got = "".join(c.text for e in events for c in e.choices)
        assert got == text[:text.index(word)], (got, text)
        assert events[-1].choices[0].finish_reason == "stop"


def seeds_and_logprobs(client):
    def draw(**options):
        return client.completions.create(model="plain", prompt="The", max_tokens=16,
                                         **options).choices[0]
    assert draw(seed=5).text == draw(seed=5).text
    assert len({draw(seed=seed, temperature=1.5).text for seed in range(6)}) > 1
    biased = draw(temperature=0, logit_bias={str(ord("z")): 100})
    assert biased.text == "z" * 16, biased.text
    entry = draw(temperature=0, logprobs=3).logprobs
    assert len(entry.tokens) == len(entry.token_logprobs) == len(entry.text_offset) == 16
    for token, logprob, top in zip(entry.tokens, entry.token_logprobs, entry.top_logprobs):
        assert top[token] == logprob == max(top.values()) <= 0 and len(top) <= 4
    chat = client.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "x"}], max_tokens=5, temperature=0,
        logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(chat) == 5 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in chat)
    assert bytes(b for t in chat for b in t.bytes)


def chats(client):
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "The quick"}]}]
    answer = client.chat.completions.create(model="chat", messages=messages, max_tokens=12,
                                            temperature=0)
    message = answer.choices[0].message
    assert message.role == "assistant" and len(message.content.encode()) >= 12
    prompt = "system: Be brief.\nuser: The quick\nassistant:"
    assert answer.usage.prompt_tokens == len(prompt), answer.usage
    # The same as the text that the template writes.
    plain = client.completions.create(model="chat", prompt=prompt, max_tokens=12, temperature=0)
    assert plain.choices[0].text == message.content
    events = list(client.chat.completions.create(model="chat", messages=messages, temperature=0,
                                                 max_completion_tokens=12, stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    text = "".join(e.choices[0].delta.content or "" for e in events)
    assert text == message.content and events[-1].choices[0].finish_reason == "length"
    # The prompt is in the cache by now: whole pages of 16 tokens.
    again = client.chat.completions.create(model="chat", messages=messages, max_tokens=1)
    assert again.usage.prompt_tokens_details.cached_tokens == len(prompt) // 16 * 16, again.usage


def other_routes(endpoint, client):
    names = [model.id for model in client.models.list()]
    assert names == ["plain", "chat"], names
    assert client.models.retrieve("chat").chat is True
    assert client.models.retrieve("plain").chat is False
    status, text, _ = endpoint.ask("POST", "/tokenize", {"model": "plain", "prompt": "caf\u00e9"})
    tokens = json.loads(text)
    assert status == 200 and tokens["tokens"] == list("caf\u00e9".encode()), text
    assert tokens["count"] == 5 and tokens["max_model_len"] == 256
    status, text, _ = endpoint.ask("POST", "/detokenize",
                                   {"model": "plain", "tokens": tokens["tokens"]})
    assert status == 200 and json.loads(text)["prompt"] == "caf\u00e9", text
    status, text, _ = endpoint.ask("POST", "/tokenize", {
        "model": "chat", "messages": [{"role": "user", "content": "x"}]})
    assert json.loads(text)["count"] == len("user: x\nassistant:"), text
    assert endpoint.ask("GET", "/health")[0] == 200
    status, text, headers = endpoint.ask("GET", "/")
    policy = headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-(\w+)'", policy).group(1)
    assert status == 200 and f'<script nonce="{nonce}">'.encode() in text
    assert "default-src 'none'" in policy and b"http://" not in text and b"https://" not in text
    metrics = endpoint.metrics()
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                 "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total",
                 "vllm:time_to_first_token_seconds_count", "tutti_endpoint_weight_bytes"):
        assert name in metrics, (name, metrics)
    assert metrics["vllm:generation_tokens_total"] > 100


def refusals(endpoint):
    def refused(status, path="/v1/completions", body=None, **members):
        if body is None:
            body = {"model": "plain", "prompt": "x", **members}
        got, text, headers = endpoint.ask("POST", path, body)
        error = json.loads(text)["error"]
        assert got == status and error["message"] and "type" in error, (got, text)
        return error, headers
    assert refused(404, model="none")[0]["code"] == "model_not_found"
    assert refused(400, max_tokens="many")[0]["param"] == "max_tokens"
    assert refused(400, tools=[{}])[0]["param"] == "tools"
    assert refused(400, prompt=[300])[0]["message"]  # not a token of the model
    assert refused(400, prompt="x" * 300)[0]["code"] == "context_length_exceeded"
    assert refused(400, max_tokens=1000)[0]["param"] == "max_tokens"
    refused(400, body=b'{"prompt": "\xff"}')
    refused(400, body="{")
    refused(400, body="[" * 100000)
    error, _ = refused(400, "/v1/chat/completions",
                       {"model": "plain", "messages": [{"role": "user", "content": "x"}]})
    assert error["code"] == "no_chat_template"
    refused(400, "/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "u"}}]}]})
    refused(404, "/v1/embeddings")
    status, text, headers = endpoint.ask("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST", text
    status, text, _ = endpoint.ask("POST", "/v1/completions", b"x" * (10 << 20))
    assert status == 413 and json.loads(text)["error"]["message"], text
    status, _, _ = endpoint.ask("GET", "/v1/models", headers={"Host": "evil.example"})
    assert status == 421, status
    status, _, _ = endpoint.ask("GET", "/v1/models", headers={"Origin": "http://evil.example"})
    assert status == 403, status


def side_by_side(client):
    """Sixteen clients at once get what each gets alone."""
    prompts = [TEXT[i * 7:i * 7 + 5 + 3 * i] for i in range(16)]

    def ask(prompt):
        return client.completions.create(model="plain", prompt=prompt, max_tokens=24,
                                         temperature=0).choices[0].text
    alone = [ask(prompt) for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, prompts))
    assert together == alone
    assert len(set(alone)) > 8


def leaving(endpoint):
    """A client that leaves in the middle of an answer frees what it used."""
    before = endpoint.metrics()
    body = json.dumps({"model": "plain", "prompt": "x", "max_tokens": 250, "stream": True,
                       "ignore_eos": True, "temperature": 2, "n": 16}).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.port)))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                           + str(len(body)).encode() + b"\r\n\r\n" + body)
            assert b"text/event-stream" in client.recv(4096)
    wait_until(lambda: endpoint.metrics()["vllm:num_requests_running"] == 0
               and endpoint.metrics()["vllm:num_requests_waiting"] == 0, "requests still run")
    after = endpoint.metrics()
    assert after["tutti_endpoint_cache_pages_used"] == before["tutti_endpoint_cache_pages_used"]
    written = after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
    assert written < 4 * 16 * 250, written


def idle(endpoint, client):
    """Connections that say nothing take nothing from others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(IDLE_CONNECTIONS, hard // 2 - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.port)))
        wait_until(lambda: endpoint.metrics()["tutti_endpoint_connections"] > count / 2,
                   "connections are not taken")
        answer = client.completions.create(model="plain", prompt="The", max_tokens=4)
        assert answer.usage.completion_tokens == 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return count


def adapters(folder, plain):
    """Adapters over one model: listed, each its own text, the merged model's, alone or mixed."""
    sea = train_adapter(folder, "sea", "The waves roll over the sand. ", "[qkv, output, mlp]")
    sky = train_adapter(folder, "sky", "The stars burn in the night. ", "[qkv, mlp]")
    tutti(folder, "checkpoint", "export-adapter", sky, "--out", "sky-peft")
    tutti(folder, "checkpoint", "merge", sea, "--out", "sea-merged")
    endpoint = Endpoint(folder, f"plain={plain}", "sea-merged", "--adapter", f"plain:sea={sea}",
                        "--adapter", "plain:peft=sky-peft", "--batch-invariant")
    client = client_of(endpoint)
    models = {model.id: model.parent for model in client.models.list()}
    assert models == {"plain": None, "sea": "plain", "peft": "plain", "sea-merged": None}, models
    assert client.models.retrieve("sea").parent == "plain"
    assert [a["name"] for a in endpoint.start["models"][0]["adapters"]] == ["sea", "peft"]

    def ask(asked):
        model, prompt = asked
        return client.completions.create(model=model, prompt=prompt, max_tokens=20,
                                         temperature=0).choices[0].text
    asked = [(model, prompt) for prompt in ("The ", "The quick", "It is 7 o'clock")
             for model in ("plain", "sea", "peft", "sea-merged")]
    alone = [ask(one) for one in asked]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, asked)) == alone
    texts = dict(zip(asked, alone))
    assert texts["sea", "The "].startswith("waves roll"), texts
    assert texts["peft", "The "].startswith("stars burn"), texts
    assert texts["plain", "The quick"].startswith(" brown"), texts
    for prompt in ("The ", "The quick", "It is 7 o'clock"):
        assert texts["sea", prompt] == texts["sea-merged", prompt], texts
    # A prompt that the model has in its cache is computed again for an adapter.
    prompt = "The night is long over the sand and the waves"

    def cached(model):
        usage = client.completions.create(model=model, prompt=prompt, max_tokens=1).usage
        return usage.prompt_tokens_details.cached_tokens
    assert [cached(model) for model in ("plain", "sea", "plain", "sea")] == [0, 0, 32, 32]
    status, text, _ = endpoint.ask("POST", "/v1/completions", {"model": "sky", "prompt": "x"})
    assert status == 404 and "peft" in json.loads(text)["error"]["message"], text
    _, text, _ = endpoint.ask("GET", "/metrics")
    assert b'model_name="plain"' in text and b'model_name="sea"' not in text
    code, log = endpoint.close()
    assert code == 0, log


def overload(folder, plain):
    """Beyond its queue an endpoint refuses, and says when to ask again."""
    endpoint = Endpoint(folder, f"plain={plain}", "--max-sequences", 1, "--max-waiting", 1)
    client = client_of(endpoint)

    def ask(_):
        try:
            client.completions.create(model="plain", prompt="x", max_tokens=200,
                                      extra_body={"ignore_eos": True})
            return 200
        except openai.RateLimitError as error:
            assert int(error.response.headers["retry-after"]) > 0
            assert error.code == "queue_full", error
            return 429
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(ask, range(12)))
    assert set(statuses) == {200, 429}, statuses
    code, log = endpoint.close()
    assert code == 0, log


def keys(folder, plain):
    key = tutti(folder, "endpoint", "--api-key-file", "keys", "--add-api-key", "ann")["key"]
    assert key.rsplit("-", 1)[1] not in (pathlib.Path(folder) / "keys").read_text()
    endpoint = Endpoint(folder, plain, "--api-key-file", "keys")
    assert client_of(endpoint, key).models.list().data[0].id == "plain"
    try:
        client_of(endpoint, key[:-1] + ("0" if key[-1] != "0" else "1")).models.list()
        raise AssertionError("a wrong key is accepted")
    except openai.AuthenticationError:
        pass
    assert endpoint.ask("GET", "/metrics")[0] == 401
    assert endpoint.ask("GET", "/health")[0] == 200
    assert endpoint.ask("GET", "/")[0] == 200
    assert endpoint.close()[0] == 0


def drain(endpoint, client):
    """SIGTERM: what runs is finished, what comes is refused, and the exit code is 0."""
    stream = client.completions.create(model="plain", prompt="x", max_tokens=250, stream=True,
                                       temperature=2, extra_body={"ignore_eos": True},
                                       stream_options={"include_usage": True})
    first = next(iter(stream))
    endpoint.process.send_signal(signal.SIGTERM)
    statuses = set()
    with contextlib.suppress(OSError):  # it may have ended already
        wait_until(lambda: statuses.add(endpoint.ask("GET", "/health")[0]) or 503 in statuses,
                   "requests are still accepted")
    rest = [first, *stream]
    assert rest[-1].usage.completion_tokens == 250, rest[-1]
    code, log = endpoint.close(signalled=True)
    assert code == 0 and "refused" in log, (code, log)


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-endpoint-") as folder:
        plain, chat = train_tiny(folder)
        endpoint = Endpoint(folder, f"plain={plain}", chat, "--batch-invariant", "--threads", 1,
                            "--cache", "4MiB")
        client = client_of(endpoint)
        text = completions(client)
        stops(client, text)
        seeds_and_logprobs(client)
        chats(client)
        other_routes(endpoint, client)
        refusals(endpoint)
        side_by_side(client)
        leaving(endpoint)
        count = idle(endpoint, client)
        overload(folder, plain)
        keys(folder, plain)
        adapters(folder, plain)
        drain(endpoint, client)
        print(f"every route, 16 clients side by side, {count} idle connections, overload, keys, "
              "adapters, end")


if __name__ == "__main__":
    main()
