"""`tutti plan serve`: rates measured on this machine are found again in the forecast, load has its price, and
what cannot be served is refused."""

import json
import os
import subprocess
import sys
import tempfile

TUTTI = os.environ["TUTTI_BINARY"]
MODEL = "gpt2-124m"


def run(*words, code=0):
    done = subprocess.run([TUTTI, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def forecast(*words):
    return json.loads(run("plan", "serve", *words, "--json").stdout)


def measured_here(folder):
    path = os.path.join(folder, "here.json")
    done = run("bench", "inference", "--model", MODEL, "--weights", "bf16", "--prompt-tokens", "256",
               "--streams", "1,8", "--answer-tokens", "16", "--json")
    with open(path, "w") as file:
        file.write(done.stdout)
    return path, json.loads(done.stdout)


def here(path, measured):
    step = {answer["streams"]: answer["step_seconds"] for answer in measured["answers"]}
    load = ["--prompt-tokens", "32", "--answer-tokens", "16", "--requests", "50"]
    alone = forecast(MODEL, "--measured", path, "--rate", "0.01", *load)
    assert alone["succeeded"] == 50 and alone["most_running"] == 1, alone
    assert abs(alone["per_token_seconds"]["p50"] / step[1] - 1) < 0.25, (alone["per_token_seconds"], step)
    busy = forecast(MODEL, "--measured", path, "--rate", "1000", *load)
    assert busy["most_running"] > 8 and busy["busy_share"] > 0.99, busy
    assert busy["per_token_seconds"]["p50"] > 1.2 * alone["per_token_seconds"]["p50"], busy
    assert busy["first_token_seconds"]["p90"] > 5 * alone["first_token_seconds"]["p90"], busy
    assert busy["answer_tokens_per_second"] > 1.2 / step[1], (busy, step)
    full = forecast(MODEL, "--measured", path, "--rate", "1000", "--max-waiting", "4", *load)
    assert full["succeeded"] < 50 and full["errors"], full
    assert forecast(MODEL, "--measured", path, "--rate", "1000", *load) == busy


def refusals(path):
    message = run("plan", "serve", MODEL, "--measured", path, "--weights", "int8", code=2).stderr
    assert "bf16" in message and "int8" in message, message
    message = run("plan", "serve", MODEL, code=2).stderr
    assert "--system" in message and "--measured" in message, message
    message = run("plan", "serve", "llama3.1-70b", "--system", "dgx-h100", code=4).stderr
    assert "DOES NOT FIT" in message and "--gpus" in message, message
    message = run("plan", "serve", MODEL, "--measured", path, "--prompt-tokens", "1020", "--answer-tokens", "16",
                  code=2).stderr
    assert "context" in message and "1024" in message, message
    message = run("plan", "serve", "llama3.1-8b", "--system", "dgx-h100", "--gpus", "7", code=2).stderr
    assert "--gpus" in message, message
    broken = path + ".broken"
    for key, value in (("seconds", 0), ("seconds", -1), ("tokens", 0)):
        with open(path) as file:
            text = json.load(file)
        text["prompt"][key] = value
        with open(broken, "w") as file:
            json.dump(text, file)
        message = run("plan", "serve", MODEL, "--measured", broken, code=1).stderr
        assert broken in message and key in message, message
    with open(broken, "w") as file:
        file.write("{}")
    message = run("plan", "serve", MODEL, "--measured", broken, code=1).stderr
    assert broken in message and "weights" in message, message


def systems():
    narrow = forecast("llama3.1-70b", "--system", "dgx-h100", "--gpus", "8", "--weights", "int4")
    wide = forecast("llama3.1-70b", "--system", "dgx-h100", "--gpus", "8")
    for one in (narrow, wide):
        assert one["usd_per_million_answer_tokens"] > 0 and one["kwh_per_million_answer_tokens"] > 0, one
        assert "not validated" in one["rates"]["source"], one
    assert narrow["weight_bytes"] < 0.35 * wide["weight_bytes"], (narrow, wide)
    assert narrow["per_token_seconds"]["p50"] < wide["per_token_seconds"]["p50"], (narrow, wide)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path, measured = measured_here(folder)
        here(path, measured)
        refusals(path)
    systems()


if __name__ == "__main__":
    sys.exit(main())
