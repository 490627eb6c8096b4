"""Sealed checkpoints from outside: docs/formats.md suffices to open them, a run resumes from them to the
same bits as without a key, every command that reads checkpoints reads them, also the copies in the
memory of hosts are sealed, and without the right key nothing opens."""

import ctypes
import ctypes.util
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import small_run  # noqa: E402

SEAL_BYTES = 16


def sodium():
    name = ctypes.util.find_library("sodium")
    library = ctypes.CDLL(name)
    assert library.sodium_init() >= 0
    return library


def blake2b(key, text, size=32):
    return hashlib.blake2b(text, key=key, digest_size=size)


def open_chunk(library, key, index, stored):
    piece = ctypes.create_string_buffer(max(1, len(stored) - SEAL_BYTES))
    nonce = index.to_bytes(8, "little") + bytes(16)
    failed = library.crypto_aead_xchacha20poly1305_ietf_decrypt(
        piece, None, None, stored, ctypes.c_ulonglong(len(stored)), None, ctypes.c_ulonglong(0),
        nonce, key)
    assert not failed, f"chunk {index} does not open"
    return piece.raw[:len(stored) - SEAL_BYTES]


def read(path, mode="rb"):
    with open(path, mode) as file:
        return file.read()


def contents(folder, key):
    """The shards of a checkpoint, opened, and its manifest, after its signature was compared."""
    text = read(os.path.join(folder, "manifest.json"))
    manifest = json.loads(text)
    if key is None:
        assert manifest["format_version"] == 1 and "seal" not in manifest
        return [read(os.path.join(folder, file["name"])) for file in manifest["files"]], manifest
    assert manifest["format_version"] == 2
    assert manifest["seal"]["key_id"] == blake2b(key, b"tutti key ", 16).hexdigest()[:16]
    signed = text[:text.index(b'  "signature": "')]
    assert manifest["signature"] == blake2b(key, b"tutti manifest " + signed).hexdigest()
    library, shards = sodium(), []
    for file in manifest["files"]:
        assert file["name"].endswith(".sealed")
        stored, size = read(os.path.join(folder, file["name"])), manifest["chunk_bytes"]
        shard_key = blake2b(key, b"tutti shard " + file["salt"].encode()).digest()
        shards.append(b"".join(open_chunk(library, shard_key, at // size, stored[at:at + size])
                               for at in range(0, len(stored), size)))
    return shards, manifest


def tutti(*arguments, key_file=None, ok=True):
    environment = {**os.environ, **({"TUTTI_CHECKPOINT_KEY": key_file} if key_file else {})}
    done = subprocess.run([small_run.TUTTI, *arguments], env=environment, capture_output=True,
                          text=True, errors="replace", timeout=120)
    assert (done.returncode == 0) == ok, (arguments, done.returncode, done.stderr)
    return done.stderr + done.stdout


def write_key(path, digits, mode=0o600):
    with open(path, "w") as file:
        file.write(digits + "\n")
    os.chmod(path, mode)


def is_nowhere(secret, *folders):
    """The key, as bytes or digits, in no file below."""
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                text = read(os.path.join(root, name))
                assert secret not in text and secret.hex().encode() not in text, os.path.join(root, name)


def every_reader_opens(at, recipe, key_file, sealed, plain):
    """What else reads checkpoints, from a sealed run and the same without a key: to the same results."""
    seal = f"checkpoint.key_file={key_file}"
    for name, run in (("sealed", sealed), ("plain", plain)):
        tutti("checkpoint", "export", run, "--out", at(f"export-{name}"))
        tutti("generate", run, "--prompt", "line 1", "--tokens", "8")
        tutti("eval", run, "--data", at("corpus"))
        more = [seal] if name == "sealed" else []
        small = ["train.steps=2", *more, "--run"]
        tutti("train", recipe, f"checkpoint.initialize_from={run}", *small, at(f"tuned-{name}"))
        tutti("train", recipe, f"checkpoint.initialize_from={run}", "lora.rank=2", "lora.alpha=4",
              *small, at(f"adapter-{name}"))
        tutti("checkpoint", "merge", at(f"adapter-{name}"), "--out", at(f"merged-{name}"))
        tutti("checkpoint", "export-adapter", at(f"adapter-{name}"), "--out", at(f"peft-{name}"))
        tutti("train", recipe, f"distill.teacher={run}", *small, at(f"taught-{name}"))
    for kind, file in (("export", "model.safetensors"), ("peft", "adapter_model.safetensors")):
        assert read(os.path.join(at(f"{kind}-sealed"), file)) == read(os.path.join(at(f"{kind}-plain"), file)), kind
    for kind in ("tuned", "adapter", "taught"):
        assert small_run.losses(at(f"{kind}-sealed")) == small_run.losses(at(f"{kind}-plain")), kind
    secret = bytes.fromhex(read(key_file, "r").strip())
    for run, step in (("tuned", 2), ("adapter", 2), ("taught", 2), ("merged", 2)):
        folder = os.path.join(at(f"{run}-sealed"), "checkpoints", f"step-{step:08}")
        same = os.path.join(at(f"{run}-plain"), "checkpoints", f"step-{step:08}")
        assert contents(folder, secret)[0] == contents(same, None)[0], run
    tutti("checkpoint", "verify", sealed)
    tutti("checkpoint", "lineage", sealed)
    tutti("checkpoint", "approve", sealed, "--control", at("control"))
    tutti("reproduce", sealed, "--out", at("reproduced"), "--steps", "5")


def ranks_seal(at, recipe, key_file, secret):
    """Two ranks save together; a third of the checkpoints is a copy in memory. One is killed."""
    memory, run = at("memory"), at("ranks")
    os.mkdir(memory)
    os.environ.update(TUTTI_MEMORY_ROOT=memory, TUTTI_FAULT="rank=1 step=5 at=backward do=kill")
    try:
        tutti("train", recipe, "train.steps=6", "parallel.zero=1", "checkpoint.every_steps=0",
              f"checkpoint.key_file={key_file}", "--nproc", "2", "--peer-copies", "1", "--run", run)
        shown = [e["text"] for e in small_run.events(run) if e["event"] == "message"]
        assert any("resuming at step 4 of 6, from the memory" in text for text in shown), shown
        _, manifest = contents(os.path.join(run, "checkpoints", "step-00000006"), secret)
        salts = {file["salt"] for file in manifest["files"]}
        assert len(salts) == len(manifest["files"]) >= 2
        assert os.listdir(memory) == [], os.listdir(memory)
        # What is in memory while it trains: sealed, and readable by no other user.
        os.environ["TUTTI_FAULT"] = "rank=0 step=3 at=update do=exit"
        tutti("train", recipe, "train.steps=6", "checkpoint.every_steps=0", f"checkpoint.key_file={key_file}",
              "--peer-copies", "1", "--run", at("kept"), ok=False)
        kept, = os.listdir(memory)
        assert os.stat(os.path.join(memory, kept)).st_mode & 0o777 == 0o700
        files = [name for _, _, names in os.walk(memory) for name in names]
        assert any(name.endswith(".sealed") for name in files), files
        assert not any(name.endswith(".safetensors") for name in files), files
        is_nowhere(secret, memory)
    finally:
        del os.environ["TUTTI_MEMORY_ROOT"], os.environ["TUTTI_FAULT"]


def main():
    os.environ.pop("TUTTI_CHECKPOINT_KEY", None)
    with tempfile.TemporaryDirectory() as folder:
        recipe = small_run.prepare(folder)
        secret = os.urandom(32)
        key_file, other_file = os.path.join(folder, "key"), os.path.join(folder, "other")
        write_key(key_file, secret.hex())
        write_key(other_file, os.urandom(32).hex())
        at = lambda name: os.path.join(folder, name)
        plain, sealed = os.path.join(folder, "plain"), os.path.join(folder, "sealed")
        tutti("train", recipe, "train.steps=5", "--run", plain)
        tutti("train", recipe, "train.steps=5", f"checkpoint.key_file={key_file}", "--run", sealed)

        step = "checkpoints/step-00000005"
        expected, _ = contents(os.path.join(plain, step), None)
        found, manifest = contents(os.path.join(sealed, step), secret)
        assert found == expected, "the shards are not those of the run without a key"
        stored = b"".join(read(os.path.join(sealed, step, file["name"]))
                          for file in manifest["files"])
        assert not any(expected[0][at:at + 16] in stored for at in range(0, len(expected[0]), 4096))
        is_nowhere(secret, sealed)

        # Without its key it is not read, not resumed, and nothing else replaces it.
        for command in (("eval", sealed), ("checkpoint", "verify", sealed),
                        ("train", sealed, "train.steps=10"),
                        ("checkpoint", "export", sealed, "--out", os.path.join(folder, "export"))):
            says = tutti(*command, key_file=other_file, ok=False)
            assert "is sealed with key " + manifest["seal"]["key_id"] in says, (command, says)
        assert not os.path.exists(os.path.join(folder, "export"))
        os.rename(key_file, key_file + ".kept")
        says = tutti("train", recipe, "train.steps=5", f"checkpoint.key_file={key_file}", "--run",
                     os.path.join(folder, "none"), ok=False)
        assert "checkpoint.key_file" in says and "is not there" in says, says
        tutti("checkpoint", "verify", sealed, key_file=key_file + ".kept")
        os.rename(key_file + ".kept", key_file)
        for path, digits, mode, expected in (("short", secret.hex()[2:], 0o600, "64 hex digits"),
                                             ("open", secret.hex(), 0o644, "chmod 600")):
            write_key(at(path), digits, mode)
            assert expected in tutti("checkpoint", "verify", sealed, key_file=at(path), ok=False)
            assert expected in tutti("train", recipe, f"checkpoint.key_file={at(path)}", "--run", at("none"), ok=False)

        # And with it, to the same bits.
        tutti("train", sealed, "train.steps=10")
        tutti("train", plain, "train.steps=10")
        step = "checkpoints/step-00000010"
        assert (contents(os.path.join(sealed, step), secret)[0]
                == contents(os.path.join(plain, step), None)[0])
        assert small_run.losses(sealed) == small_run.losses(plain)

        every_reader_opens(at, recipe, key_file, sealed, plain)
        ranks_seal(at, recipe, key_file, secret)

        # One that was put there without the key is distinguished from the run's own.
        moved = at("moved")
        shutil.copytree(sealed, moved)
        shutil.rmtree(os.path.join(moved, "checkpoints"))
        shutil.copytree(os.path.join(plain, "checkpoints"), os.path.join(moved, "checkpoints"))
        assert "another run" in tutti("train", moved, "train.steps=11", ok=False)
        assert "is sealed with none" in tutti("train", moved, "train.steps=11", "--force-resume")
        newest, older = (os.path.join(sealed, "checkpoints", f"step-{n:08}") for n in (10, 5))
        shutil.rmtree(older)
        shutil.copytree(newest, older)
        assert "saved at step 10" in tutti("checkpoint", "verify", older, ok=False)
        assert "saved at step 10" in tutti("eval", older, "--data", at("corpus"), ok=False)
        shutil.rmtree(older)

        # A changed byte is found.
        shard = os.path.join(sealed, step, manifest["files"][0]["name"])
        with open(shard, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        assert "damaged" in tutti("checkpoint", "verify", sealed, ok=False)
    print("sealed checkpoints open with their key alone")


if __name__ == "__main__":
    sys.exit(main())
