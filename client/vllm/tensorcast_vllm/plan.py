"""What one rank asks the daemon for, and where it goes: made of the steps of a trace.

Each checkpoint tensor is asked for by the hull of what is read of it; where that hull would read far more than is needed,
by several boxes. A request holds one box per tensor, so boxes beyond a tensor's first go into further requests.
"""
from __future__ import annotations

from typing import NamedTuple

from .regions import Box, Strided, cover, window
from .trace import leaves_of


class Piece(NamedTuple):
    """A box of a checkpoint tensor, in one of the requests."""

    name: str
    box: Box
    request: int


class Plan:
    """`requests`: for each request {name: Box}, in the order of the parameters that they fill. `steps`: by storage."""

    def __init__(self, traced, sources, steps=None):
        """steps: those to be planned, if not all that were traced."""
        self._shapes = {source.name: source.shape for source in sources}
        self._itemsizes = {source.name: source.dtype.itemsize for source in sources}
        self.loaded, self.real, self.written = traced.loaded, traced.real, traced.written
        self.steps = {}
        for step in traced.steps if steps is None else steps:
            self.steps.setdefault(step.storage, []).append(step)
        self._traced, self._sources, self._windows = traced, sources, {}
        self._covers = self._cover()
        self.requests = self._order()

    def only(self, steps):
        """A plan of some of the steps."""
        return Plan(self._traced, self._sources, steps)

    def _cover(self):
        boxes = {}
        for step in self._all_steps():
            for leaf in leaves_of(step.source):
                boxes.setdefault(leaf.base, []).append(self.window(leaf).box)
        return {name: cover(of_name) for name, of_name in boxes.items()}

    def _order(self):
        """Neighbours in a parameter become neighbours in the daemon's memory, so that it can be used as it is."""
        requests = []
        for steps in self.steps.values():
            for step in sorted(steps, key=lambda step: step.region.offset):
                for leaf in leaves_of(step.source):
                    piece = self.piece(leaf)
                    while len(requests) <= piece.request:
                        requests.append({})
                    requests[piece.request].setdefault(piece.name, piece.box)
        return requests

    def _all_steps(self):
        return [step for steps in self.steps.values() for step in steps]

    def window(self, leaf):
        """The Window of a Ref of a checkpoint tensor."""
        if leaf not in self._windows:
            self._windows[leaf] = window(leaf.view, self._shapes[leaf.base])
        return self._windows[leaf]

    def piece(self, leaf):
        """Where the elements of a Ref of a checkpoint tensor come from."""
        box = self.window(leaf).box
        for request, loaded in enumerate(self._covers[leaf.base]):
            if loaded.contains(box):
                return Piece(leaf.base, loaded, request)
        raise AssertionError(f"{leaf.base}: {box} is in none of {self._covers[leaf.base]}")

    def slices(self, request):
        """{name: [(dimension, slice), ...]} of what a request does not take whole, as the client wants it."""
        return self.slices_of(self.requests[request])

    def slices_of(self, boxes):
        """The same of {name: Box}."""
        return {name: [(dim, slice(start, stop)) for dim, (start, stop, extent)
                       in enumerate(zip(box.start, box.stop, self._shapes[name])) if (start, stop) != (0, extent)]
                for name, box in boxes.items() if box.shape != tuple(self._shapes[name])}

    def within(self, leaf):
        """The elements of a Ref of a checkpoint tensor as a view of its piece."""
        return self.window(leaf).within(self.piece(leaf).box, self._shapes[leaf.base])

    def target_of(self, step):
        """The region of a step with its dimensions as `within` has them."""
        return self.window(step.source).split(step.region) if isinstance(step.source.base, str) else step.region

    @property
    def dtypes(self):
        """{name: type} of the checkpoint's tensors."""
        return {source.name: source.dtype for source in self._sources}

    @property
    def bytes(self):
        """What the requests come to."""
        return sum(box.elements * self._itemsizes[name] for request in self.requests for name, box in request.items())

    def gaps(self, storages):
        """Names of parameters that the checkpoint fills in part. storages: {key: (name, elements)}. What is written twice
        counts twice, so this is good for a warning and not for an error."""
        filled = {}
        for key, regions in self._regions().items():
            filled[key] = sum(region.elements for region in regions)
        return [name for key, (name, elements) in storages.items()
                if key in self.steps and 0 < filled.get(key, 0) < elements]

    def _regions(self):
        regions = {}
        for key, region in [*((step.storage, step.region) for step in self._all_steps()), *self.written]:
            regions.setdefault(key, set()).add(Strided(*region))
        return regions
