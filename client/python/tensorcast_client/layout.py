"""Where every tensor lies in the memory that was handed off: checked columns, and shapes out of them.

Whatever passes the check cannot make an array reach outside the memory.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import errors
from .dtypes import BITS, NAMES

MAX_RANK = 64
MIN_STACK = 8  # tensors; fewer are as fast one by one
MAX_ELEMENTS = 1 << 56  # times 64 bits still fits into 64 bits


class Shapes:
    """Shapes of many tensors, stored as one column of ranks and one of dimensions."""

    def __init__(self, ranks, dims):
        self.ranks, self._dims = ranks.astype(np.int64), dims.astype(np.int64)
        if int(self.ranks.sum()) != len(dims) or (len(ranks) and int(self.ranks.max()) > MAX_RANK):
            raise errors.bad_answer(f"{len(dims)} dimensions for {len(ranks)} tensors")
        self._first = np.cumsum(self.ranks) - self.ranks

    def __len__(self):
        return len(self.ranks)

    def __getitem__(self, index):
        first = self._first[index]
        return tuple(self._dims[first:first + self.ranks[index]].tolist())

    def by_rank(self):
        """(indexes of the tensors of one rank, their dimensions as a matrix), for each rank."""
        for rank in np.unique(self.ranks).tolist():
            which = np.flatnonzero(self.ranks == rank)
            yield which, self._dims[self._first[which][:, None] + np.arange(rank)]

    def elements(self):
        """How many elements each tensor has."""
        counts = np.empty(len(self), np.int64)
        for which, dims in self.by_rank():
            about = np.prod(dims.astype(np.float64), axis=1)
            if (dims < 0).any() or (about > MAX_ELEMENTS).any():
                raise errors.bad_answer("a tensor has too many elements")
            counts[which] = np.prod(dims, axis=1)
        return counts

    def tolist(self):
        """All shapes as tuples."""
        shapes = [()] * len(self)
        for which, dims in self.by_rank():
            scatter(shapes, which, tuples(dims))
        return shapes


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
    """Tensors that are consecutive rows of one table: same dtype, same shape but for the first dimension, and apart by
    whole rows. Frameworks cut such a table several times faster than they make tensors one by one."""

    number: int  # of the dtype
    which: np.ndarray  # indexes of the tensors, by place in memory
    row_shape: tuple
    first_element: int  # where row 0 begins
    first_row: np.ndarray
    end_row: np.ndarray
    scalars: bool  # each tensor is one element, without dimensions


class Layout:
    """Columns in view order: dtypes (proto numbers), shapes, offsets and sizes in bytes."""

    def __init__(self, message, n_tensors, memory_bytes):
        columns = {len(message.dtypes), len(message.ranks), len(message.offsets), len(message.sizes)}
        if columns != {n_tensors}:
            raise errors.bad_answer(f"columns of {sorted(columns)} entries for {n_tensors} tensors")
        if n_tensors and not (1 <= int(message.dtypes.min()) and int(message.dtypes.max()) < len(NAMES)):
            raise errors.bad_answer(f"an unknown dtype, number {int(message.dtypes.max())}; is this client too old?")
        self.dtypes = message.dtypes.astype(np.int64)
        self.shapes = Shapes(message.ranks, message.dims)
        self.elements = self.shapes.elements()
        if (message.sizes > memory_bytes).any() or (message.offsets > memory_bytes - message.sizes).any():
            raise errors.bad_answer(f"a tensor ends behind the {memory_bytes} bytes of memory")
        if (BITS[self.dtypes] * self.elements.astype(np.uint64) != message.sizes * np.uint64(8)).any():
            raise errors.bad_answer("a tensor's size is not that of its shape")
        self.offsets, self.sizes = message.offsets.astype(np.int64), message.sizes.astype(np.int64)

    def __len__(self):
        return len(self.dtypes)

    def stacks(self):
        """(stacks, indexes of the tensors that are in none)."""
        stacks, rest = [], []
        for which, dims in self.shapes.by_rank():
            usable = self._aligned(which)
            rest.append(which[~usable])
            for stack in self._stacks_of(which[usable], dims[usable]):
                (stacks if isinstance(stack, Stack) else rest).append(stack)
        return stacks, np.concatenate(rest) if rest else np.empty(0, np.int64)

    def _aligned(self, which):
        """Which tensors have bytes, and begin at a multiple of their element's size (below one byte: none)."""
        bits = BITS[self.dtypes[which]].astype(np.int64)
        return (bits >= 8) & (self.offsets[which] * 8 % bits == 0) & (self.sizes[which] > 0)

    def _stacks_of(self, which, dims):
        """Stacks, or indexes that do not stack, among tensors of one rank."""
        scalars = not dims.shape[1]
        if scalars:
            dims = np.ones((len(which), 1), np.int64)
        start = self.offsets[which] * 8 // BITS[self.dtypes[which]].astype(np.int64)
        row = np.prod(dims[:, 1:], axis=1)
        traits = np.column_stack([self.dtypes[which], start % row, dims[:, 1:]])
        for same in _groups(traits):
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
    weights = np.random.default_rng(1).integers(1, 1 << 62, matrix.shape[1])
    key = (matrix * weights).sum(axis=1)
    order = np.argsort(key, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if (matrix[group] == matrix[group[:1]]).all():
            yield group
        else:
            yield from group[:, None]
