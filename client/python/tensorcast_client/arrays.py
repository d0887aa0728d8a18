"""NumPy arrays over the memory that was handed off, one at a time or all at once."""
from __future__ import annotations

import math

import numpy as np

from .dtypes import WIDTHS, of_numpy
from .layout import scatter

_MANY = 1000  # for fewer tensors it takes longer to find those that can be cut from one table


class NumpyArrays:
    """Makes the arrays of a layout. They are views of one array that keeps the buffer alive."""

    def __init__(self, buffer, layout, writable=False):
        self._layout = layout
        self._bytes = np.empty(0, np.uint8)
        if len(buffer):
            self._bytes = np.frombuffer(buffer if writable else memoryview(buffer).toreadonly(), np.uint8)
        self._bytes.flags.writeable = writable
        self._typed = {}

    def one(self, index):
        layout = self._layout
        number, offset = layout.dtypes.item(index), layout.offsets.item(index)
        if not WIDTHS[number]:
            return self._bytes[offset:offset + layout.sizes.item(index)]
        dtype = of_numpy(number)
        shape = layout.shapes[index]
        if not layout.packed.item(index):
            return np.ndarray(shape, dtype, self._bytes, offset, layout.strides[index])
        if not layout.sizes.item(index):
            return self._elements(dtype)[:0].reshape(shape)
        if offset % dtype.itemsize:
            return np.ndarray(shape, dtype, self._bytes, offset)
        first = offset // dtype.itemsize
        return self._elements(dtype)[first:first + layout.elements.item(index)].reshape(shape)

    def all(self, which=None):
        """Every tensor in view order, or those of some indexes, which ascend."""
        which = np.arange(len(self._layout)) if which is None else which
        if len(which) < _MANY:
            return list(map(self.one, which.tolist()))
        tensors = [None] * len(which)
        is_whole = len(which) == len(self._layout)
        stacks, rest = self._layout.stacks(which)
        for stack in stacks:
            scatter(tensors, stack.which if is_whole else np.searchsorted(which, stack.which), self._cut(stack))
        scatter(tensors, rest if is_whole else np.searchsorted(which, rest), list(map(self.one, rest.tolist())))
        return tensors

    def _cut(self, stack):
        row, rows = math.prod(stack.row_shape), int(stack.end_row[-1])
        table = self._elements(of_numpy(stack.number))[stack.first_element:][:rows * row].reshape(rows, *stack.row_shape)
        cut = [table[first:end] for first, end in zip(stack.first_row.tolist(), stack.end_row.tolist())]
        return [array.reshape(()) for array in cut] if stack.scalars else cut

    def _elements(self, dtype):
        """The whole memory as elements of one type."""
        if dtype not in self._typed:
            usable = len(self._bytes) - len(self._bytes) % dtype.itemsize
            self._typed[dtype] = self._bytes[:usable].view(dtype)
        return self._typed[dtype]
