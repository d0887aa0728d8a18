"""Moves the parameters and buffers of a torch module into one HostRegion, so that the daemon can fill them where they are."""
from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from . import errors
from .dtensor import is_dtensor
from .host_region import HostRegion
from .module_fill import extent, is_plain

_ALIGN_BYTES = 64


def empty_like_region(module: torch.nn.Module) -> torch.nn.Module:
    """Moves what a module has in host memory, or on the meta device, into one HostRegion, and returns the module.

    Shapes, strides, requires_grad, attributes of parameters and what shares memory (tied parameters, views of one another) stay.
    Values stay, too; those of the meta device, which have none, become zeros. Parameters on a GPU stay where they are, since
    they can be filled there, and so do DTensors, tensors at odd addresses and those whose memory does not have their values, such
    as conjugated views. A parameter in host memory is the same object afterwards, one of the meta device a new one, so make
    optimizers later. The region lives as long as any of its tensors."""
    blocks = _blocks({id(tensor): tensor for *_, tensor in _spots(module)}.values())
    if not blocks or not blocks[-1].end():
        return module
    region, moved = HostRegion(blocks[-1].end()), {}
    for block in blocks:
        lead = block.lead()
        memory = region.tensor(torch.uint8, lead + block.high - block.low, block.at - lead)  # a storage for each: savers ask for it
        if block.is_real:
            ctypes.memmove(memory.data_ptr() + lead, block.low, block.high - block.low)
        moved.update((id(tensor), _move(tensor, block.view(memory, tensor))) for tensor in block.tensors)
    for owner, name, tensor in list(_spots(module)):
        if id(tensor) in moved and moved[id(tensor)] is not tensor:
            setattr(owner, name, moved[id(tensor)])
    return module


class _Block(NamedTuple):
    """Tensors that share memory, and the bytes [low, high) that they span: addresses, or of the meta device places in a storage."""

    tensors: list
    is_real: bool
    low: int
    high: int
    at: int  # in the region

    def end(self):
        return -(-(self.at + self.high - self.low) // _ALIGN_BYTES) * _ALIGN_BYTES

    def lead(self):
        """Bytes before the first, so that all elements lie at multiples of their size; none where a tensor is alone."""
        return self.low % max(tensor.element_size() for tensor in self.tensors)

    def view(self, memory, like):
        """The tensor in the block's memory that stands for `like`."""
        width = like.element_size()
        elements = memory[:len(memory) // width * width].view(like.dtype)
        return torch.as_strided(elements, like.shape, like.stride(), (self.lead() + _span(like)[1] - self.low) // width)


def _spots(module):
    """(module, name, tensor) of everything that moves, more than once where it is tied."""
    for prefix, owner in module.named_modules():
        for name, tensor in [*owner._parameters.items(), *owner._buffers.items()]:
            if tensor is None or is_dtensor(tensor) or tensor.device.type not in ("cpu", "meta"):
                continue
            if torch.nn.parameter.is_lazy(tensor):
                raise errors.invalid(f"{prefix}.{name} has no shape yet: run the module once before it is moved", "LAZY_PARAMETER")
            if is_plain(tensor) and (tensor.is_meta or tensor.data_ptr() % tensor.element_size() == 0):
                yield owner, name, tensor


def _span(tensor):
    """(which memory, first byte, end): all of the host is one memory, of the meta device each storage is."""
    if not tensor.is_meta:
        return (0, *extent(tensor)) if tensor.numel() else (0, tensor.data_ptr(), tensor.data_ptr())
    first = tensor.storage_offset() * tensor.element_size()
    low, high = extent(tensor) if tensor.numel() else (0, 0)
    return tensor.untyped_storage()._cdata, first, first + high - low


def _blocks(tensors):
    """One block for each set of tensors that overlap, in the order of the module."""
    order = {id(tensor): at for at, tensor in enumerate(tensors)}
    groups = []  # [tensors, which memory, low, high]
    for which, low, high, tensor in sorted(((*_span(tensor), tensor) for tensor in tensors), key=lambda one: one[:3]):
        if groups and groups[-1][1] == which and low < groups[-1][3]:
            groups[-1][0].append(tensor)
            groups[-1][3] = max(groups[-1][3], high)
        else:
            groups.append([[tensor], which, low, high])
    groups.sort(key=lambda group: min(order[id(tensor)] for tensor in group[0]))
    blocks = []
    for tensors, _, low, high in groups:
        at = (blocks[-1].end() if blocks else 0) + low % _ALIGN_BYTES  # elements stay as aligned as they are
        blocks.append(_Block(tensors, not tensors[0].is_meta, low, high, at))
    return blocks


def _move(tensor, new):
    """What stands for a tensor from now on: itself, or of the meta device a new one like it."""
    if not tensor.is_meta:
        tensor.data = new
        return tensor
    made = torch.Tensor._make_subclass(type(tensor), new, tensor.requires_grad)
    made.__dict__.update(tensor.__dict__)
    return made
