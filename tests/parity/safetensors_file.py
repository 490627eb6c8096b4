"""Reads and writes safetensors files with NumPy only: Debian's python3 has no safetensors package.

Format: u64 little-endian length of the header | header, JSON | tensor bytes. The header maps a name
to {"dtype", "shape", "data_offsets": [begin, end)}, with offsets relative to the first tensor byte.
"""

import json

import numpy as np

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1"}


def write(path, tensors):
    """Writes a dict of float32, float64, int32, int64 or uint8 arrays."""
    names = {np.dtype(kind): name for name, kind in DTYPES.items()}
    header, blobs, offset = {}, [], 0
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": names[np.asarray(array).dtype],
            "shape": list(np.shape(array)),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for blob in blobs:
            file.write(blob)


def read(path):
    """Returns a dict of arrays."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"]).copy()
    return tensors
