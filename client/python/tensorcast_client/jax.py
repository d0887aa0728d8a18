"""Checkpoints as jax.Arrays: each process loads the blocks of its own devices, each block once.

    from tensorcast_client.jax import load

    params = load(client.artifact("gs://bucket/llama"), {name: NamedSharding(mesh, P("model", None)), ...})
    params = load(client.artifact("disk:/models/llama"))          # the best-effort rule, over all devices
    params = load(client.artifact("disk:/models/llama"), variant="to_mine.yaml")     # what a recipe makes of it

A block whose rows lie together in the daemon's memory, 64-byte aligned, becomes the memory of a CPU device without a copy;
anything else is copied once, to where its device wants it.
"""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Tuple, Union

import jax
import numpy as np
from grpc import StatusCode
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from . import errors
from .artifact import Artifact
from .dtypes import BITS, DTYPES, of_numpy
from .options import Options
from .sharding import best_effort_dimension, best_effort_grid
from .shortcuts import source_of
from .view import Progress, View

_ALIGN_BYTES = 64  # of memory that a CPU device takes over

Shardings = Union[None, Sharding, Mesh, Mapping[str, Sharding], Callable[[str, Tuple[int, ...]], Sharding]]


def best_effort_sharding(shape: Sequence[int], devices: Sequence[jax.Device] | Mesh | None = None) -> NamedSharding:
    """A NamedSharding that splits what can be split evenly, and replicates over the rest.

    devices: how many ways to split, from the last dimension to the first, each by what it has in common with the devices that
    are left; None = all of jax.devices(). A Mesh instead: its axis "data" splits the last dimension that it divides, and
    everything else is replicated."""
    shape = tuple(shape)
    if isinstance(devices, Mesh):
        return _on_mesh(shape, devices)
    devices = np.array(jax.devices() if devices is None else devices, dtype=object)
    axes = [f"d{dim}" for dim in range(len(shape))]
    return NamedSharding(Mesh(devices.reshape(best_effort_grid(shape, devices.size)), ("b", *axes)), PartitionSpec(*axes))


def _on_mesh(shape, mesh):
    split = best_effort_dimension(shape, mesh.shape.get("data", 1))
    return NamedSharding(mesh, PartitionSpec(*("data" if dim == split else None for dim in range(len(shape)))))


def load(source: Artifact | View | str | os.PathLike[str], shardings: Shardings = None, progress: Progress | bool | None = None,
         options: Options | None = None, variant: Any = None,
         set: Mapping[str, Any] | None = None) -> dict[str, jax.Array]:  # noqa: A002
    """{name: jax.Array} of an artifact, a view or what a reference names, in its order.

    shardings: a Sharding for all tensors; {name: Sharding} for each; a function of (name, shape) that returns one; a Mesh or
    None for best_effort_sharding. Devices of other processes get nothing here: each process calls this for its own.
    progress and options are those of View.tensor_dict, for each request; nearly always there is one. variant, set: of an
    artifact, as Artifact.variant takes them; names and shapes are those of the variant then."""
    source = source_of(source, "load")
    if variant is not None:
        if not isinstance(source, Artifact):
            raise errors.invalid("a variant is made of an artifact; make the view of artifact.variant(...)", "BAD_VARIANT")
        source = source.variant(variant, set)
    elif set:
        raise errors.invalid("set is for the recipe of a variant", "BAD_VARIANT")
    view = source.view()
    view = view if view.has_align else view.view(align=_ALIGN_BYTES)
    wanted = _wanted(view, shardings)
    blocks = {name: {} for name in wanted}
    for request in _requests(wanted):
        part = view.only(list(request)).view({name: _slices(box, wanted[name].shape) for name, box in request.items()})
        with part.tensor_dict(framework="numpy", progress=progress, options=options) as loaded:
            for name, hull in request.items():
                _cut(wanted[name], hull, loaded[name], blocks[name])
    return {name: tensor.assemble(blocks[name]) for name, tensor in wanted.items()}


class _Tensor(NamedTuple):
    """What this process needs of a tensor. boxes: {device: ((start, stop), ...)}"""

    name: str
    shape: tuple
    sharding: Sharding
    boxes: dict
    dtype: np.dtype

    def assemble(self, blocks):
        arrays = [jax.device_put(blocks[box], device) for device, box in self.boxes.items()]
        if not arrays:  # all of its devices are other processes'
            return jax.make_array_from_single_device_arrays(self.shape, self.sharding, [], dtype=self.dtype)
        return jax.make_array_from_single_device_arrays(self.shape, self.sharding, arrays)


def _wanted(view, shardings):
    """{name: _Tensor}"""
    shapes, facts = view.shapes(), view.artifact.facts()
    sharding_of = _chooser(shardings, shapes)
    wanted = {}
    for name, shape in shapes.items():
        dtype = _dtype(name, facts.dtype_number(name))
        sharding = sharding_of(name, shape)
        try:
            indices = sharding.addressable_devices_indices_map(shape)
        except ValueError as error:
            raise errors.invalid(f"tensor {name} of shape {list(shape)} cannot be cut up so: {error}", "BAD_SHARDING") from None
        boxes = {device: tuple(part.indices(extent)[:2] for part, extent in zip(index, shape))
                 for device, index in indices.items()}
        wanted[name] = _Tensor(name, shape, sharding, boxes, dtype)
    return wanted


def _chooser(shardings, shapes):
    """sharding(name, shape)"""
    if shardings is None or isinstance(shardings, Mesh):
        return lambda name, shape: best_effort_sharding(shape, shardings)
    if isinstance(shardings, Sharding):
        return lambda name, shape: shardings
    if not isinstance(shardings, Mapping):
        return shardings
    for name in shapes:
        if name not in shardings:
            raise errors.invalid(f"tensor {name} has no sharding; give it one, or load a subset without it", "NO_SHARDING")
    for name in shardings:
        if name not in shapes:
            raise errors.tensor_not_found(name, "what is to be loaded, and has a sharding")
    return lambda name, shape: shardings[name]


def _dtype(name, number):
    if BITS[number] < 8:
        raise errors.make(StatusCode.UNIMPLEMENTED, f"tensor {name} is {DTYPES[number - 1].name}, whose elements are smaller than "
                          "a byte; load it with tensor_dict(), which gives the packed bytes", "DTYPE_UNSUPPORTED")
    dtype = of_numpy(number)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise errors.invalid(f"tensor {name} is {dtype}, which jax makes smaller unless it is told not to: "
                             'jax.config.update("jax_enable_x64", True), or load a subset without it', "NEEDS_X64")
    return dtype


# --- what to ask for ---

def _hull(boxes):
    return tuple((min(box[dim][0] for box in boxes), max(box[dim][1] for box in boxes)) for dim in range(len(boxes[0])))


def _elements(box):
    return math.prod(max(0, stop - start) for start, stop in box)


def _requests(wanted):
    """[{name: box}]: together every block that a local device has, once. Blocks of a sharding never overlap, so when they fill
    their hull it is asked for in one piece. Else each is asked for by itself, a tensor's first in the first request."""
    requests = []
    for name, tensor in wanted.items():
        boxes = list(dict.fromkeys(tensor.boxes.values()))
        if len(boxes) > 1 and sum(map(_elements, boxes)) == _elements(_hull(boxes)):
            boxes = [_hull(boxes)]
        for at, box in enumerate(boxes):
            if at == len(requests):
                requests.append({})
            requests[at][name] = box
    return requests


def _slices(box, shape):
    return [(dim, slice(*bounds)) for dim, (bounds, extent) in enumerate(zip(box, shape)) if bounds != (0, extent)]


def _cut(tensor, hull, loaded, blocks):
    """Adds those of a tensor's blocks that lie in what was loaded."""
    if loaded.shape != tuple(stop - start for start, stop in hull) or loaded.dtype != tensor.dtype:
        raise errors.make(StatusCode.ABORTED, f"tensor {tensor.name} changed while it was loaded; load it again",
                          "SOURCE_CHANGED")
    for box in set(tensor.boxes.values()):
        if all(first <= start and stop <= last for (start, stop), (first, last) in zip(box, hull)):
            blocks[box] = loaded[tuple(slice(start - first, stop - first)
                                       for (start, stop), (first, _) in zip(box, hull))]
