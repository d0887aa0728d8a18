"""Where every tensor lies in the memory that was handed off: checked columns, and shapes out of them.

Whatever passes the check cannot make an array reach outside the memory.
"""
from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from . import errors
from .dtypes import BITS, NAMES

MAX_RANK = 64
MIN_STACK = 8  # tensors; fewer are as fast one by one
MAX_ELEMENTS = 1 << 56  # times 64 bits still fits into 64 bits

_ODD = 0x9E3779B97F4A7C15


class Dims:
    """A number for each dimension of many tensors, such as their strides, stored as a column of ranks and one of numbers."""

    def __init__(self, ranks, numbers):
        if int(ranks.sum()) != len(numbers) or (ranks > MAX_RANK).any():
            raise errors.bad_answer(f"{len(numbers)} dimensions for {len(ranks)} tensors")
        self.ranks, self._numbers = ranks.astype(np.int64), numbers.astype(np.int64)
        self._first = np.cumsum(self.ranks) - self.ranks

    def __len__(self):
        return len(self.ranks)

    def __getitem__(self, index):
        first = self._first.item(index)
        return tuple(self._numbers[first:first + self.ranks.item(index)].tolist())

    def of(self, which):
        """(indexes of the tensors of one rank, their numbers as a matrix), for each rank of some of the tensors."""
        ranks = self.ranks[which]
        for rank in used(ranks):
            same = which[ranks == rank]
            yield same, self._numbers[self._first[same][:, None] + np.arange(rank)]

    @functools.cached_property
    def by_rank(self):
        """The same of all tensors, as a list."""
        return list(self.of(np.arange(len(self))))

    def tolist(self):
        """All of them as tuples."""
        values = [()] * len(self)
        for which, numbers in self.by_rank:
            scatter(values, which, tuples(numbers))
        return values


class Shapes(Dims):
    """Shapes of many tensors."""

    def elements(self):
        """How many elements each tensor has."""
        counts = np.empty(len(self), np.int64)
        for which, dims in self.by_rank:
            about = np.prod(dims, axis=1, dtype=np.float64)
            if (dims < 0).any() or (about > MAX_ELEMENTS).any():
                raise errors.bad_answer("a tensor has too many elements")
            counts[which] = np.prod(dims, axis=1)
        return counts


def used(numbers):
    """Which small numbers occur, ascending."""
    return np.bincount(numbers).nonzero()[0].tolist()


def tuples(matrix):
    """The rows of a matrix as tuples of Python integers."""
    return list(zip(*matrix.T.tolist())) if matrix.shape[1] else [()] * len(matrix)


def scatter(target, which, values):
    """target[which[i]] = values[i]; at once when `which` is all of target, in order."""
    if len(which) == len(target) and (which[:-1] < which[1:]).all():
        target[:] = values
        return
    for index, value in zip(which.tolist(), values):
        target[index] = value


class Stack(NamedTuple):
    """Tensors that are consecutive rows of one table: same dtype, same shape except for the first dimension, and apart by
    whole rows. Frameworks cut such a table several times faster than they make tensors one by one."""

    number: int  # of the dtype
    which: np.ndarray  # indexes of the tensors, by place in memory
    row_shape: tuple
    first_element: int  # where row 0 begins
    first_row: np.ndarray
    end_row: np.ndarray
    scalars: bool  # each tensor is one element, without dimensions


class Layout:
    """Columns in view order: dtypes (proto numbers), shapes, offsets and sizes in bytes. All tensors are packed; those of
    files may have strides (see mapped.py)."""

    strides = None

    def __init__(self, message, n_tensors, memory_bytes):
        self._read(message, n_tensors)
        self.packed = np.ones(n_tensors, bool)
        self._place(message.offsets, message.sizes, np.uint64(memory_bytes))

    def _read(self, message, n_tensors):
        """What does not depend on where tensors are."""
        columns = {len(message.dtypes), len(message.ranks), len(message.offsets), len(message.sizes)}
        if columns != {n_tensors}:
            raise errors.bad_answer(f"columns of {sorted(columns)} entries for {n_tensors} tensors")
        if n_tensors and not (1 <= int(message.dtypes.min()) and int(message.dtypes.max()) < len(NAMES)):
            raise errors.bad_answer(f"an unknown dtype, number {int(message.dtypes.max())}; is this client too old?")
        self.dtypes = message.dtypes.astype(np.int64)
        self.shapes = Shapes(message.ranks, message.dims)
        self.elements = self.shapes.elements()
        if (BITS[self.dtypes] * self.elements.astype(np.uint64) != message.sizes * np.uint64(8)).any():
            raise errors.bad_answer("a tensor's size is not that of its shape")
        self.sizes = message.sizes.astype(np.int64)

    def _place(self, offsets, spans, room):
        """Offsets of tensors that take `spans` bytes each, of which there are `room`."""
        if (spans > room).any() or (offsets > room - spans).any():
            raise errors.bad_answer(f"a tensor ends behind the {int(np.max(room))} bytes of memory")
        self.offsets = offsets.astype(np.int64)

    def __len__(self):
        return len(self.dtypes)

    def stacks(self, which):
        """(stacks, indexes of the tensors that are in none), of some of the tensors."""
        stacks, rest = [], []
        for same, dims in self.shapes.of(which):
            usable = self._aligned(same)
            rest.append(same[~usable])
            for stack in self._stacks_of(same[usable], dims[usable]):
                (stacks if isinstance(stack, Stack) else rest).append(stack)
        return stacks, np.concatenate(rest) if rest else np.empty(0, np.int64)

    def _aligned(self, which):
        """Which tensors are packed, have bytes, and begin at a multiple of their element's size (below one byte: none)."""
        bits = BITS[self.dtypes[which]].astype(np.int64)
        return self.packed[which] & (bits >= 8) & (self.offsets[which] * 8 % bits == 0) & (self.sizes[which] > 0)

    def _stacks_of(self, which, dims):
        """Stacks, or indexes that do not stack, among tensors of one rank."""
        scalars = not dims.shape[1]
        if scalars:
            dims = np.ones((len(which), 1), np.int64)
        start = self.offsets[which] * 8 // BITS[self.dtypes[which]].astype(np.int64)
        row = np.prod(dims[:, 1:], axis=1)
        traits = np.column_stack([self.dtypes[which], start % row, dims[:, 1:]])
        for same in _groups(traits):
            same = same[np.argsort(start[same], kind="stable")]
            first = start[same] // row[same[0]]
            end = first + dims[same, 0]
            if len(same) < MIN_STACK or (first[1:] < end[:-1]).any():
                yield which[same]
            else:
                number, phase, *row_shape = traits[same[0]].tolist()
                yield Stack(number, which[same], tuple(row_shape), phase, first, end, scalars)


def _groups(matrix):
    """Index arrays of equal rows, each ascending. Rows are told apart by a hash, then compared."""
    if not len(matrix):
        return
    weights = [pow(_ODD, power, 1 << 62) for power in range(1, matrix.shape[1] + 1)]  # importing numpy.random takes 5 ms
    key = matrix @ np.array(weights)
    order = np.argsort(key, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if (matrix[group] == matrix[group[:1]]).all():
            yield group
        else:
            yield from group[:, None]
