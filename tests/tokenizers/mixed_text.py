"""Text of many kinds, the same for the same seed: what a tokenizer meets and what breaks one."""

import random

SCRIPTS = [  # first and last letter, and how long words are
    (0x61, 0x7A, 7), (0x61, 0x7A, 7), (0x61, 0x7A, 5), (0xC0, 0x17F, 7), (0x391, 0x3C9, 7),
    (0x410, 0x44F, 8), (0x531, 0x586, 6), (0x5D0, 0x5EA, 5), (0x621, 0x64A, 6), (0x905, 0x939, 5),
    (0xE01, 0xE30, 9), (0x10D0, 0x10F0, 7), (0x1100, 0x11FF, 4), (0x3041, 0x3096, 6),
    (0x30A1, 0x30FA, 6), (0x4E00, 0x9FA5, 9), (0xAC00, 0xD7A3, 3), (0x1F00, 0x1FFF, 5),
    (0x20000, 0x2A6DF, 3), (0x1D400, 0x1D7FF, 4), (0x2C00, 0x2C7F, 6), (0xA000, 0xA48C, 3)]
EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F44D\U0001F3FD",
         "\u2764\uFE0F", "\U0001F1E9\U0001F1EA", "\U0001F3F4\U000E0067\U000E0062\U000E007F",
         "\U0001F600", "1\uFE0F\u20E3", "\u263A"]
MARKS = "\u0301\u0308\u0327\u0323\u0489\u093F\u0E34\u20DD\u05B0\u064E"
SPACES = [" ", " ", " ", "  ", "   ", "    ", "\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ",
          "\u00A0", "\u3000", "\u2003 ", "\u2028", "\x85", "\x0b", "\x0c", "  \n  ", "\t\t", " \t ",
          "\u180E", "\u200B", "\u202F", "\x1c", "\x1f"]
SIGNS = [".", ",", ";", "!", "?", "...", "--", "\u2014", "\u3002", "\uFF0C", "(", ")", "[]", "{", "}",
         "=>", "//", "/*", "#", "@", "&&", "<", ">", "<|", "|>", "$", "\u20AC", "%", "\"", "'", "''",
         "\u2019", "_", "__", "\u00AD", "\uFEFF", "\u2581", "!!!\n", ".\r\n\r\n", ":\n", "\\n"]
TAILS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'\u017F", "'x", "'sx", "'l"]
NUMBERS = "0123456789\u0663\u0967\u00BD\u00B2\u2167\u3007\u2460\uFF11\U0001D7D8"
CODE = ["    for (int i = 0; i < n; ++i) {\n", "\treturn x[i] * 0x1F + y->size();\r\n", "}\n",
        "def f(self, *args):\n        pass\n", "#include <vector>\n", "a+=b;c--;\n", "</div></p>\n",
        "https://example.org/a?b=c&d=%20#e", "SELECT * FROM t WHERE a='b';\n", "\\frac{1}{2}",
        "snake_case_name CamelCaseName\n", "[1, 2.5e-3, -7]\n"]


class Words:
    """Words of every script, some of them frequent."""

    def __init__(self, rng, count=4000):
        self.rng = rng
        self.words = []
        for _ in range(count):
            first, last, length = rng.choice(SCRIPTS)
            size = max(1, int(rng.gauss(length, 2)))
            word = "".join(chr(rng.randint(first, last)) for _ in range(size))
            if rng.random() < 0.1:
                word = word.capitalize()
            self.words.append(word)

    def one(self):
        if self.rng.random() < 0.1:  # a new one
            first, last, length = self.rng.choice(SCRIPTS)
            return "".join(chr(self.rng.randint(first, last)) for _ in range(length))
        return self.words[min(int(self.rng.paretovariate(0.7)), len(self.words)) - 1]


def document(rng, words, size):
    """About `size` bytes."""
    parts = []
    length = 0
    while length < size:
        kind = rng.random()
        if kind < 0.62:
            part = words.one()
        elif kind < 0.70:
            part = rng.choice(SIGNS)
        elif kind < 0.76:
            part = "".join(rng.choice(NUMBERS[:10] if rng.random() < 0.8 else NUMBERS)
                           for _ in range(rng.randint(1, 9)))
        elif kind < 0.80:
            part = rng.choice(CODE)
        elif kind < 0.84:
            part = words.one() + rng.choice(TAILS)
        elif kind < 0.88:
            part = "".join(c + "".join(rng.choice(MARKS) for _ in range(rng.randint(0, 2)))
                           for c in words.one())
        elif kind < 0.91:
            part = rng.choice(EMOJI) * rng.randint(1, 3)
        elif kind < 0.92:
            part = "".join(chr(rng.choice([rng.randint(0, 0x2FF), rng.randint(0, 0xD7FF),
                                           rng.randint(0xE000, 0x10FFFF)]))
                           for _ in range(rng.randint(1, 4)))
        elif kind < 0.93:
            part = rng.choice(SPACES) * rng.randint(2, 40)
        else:
            part = rng.choice(["<|endoftext|>", "<s>", "</s>", "[strip]", "word", "<|x|>", "<|", "tok"])
        if rng.random() < 0.75:
            part += rng.choice(SPACES) if rng.random() < 0.25 else " "
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def mixed_documents(seed, total, size=20_000):
    rng = random.Random(seed)
    words = Words(random.Random(4))
    documents = []
    while total > 0:
        documents.append(document(rng, words, min(size, total)))
        total -= len(documents[-1].encode())
    return documents


def edge_documents():
    rng = random.Random(1)
    lone = [chr(c) for c in list(range(0, 0x250)) + list(range(0x1FF0, 0x2070)) + [0xFEFF, 0xFFFD]]
    letters = "".join(rng.choice("abcdefghijklmnop") for _ in range(1_000_000))
    return lone + [
        "", " ", "  ", "a", "\n", "\r\n", "'s", "'", " 's", "a ", "a  ", " a", "  a", "\n\na", " \n a",
        "a\n \nb", "!\n\n", "! \n", "...\r\n  x", "1234567", "12 345", "a1b2", "can't CAN'T'LL x'\u017F",
        "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", " [strip]  x", "x  [strip] ",
        "sword word words word's", "word", "_word", "wor\u0301d word\u0301", "tok tokens xtok",
        "\u2581a \u2581 \u2581\u2581b", "a\u2581b", "e\u0301 \u1100\u1161\u11a8 \u212b \ufb01",
        letters, letters[:200_000].upper(), "\u4e2d" * 100_000, " " * 100_000, "\n" * 50_000,
        "1" * 100_000, "!" * 100_000, "ab" * 100_000, " a" * 50_000, "\u0301" * 10_000]
