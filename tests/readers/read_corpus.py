#!/usr/bin/env python3
"""Reads Tutti's corpora with NumPy alone, from the description of Megatron's .bin/.idx format.

Shares no code with Tutti: the layout is written out once more below. Three proofs:
  1. corpora written in C++ hold what they should, and equal, byte for byte, those that the writer
     here makes of the same tokens;
  2. a corpus written here is read in C++;
  3. a text prepared in C++ is found again, training and held-out part together.

Usage: read_corpus.py PATH_OF_corpus_fixture
"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


def read_corpus(prefix):
    """Documents of a corpus as arrays, and the element type's code."""
    idx = Path(f"{prefix}.idx").read_bytes()
    bin_bytes = Path(f"{prefix}.bin").read_bytes()
    assert idx[:9] == MAGIC, idx[:9]
    version = int(np.frombuffer(idx, "<u8", 1, 9)[0])
    assert version == 1, version
    code = idx[17]
    sequences, entries = (int(n) for n in np.frombuffer(idx, "<u8", 2, 18))
    at = 34
    lengths = np.frombuffer(idx, "<i4", sequences, at)
    at += 4 * sequences
    offsets = np.frombuffer(idx, "<i8", sequences, at)
    at += 8 * sequences
    documents = np.frombuffer(idx, "<i8", entries, at)
    at += 8 * entries
    assert at == len(idx), (at, len(idx))

    dtype = np.dtype(DTYPES[code])
    ends = np.cumsum(lengths.astype(np.int64)) * dtype.itemsize
    assert np.array_equal(offsets, np.concatenate([[0], ends[:-1]])), "offsets"
    assert ends[-1] == len(bin_bytes), (ends[-1], len(bin_bytes))
    assert documents[0] == 0 and documents[-1] == sequences, documents

    parts = [np.frombuffer(bin_bytes, dtype, n, o) for n, o in zip(lengths, offsets)]
    empty = np.zeros(0, dtype)
    return [np.concatenate([empty, *parts[a:b]])
            for a, b in zip(documents[:-1], documents[1:])], code


def write_corpus(prefix, documents, code):
    dtype = np.dtype(DTYPES[code])
    lengths = np.array([len(d) for d in documents], "<i4")
    offsets = np.concatenate([[0], np.cumsum(lengths.astype("<i8"))[:-1]]) * dtype.itemsize
    Path(f"{prefix}.bin").write_bytes(b"".join(d.astype(dtype).tobytes() for d in documents))
    Path(f"{prefix}.idx").write_bytes(
        MAGIC + np.array([1], "<u8").tobytes() + bytes([code]) +
        np.array([len(documents), len(documents) + 1], "<u8").tobytes() + lengths.tobytes() +
        offsets.astype("<i8").tobytes() + np.arange(len(documents) + 1, dtype="<i8").tobytes())


def expected_document(d, limit):
    """The rule in corpus_fixture.cpp."""
    return (1000003 * d + 7919 * np.arange((7 * d + 3) % 11, dtype=np.int64)) % limit


def main():
    fixture = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run([fixture, "write", folder], check=True)
        for name, count, code, limit in (("narrow", 1000, 8, 65536), ("wide", 333, 4, 2147483647),
                                         ("single", 1, 8, 65536)):
            found, found_code = read_corpus(folder / name)
            wanted = [expected_document(d, limit) for d in range(count)]
            assert found_code == code, (name, found_code)
            assert len(found) == count, (name, len(found))
            for d in range(count):
                assert np.array_equal(found[d], wanted[d]), (name, d)
            ours = folder / f"{name}-numpy"
            write_corpus(ours, wanted, code)
            for suffix in (".bin", ".idx"):
                assert (Path(f"{ours}{suffix}").read_bytes() ==
                        Path(f"{folder / name}{suffix}").read_bytes()), (name, suffix)
            subprocess.run([fixture, "check", ours], check=True)

        text = bytes(range(1, 256)) * 5000
        (folder / "text").write_bytes(text)
        subprocess.run([fixture, "prepare", folder / "text", folder / "text"], check=True)
        training, code = read_corpus(folder / "text")
        validation, _ = read_corpus(folder / "text-validation")
        assert code == 8
        tokens = np.concatenate(training + validation)
        assert len(validation[0]) == len(tokens) - int(len(tokens) * 0.8)
        assert tokens[-1] == 256
        assert tokens[:-1].astype(np.uint8).tobytes() == text
    print("read_corpus: C++ and NumPy agree")


if __name__ == "__main__":
    main()
