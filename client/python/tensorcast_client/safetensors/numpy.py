"""safetensors.numpy, with load_file served by the daemon. What is made of bytes, or saved, is the official package's."""
from __future__ import annotations

import os

import numpy as np
from safetensors.numpy import load, save, save_file

from .handle import safe_open

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, np.ndarray]:
    """All tensors of a file or of any reference: the daemon's memory, without a copy. They may be written to: nobody else sees it."""
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()
