"""safetensors.numpy, with load_file served by the daemon. What is made of bytes, or saved, is the official package's."""
from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load, save, save_file

from .handle import safe_open

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, np.ndarray]:
    """All tensors of a file or of any reference: the daemon's memory, without a copy. They may be written to: no other process sees it."""
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()

if not TYPE_CHECKING:
    def __getattr__(name):
        """What else that module has, such as deserialize: as it is."""
        return getattr(importlib.import_module("safetensors.numpy"), name)
