"""What one load has brought: tensors, or boxes of them, that are handed out once each.

Once, because the caller may write to a tensor, and the next caller is to get what is in the file.
"""
from __future__ import annotations


class Parts:
    """boxes: {name: (start, stop) of each dimension that was loaded}. tensors: a Mapping of what came."""

    def __init__(self, tensors, boxes):
        self._tensors, self._boxes, self._given = tensors, boxes, {}
        self.n_left = len(boxes)

    def names(self):
        return self._boxes.keys()

    def take(self, name, box):
        """The array of a box, which may be a view of a larger one; None when it is not here or a caller has some of it."""
        has, given = self._boxes.get(name), self._given.get(name, ())
        if has is None or not all(first <= start and stop <= end for (first, end), (start, stop) in zip(has, box)):
            return None
        if any(_overlap(other, box) for other in given):
            return None
        self.n_left -= not given
        self._given[name] = (*given, box)
        array = self._tensors[name]
        return array if has == box else array[tuple(slice(start - first, stop - first) for (first, _), (start, stop) in zip(has, box))]


def _overlap(one, other):
    return all(max(first, start) < min(end, stop) for (first, end), (start, stop) in zip(one, other))
