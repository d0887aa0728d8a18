"""torch tensors over the memory that was handed off, one at a time or all at once.

torch cannot express read-only memory: writing into one of these tensors ends the process with a segmentation fault.
"""
from __future__ import annotations

import numpy as np
import torch

from .dtypes import BITS, of_torch
from .layout import scatter, tuples


class TorchTensors:
    """Makes the tensors of a layout. All share one storage, which keeps the buffer alive."""

    def __init__(self, buffer, layout):
        self._layout, self._typed = layout, {}
        self._bytes = torch.frombuffer(buffer, dtype=torch.uint8) if len(buffer) else torch.empty(0, dtype=torch.uint8)

    def one(self, index):
        layout = self._layout
        number, offset, size = int(layout.dtypes[index]), int(layout.offsets[index]), int(layout.sizes[index])
        if BITS[number] < 8:
            return self._bytes[offset:offset + size]
        shape = layout.shapes[index]
        if not size:
            return self._elements(number)[:0].reshape(shape)
        if offset * 8 % int(BITS[number]):  # torch wants its elements aligned
            return self._bytes[offset:offset + size].clone().view(of_torch(number)).reshape(shape)
        strides = _strides(np.array([shape], np.int64))
        return torch.as_strided(self._elements(number), shape, strides[0].tolist(), offset * 8 // int(BITS[number]))

    def all(self):
        """Every tensor, in view order."""
        layout, tensors = self._layout, [None] * len(self._layout)
        for which, dims in layout.shapes.by_rank():
            numbers = layout.dtypes[which]
            for number in np.unique(numbers).tolist():
                mine = numbers == number
                scatter(tensors, which[mine], self._many(number, which[mine], dims[mine]))
        return tensors

    def _many(self, number, which, dims):
        """The tensors `which`, all of one dtype and one rank, of the shapes `dims`."""
        offsets, bits = self._layout.offsets[which] * 8, int(BITS[number])
        if bits < 8 or (offsets % bits).any() or not self._layout.sizes[which].all():
            return [self.one(index) for index in which.tolist()]
        elements, make = self._elements(number), torch.as_strided
        return [make(elements, shape, strides, first) for shape, strides, first in
                zip(tuples(dims), tuples(_strides(dims)), (offsets // bits).tolist())]

    def _elements(self, number):
        """The whole memory as elements of one type."""
        if number not in self._typed:
            usable = len(self._bytes) - len(self._bytes) % (int(BITS[number]) // 8)
            self._typed[number] = self._bytes[:usable].view(of_torch(number))
        return self._typed[number]


def _strides(dims):
    """Strides of C order, in elements; a dimension without extent counts as one, as in torch."""
    strides = np.ones_like(dims)
    if dims.shape[1] > 1:
        strides[:, :-1] = np.cumprod(np.maximum(dims[:, :0:-1], 1), axis=1)[:, ::-1]
    return strides
