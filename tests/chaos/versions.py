"""What the clients of a chaos run load, and how they know which bytes are right.

Every tensor of a checkpoint is filled with one byte, and every file says which byte that is by the version it was written
with: all tensors of a file must show the same version, whenever it was loaded, or bytes of two versions were mixed.
"""
import os
from pathlib import Path

import numpy as np
from safetensors.numpy import save

TENSORS = {"a": (np.float32, (192, 512)), "b": (np.uint8, (777,)), "c": (np.uint16, (33, 17, 5)), "d": (np.float32, (0, 4)),
           "e": (np.uint8, (1 << 20,))}
N_MODELS = 6


def name_of(model):
    return f"m{model}.safetensors"


def file_bytes(version):
    return save({name: np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, version, np.uint8).view(dtype).reshape(shape)
                 for name, (dtype, shape) in TENSORS.items()})


def publish(folder, model, version):
    """As a careful writer does it: aside, then renamed."""
    aside = Path(folder) / f".{os.getpid()}.{model}.tmp"
    aside.write_bytes(file_bytes(version))
    os.chmod(aside, 0o644)
    os.rename(aside, Path(folder) / name_of(model))


def shape_of(name, bounds):
    """The shape of a slice, given as [(start, stop)] per dimension, or None for the whole tensor."""
    return TENSORS[name][1] if bounds is None else tuple(max(0, stop - start) for start, stop in bounds)


def size_of(name, bounds):
    return int(np.prod(shape_of(name, bounds), dtype=np.int64)) * np.dtype(TENSORS[name][0]).itemsize


def random_view(rng):
    """[(name, bounds)] of some tensors, some of them whole."""
    names = [name for name in TENSORS if rng.random() < 0.6] or ["a"]
    rng.shuffle(names)
    view = []
    for name in names:
        cuts = [sorted(rng.randint(0, extent) for _ in range(2)) for extent in TENSORS[name][1]]
        view.append((name, None if rng.random() < 0.4 else [tuple(cut) for cut in cuts]))
    return view


def wrong(memory, offsets, view):
    """What is wrong with the bytes of a view; "" when every byte shows one version."""
    seen = set()
    for (name, bounds), offset in zip(view, offsets):
        found = np.frombuffer(memory, np.uint8, size_of(name, bounds), offset)
        seen |= {int(found.min()), int(found.max())} if len(found) else set()
    return "" if len(seen) <= 1 else f"bytes of versions {sorted(seen)} in one load of {view}"
