"""torch tensors over the memory that was handed off, each with a storage of its own.

Programs that save, send or tie tensors tell them apart by their storages, so a storage is one tensor's and holds the memory by
itself. torch cannot express read-only memory: writing into one of these tensors ends the process with a segmentation fault where
the memory is mapped read-only (see memory.map_leased).
"""
from __future__ import annotations

import numpy as np
import torch

from .cuda import DeviceMemory
from .dtypes import WIDTHS, of_torch


class TorchTensors:
    """Makes the tensors of a layout. The storage of each keeps the buffer alive."""

    def __init__(self, buffer, layout):
        self._layout, self._buffer = layout, buffer
        self._gpu = torch.from_dlpack(buffer).untyped_storage() if isinstance(buffer, DeviceMemory) else None

    def one(self, index):
        layout = self._layout
        number, offset, size = layout.dtypes.item(index), layout.offsets.item(index), layout.sizes.item(index)
        if not layout.packed.item(index):
            return self._strided(index, number, offset)
        return self._packed(number, offset, size, layout.shapes[index])

    def span(self, index, skip, count):
        """As Tensors.span(). ValueError when it leaves the memory."""
        number = self._layout.dtypes.item(index)
        return self._elements(of_torch(number), self._layout.offsets.item(index) + skip * WIDTHS[number], count, WIDTHS[number])

    def all(self, which=None):
        """Every tensor in view order, or those of some indexes, which ascend."""
        layout = self._layout
        which = np.arange(len(layout)) if which is None else which
        if not layout.packed.all():
            return list(map(self.one, which.tolist()))
        shapes = layout.shapes.tolist()
        columns = (layout.dtypes[which], layout.offsets[which], layout.sizes[which])
        return [self._packed(number, offset, size, shapes[index])
                for index, number, offset, size in zip(which.tolist(), *(column.tolist() for column in columns))]

    def _packed(self, number, offset, size, shape):
        width, dtype = WIDTHS[number], of_torch(number)
        if not width:  # elements below a byte, packed
            width, shape = 1, (size,)
        if not size:
            return torch.empty(shape, dtype=dtype, device="cpu" if self._gpu is None else self._gpu.device)
        if offset % width:  # torch wants its elements aligned
            return self._elements(torch.uint8, offset, size, 1).clone().view(dtype).view(shape)
        flat = self._elements(dtype, offset, size // width, width)
        return flat if len(shape) == 1 else flat.view(shape)

    def _strided(self, index, number, offset):
        layout, width = self._layout, WIDTHS[number]
        shape, strides, span = layout.shapes[index], layout.strides[index], layout.spans.item(index)
        if not any(step % width for step in (offset, *strides)):
            flat = self._elements(of_torch(number), offset, span // width, width)
            return flat.as_strided(shape, [step // width for step in strides])
        elements = np.ndarray((*shape, width), np.uint8, self._buffer, offset, (*strides, 1))
        return torch.from_numpy(elements.copy()).view(of_torch(number)).reshape(shape)

    def _elements(self, dtype, offset, count, width):
        """`count` elements as one dimension, with a storage that is these bytes of the memory."""
        if self._gpu is None:
            return torch.frombuffer(self._buffer, dtype=dtype, count=count, offset=offset)
        storage = self._gpu[offset:offset + count * width]  # holds the whole
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, 0, (count,), (1,))
