#!/usr/bin/env python3
"""Writes a checkpoint like the ones people download, with the independent `safetensors` package.

    make_checkpoint.py FOLDER --size 1GiB

Several part files with model.safetensors.index.json, the shapes of Llama 3 8B layers in BF16 (smaller ones when --size is
small), and a last part with everything unusual: F16, F32, F8_E4M3, I64, BOOL, a 0-d and an empty tensor. The data section
of the second part does not begin at a multiple of 8, as some writers leave it. The bytes are random but the same in every
run. At the end the files are on the disk and out of the page cache, so that the next load really reads.
"""
import argparse
import json
import os
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

INDEX = "model.safetensors.index.json"
LAYER_ELEMENTS = 13  # per hidden size squared: q 1, k and v 1/4 each, o 1, gate, up and down 3.5 each


def bytes_of(text):
    """"4GiB", "512MB", "1000000": powers of 1024 for both spellings."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?", text.strip(), re.I)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 512MiB or 4GiB")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def shapes(size):
    """Names and shapes of the BF16 tensors, in file order, together about `size` bytes."""
    hidden = next((h for h in (4096, 2048, 1024, 512, 256, 128) if 2 * LAYER_ELEMENTS * h * h <= 0.45 * size), 64)
    kv, inner, layer_bytes = hidden // 4, hidden * 7 // 2, 2 * LAYER_ELEMENTS * hidden * hidden
    layers = max(1, int(0.9 * size) // layer_bytes)
    vocabulary = max(64, (size - layers * layer_bytes) // (4 * hidden) // 64 * 64)
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for i in range(layers):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (hidden, hidden)
        yield layer + "self_attn.k_proj.weight", (kv, hidden)
        yield layer + "self_attn.v_proj.weight", (kv, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, hidden)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield layer + "mlp.gate_proj.weight", (inner, hidden)
        yield layer + "mlp.up_proj.weight", (inner, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def unusual(rng):
    """Every other type and shape that a checkpoint may hold."""
    return {
        "rotary.inv_freq": rng.random(64, np.float32),
        "adapter.bias": rng.random(4096, np.float32).astype(np.float16),
        "adapter.codes": rng.random((1024, 64), np.float32).astype(ml_dtypes.float8_e4m3fn),
        "tokens.position_ids": np.arange(4096, dtype=np.int64),
        "tokens.mask": rng.random((128, 128)) < 0.5,
        "logit_scale": np.array(rng.random(), np.float32),
        "unused.weight": np.empty((0, 4096), np.float32),
    }


def parts_of(items, n):
    """Consecutive tensors in n lists of about equal bytes."""
    total, seen, parts = sum(np.prod(shape) for _, shape in items), 0, [[] for _ in range(n)]
    for name, shape in items:
        parts[min(n - 1, int(seen * n // total))].append((name, shape))
        seen += np.prod(shape)
    return parts


def random_bf16(rng, shape):
    return np.frombuffer(rng.bytes(2 * int(np.prod(shape))), ml_dtypes.bfloat16).reshape(shape)


def misalign(path):
    """Rewrites the header without its padding, so that the data begins off a multiple of 8."""
    with open(path, "rb") as old, open(f"{path}.new", "wb") as new:
        header = old.read(int.from_bytes(old.read(8), "little")).rstrip(b" ")
        header += b" " * (len(header) % 8 == 0)
        new.write(len(header).to_bytes(8, "little") + header)
        while chunk := old.read(16 << 20):
            new.write(chunk)
    os.replace(f"{path}.new", path)


def write(folder, size):
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.safetensors"), folder / INDEX]:
        old.unlink(missing_ok=True)
    rng = np.random.Generator(np.random.SFC64(1))
    parts = parts_of(list(shapes(size)), max(3, -(-size // (1 << 30))))
    weight_map, total = {}, 0
    for i in range(len(parts) + 1):
        name = f"model-{i + 1:05d}-of-{len(parts) + 1:05d}.safetensors"
        if i < len(parts):
            tensors = {n: random_bf16(rng, s) for n, s in parts[i]}
        else:
            tensors = unusual(rng)
        save_file(tensors, folder / name, metadata={"format": "pt"})
        if i == 1:
            misalign(folder / name)
        (folder / name).chmod(0o644)  # the daemon may run as another user
        weight_map.update(dict.fromkeys(tensors, name))
        total += sum(t.nbytes for t in tensors.values())
    text = json.dumps({"metadata": {"total_size": total, "asked_size": size}, "weight_map": weight_map}, indent=1)
    (folder / INDEX).write_text(text)


def is_there(folder, size):
    """Whether an earlier run wrote this very checkpoint: the index is written last."""
    try:
        index = json.loads((folder / INDEX).read_text())
        return index["metadata"]["asked_size"] == size and all((folder / f).exists() for f in index["weight_map"].values())
    except (OSError, ValueError, KeyError):
        return False


def flush(folder):
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=bytes_of, default="1GiB")
    arguments = parser.parse_args()
    if not is_there(arguments.folder, arguments.size):
        try:
            write(arguments.folder, arguments.size)
        except OSError as error:
            sys.exit(f"make_checkpoint: {arguments.folder}: {error.strerror}; give another folder or a smaller size")
    flush(arguments.folder)
    files = sorted(arguments.folder.glob("*.safetensors"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files):,} bytes in {arguments.folder}")


if __name__ == "__main__":
    main()
