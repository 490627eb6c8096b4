#!/usr/bin/env python3
"""Import and export take less memory than the largest file they read, generation little more than
the model.

    memory_test.py [--shard-mib N] [--shards N]

Peak resident memory counts mapped files, so it shows whether pages that were read are given back.
The model is a llama of zeros in sparse files, one layer per shard. Exit status: 0 passed, 1 failed.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

TUTTI = os.environ["TUTTI_BINARY"]
HIDDEN, KV = 1024, 128
VOCABULARY, LARGE_VOCABULARY = 320, 65536  # of the latter, embedding and head are most of the model
TOKENIZER = {"format": "tutti-tokenizer", "version": 1, "name": "byte", "vocabulary_size": 257,
             "end_of_document": 256}


def layer(n, ffn):
    prefix = f"model.layers.{n}."
    return {
        prefix + "input_layernorm.weight": [HIDDEN],
        prefix + "self_attn.q_proj.weight": [HIDDEN, HIDDEN],
        prefix + "self_attn.k_proj.weight": [KV, HIDDEN],
        prefix + "self_attn.v_proj.weight": [KV, HIDDEN],
        prefix + "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
        prefix + "post_attention_layernorm.weight": [HIDDEN],
        prefix + "mlp.gate_proj.weight": [ffn, HIDDEN],
        prefix + "mlp.up_proj.weight": [ffn, HIDDEN],
        prefix + "mlp.down_proj.weight": [HIDDEN, ffn],
    }


def write_shard(path, shapes):
    """A file whose tensors are holes; its size in bytes."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    return 8 + len(text) + offset


def write_model(folder, shards, shard_bytes, vocabulary=VOCABULARY):
    """Size of the largest shard."""
    attention = 4 * (2 * HIDDEN * HIDDEN + 2 * KV * HIDDEN)
    ffn = (shard_bytes - attention) // (3 * 4 * HIDDEN)
    config = {"model_type": "llama", "vocab_size": vocabulary, "hidden_size": HIDDEN,
              "intermediate_size": ffn, "num_hidden_layers": shards, "num_attention_heads": 8,
              "num_key_value_heads": 1, "max_position_embeddings": 32}
    (folder / "config.json").write_text(json.dumps(config))
    files = [layer(n, ffn) for n in range(shards)]
    ends = {"model.embed_tokens.weight": [vocabulary, HIDDEN], "model.norm.weight": [HIDDEN],
            "lm_head.weight": [vocabulary, HIDDEN]}
    files.append(ends)
    names = [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))]
    index = {name: file for file, shapes in zip(names, files) for name in shapes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return max(write_shard(folder / name, shapes) for name, shapes in zip(names, files))


def peak_memory_bytes(*arguments):
    """Peak resident memory of a command, mapped files included."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(TUTTI, [TUTTI, *map(str, arguments)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"tutti {' '.join(map(str, arguments))}: status {status}")
    return usage.ru_maxrss * 1024


def generation_fits(root, shard_bytes):
    """The parameters are in memory once; of the checkpoint, and of a large parameter on its way, a part."""
    source, run = root / "large", root / "large-run"
    source.mkdir()
    write_model(source, 1, shard_bytes, LARGE_VOCABULARY)
    peak_memory_bytes("checkpoint", "import", source, "--out", run)
    (run / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (run / "prompts").write_text("a\nb\n")
    model = sum(path.stat().st_size for path in run.rglob("*.safetensors"))
    used = peak_memory_bytes("generate", run, "--prompts", run / "prompts", "--tokens", 2)
    print(f"generate: {used / 2**20:.0f} MiB at most, model {model / 2**20:.0f} MiB")
    return used < 1.4 * model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard-mib", type=int, default=64)
    parser.add_argument("--shards", type=int, default=3)
    arguments = parser.parse_args()
    passed = True
    with tempfile.TemporaryDirectory(prefix="tutti_memory_") as temporary:
        root = pathlib.Path(temporary)
        source, run, back = root / "hf", root / "run", root / "back"
        source.mkdir()
        largest = write_model(source, arguments.shards, arguments.shard_mib << 20)
        for verb, command in (("import", (source, "--out", run)),
                              ("export", (run, "--out", back))):
            used = peak_memory_bytes("checkpoint", verb, *command)
            passed = passed and used < largest
            print(f"{verb}: {used / 2**20:.0f} MiB at most, largest file {largest / 2**20:.0f} MiB")
            shutil.rmtree(command[0])
        passed = generation_fits(root, arguments.shard_mib << 20) and passed
    sys.exit(0 if passed else "FAILED: more memory than the largest file")


if __name__ == "__main__":
    main()
