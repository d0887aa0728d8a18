"""The benchmark's checkpoints: Llama-shaped BF16 in four part files, 100,000 small tensors in one, a tiny one to warm up.

Every byte is random and follows from a fixed seed. Written with the safetensors package; kept in the folder for the next
run.
"""
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from make_checkpoint import INDEX, parts_of, random_bf16, shapes  # noqa: E402


def ready(folder, what):
    return (folder / "complete").exists() and (folder / "complete").read_text() == what


def llama(folder, size, n_parts=4):
    what = f"llama {size} {n_parts}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng, weight_map = np.random.Generator(np.random.SFC64(7)), {}
    for i, part in enumerate(parts_of(list(shapes(size)), n_parts), 1):
        name = f"model-{i:05d}-of-{n_parts:05d}.safetensors"
        save_file({n: random_bf16(rng, s) for n, s in part}, folder / name, metadata={"format": "pt"})
        weight_map.update({n: name for n, _ in part})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "complete").write_text(what)
    return folder


def small_tensors(folder, count):
    """Experts of about 4 KB each, in one file."""
    what = f"small {count}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.SFC64(8))
    kinds = ("gate_proj", "up_proj", "down_proj")
    tensors = {f"model.layers.{i // 1536}.mlp.experts.{i // 3 % 512}.{kinds[i % 3]}.scales": random_bf16(rng, (32, 60 + i % 9))
               for i in range(count)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "complete").write_text(what)
    return folder


def few_tensors(folder, size, count=10):
    """The same number of bytes in `count` tensors."""
    what = f"few {size} {count}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.SFC64(9))
    save_file({f"w{i}": np.frombuffer(rng.bytes(size // count // 2 * 2), ml_dtypes.bfloat16) for i in range(count)},
              folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "complete").write_text(what)
    return folder


def wide(folder, rows, columns):
    """One BF16 matrix, for slices of its inner dimension."""
    what = f"wide {rows} {columns}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.SFC64(10))
    save_file({"w": random_bf16(rng, (rows, columns))}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "complete").write_text(what)
    return folder
