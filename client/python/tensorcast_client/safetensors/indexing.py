"""What an index of a slice means: the box of the tensor that has to be loaded, and the index of what was loaded that is left.

NumPy and most frameworks have the rules of the official package's own parser: whole numbers, an ellipsis and slices with a
positive step whose bounds lie inside. Where it stumbles (negative bounds, a stop before the start, empty tensors) the answer is
NumPy's. With torch an index means what it means for a torch.Tensor.
"""
from __future__ import annotations

import operator
from typing import Any, NamedTuple

from .official import official

_I32 = range(-(1 << 31), 1 << 31)


class Selected(NamedTuple):
    """box: (start, stop) of each dimension. rest: the index that is still to be applied to the box; () = nothing is."""

    box: tuple
    rest: Any = ()

    def is_empty(self):
        return any(start >= stop for start, stop in self.box)

    def is_whole(self, shape):
        return all(bounds == (0, extent) for bounds, extent in zip(self.box, shape))


def whole_of(shape, rest=()):
    return Selected(tuple((0, extent) for extent in shape), rest)


def _selected(parts):
    """parts: for each dimension a range with a positive step, or a whole number."""
    box, rest = [], []
    for part in parts:
        if isinstance(part, range):
            box.append((part.start, max(part.start, part.stop)))
            rest.append(slice(None, None, part.step))
        else:
            box.append((part, part + 1))
            rest.append(0)
    return Selected(tuple(box), () if all(part == slice(None, None, 1) for part in rest) else (*rest, ...))


def of_parser(index, shape):
    """The Selected of an index, by the rules of the official package's parser."""
    items = _items(index)
    n_dots = sum(item is ... for item in items)
    if n_dots > 1:
        raise official.SafetensorError("Only one ellipsis (...) is allowed in slice index")
    missing = max(0, len(shape) - len(items) + n_dots)
    given = []
    for item in items:
        given += [slice(None)] * missing if item is ... else [_item(item, len(given), shape)]
    if len(given) > len(shape):
        raise official.SafetensorError(f"Error during slicing {_shown(given)} with shape {list(shape)}: more slicing indexes than "
                                       "dimensions in tensor")
    for dim in reversed(range(len(given))):
        _check_bounds(given, dim, shape)
    given += [slice(None)] * (len(shape) - len(given))
    return _selected([range(*part.indices(extent)) if isinstance(part, slice) else part for part, extent in zip(given, shape)])


def _items(index):
    if isinstance(index, tuple):
        return list(index)
    if isinstance(index, list):
        if index:
            raise official.SafetensorError("Non empty lists are not implemented")
        return [slice(0, 0)]
    return [index]


def _item(item, dim, shape):
    """A slice of whole numbers, or a whole number that is not negative."""
    if isinstance(item, slice):
        start, stop, step = (None if bound is None else operator.index(bound) for bound in (item.start, item.stop, item.step))
        if step is not None and step <= 0:
            raise official.SafetensorError(f"Slice step must be a positive integer, got {step}")
        return slice(start, stop, step)
    try:
        number = operator.index(item)
    except TypeError:
        number = None
    if number is None or number not in _I32:
        raise official.SafetensorError(f"Unsupported slice index at position {dim}: expected slice, int, or ellipsis")
    extent = shape[dim] if dim < len(shape) else 0
    if number < -extent:
        raise official.SafetensorError(f"Invalid index {number} for dimension {dim} of size {extent}")
    return number % extent if number < 0 else number


def _check_bounds(given, dim, shape):
    part, extent = given[dim], shape[dim]
    if isinstance(part, slice):
        start, stop = part.start or 0, extent if part.stop is None else part.stop
        if start < 0 or stop < 0 or not extent:
            return  # the official package stumbles here
    else:
        start, stop = part, part + 1
    if start >= extent or stop > extent:
        asked = start if start >= extent else stop - 1
        raise official.SafetensorError(f"Error during slicing {_shown(given)} with shape {list(shape)}: index {asked} out of bounds for "
                                       f"tensor dimension #{dim} of size {extent}")


def _shown(given):
    """An index as the official package prints it."""
    return f"[{', '.join(_part_shown(part) for part in given)}]"


def _part_shown(part):
    if not isinstance(part, slice):
        return str(part)
    text = f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
    return text if part.step in (None, 1) else f"{text}:{part.step}"


def of_torch(index, shape):
    """The Selected of an index by the rules of torch; raises what torch raises. An index that takes more than a box, such as a
    list, is left to torch: all of the tensor is loaded for it."""
    import torch
    items = list(index) if isinstance(index, tuple) else [index]
    if not all(_is_basic(item) for item in items) or sum(item is ... for item in items) > 1:
        return whole_of(shape, index)
    torch.empty((), dtype=torch.uint8).expand(tuple(shape))[index]  # for its exceptions
    at = next((number for number, item in enumerate(items) if item is ...), len(items))
    items[at:at + 1] = [slice(None)] * (len(shape) - len(items) + (at < len(items)))
    return _selected([range(*part.indices(extent)) if isinstance(part, slice) else operator.index(part) % extent
                      for part, extent in zip(items, shape)])


def _is_basic(item):
    if item is ...:
        return True
    if isinstance(item, slice):
        return all(bound is None or type(bound) is int for bound in (item.start, item.stop, item.step))
    return type(item) is int
