"""torch tensors over the memory that was handed off, one at a time or all at once.

torch cannot express read-only memory: writing into one of these tensors ends the process with a segmentation fault where the
memory is mapped read-only (see memory.map_leased).
"""
from __future__ import annotations

import itertools
import math

import numpy as np
import torch

from .cuda import DeviceMemory
from .dtypes import WIDTHS, of_torch
from .maker import Maker


class TorchTensors(Maker):
    """Makes the tensors of a layout. All share one storage, which keeps the buffer alive."""

    def __init__(self, buffer, layout):
        super().__init__(layout)
        self._typed = {}
        if isinstance(buffer, DeviceMemory):
            self._bytes = torch.from_dlpack(buffer)
        elif len(buffer):
            self._bytes = torch.frombuffer(buffer, dtype=torch.uint8)
        else:
            self._bytes = torch.empty(0, dtype=torch.uint8)

    def one(self, index):
        layout = self._layout
        number, offset, size = layout.dtypes.item(index), layout.offsets.item(index), layout.sizes.item(index)
        width = WIDTHS[number]
        if not width:
            return self._bytes[offset:offset + size]
        shape = layout.shapes[index]
        if not layout.packed.item(index):
            return self._strided(number, shape, offset, layout.strides[index])
        if not size:
            return self._elements(number)[:0].reshape(shape)
        if offset % width:  # torch wants its elements aligned
            return self._bytes[offset:offset + size].clone().view(of_torch(number)).reshape(shape)
        return self._elements(number).as_strided(shape, _packed(shape), offset // width)  # two thirds of a slice's time and its view's

    def cut(self, stack):
        if stack.scalars:
            elements, make = self._elements(stack.number), torch.as_strided
            return [make(elements, (), (), first) for first in stack.first_row.tolist()]
        row, rows = math.prod(stack.row_shape), int(stack.end_row[-1])
        table = self._elements(stack.number)[stack.first_element:][:rows * row].view(rows, *stack.row_shape)
        gaps = stack.first_row - np.concatenate([[0], stack.end_row[:-1]])
        pieces = np.column_stack([gaps, stack.end_row - stack.first_row]).ravel()
        wanted = np.tile([False, True], len(gaps))
        kept = wanted | (pieces > 0)
        return itertools.compress(table.split(pieces[kept].tolist()), wanted[kept].tolist())

    def _strided(self, number, shape, offset, strides):
        width = WIDTHS[number]
        if not any(step % width for step in (offset, *strides)):
            return self._elements(number).as_strided(shape, [step // width for step in strides], offset // width)
        elements = np.ndarray((*shape, width), np.uint8, self._bytes.numpy(), offset, (*strides, 1))
        return torch.from_numpy(elements.copy()).view(of_torch(number)).reshape(shape)

    def _elements(self, number):
        """The whole memory as elements of one type."""
        if number not in self._typed:
            usable = len(self._bytes) - len(self._bytes) % WIDTHS[number]
            self._typed[number] = self._bytes[:usable].view(of_torch(number))
        return self._typed[number]


def _packed(shape):
    """Strides in elements of what is C-contiguous."""
    steps = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        steps[dim - 1] = steps[dim] * shape[dim]
    return steps
