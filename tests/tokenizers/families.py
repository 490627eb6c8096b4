"""Tokenizers with the published structure of today's families, trained small on a text given."""

import collections
import json
import struct

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K_POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
                     r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE, ENDS = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (f"{BEFORE}{UPPER}*{LOWER}+{ENDS}|{BEFORE}{UPPER}+{LOWER}*{ENDS}|" + r"\p{N}{1,3}|" + TAIL)
TEKKEN = f"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|" + r"\p{N}|" + TAIL
DEEPSEEK_V3 = [
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+"]
DEEPSEEK_V2 = [
    "[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u0386\u0388-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u1e00-\u1f15]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
RULES = {  # a few of the kinds that SentencePiece compiles
    "\ufb01": "fi", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u212b": "\u00c5",
    "e\u0301": "\u00e9", "a\u0301": "\u00e1", "o\u0308": "\u00f6", "\u00bd": "1\u20442", "\u200b": " ",
    "\u2460": "1", "\uff11": "1", "\uff21": "A", "\u00ad": "", "\x07": "", "\u1100\u1161": "\uac00",
    "\u30ab\u3099": "\u30ac", "\u2026": "...", "\u01c4": "D\u017d", "\ufeff": " ", "\u0410\u0301": "A"}


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def plain_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def changed(tokenizer, edit):
    value = json.loads(tokenizer.to_str())
    edit(value)
    return Tokenizer.from_str(json.dumps(value))


def train(tokenizer, trainer, text):
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def byte_level(text, steps, special=("<|endoftext|>",), normalizer=None, vocabulary=4000, added=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), text)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def marked(text, special, vocabulary=4000):
    """Pieces of SentencePiece, characters with bytes to fall back on."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fixed = list(special) + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"]
    train(tokenizer, trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=fixed, show_progress=False,
                                         limit_alphabet=1200), text)
    return changed(tokenizer, lambda v: v.update(added_tokens=v["added_tokens"][:len(special)]))


def gemma(text):
    tokenizer = marked(text, ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"])

    def edit(value):
        value["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        value["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "},
                                  "behavior": "MergedWithPrevious", "invert": False}
        value["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]}
    tokenizer = changed(tokenizer, edit)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in (
        "\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581", "\t\t", "<table>", "</p>")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))])
    return tokenizer


def mark_spaces(value):
    """The steps of Llama 2 around its model, in a tokenizer.json."""
    value["pre_tokenizer"] = None
    value["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    value["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def llama2(text, special, added=()):
    tokenizer = changed(marked(text, special), mark_spaces)
    tokenizer.add_tokens(list(added))
    return tokenizer


def mistral(text):
    def edit(value):
        value["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                                  "split": False}
        value["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return changed(marked(text, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]), edit)


def bert(text, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    train(tokenizer, trainers.WordPieceTrainer(
        vocab_size=4000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False,
        limit_alphabet=900), text)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def word_level(text, steps, decoder=None):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    train(tokenizer, trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["<unk>", "<|x|>"],
                                               show_progress=False), text)
    if decoder is not None:
        tokenizer.decoder = decoder
    return tokenizer


def charsmap(rules):
    """Compiled as charsmap.h says; each state has 256 units of its own."""
    states, values, text = {b"": 0}, {}, b""
    for key, value in sorted(rules.items()):
        raw = key.encode()
        for end in range(1, len(raw) + 1):
            states.setdefault(raw[:end], len(states))
        values[raw], text = len(text), text + value.encode() + b"\0"
    units = [0] * (256 * (len(states) + 1))
    base = {state: 256 * (number + 1) for state, number in states.items()}
    units[0] = base[b""] << 10
    for state in states:
        if not state:
            continue
        unit = base[state[:-1]] ^ state[-1]
        units[unit] = state[-1] | (unit ^ base[state]) << 10 | (state in values) << 8
        if state in values:
            units[base[state]] = 1 << 31 | values[state]
    blob = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(blob)) + blob + text


def of_frequent_characters(text, most=700):
    frequent = {c for c, _ in collections.Counter("".join(text)).most_common(most)}
    return ["".join(c for c in part if c in frequent) for part in text]


def unigram(text, steps, normalizer=None, byte_fallback=False, decoder=None):
    text = of_frequent_characters(text)
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)] * byte_fallback
    train(tokenizer, trainers.UnigramTrainer(vocab_size=3000 + len(special), special_tokens=special,
                                             unk_token="<unk>", show_progress=False), text)
    if byte_fallback:
        tokenizer = changed(tokenizer, lambda v: (v["model"].update(byte_fallback=True),
                                                  v.update(added_tokens=v["added_tokens"][:3])))
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoder or decoders.Metaspace()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken("[strip]", lstrip=True, rstrip=True, normalized=False)])
    return tokenizer


def precompiled(rules=None):
    if rules is None:
        rules = charsmap(RULES)
    return normalizers.Precompiled(rules)


def every_split(text):
    """Splits of all behaviors, inverted and not."""
    for behavior in ("isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"):
        for invert in (False, True):
            yield f"split-{behavior}-{invert}", byte_level(
                text, [split(r"[-.,\s]|\p{N}{2}", behavior, invert), plain_bytes()], vocabulary=600)
    for behavior in ("removed", "contiguous", "merged_with_previous", "merged_with_next"):
        yield f"punctuation-{behavior}", byte_level(
            text, [pre_tokenizers.Punctuation(behavior), pre_tokenizers.CharDelimiterSplit("o"),
                   pre_tokenizers.Split("th", behavior, False), plain_bytes()], vocabulary=600)


def families(text, rules=None):
    """(name, tokenizer) of each; `rules`: a compiled charsmap."""
    words = [AddedToken("word", single_word=True), AddedToken("[strip]", lstrip=True, rstrip=True),
             AddedToken("<|x|>", normalized=False, special=True), AddedToken("tok")]
    chat = [AddedToken(t, normalized=False, special=True) for t in ("<|im_start|>", "<|im_end|>")]
    yield "qwen3", byte_level(text, [split(QWEN), plain_bytes()], normalizer=normalizers.NFC(), added=chat)
    yield "gemma3", gemma(text)
    yield "phi3", llama2(text, ["<unk>", "<s>", "</s>"], [
        AddedToken("<|end|>", rstrip=True, normalized=False, special=True),
        AddedToken("<|x|>", rstrip=True, normalized=False, special=True)])
    yield "phi4", byte_level(text, [split(CL100K, "removed", True), plain_bytes()], added=chat)
    yield "olmo2", byte_level(text, [split(CL100K_POSSESSIVE, "removed", True), plain_bytes()])
    yield "olmoe", byte_level(
        text, [pre_tokenizers.ByteLevel(add_prefix_space=False)], normalizer=normalizers.NFC(),
        added=[AddedToken(" " * n, normalized=True) for n in range(2, 12)])
    yield "smollm3", byte_level(text, [split(CL100K), plain_bytes()], added=words)
    yield "granite", byte_level(text, [pre_tokenizers.Digits(True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    yield "tekken", byte_level(text, [split(TEKKEN), plain_bytes()], added=words)
    yield "mistral", mistral(text)
    yield "gpt-oss", byte_level(text, [split(O200K), plain_bytes()], added=chat)
    yield "deepseek-v3", byte_level(text, [split(p) for p in DEEPSEEK_V3] + [plain_bytes()], added=[
        AddedToken("<\uff5cUser\uff5c>", normalized=False), *words])
    yield "deepseek-v2", byte_level(text, [split(p) for p in DEEPSEEK_V2] + [
        pre_tokenizers.Digits(True), plain_bytes()])
    glm4 = byte_level(text, [split(CL100K), plain_bytes()], special=("<|endoftext|>", "[gMASK]", "<sop>"))
    glm4.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="[gMASK] <sop> $A", special_tokens=[("[gMASK]", 1), ("<sop>", 2)])])
    yield "glm4", glm4
    yield "bert", bert(text, True)
    yield "bert-cased", bert(text, False)
    yield "t5", unigram(text, [pre_tokenizers.Metaspace()], precompiled(rules))
    yield "xlm-r", unigram(text, [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()],
                           normalizers.Sequence([precompiled(rules),
                                                 normalizers.Replace(Regex(" {2,}"), " ")]))
    yield "albert", unigram(text, [pre_tokenizers.Metaspace()], normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), precompiled(rules)]))
    yield "unigram-bytes", unigram(
        text, [pre_tokenizers.Metaspace(prepend_scheme="first", split=False)],
        normalizers.Sequence([normalizers.Nmt(), normalizers.Strip()]), byte_fallback=True,
        decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]))
    yield "word-level", word_level(text, [pre_tokenizers.Whitespace()])
    yield "word-level-signs", word_level(
        text, [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")],
        decoders.Sequence([decoders.Replace(Regex("[aeiou]+"), "*"), decoders.Strip("s", 1, 0),
                           decoders.Fuse()]))
