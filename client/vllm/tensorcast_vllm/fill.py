"""Puts loaded pieces into a model's parameters: by adopting the daemon's memory where it already is what the parameter
shall be, else by one copy straight to the final place, several parameters at a time."""
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from .attempts import state_of
from .trace import evaluate, is_held_elsewhere, key_of

_MAX_THREADS = 8
_ALIGN_BYTES = 64  # of torch's own memory, which kernels may count on


class Filled(NamedTuple):
    copied_bytes: int
    adopted_bytes: int


def device_of(model):
    """The GPU that a model is on. The host when it is on none, on several, or on what the daemon has no memory on."""
    devices = {tensor.device for _, tensor in state_of(model)} - {torch.device("cpu"), torch.device("meta")}
    device = devices.pop() if len(devices) == 1 else None
    return device if device and device.type == "cuda" else torch.device("cpu")


def seen(storage, region, dtype):
    """A tensor over part of a storage."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, region.offset, region.sizes, region.strides)


def fill(model, plan, loaded, adopt):
    """Carries out a plan. loaded: for each request a mapping of names to its pieces, which may be adopted if `adopt`."""
    owners = {key_of(tensor): tensor for _, tensor in state_of(model)}
    adopted = _adopt(plan, loaded, owners) if adopt else {}
    groups = [(owners[key].untyped_storage(), steps) for key, steps in plan.steps.items() if key not in adopted]
    with ThreadPoolExecutor(min(_MAX_THREADS, len(os.sched_getaffinity(0)))) as pool:
        copied = sum(pool.map(lambda group: _copy(plan, loaded, *group), groups))
    return Filled(copied, sum(adopted.values()))


def _source(plan, loaded, leaf):
    """The elements of a Ref of a checkpoint tensor."""
    piece, region = plan.piece(leaf), plan.within(leaf)
    tensor = loaded[piece.request][piece.name]
    return tensor.as_strided(region.sizes, region.strides, tensor.storage_offset() + region.offset).view(leaf.dtype)


def _copy(plan, loaded, storage, steps):
    """The steps into one storage, in order: a later one may write over an earlier one."""
    copied, made = 0, {}

    def operand(leaf):  # in host memory, where every other loader computes, so that the result is the same to the last bit
        return _source(plan, loaded, leaf).reshape(leaf.view.sizes).cpu()

    for step in steps:
        plain = isinstance(step.source.base, str)
        target = seen(storage, plan.target_of(step), step.dtype)
        target.copy_(_source(plan, loaded, step.source) if plain else evaluate(step.source, operand, made))
        copied += step.region.elements * step.dtype.itemsize
    return copied


def _adopt(plan, loaded, owners):
    """Gives parameters the daemon's memory. {key of the storage that a parameter had: bytes}"""
    written, adopted = {key for key, _ in plan.written}, {}
    for key, steps in plan.steps.items():
        tensor = owners[key]
        if key in written or is_held_elsewhere(tensor):  # a view that other code keeps would go on showing the old memory
            continue
        replacement = _as_it_is(plan, loaded, steps, tensor)
        if replacement is not None:
            adopted[key] = tensor.nbytes
            tensor.data = replacement
    return adopted


def _as_it_is(plan, loaded, steps, tensor):
    """The loaded memory as this parameter, when its bytes lie there in one span, else None."""
    bytes_now = tensor.numel() * tensor.element_size()
    if not tensor.is_contiguous() or tensor.storage_offset() or tensor.untyped_storage().nbytes() != bytes_now:
        return None
    first, end = None, 0  # (request, address) of where the parameter would begin
    steps = sorted(steps, key=lambda step: step.region.offset)
    for step in steps:
        if not isinstance(step.source.base, str) or not tensor.dtype == step.dtype == step.source.dtype:
            return None
        source, request = _source(plan, loaded, step.source), plan.piece(step.source).request
        at = request, source.data_ptr() - step.region.offset * tensor.element_size()
        first = first or at
        same = at == first and source.device == tensor.device
        if not same or step.region.offset != end or not step.region.contiguous or not plan.within(step.source).contiguous:
            return None
        end += step.region.elements
    if not first or end != tensor.numel() or first[1] % _ALIGN_BYTES:
        return None
    leaf = steps[0].source
    return loaded[first[0]].span(plan.piece(leaf).name, plan.within(leaf).offset, end).view(tensor.shape)
