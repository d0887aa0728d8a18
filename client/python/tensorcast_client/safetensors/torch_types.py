"""torch tensors as the official package makes them: of elements below a byte, torch's own type where it has one."""
from __future__ import annotations

import torch

from ..dtypes import NAMES, WIDTHS
from ..torch_tensors import TorchTensors


class OfficialTensors(TorchTensors):
    """Makes the tensors of a layout."""

    def _packed(self, number, offset, size, shape):
        made = super()._packed(number, offset, size, shape)
        return made if WIDTHS[number] else packed(made, number, shape)


def packed(tensor, number, shape):
    """Elements below a byte: torch has a type for two F4 in a byte, whose last dimension is half as long."""
    if NAMES[number] == "F4" and hasattr(torch, "float4_e2m1fn_x2") and shape and shape[-1] % 2 == 0:
        return tensor.view(torch.float4_e2m1fn_x2).reshape(*shape[:-1], shape[-1] // 2)
    return tensor
