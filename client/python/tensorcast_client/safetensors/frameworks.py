"""The frameworks that tensors are made for. Each has: make, what View loads with; select(), the Selected of an index (see
indexing.py); empty(); copy(); done(), the last step of what is handed out; room(), memory on a GPU that the daemon may fill, or None."""
from __future__ import annotations

import importlib

from ..arrays import NumpyArrays
from ..dtypes import NAMES, of_numpy
from . import indexing
from .official import official

_NUMBERED = ("cuda", "npu", "xpu", "xla", "mlu", "musa", "hpu")  # without a number the first of them

def _check_known(number):
    if NAMES[number] in ("F6_E2M3", "F6_E3M2"):
        raise official.SafetensorError(f"Dtype not understood: {NAMES[number]}")


def _shown(device):
    """A device as the official package prints it."""
    return int(device) if isinstance(device, bool) else _first(device)


def _first(device):
    """torch's current device of a kind may be another one than the first."""
    return f"{device}:0" if device in _NUMBERED else device


class ForNumpy:
    """Arrays of NumPy, which may be written to, as the official package's may."""

    select = staticmethod(indexing.of_parser)
    room = None

    @staticmethod
    def make(buffer, layout):
        return NumpyArrays(buffer, layout, writable=True)

    def empty(self, shape, number):
        return importlib.import_module("numpy").empty(shape, of_numpy(number))

    def copy(self, array):
        return array.copy()

    def done(self, array, number):
        _check_known(number)
        return array if array.flags.c_contiguous else array.copy()


class ForConverted(ForNumpy):
    """Arrays that another framework makes its own of."""

    def __init__(self, module, name, **options):
        self._module, self._name, self._options = module, name, options  # imported when there is something to make

    def done(self, array, number):
        _check_known(number)
        return getattr(importlib.import_module(self._module), self._name)(array, **self._options)


class ForTorch:
    """Tensors of torch, each with a storage of its own, which may be written to."""

    select = staticmethod(indexing.of_torch)

    def __init__(self, device):
        import torch

        from .torch_types import OfficialTensors
        self.make = OfficialTensors
        self._device = int(device) if isinstance(device, bool) else _first(device)  # of a bool torch would make a dtype
        is_gpu = str(self._device).startswith("cuda") or (type(self._device) is int and torch.device(self._device).type == "cuda")
        self.room = self._room if is_gpu else None

    def _room(self, shape, number):
        import torch

        from ..dtypes import of_torch
        return torch.empty(shape, dtype=of_torch(number), device=self._device)

    def empty(self, shape, number):
        import torch

        from ..dtypes import of_torch
        from .torch_types import packed
        return packed(torch.empty(shape, dtype=of_torch(number)), number, shape)

    def copy(self, tensor):
        return tensor.clone()

    def done(self, tensor, number):
        _check_known(number)
        return tensor if self._device in ("cpu", None) else tensor.to(self._device)


def framework_for(module, device):
    """The framework of a module's name."""
    if module == "torch":
        return ForTorch(device)
    if module == "paddle":
        importlib.import_module("paddle")  # now, as the official package does
        place = str(device or "cpu").replace("cuda", "gpu", 1)
        return ForConverted("paddle", "to_tensor", place=place)
    if device not in ("cpu", None):
        raise official.SafetensorError(f"Device {_shown(device)} is not supported for framework {module}")
    if module == "numpy":
        return ForNumpy()
    return ForConverted(*{"flax": ("jax.numpy", "array"), "tensorflow": ("tensorflow", "convert_to_tensor"), "mlx": ("mlx.core", "array")}[module])
