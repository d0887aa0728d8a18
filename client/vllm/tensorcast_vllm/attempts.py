"""Traces a model's load_weights until everything in it is understood.

An attempt that meets something that cannot be put off is given up; the next one hands the model the real tensors in
question. At worst the model gets all of them, which is what every other loader does.
"""
from __future__ import annotations

import gc
from typing import NamedTuple

from torch.utils._python_dispatch import _disable_current_modes

from .trace import NeedsReal, Tracer, key_of

_MAX_ATTEMPTS = 12  # before the model is given all tensors as they are


class Traced(NamedTuple):
    """What one pass of load_weights comes to."""

    loaded: object  # what load_weights returned: a set of parameter names, or None
    steps: list
    written: list
    real: dict  # checkpoint tensors that the model got as they are: {name: why}


def state_of(model):
    """[(name, tensor)] of all parameters and buffers; shared ones under each of their names."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def trace(model, sources, fetch):
    """The Traced of model.load_weights over `sources`. fetch(name): the whole tensor, which may be written to."""
    saved = [(tensor, tensor.data) for _, tensor in state_of(model)]
    real = {}
    if any(tensor.is_meta for tensor, _ in saved):
        real = dict.fromkeys((source.name for source in sources), "the model has parameters without memory")
    for number in range(1, len(sources) + _MAX_ATTEMPTS):
        if number == _MAX_ATTEMPTS:
            real = {**dict.fromkeys((source.name for source in sources), "too much of the model needs real data"), **real}
        feed = Feed(sources, real, fetch)
        try:
            return attempt(model, feed)
        except NeedsReal as need:
            if need.names <= set(real):
                raise
            real.update(dict.fromkeys(need.names, need.why))
        for tensor, data in saved:
            tensor.data = data
    raise AssertionError("an attempt with real tensors only needs no other")


class Feed:
    """The iterator of (name, tensor) that load_weights gets."""

    def __init__(self, sources, real, fetch):
        self._sources, self.real, self.fetch, self.last = sources, real, fetch, None
        self.stand_ins = {}

    def prepare(self, tracer):
        """Makes the stand-ins, which cannot be done while the tracer watches."""
        self.stand_ins = {source.name: tracer.stand_in(source) for source in self._sources if source.name not in self.real}

    def __iter__(self):
        for source in self._sources:
            self.last = source.name
            with _disable_current_modes():
                real = source.name in self.real
                tensor = self.fetch(source.name) if real else self.stand_ins.pop(source.name)
            yield source.name, tensor
            del tensor


def attempt(model, feed):
    tracer = Tracer({key_of(tensor) for _, tensor in state_of(model)}, feed.fetch)
    feed.prepare(tracer)
    try:
        with tracer:
            loaded = model.load_weights(iter(feed))
    except Exception as error:
        if tracer.needs:
            raise tracer.needs from None
        if feed.last is None or feed.last in feed.real:
            raise  # the model's own judgement of real data
        raise NeedsReal({feed.last}, f"{type(error).__name__}: {error}") from error
    if tracer.needs:
        raise tracer.needs
    if tracer.kept():
        gc.collect()  # perhaps it is only waiting for this
        if kept := tracer.kept():
            raise NeedsReal(kept, "the model keeps it")
    return Traced(loaded, tracer.steps, tracer.written, dict(feed.real))
