"""Which box of a checkpoint tensor a view of it shows, and where that view lies once only the box was loaded.

A view is an offset, sizes and strides over the storage of the contiguous tensor that it came from, counted in elements.
Whatever made it (narrow, transpose, view, select ...), these three say exactly which elements are meant.
"""
from __future__ import annotations

import math
from typing import NamedTuple, Optional

MAX_OVERREAD = 1.25  # a hull that reads more than this times what is needed is taken apart
MAX_BOXES = 8  # per tensor; each but the first costs another request


class Box(NamedTuple):
    """Half-open bounds per dimension."""

    start: tuple
    stop: tuple

    @property
    def shape(self):
        return tuple(stop - start for start, stop in zip(self.start, self.stop))

    @property
    def elements(self):
        return math.prod(self.shape)

    def contains(self, other):
        return all(a <= b for a, b in zip(self.start, other.start)) and all(a >= b for a, b in zip(self.stop, other.stop))

    def hull(self, other):
        return Box(tuple(map(min, self.start, other.start)), tuple(map(max, self.stop, other.stop)))


class Strided(NamedTuple):
    """A view of a storage, in elements."""

    offset: int
    sizes: tuple
    strides: tuple

    @property
    def elements(self):
        return math.prod(self.sizes)

    @property
    def span(self):
        """(first, last + 1) of the storage's elements that it may touch."""
        return self.offset, self.offset + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides)) + 1

    @property
    def contiguous(self):
        """Whether its elements are one run, in order."""
        return all(size == 1 or stride == step for size, stride, step in zip(self.sizes, self.strides, pitches(self.sizes)))


def strided(tensor):
    return Strided(tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


def pitches(shape):
    """The strides of a contiguous tensor."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= max(extent, 1)
    return tuple(reversed(steps))


class Window(NamedTuple):
    """The part of a source that a view shows. `walk` has, for each dimension of the view, its parts (size, dimension of the
    source, step), outermost first; None when the view does not follow the source's dimensions: `box` then has whole rows."""

    box: Box
    view: Strided
    walk: Optional[tuple]

    def split(self, target):
        """The other side of a copy, with its dimensions taken apart as this side's are."""
        if self.walk is None:
            return target
        sizes, strides = [], []
        for parts, stride in zip(self.walk, target.strides):
            counts = [size for size, _, _ in parts]
            sizes += counts
            strides += [step * stride for step in pitches(counts)]
        return Strided(target.offset, tuple(sizes), tuple(strides))

    def onto(self, target):
        """Where the box lies in the target of a copy: a view of the target with the dimensions of the source. None when the copy
        does not take the box as it is: elements left out or repeated, or dimensions that do not follow those of the source."""
        if self.walk is None:
            return None
        strides, parts = {}, [part for dimension in self.walk for part in dimension]
        for (size, dim, step), stride in zip(parts, self.split(target).strides):
            if size > 1 and (step != 1 or dim in strides or size != self.box.shape[dim]):
                return None
            if size > 1:
                strides[dim] = stride
        return Strided(target.offset, self.box.shape, tuple(strides.get(dim, 0) for dim in range(len(self.box.shape))))

    def within(self, loaded, shape):
        """The same elements in a contiguous copy of the box `loaded` of a source of this shape."""
        if self.walk is None:
            first = loaded.start[0] * pitches(shape)[0] if shape else 0
            return Strided(self.view.offset - first, self.view.sizes, self.view.strides)
        pitch = pitches(loaded.shape)
        offset = sum((at - first) * step for at, first, step in zip(self.box.start, loaded.start, pitch))
        parts = [part for dimension in self.walk for part in dimension]
        return Strided(offset, tuple(size for size, _, _ in parts),
                       tuple(step * pitch[dim] if step else 0 for _, dim, step in parts))


def window(view, shape):
    """The Window of a view, with at least one element, of a contiguous source of this shape."""
    pitch, start, left = pitches(shape), [], view.offset
    for extent, step in zip(shape, pitch):
        start.append(left // step)
        left %= step
    walk, stop = [], list(start)
    for size, stride in zip(view.sizes, view.strides):
        parts = _parts(size, stride, start, shape, pitch)
        if parts is None:
            return _rows(view, shape, pitch)
        for count, dim, step in parts:
            if step:
                stop[dim] += (count - 1) * step
        walk.append(tuple(parts))
    if any(last >= extent for last, extent in zip(stop, shape)):  # a step would carry into the next dimension
        return _rows(view, shape, pitch)
    return Window(Box(tuple(start), tuple(last + 1 for last in stop)), view, tuple(walk))


def _parts(size, stride, start, shape, pitch):
    """One dimension of a view as (size, dimension of the source, step), or None."""
    if size == 1 or stride == 0:
        return [(size, 0, 0)]
    dim = next((dim for dim, step in enumerate(pitch) if step <= stride), None)
    if dim is None or stride % pitch[dim]:
        return None
    step = stride // pitch[dim]
    if start[dim] + (size - 1) * step < shape[dim]:
        return [(size, dim, step)]
    if dim == 0 or step != 1 or start[dim] or size % shape[dim]:
        return None
    outer = _parts(size // shape[dim], pitch[dim - 1], start, shape, pitch)
    return outer and outer + [(shape[dim], dim, 1)]


def _rows(view, shape, pitch):
    """All rows of the first dimension that the view may touch."""
    first, end = view.span
    box = Box((first // pitch[0],) + (0,) * (len(shape) - 1), (-(-end // pitch[0]),) + tuple(shape[1:]))
    return Window(box, view, None)


def cover(boxes):
    """Few boxes that contain all of these, reading at most MAX_OVERREAD times what is needed where MAX_BOXES allow it."""
    clusters = []  # [hull, elements that are needed of it]
    for box in sorted(set(boxes)):
        if clusters and clusters[-1][0].contains(box):
            continue
        if clusters:
            hull, needed = clusters[-1][0].hull(box), clusters[-1][1] + box.elements
            if hull.elements <= MAX_OVERREAD * needed:
                clusters[-1] = [hull, min(needed, hull.elements)]
                continue
        clusters.append([box, box.elements])
    covers = [hull for hull, _ in clusters]
    if len(covers) <= MAX_BOXES:
        return covers
    whole = covers[0]
    for box in covers[1:]:
        whole = whole.hull(box)
    return [whole]
