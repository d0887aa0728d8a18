"""torch tensors with a storage each, as the official package makes them: whoever saves or sends one saves or sends no other."""
from __future__ import annotations

import torch

from ..dtypes import BITS, NAMES, of_torch
from ..torch_tensors import TorchTensors


class OwnStorageTensors(TorchTensors):
    """Makes the tensors of a layout. The storage of each holds the buffer."""

    def __init__(self, buffer, layout):
        super().__init__(buffer, layout)
        self._buffer = buffer

    def one(self, index):
        layout = self._layout
        number, offset, size = int(layout.dtypes[index]), int(layout.offsets[index]), int(layout.sizes[index])
        shape = tuple(layout.shapes[index])
        bits = int(BITS[number])
        if bits < 8:
            return packed(super().one(index).clone(), number, shape)
        dtype = of_torch(number)
        if not size:
            return torch.empty(shape, dtype=dtype)
        if not layout.packed[index] or offset * 8 % bits:
            return super().one(index)
        return torch.frombuffer(self._buffer, dtype=dtype, count=size * 8 // bits, offset=offset).view(shape)

    def all(self, which=None):
        """Every tensor in view order, or those of some indexes: never cut from one table, which would be one storage."""
        return list(map(self.one, range(len(self._layout)) if which is None else which.tolist()))


def packed(tensor, number, shape):
    """Elements below a byte: torch has a type for two F4 in a byte, whose last dimension is half as long."""
    if NAMES[number] == "F4" and hasattr(torch, "float4_e2m1fn_x2") and shape and shape[-1] % 2 == 0:
        return tensor.view(torch.float4_e2m1fn_x2).reshape(*shape[:-1], shape[-1] // 2)
    return tensor
