"""Checkpoints for torch modules: load_state_dict, and a state dict for libraries that take one, such as transformers.

Tensors are the daemon's memory, mapped privately: they may be changed in place, and no other process sees it. Parameters that lie in
a HostRegion, where empty_like_region() moves them, or on a GPU are filled where they are, without any memory of the daemon's.
"""
from __future__ import annotations

import functools
import os
import threading
from typing import Any

import torch

from . import module_fill
from .artifact import Artifact
from .dtensor import Part, is_dtensor, of_local
from .module_region import empty_like_region
from .options import Options
from .redact import shown
from .shortcuts import source_of
from .view import Progress, View

__all__ = ["StateDict", "empty_like_region", "load_state_dict"]
_UNREAD = object()  # in place of a value that is not loaded yet


def load_state_dict(module: torch.nn.Module, source: Artifact | View | str | os.PathLike[str], strict: bool = True, assign: bool = False,
                    progress: Progress | bool | None = None, options: Options | None = None) -> Any:
    """module.load_state_dict() of an artifact's tensors, of a reference's, or of a view such as one rank's slices.

    Of an artifact only what the module has is loaded, of a DTensor only this rank's part. assign=True: parameters become the
    loaded memory itself, without a copy. Else what lies in a HostRegion or on a GPU, with the shape and dtype of the checkpoint, is
    filled where it is; after an error its content is undefined. Anything else is copied, and the memory given back. strict and the
    result are those of torch."""
    source = source_of(source, "load_state_dict")
    state, names, wanted = {}, source.tensor_names, module.state_dict()
    if isinstance(source, Artifact):
        state = {name: torch.empty(0) for name in names if name not in wanted}  # for torch to complain about, or not
        names = [name for name in names if name in wanted]
        source = source.subset(names) if names else None
    if source is not None:
        view, cuts = _cut(source, {name: wanted[name] for name in names if is_dtensor(wanted.get(name))}, state)
        if view is not None:
            fill = functools.partial(_filled, module, wanted) if not assign else lambda *_: {}
            _load(view, cuts, wanted, state, fill, {"progress": progress, "options": options})
    return module.load_state_dict(state, strict=strict, assign=assign)


def _cut(view, dtensors, state):
    """(the view of what is to be loaded, None for nothing; {name: Part} of the DTensors that this rank has a part of). What needs no
    load goes into `state`."""
    if not dtensors:
        return view, {}
    cuts, shapes = {}, view.shapes()
    for name, dtensor in dtensors.items():
        part = Part.of(dtensor)
        if shapes[name] != tuple(dtensor.shape):
            state[name] = torch.empty(shapes[name], device="meta")  # for torch to complain about
        elif part is None or part.is_empty:
            empty = dtensor.to_local()
            state[name] = of_local(torch.empty(empty.shape, dtype=empty.dtype, device="cpu"), dtensor)
        else:
            cuts[name] = part
    names = [name for name in view.tensor_names if name not in state]
    return (view.only(names).view({name: part.slices() for name, part in cuts.items()}) if names else None), cuts


def _load(view, cuts, wanted, state, fill, how):
    """Adds the tensors of a view to a state dict: copies of the daemon's, except for what fill() does in place."""
    in_place = fill(view, how)
    state.update(in_place)
    rest = [name for name in view.tensor_names if name not in in_place]
    if rest:
        part = view.only(rest) if in_place else view
        for name, tensor in part.tensor_dict(framework="torch", writable=True, **how).items():
            state[name] = of_local(cuts[name].cut(tensor), wanted[name]) if name in cuts else tensor


def _filled(module, wanted, view, how):
    """{name: what torch finds in the state dict} of everything that was filled in place."""
    if not module_fill.has_reachable(module) or Options.of(how["options"]).memory == "mapped":
        return {}
    targets, twins = module_fill.fillable(module, wanted, view.shapes(), view.artifact.facts())
    groups = module_fill.by_device(targets)
    group = how["options"] and how["options"].group
    if group and (len(groups) > 1 or len(targets) + len(twins) < len(view.tensor_names)):
        return {}  # ranks meet once, for one load of each
    for names in groups:
        view.only(names).load_into({name: targets[name] for name in names}, **how)
    ready = {**targets, **{name: targets[twin] for name, twin in twins.items()}}
    return {name: wanted[name] if is_dtensor(wanted[name]) else tensor.detach().as_subclass(module_fill.Filled)
            for name, tensor in ready.items()}


class StateDict(dict):
    """The state dict of an artifact, a view or a reference. Names are known at once; the first look at a value loads all of them.

    transformers: LlamaForCausalLM.from_pretrained(None, config=config, state_dict=StateDict(artifact)); parameters that
    the model takes as they are in the checkpoint share the daemon's memory."""

    def __init__(self, source: Artifact | View | str | os.PathLike[str], progress: Progress | bool | None = None, options: Options | None = None):
        source = source_of(source, "StateDict")
        super().__init__(dict.fromkeys(source.tensor_names, _UNREAD))
        self._view, self._how = source.view(), {"progress": progress, "options": options}
        self._loaded, self._loading, self._lock = False, False, threading.RLock()

    def _load(self):
        """Any thread: a thread that looks while another one loads waits for it."""
        if self._loaded:
            return
        with self._lock:
            if self._loading:
                raise RuntimeError("a progress callback looks at a value of the state dict that is being loaded")
            if not self._loaded:
                self._loading = True
                try:
                    tensors = self._view.tensor_dict(framework="torch", writable=True, **self._how)
                    self.update((name, tensor) for name, tensor in tensors.items() if dict.get(self, name) is _UNREAD)
                    self._loaded = True
                finally:  # what failed is tried again at the next look
                    self._loading = False

    def __iter__(self):  # without it dict(), ** and | copy a dict's inside instead of looking at its values
        return super().__iter__()

    def __eq__(self, other):
        self._load()
        if isinstance(other, StateDict):
            other._load()
        return super().__eq__(other)

    def __ne__(self, other):
        return not self == other

    def __repr__(self):
        state = "loaded" if self._loaded else "not loaded"
        return f"<StateDict of {shown(self._view.artifact.reference)}: {len(self)} tensor{'s' * (len(self) != 1)}, {state}>"

    def __reduce_ex__(self, protocol):
        """Pickled, saved and copied deeply as a plain dict of tensors."""
        return dict, (dict(self),)

    def __getitem__(self, name):
        self._load()
        return super().__getitem__(name)

    def get(self, name, default=None):
        self._load()
        return super().get(name, default)

    def items(self):
        self._load()
        return super().items()

    def values(self):
        self._load()
        return super().values()

    def pop(self, name, *default):
        self._load()
        return super().pop(name, *default)

    def popitem(self):
        self._load()
        return super().popitem()

    def setdefault(self, name, default=None):
        self._load()
        return super().setdefault(name, default)

    def copy(self):
        """A plain dict."""
        return dict(self.items())

    __copy__ = copy
