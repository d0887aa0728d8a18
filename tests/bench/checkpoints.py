"""The benchmark's checkpoints: Llama-shaped BF16 in four part files, 100,000 small tensors in one, a tiny one to warm up.

Every byte is random and follows from a fixed seed. Written with the safetensors package; kept in the folder for the next
run.
"""
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open
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


def shards(folder, plain, n_ranks=8):
    """The tensors of a checkpoint as n_ranks that saved with torch.distributed.checkpoint leave them: a matrix is cut by its rows
    and the next one by its columns, a vector is one rank's."""
    what = f"shards {plain.name} {n_ranks}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    parts, offsets = [{} for _ in range(n_ranks)], [{} for _ in range(n_ranks)]
    tensors = [(name, file.get_tensor(name)) for path in sorted(plain.glob("*.safetensors"))
               for file in [safe_open(path, "np")] for name in file.keys()]
    for at, (name, tensor) in enumerate(tensors):
        pieces = np.array_split(tensor, n_ranks, at % 2) if tensor.ndim == 2 else [tensor]
        start = 0
        for k, piece in enumerate(pieces):
            rank = k if tensor.ndim == 2 else at % n_ranks
            parts[rank][name] = np.ascontiguousarray(piece)
            offsets[rank][name] = {"saved_offsets": [start if dim == at % 2 else 0 for dim in range(tensor.ndim)]}
            start += piece.shape[at % 2] if tensor.ndim == 2 else 0
    for rank, part in enumerate(parts):
        save_file(part, folder / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors",
                  metadata={"DCP_SHARDING_INFO": json.dumps(offsets[rank]), "DCP_VERSION": "1.0", "format": "pt"})
    (folder / "complete").write_text(what)
    return folder


def matrices(folder, size, dtype, side=4096):
    """Square matrices of F32, or of F8_E4M3 with a scale for every 128 x 128, one file for each GB."""
    what = f"matrices {size} {dtype} {side}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng, one, per_file = np.random.Generator(np.random.SFC64(9)), side * side * (4 if dtype == "F32" else 1), {}
    for i in range(max(size // one, 1)):
        part = per_file.setdefault(i * one // 1_000_000_000, {})
        name = f"model.layers.{i}.mlp.up_proj.weight"
        if dtype == "F32":
            part[name] = rng.standard_normal((side, side), np.float32)
        else:
            part[name] = (rng.integers(0, 256, (side, side), np.uint8) & 0xf7).view(ml_dtypes.float8_e4m3fn)  # no NaN
            part[f"{name}_scale_inv"] = rng.random((side // 128, side // 128), np.float32)
    np.float8_e4m3fn = ml_dtypes.float8_e4m3fn  # where safetensors looks for it
    for i, part in per_file.items():
        save_file(part, folder / f"part-{i:03d}.safetensors")
    (folder / "complete").write_text(what)
    return folder


def dense(folder, hidden, width):
    """A feed-forward layer that is made into experts, BF16."""
    what = f"dense {hidden} {width}"
    if ready(folder, what):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.SFC64(10))
    shapes = {"w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width)}
    save_file({f"l.0.moe.experts.{name}": random_bf16(rng, shape) for name, shape in shapes.items()}, folder / "model.safetensors")
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
