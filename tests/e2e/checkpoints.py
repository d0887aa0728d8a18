"""Checkpoints written and read back with independent software: NumPy, ml_dtypes and the safetensors package."""
import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

np.float8_e4m3fn, np.float8_e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2  # where safetensors looks for them
TYPES = [np.bool_, np.uint8, np.int8, np.int16, np.uint16, np.float16, ml_dtypes.bfloat16, np.int32, np.uint32,
         np.float32, np.float64, np.int64, np.uint64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def random_array(rng, dtype, shape):
    """Random bits of that type (BOOL: 0 or 1)."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def blob(seed, size):
    """One U8 tensor of `size` bytes: those of Generator.bytes(), in a thirteenth of its time."""
    words = np.random.default_rng(seed).integers(0, 2**64 - 1, -(-size // 8), np.uint64, endpoint=True)
    words.setflags(write=False)
    return words.view(np.uint8)[:size]


def write(folder, *parts):
    """Writes {name: array} dictionaries as part files with an index (one: model.safetensors); returns all of them."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{i:05d}-of-{len(parts):05d}.safetensors" for i in range(1, len(parts) + 1)]
    names = ["model.safetensors"] if len(parts) == 1 else names
    for name, part in zip(names, parts):
        save_file({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in part.items()}, folder / name)
    if len(parts) > 1:
        weight_map = {tensor: name for name, part in zip(names, parts) for tensor in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return {tensor: value for part in parts for tensor, value in part.items()}


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).hexdigest()  # no copy: some are large


def digests(report):
    return {t["name"]: t["sha256"] for t in report["tensors"]}


def read_back(path):
    """{name: array}, as the safetensors package reads a file we wrote, in the order of its header."""
    with open(path, "rb") as file:
        order = [name for name in json.loads(file.read(int.from_bytes(file.read(8), "little"))) if name != "__metadata__"]
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in order}


def random_slices(rng, shape):
    """(NumPy index, JSON slices) for an array of that shape; every bound may be negative, missing or beyond the end."""
    index, text = [], []
    for extent in shape:
        bounds = [None if rng.random() < 0.25 else int(rng.integers(-extent - 2, extent + 3)) for _ in range(2)]
        whole = rng.random() < 0.3
        index.append(slice(None) if whole else slice(*bounds))
        text.append(None if whole else bounds)
    return tuple(index), text
