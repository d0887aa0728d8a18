"""The safetensors package of this interpreter, as it was before ours was put in its place (see patching.py).

Its classes and functions are attributes of one object and not of a module, so that nothing that goes through modules finds them.
"""
from __future__ import annotations

import importlib
from types import SimpleNamespace

try:
    _rust = importlib.import_module("safetensors._safetensors_rust")
except ImportError as error:
    raise ImportError("tensorcast_client.safetensors serves the names of the safetensors package and needs it: "
                      "pip install 'safetensors>=0.4'") from error

KNOWN_VERSION = "0.8.0"  # whose own tests run against ours
_NAMES = ("SafetensorError", "TensorSpec", "deserialize", "serialize", "serialize_file", "_safe_open_handle", "__version__")
official = SimpleNamespace(safe_open=_rust.safe_open,
                           **{name: getattr(_rust, name) for name in _NAMES if hasattr(_rust, name)})
del _rust

_FRAMEWORKS = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy", "tf": "tensorflow",
               "tensorflow": "tensorflow", "jax": "flax", "flax": "flax", "mlx": "mlx", "paddle": "paddle"}
_NO_PATH = "\0"  # names no file on any system


def open_original(path, framework, device, backend):
    """The official package's own handle."""
    how = {} if backend == "mmap" else {"backend": backend}  # older ones know no other
    return official.safe_open(path, framework, device, **how)


def checked_framework(framework, device, backend):
    """The module's name that stands for a framework. What is no framework, device or backend raises what the official package
    raises for it: it looks at them before it looks for the file."""
    try:
        open_original(_NO_PATH, framework, device, backend)
    except FileNotFoundError:
        pass
    return _FRAMEWORKS.get(framework, framework)
