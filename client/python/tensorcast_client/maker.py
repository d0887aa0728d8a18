"""What makers of tensors have in common: one for each framework, of a buffer and the layout of what lies in it."""
from __future__ import annotations

import numpy as np

from .layout import scatter

_MANY = 1000  # for fewer tensors it takes longer to find those that can be cut from one table


class Maker:
    """Frameworks have one(index), a tensor, and cut(stack), those of a layout.Stack."""

    def __init__(self, layout):
        self._layout = layout

    def all(self, which=None):
        """Every tensor in view order, or those of some indexes, which ascend."""
        which = np.arange(len(self._layout)) if which is None else which
        if len(which) < _MANY:
            return list(map(self.one, which.tolist()))
        tensors = [None] * len(which)
        is_whole = len(which) == len(self._layout)
        stacks, rest = self._layout.stacks(which)
        for stack in stacks:
            scatter(tensors, stack.which if is_whole else np.searchsorted(which, stack.which), self.cut(stack))
        scatter(tensors, rest if is_whole else np.searchsorted(which, rest), list(map(self.one, rest.tolist())))
        return tensors
