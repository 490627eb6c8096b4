#!/usr/bin/env python3
"""A model of transformers with its tokenizer: imported and used.

    tokenizer_test.py

Tutti continues a prompt as transformers' greedy generate does, from text to text; a corpus that is
prepared with the run's tokenizer has transformers' ids and loss; an export holds the tokenizer's
files byte for byte, also when the run was trained here. Exit status: 0 passed, 1 failed, 77 skipped
because a package is missing.
"""

import json
import pathlib
import re
import sys
import tempfile

try:
    import numpy as np
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env", file=sys.stderr)
    sys.exit(77)

import hf_models
from tutti_runs import tutti

PROMPTS = ["7 times 8 is", "12", " times  é <|end|>", ""]
NEW_TOKENS = 24
TEXT = "".join(f"{n} times {n + 1} is {n * (n + 1)}, né.\n" for n in range(700))
SHORT = TEXT[:3000]

failures = []


def check(case, what, value, passed):
    print(f"{case:24} {what:44} {value!s:>12} {'ok' if passed else 'FAILED'}", flush=True)
    if not passed:
        failures.append(f"{case}: {what}")


def train_tokenizer(begin):
    """Byte-level BPE as GPT-2's, or with begin as Llama 3's: <|begin|> goes before a text."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<|begin|>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    if begin:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|end|>",
        clean_up_tokenization_spaces=False)


def build_model(kind, tokenizer):
    configuration, keys = hf_models.CONFIGS[kind]
    hf_models.CONFIGS["with tokenizer"] = (configuration, {
        **keys, "vocab_size": len(tokenizer) + 3, "bos_token_id": 0, "eos_token_id": 1})
    return hf_models.build("with tokenizer", seed=4)


def prompt_ids(tokenizer, prompt):
    """What a text is to transformers. Control tokens spelt in it are characters."""
    ids = tokenizer(prompt, split_special_tokens=True).input_ids
    return ids or [tokenizer.eos_token_id]


def continuation(model, tokenizer, ids):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)),
                             do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=1)
    new = [i for i in out[0, len(ids):].tolist() if i != 1 and i < len(tokenizer)]
    return tokenizer.backend_tokenizer.decoder.decode(tokenizer.convert_ids_to_tokens(new)), len(new)


def generates(case, run, model, tokenizer):
    for prompt in PROMPTS:
        ids = prompt_ids(tokenizer, prompt)
        made = tutti("generate", run, "--prompt", prompt, "--temperature", "0", "--tokens",
                     NEW_TOKENS)
        check(case, f"prompt tokens of {prompt!r}", made["prompt_tokens"],
              made["prompt_tokens"] == len(ids))
        expected, tokens = continuation(model, tokenizer, ids)
        # Bytes that are not text may be one U+FFFD or several.
        check(case, f"continuation of {prompt!r}", f"{len(expected)} chars",
              made["text"].replace("\ufffd", "") == expected.replace("\ufffd", "")
              and made["tokens"] >= tokens > 0)


def evaluates(case, run, model, tokenizer, folder):
    text = folder / "text.txt"
    text.write_text(SHORT)
    corpus = folder / "c"
    tutti("data", "prepare", text, "--out", corpus, "--tokenizer", run / "tokenizer.json")
    ids = np.fromfile(f"{corpus}.bin", "<u2").astype(np.int64)
    expected = prompt_ids(tokenizer, SHORT) + [tokenizer.eos_token_id]
    check(case, "ids of the corpus", len(ids), ids.tolist() == expected)
    evaluated = tutti("eval", run, "--data", corpus)
    tokens, length = torch.from_numpy(ids), model.config.max_position_embeddings
    total = 0.0
    for begin in range(0, len(tokens) - 1, length):
        window = tokens[begin:begin + length + 1]
        scores = hf_models.logits(model, window[None, :-1])[0]
        total += float(torch.nn.functional.cross_entropy(scores, window[1:], reduction="sum"))
    loss = total / (len(tokens) - 1)
    check(case, "loss against transformers", f"{evaluated['loss']:.6f}",
          abs(evaluated["loss"] / loss - 1) < 1e-5)
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps({"ctx": "7 times 8 is", "endings": ["56", "a b"], "label": 0}))
    scored = tutti("eval", run, "--data", corpus, "--tasks", tasks)
    check(case, "questions", scored["tasks"][0]["questions"],
          scored["tasks"][0]["questions"] == 1)


def same_tokenizer(case, source, out, tokenizer):
    names = [n for n in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
             if (source / n).exists()]
    same = all((out / n).read_bytes() == (source / n).read_bytes() for n in names)
    check(case, "tokenizer files of the export", len(names), same)
    loaded = transformers.AutoTokenizer.from_pretrained(out)
    check(case, "AutoTokenizer's ids", type(loaded).__name__,
          all(loaded(p).input_ids == tokenizer(p).input_ids for p in [*PROMPTS, TEXT]))


def tunes(case, run, folder, source, tokenizer):
    """A run from the import; and the same without what the import kept, as from scratch."""
    recipe = folder / "tune.yaml"
    recipe.write_text(
        "precision: f32\nthreads: 1\nbatch: {global: 2, sequence: 64}\n"
        f"data: {{train: {folder / 'c'}, validation: {folder / 'c'}}}\ntrain: {{steps: 2}}\n")
    for name, keys in (("tuned", [f"checkpoint.initialize_from={run}"]), ("scratch", [])):
        tutti("train", recipe, f"model={run}/model.yaml", *keys, "--run", folder / name)
        check(case, f"huggingface of {name}", "",
              (folder / name / "huggingface").is_dir() == bool(keys))
        tutti("checkpoint", "export", folder / name, "--out", folder / f"{name}-hf")
        same_tokenizer(f"{case}, {name}", source, folder / f"{name}-hf", tokenizer)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="tutti_tokenizer_") as temporary:
        for kind, begin in (("llama3.1", True), ("gpt2", False)):
            folder = pathlib.Path(temporary) / kind
            source, run = folder / "hf", folder / "run"
            tokenizer = train_tokenizer(begin)
            model = build_model(kind, tokenizer)
            model.save_pretrained(source)
            tokenizer.save_pretrained(source)
            imported = tutti("checkpoint", "import", source, "--out", run)
            recipe = run / "recipe.yaml"  # small work: threads would only wait for each other
            recipe.write_text(re.sub(r"(?m)^threads: .*", "threads: 1", recipe.read_text()))
            check(kind, "tokenizer of the run", imported["tokenizer"],
                  imported["tokenizer"] == "bpe"
                  and not any("tokenizer" in note for note in imported["notes"]))
            generates(kind, run, model, tokenizer)
            evaluates(kind, run, model, tokenizer, folder)
            tutti("checkpoint", "export", run, "--out", folder / "back")
            same_tokenizer(kind, source, folder / "back", tokenizer)
            tunes(kind, run, folder, source, tokenizer)
    if failures:
        sys.exit("FAILED: " + "; ".join(failures))


if __name__ == "__main__":
    main()
