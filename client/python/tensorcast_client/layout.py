"""Where every tensor lies in the memory that was handed off: checked columns, and shapes out of them.

Whatever passes the check cannot make an array reach outside the memory.
"""
from __future__ import annotations

import numpy as np

from . import errors
from .dtypes import BITS, NAMES

MAX_RANK = 64
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
    """target[which[i]] = values[i]; at once when `which` is all of target."""
    if len(which) == len(target):
        target[:] = values
        return
    for index, value in zip(which.tolist(), values):
        target[index] = value


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

    def by_dtype(self):
        """(proto number, indexes of the tensors that have it), for each dtype."""
        for number in np.unique(self.dtypes).tolist():
            yield number, np.flatnonzero(self.dtypes == number)
