"""Targets of a load: arrays and tensors of the caller, each as a place in memory that the daemon can be given.

What is said of a target here (type, shape, strides, address) the daemon checks again; what only this process can know, such as
whether an array may be written to and which memory it lies in, is checked here, and refused with the target's name.
"""
from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import numpy as np

from . import errors
from .dtypes import number_of

BAD_TARGET = "BAD_TARGET"


class Target(NamedTuple):
    """An array. strides are in bytes; first is the address of the element with all indexes 0, [low, high) what its elements
    span, nothing for an array without elements."""

    name: str
    dtype: int  # proto number
    shape: tuple
    strides: tuple
    first: int
    low: int
    high: int
    on_gpu: bool
    owner: Any  # the caller's object, which keeps the memory

    @property
    def is_empty(self):
        return self.low == self.high


def target_of(name, value, written=True):
    """The Target that an array or tensor is. written: the load is going to write to it."""
    if not isinstance(name, str) or not _is_text(name):
        raise errors.invalid(f"a target's name is a string of characters, not {name!r}", BAD_TARGET)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(name, value, torch)
    if isinstance(value, np.ndarray):
        return _of_numpy(name, value, written)
    if hasattr(value, "__cuda_array_interface__"):
        return _of_cuda(name, value, written)
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise _bad(name, "it is a JAX array, which cannot change; tensorcast_client.jax loads new ones")
    raise _bad(name, f"it is {type(value).__name__}, not a NumPy array, torch tensor or CUDA array")


def _is_text(name):
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _of_numpy(name, array, written):
    if written and not array.flags.writeable:
        raise _bad(name, "the array is read-only")
    address = array.__array_interface__["data"][0]  # several times as fast as array.ctypes
    return _made(name, _number(name, array.dtype), array.dtype.itemsize, array.shape, array.strides, address, False, array)


def _of_torch(name, tensor, torch):
    try:
        kind = _kind(tensor) if tensor.layout is torch.strided else f"tensor of layout {tensor.layout}"
        address = tensor.data_ptr() if kind == "tensor" and tensor.device.type in ("cpu", "cuda") else None
    except (RuntimeError, NotImplementedError, ValueError) as error:  # a subclass without memory of its own, a lazy parameter
        raise _bad(name, f"the tensor has no memory: {error}") from None
    if address is None or hasattr(tensor, "to_local"):
        raise _bad(name, f"it is a {kind} on {tensor.device}; a target is a plain tensor in host or CUDA memory, of a DTensor its local part")
    size, number = tensor.element_size(), number_of(str(tensor.dtype).rpartition(".")[2])
    if not number:
        raise _bad(name, f"no tensor of a checkpoint is {tensor.dtype}")
    strides = tuple(step * size for step in tensor.stride())
    return _made(name, number, size, tuple(tensor.shape), strides, address, tensor.device.type == "cuda", tensor)


def _kind(tensor):
    """What a strided tensor is; "tensor" where its memory has its values."""
    return ("nested tensor" if tensor.is_nested else "quantized tensor" if tensor.is_quantized else "conjugated view" if tensor.is_conj()
            else "negated view" if tensor.is_neg() else "tensor")


def _of_cuda(name, array, written):
    try:
        facts = array.__cuda_array_interface__
        dtype, shape = np.dtype(facts["typestr"]), tuple(map(int, facts["shape"]))
        address, is_read_only = facts["data"]
        strides = facts.get("strides")
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _bad(name, f"its __cuda_array_interface__ cannot be read: {error}") from None
    if written and is_read_only:
        raise _bad(name, "the array is read-only")
    if strides is None:
        strides = [dtype.itemsize] * len(shape)
        for dim in reversed(range(len(shape) - 1)):
            strides[dim] = strides[dim + 1] * shape[dim + 1]
    return _made(name, _number(name, dtype), dtype.itemsize, shape, tuple(map(int, strides)), int(address), True, array)


def _number(name, dtype):
    number = _known_number(dtype)
    if not number:
        raise _bad(name, f"no tensor of a checkpoint is {dtype}" + ("" if dtype.isnative else ", of another byte order"))
    return number


@functools.lru_cache(maxsize=64)
def _known_number(dtype):
    return number_of(dtype.name) if dtype.isnative else 0


def _made(name, number, size, shape, strides, first, on_gpu, owner):
    if 0 in shape:
        return Target(name, number, shape, (0,) * len(shape), first, first, first, on_gpu, owner)
    if 1 in shape:  # what such a dimension says of its stride means nothing
        strides = tuple(step if extent > 1 else size for step, extent in zip(strides, shape))
    low, high = first, first + size
    for extent, step in zip(shape, strides):
        if step < 0:
            low += (extent - 1) * step
        else:
            high += (extent - 1) * step
    return Target(name, number, shape, strides, first, low, high, on_gpu, owner)


def _bad(name, why):
    return errors.invalid(f"target {name}: {why}", BAD_TARGET, tensor=name)
