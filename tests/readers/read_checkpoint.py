"""A checkpoint of Tutti, read with the safetensors package and NumPy from docs/formats.md alone.

usage: read_checkpoint.py CHECKPOINT_TEST

Runs the test program that writes step 7 of a fake run into a folder of its own, and compares every
tensor found there by the safetensors package with the byte ranges that the manifest states.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import safetensors
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"skipped: {error}; run tools/python_env")
    sys.exit(77)

TYPES = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "i32": "<i4", "i64": "<i8", "i16": "<i2",
         "i8": "i1", "u8": "u1", "u16": "<u2", "u64": "<u8",
         "bf16": "<u2"}  # NumPy has no bfloat16: its bits

EXPECTED = {  # name: (dtype, shape), as the fake run defines them
    "matrix": ("f32", [7, 24]),
    "half": ("bf16", [3, 5]),
    "bytes": ("u8", [3]),
    "empty": ("f32", [0, 4]),
    "scalar": ("f32", []),
    "tokens": ("i32", [2, 3, 2]),
    "wide": ("f64", [1]),
}


def from_manifest(folder, manifest, tensor):
    """The global tensor, put together from its slices."""
    dtype = np.dtype(TYPES[tensor["dtype"]])
    whole = np.zeros(tensor["shape"], dtype)
    for part in tensor["slices"]:
        file = folder / manifest["files"][part["file"]]["name"]
        raw = file.read_bytes()[part["begin"]:part["end"]]
        where = tuple(slice(o, o + n) for o, n in zip(part["offset"], part["shape"]))
        whole[where] = np.frombuffer(raw, dtype).reshape(part["shape"])
    return whole


def from_package(folder, manifest):
    """Every tensor of every shard: name -> (safetensors type, shape, bytes)."""
    found = {}
    for file in manifest["files"]:
        path = folder / file["name"]
        assert path.stat().st_size == file["bytes"], path
        assert len(file["xxh3"]) == -(-file["bytes"] // manifest["chunk_bytes"]), path
        here = {name: (entry["dtype"], list(entry["shape"]), bytes(entry["data"]))
                for name, entry in safetensors.deserialize(path.read_bytes())}
        assert not here.keys() & found.keys()
        found.update(here)
        with safetensors.safe_open(path, framework="np") as opened:
            assert set(opened.keys()) == set(here)
            assert opened.metadata() == {"format": "pt"}
        if "BF16" not in {entry[0] for entry in here.values()}:
            for name, array in load_file(path).items():
                assert array.tobytes() == here[name][2], name
    return found


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "checkpoints"
        subprocess.run([program, "--gtest_filter=Writer.OnARealDisk"], check=True,
                       stdout=subprocess.DEVNULL,
                       env={**os.environ, "TUTTI_FIXTURE_FOLDER": str(folder), "GTEST_OUTPUT": ""})
        step = folder / "step-00000007"
        manifest = json.loads((step / "manifest.json").read_text())
        assert (manifest["format"], manifest["format_version"]) == ("tutti-checkpoint", 1)
        assert manifest["step"] == 7 and manifest["random_state"]["seed"] == 0xFEDCBA9876543210
        named = {file["name"] for file in manifest["files"]}
        assert named | {"manifest.json"} == {path.name for path in step.iterdir()}

        found = from_package(step, manifest)
        assert set(found) == set(EXPECTED) == {tensor["name"] for tensor in manifest["tensors"]}
        for tensor in manifest["tensors"]:
            name = tensor["name"]
            kind, shape, raw = found[name]
            assert (tensor["dtype"], tensor["shape"]) == EXPECTED[name], name
            assert (kind.lower(), shape) == EXPECTED[name], name
            assert from_manifest(step, manifest, tensor).tobytes() == raw, name
        print(f"{len(found)} tensors in {len(named)} shards: equal")


if __name__ == "__main__":
    main()
