"""safetensors.torch, with load_file and load_model served by the daemon. What is made of bytes, or saved, is the official package's."""
from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import _remove_duplicate_names, load, save, save_file, save_model

from .handle import safe_open

__all__ = ["load", "load_file", "load_model", "save", "save_file", "save_model"]


def load_file(filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap") -> dict[str, torch.Tensor]:
    """All tensors of a file or of any reference. On the CPU they are the daemon's memory, without a copy, and may be written to:
    no other process sees it."""
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


def load_model(model: torch.nn.Module, filename: str | os.PathLike[str], strict: bool = True, device: str | int = "cpu", *,
               backend: str = "mmap") -> tuple[Any, list[str]]:
    """Loads a file into a module whose parameters may be shared, and returns the names that were (missing, unexpected)."""
    state = load_file(filename, device=device, backend=backend)
    duplicates = _remove_duplicate_names(model.state_dict(), preferred_names=list(state))
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = set(missing)
    for name in (name for names in duplicates.values() for name in names):
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        lines += [f"    {what} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names))
                  for what, names in (("Missing", missing), ("Unexpected", unexpected)) if names]
        raise RuntimeError("\n".join(lines))
    return missing, unexpected

if not TYPE_CHECKING:
    def __getattr__(name):
        """What else that module has, such as storage_ptr: as it is."""
        return getattr(importlib.import_module("safetensors.torch"), name)
