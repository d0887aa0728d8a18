"""A load into memory of this process: what goes where is checked and told, regions are lent, and the report comes back."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import NamedTuple

from grpc import StatusCode

from . import cuda, errors, fills, host_region, region, report
from .load import Clock, Teller
from .options import Options
from .targets import BAD_TARGET, target_of
from .tensors import collector_paused

_UNDEFINED = "the content of the targets is undefined"


class _Wanted(NamedTuple):
    """What a load is to write, all of it Targets."""

    tensors: list  # of the view, in view order
    filled: list
    values: list  # of `filled`: one element each, as bytes
    covers: list

    def arrays(self):
        """In the order of the request's columns."""
        return [*self.tensors, *self.filled, *self.covers]


class _Lending(NamedTuple):
    """Regions, and where in them each array lies. lent: [(address, bytes, descriptor or None)]."""

    device: object  # a cuda.Device, None for host memory
    lent: list
    indexes: list  # of its region, for each array
    offsets: list  # in its region, of the element with all indexes 0
    spare: object = None  # keeps a region in which no target lies


def load_into(view, targets, values, cover, progress, options):
    """See View.load_into."""
    with Teller(progress) as teller:
        return _load_into(view, targets, values, cover, teller, Options.of(options))


def _load_into(view, targets, values, cover, teller, options):
    if options.memory == "mapped":
        raise errors.invalid("pages of files cannot be in memory of the caller: load into targets copies", "BAD_OPTION")
    clock = Clock(options.deadline)
    targets, values, cover = _checked(targets, "targets"), _checked(values, "fills"), _checked(cover, "cover")
    names = view.tensor_names
    with collector_paused(len(targets)):
        wanted = _wanted(names, targets, values, cover)
        lending = _lending(wanted.arrays())
    written = []  # of each request that was sent: whether it ended well
    try:
        result = view.load_lent(names, options, clock, teller, lending.device, lambda: _lent(view.client, wanted, lending, clock, written))
    except errors.TensorcastError as error:
        if not any(written) and not (written and error.reason in errors.HOW_FAR_IS_UNKNOWN):
            raise
        raise errors.make(error.code, f"{error.message}; {_UNDEFINED}", error.reason, error.metadata) from None
    except BaseException as error:  # of progress(), or an interrupt
        if written and hasattr(error, "add_note"):  # Python 3.11
            error.add_note(_UNDEFINED)
        raise
    _note_change([*wanted.tensors, *wanted.filled])
    teller.finish(result.report.target_bytes)
    with collector_paused(len(targets)):
        return report.load_into(result.report, wanted.tensors, lending)


def _checked(mapping, what):
    if mapping is not None and not isinstance(mapping, Mapping):
        raise errors.invalid(f"{what} is {type(mapping).__name__}; it is a dict of names", BAD_TARGET)
    return mapping or {}


def _wanted(names, targets, values, cover):
    known = set(names)
    for name in values:
        if name in known:
            raise errors.invalid(f"{name} is a tensor of the view and cannot be filled with a number, too", BAD_TARGET, tensor=str(name))
        if name not in targets:
            raise errors.invalid(f"fill {name} has no target", BAD_TARGET, tensor=str(name))
    for name in targets:
        if name not in known and name not in values:
            raise errors.invalid(f"target {name} is neither a tensor of the view nor one of fills: nothing would be written to it", BAD_TARGET,
                                 tensor=str(name))
    for name in names:
        if name not in targets:
            raise errors.invalid(f"tensor {name} of the view has no target", BAD_TARGET, tensor=name)
    tensors, filled = [target_of(name, targets[name]) for name in names], [target_of(name, targets[name]) for name in values]
    elements = [fills.element(target.name, values[target.name], target.dtype) for target in filled]
    return _Wanted(tensors, filled, elements, [target_of(name, array, written=False) for name, array in cover.items()])


def _lending(arrays):
    on_gpu, on_host = (next((array for array in arrays if array.on_gpu is where and not array.is_empty), None) for where in (True, False))
    if on_gpu and on_host:
        raise errors.make(StatusCode.UNIMPLEMENTED, f"target {on_gpu.name} is on a GPU and target {on_host.name} in host memory; one load "
                          "fills one of the two", "MIXED_TARGETS", {"tensor": on_gpu.name})
    return _on_gpu(arrays, on_gpu) if on_gpu else _on_host(arrays)


def _on_host(arrays):
    find, regions, indexes, offsets, places = host_region.snapshot(), {}, [], [], []
    for array in arrays:
        found = find(array.low, array.high)
        if found is None and not array.is_empty:
            raise _not_in_region(array)
        places.append(None if array.is_empty else found)
        indexes.append(regions.setdefault(found, len(regions)) if found else 0)
        offsets.append(array.first - found.start if found and not array.is_empty else 0)
    host_region.back((array.low, array.high, found) for array, found in zip(arrays, places) if found)
    lent, spare = [(mapping.start, mapping.bytes, mapping.fd) for mapping in regions], None
    if arrays and not lent:  # none of them has an element, but each has a place in a region
        spare = host_region.HostRegion(1)
        lent = [(None, spare.bytes, spare.fd)]
    return _Lending(None, lent, indexes, offsets, spare)


def _not_in_region(array):
    return errors.invalid(f"target {array.name} lies in no memory that the daemon can fill: make it in a tensorcast_client.HostRegion",
                          "NOT_IN_REGION", tensor=array.name)


def _on_gpu(arrays, example):
    """Of each allocation what lies between its first and its last target is lent."""
    with _naming(example):
        device = cuda.device_at(example.low)
    spans, starts = {}, []
    with device.current():
        for array in arrays:
            if array.is_empty:
                starts.append(None)
                continue
            with _naming(array):
                starts.append(device.allocation_of(array.low, array.high - array.low))
            low, high = spans.get(starts[-1], (array.low, array.high))
            spans[starts[-1]] = min(low, array.low), max(high, array.high)
    index = {start: at for at, start in enumerate(spans)}
    indexes = [index.get(start, 0) for start in starts]
    offsets = [array.first - spans[start][0] if start in spans else 0 for array, start in zip(arrays, starts)]
    return _Lending(device, [(low, high - low, None) for low, high in spans.values()], indexes, offsets)


@contextlib.contextmanager
def _naming(target):
    """Errors about memory name the target that lies in it."""
    try:
        yield
    except errors.TensorcastError as error:
        raise errors.make(error.code, f"target {target.name}: {error.message}", error.reason, {**error.metadata, "tensor": target.name}) from None


@contextlib.contextmanager
def _lent(client, wanted, lending, clock, written):
    """Lends the regions; the fields of LoadRequest that say where things go."""
    arrays = wanted.arrays()
    offers = (region.of_host(fd, size) if lending.device is None else region.of_gpu(lending.device, address, size)
              for address, size, fd in lending.lent)
    with region.lent(client, offers, clock) as tokens:
        columns = {
            "regions": tokens,
            "fill_names": [target.name for target in wanted.filled],
            "fill_values": wanted.values,
            "cover_names": [target.name for target in wanted.covers],
            "dtypes": [array.dtype for array in arrays],
            "ranks": [len(array.shape) for array in arrays],
            "dims": [extent for array in arrays for extent in array.shape],
            "region_indexes": lending.indexes,
            "offsets": lending.offsets,
            "strides": [step for array in arrays for step in array.strides],
        }
        written.append(False)
        yield {"targets": columns, **({"device": lending.device.uuid} if lending.device else {})}
        written[-1] = True


def _note_change(targets):
    """Tells autograd that tensors were written to, as an operation in place would."""
    torch = sys.modules.get("torch")
    note = getattr(torch.autograd.graph, "increment_version", None) if torch else None
    for target in targets if note else ():
        if isinstance(target.owner, torch.Tensor) and not target.owner.is_inference():
            note(target.owner)
