#!/usr/bin/env python3
"""Tutti's tokenizers against the Hugging Face package `tokenizers`, id by id.

Tokenizers of each kind are trained here, on generated text, by the package; both encode and decode
10 MB of mixed text and what is known to break tokenizers. With `families`: the structures of today's
families (families.py), on less text. Nothing is downloaded.

usage: tokenizers_test.py PATH_OF_tokenize [families]
"""

import json
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

try:
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, processors, trainers)
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env")
    sys.exit(77)

from families import every_split, families, mark_spaces
from mixed_text import edge_documents, mixed_documents

TOKENIZE = sys.argv[1]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern that is matched by the library: letters by case, as newer tokenizers have it.
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(name, pattern, training, special=("<|endoftext|>",), vocabulary=6000, prefix=False):
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(training, trainer)
    return tokenizer


def change(tokenizer, edit):
    value = json.loads(tokenizer.to_str())
    edit(value)
    return Tokenizer.from_str(json.dumps(value))


def marked(training):
    """The kind of Llama 2: pieces of SentencePiece, characters with bytes to fall back on."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer.train_from_iterator(training, trainers.BpeTrainer(
        vocab_size=6000, special_tokens=special, show_progress=False, limit_alphabet=1500))

    def edit(value):
        value["added_tokens"] = value["added_tokens"][:3]
        mark_spaces(value)
    return change(tokenizer, edit)


def run(what, path, documents, *options):
    width = 4 if what == "decode" else 1
    data = b"".join(struct.pack("<I", len(d) // width) + d for d in documents)
    result = subprocess.run([TOKENIZE, what, str(path), *options], input=data, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    out, at = [], 0
    item = 1 if what == "decode" else 4
    while at < len(result.stdout):
        count, = struct.unpack_from("<I", result.stdout, at)
        out.append(result.stdout[at + 4:at + 4 + count * item])
        at += 4 + count * item
    assert len(out) == len(documents)
    return out, int(result.stderr or 0)


def pack(ids):
    return struct.pack(f"<{len(ids)}i", *ids)


def first_difference(ours, theirs, text, tokenizer):
    a = struct.unpack(f"<{len(ours) // 4}i", ours)
    b = struct.unpack(f"<{len(theirs) // 4}i", theirs)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    show = lambda ids: [tokenizer.id_to_token(i) for i in ids[max(0, at - 3):at + 4]]
    return f"token {at}: ours {show(a)}, theirs {show(b)}; text starts {text[:60]!r}"


def compare(folder, name, tokenizer, all_documents, least_pieces, some_documents=None):
    start = time.monotonic()
    path = folder / f"{name}.json"
    tokenizer.save(str(path))
    size = 0
    for special in (True, False):
        documents = some_documents if special and some_documents else all_documents
        texts = [d.encode() for d in documents]
        size += sum(map(len, texts))
        tokenizer.encode_special_tokens = not special
        theirs = [pack(e.ids) for e in tokenizer.encode_batch(documents, add_special_tokens=False)]
        options = ["special"] if special else []
        ours, _ = run("encode", path, texts, *options)
        for o, t, d in zip(ours, theirs, documents):
            assert o == t, f"{name}, special {special}: {first_difference(o, t, d, tokenizer)}"
        chunked, pieces = run("encode", path, texts, "chunked", *options)
        assert chunked == ours, f"{name}: encoding in chunks differs"
        if not special:
            assert pieces >= least_pieces, f"{name}: {pieces} pieces, expected {least_pieces}"
            decoded, _ = run("decode", path, ours)
            ids = [struct.unpack(f"<{len(o) // 4}i", o) for o in ours]
            expected = tokenizer.decode_batch(ids, skip_special_tokens=False)
            for d, e, i in zip(decoded, expected, ids):
                got = d.decode(errors="replace")
                at = next((n for n, (x, y) in enumerate(zip(got, e)) if x != y), 0)
                assert got == e, f"{name}: decoding ...{got[at - 9:at + 20]!r}, not {e[at - 9:at + 20]!r}"
    print(f"{name}: {size / 1e6:.1f} MB equal, {pieces} pieces, {time.monotonic() - start:.1f} s",
          flush=True)
    return path


def compare_bytes(path):
    """What is not UTF-8 comes back as it was."""
    rng = random.Random(3)
    documents = [bytes(rng.randrange(256) for _ in range(n)) for n in (1, 2, 3, 50, 5000)]
    documents += [b"abc\xff def", b"\xe4\xb8", b"x\xf0\x9f\x91 y", b"\xc3 \xa9", b"\xed\xa0\x80 "]
    ids, _ = run("encode", path, documents)
    decoded, _ = run("decode", path, ids)
    assert decoded == documents, path
    chunked, _ = run("encode", path, documents, "chunked")
    assert chunked == ids, path


def both_forms_of_merges(folder, path, documents):
    """Until release 0.20 of tokenizers a merge was written as "a b", since then as ["a", "b"]."""
    value = json.loads(path.read_text())
    value["model"]["merges"] = [m.split(" ") if isinstance(m, str) else " ".join(m)
                                for m in value["model"]["merges"]]
    other = folder / "other_form.json"
    other.write_text(json.dumps(value))
    texts = [d.encode() for d in documents]
    assert run("encode", other, texts) == run("encode", path, texts)


def without_newer_characters(documents):
    """Documents without what the package's tables of Unicode do not know yet: unassigned characters,
    of which its releases make different things, and newer marks and signs."""
    strip, isolate = normalizers.StripAccents(), pre_tokenizers.Punctuation()

    def is_newer(character):
        category = unicodedata.category(character)
        if category == "Cn":
            return True
        if category == "Mn":
            return strip.normalize_str("a" + character) != "a"
        isolated = len(isolate.pre_tokenize_str(f"a{character}a")) == 3
        return category.startswith("P") and not isolated

    newer = {c for c in set().union(*documents) if is_newer(c)}
    return ["".join(c for c in document if c not in newer) for document in documents]


def main(folder):
    training = mixed_documents(seed=11, total=700_000)
    large = mixed_documents(seed=12, total=10_000_000)
    small = large[:25]
    edges = edge_documents()
    short_edges = [d for d in edges if len(d) < 1000]

    gpt2 = byte_level("gpt2", None, training)
    path = compare(folder, "gpt2", gpt2, large + edges, 9000, small + short_edges)
    compare_bytes(path)
    both_forms_of_merges(folder, path, small)

    llama3 = byte_level("llama3", LLAMA3, training)
    llama3.add_tokens([AddedToken("word", single_word=True), AddedToken("[strip]", lstrip=True, rstrip=True),
                       AddedToken("<|x|>", normalized=False), AddedToken("tok")])
    llama3.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    llama3 = change(llama3, lambda v: v["model"].update(ignore_merges=True))
    compare_bytes(compare(folder, "llama3", llama3, large + edges, 7000, small + short_edges))

    qwen = byte_level("qwen", QWEN, training)
    qwen.normalizer = normalizers.NFC()
    compare(folder, "qwen-nfc", qwen, small + short_edges, 300)
    roberta = byte_level("roberta", None, training, special=[
        "<s>", AddedToken("<|endoftext|>", lstrip=True)], prefix=True)
    roberta.normalizer = normalizers.NFKC()
    compare(folder, "prefix-nfkc", roberta, small + short_edges, 300)
    compare(folder, "cased", byte_level("cased", CASED, training), small + short_edges, 0)
    digits = byte_level("digits", None, training)
    digits.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("o", "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=True)])
    compare(folder, "digits", digits, small + short_edges, 0)

    llama2 = marked(training)
    compare_bytes_marked(compare(folder, "llama2", llama2, small + edges, 300))
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            meta = change(llama2, lambda v: v.update(normalizer=None, pre_tokenizer={
                "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split},
                decoder={"type": "Sequence", "decoders": [
                    {"type": "ByteFallback"},
                    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme,
                     "split": split}]}))
            compare(folder, f"metaspace-{scheme}-{split}", meta, small + short_edges[600:], 300)


def main_of_families(folder):
    training = mixed_documents(seed=11, total=700_000)
    few = mixed_documents(seed=12, total=400_000)[:6] + [d for d in edge_documents() if len(d) < 1000]
    agreed = without_newer_characters(few)
    for name, tokenizer in [*families(training), *every_split(training[:5])]:
        by_category = name in ("bert", "bert-cased", "word-level-signs")
        compare(folder, name, tokenizer, agreed if by_category else few, 0)


def compare_bytes_marked(path):
    documents = [b"abc\xff def", b"\xe4\xb8", b"x\xf0\x9f\x91 y", b"\xc3 \xa9"]
    ids, _ = run("encode", path, documents)
    decoded, _ = run("decode", path, ids)
    assert decoded == documents, decoded


if __name__ == "__main__":
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        (main_of_families if "families" in sys.argv[2:] else main)(Path(name))
    print(f"ok, {time.monotonic() - begin:.0f} s")
