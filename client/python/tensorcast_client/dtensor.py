"""Which part of a tensor a DTensor holds on this rank, and making one of what was loaded."""
from __future__ import annotations

import sys
from typing import NamedTuple

import torch

from .sharding import placements_of_torch, runs_of


def is_dtensor(value):
    tensor = sys.modules.get("torch.distributed.tensor")  # where it is not imported there are none
    return tensor is not None and isinstance(value, tensor.DTensor)


class Part(NamedTuple):
    """runs: for each dimension the [(start, stop), ...] of its indices that are this rank's."""

    runs: list

    @staticmethod
    def of(dtensor):
        """None: this rank has nothing of it, because it is no part of its mesh."""
        at = dtensor.device_mesh.get_coordinate()
        if at is None:
            return None
        return Part(runs_of(placements_of_torch(dtensor.placements), dtensor.device_mesh.shape, at, dtensor.shape))

    @property
    def is_empty(self):
        return not all(self.runs)

    @property
    def is_block(self):
        return all(len(runs) <= 1 for runs in self.runs)

    def slices(self):
        """[(dimension, slice), ...] from the first of its indices to the last; there is one in each dimension."""
        return [(dim, slice(runs[0][0], runs[-1][1])) for dim, runs in enumerate(self.runs)]

    def cut(self, loaded):
        """The part of what its slices loaded."""
        for dim, runs in enumerate(self.runs):
            if len(runs) > 1:
                first = runs[0][0]
                loaded = torch.cat([loaded.narrow(dim, start - first, stop - start) for start, stop in runs], dim)
        return loaded


def of_local(local, like):
    """A DTensor of this rank's part, with mesh and placements of another one. No other rank is asked."""
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride())
