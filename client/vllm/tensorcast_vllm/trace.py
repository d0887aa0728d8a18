"""Finds out what a model's own load_weights does with each checkpoint tensor, without the checkpoint's bytes.

Every checkpoint tensor is stood in for by an empty meta tensor, and every operation on one is looked at as it happens. A
view says by its storage, offset, sizes and strides which elements it shows, so no view operation needs a rule. A copy into
a parameter becomes a step, to be done later with real data. A pure operation that makes a new tensor is remembered, to be
done again with real data. Where neither can be proven right, the real tensor is fetched and the model works on that: at
once, or, when it is too late for this, in a new attempt that hands the model this tensor from the start (see attempts.py).
What the model writes from elsewhere, such as zeros behind a padded vocabulary, it writes now.
"""
from __future__ import annotations

import functools
from typing import NamedTuple, Union

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .regions import Strided, strided

aten = torch.ops.aten
_COPIES = {aten.copy_.default, aten.fill_.Tensor}
_ONLY_METADATA = {aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
                  aten.new_empty.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default,
                  aten.new_empty_strided.default}


class NeedsReal(Exception):
    """The model does something to these checkpoint tensors that cannot be put off; it has to get the real ones."""

    def __init__(self, names, why):
        super().__init__(f"{', '.join(sorted(names))}: {why}")
        self.names, self.why = frozenset(names), why


class Source(NamedTuple):
    """A tensor of the checkpoint."""

    name: str
    shape: tuple
    dtype: torch.dtype


class Ref(NamedTuple):
    """A view of a checkpoint tensor (base: its name) or of what an operation makes (base: an Output)."""

    base: Union[str, "Output"]
    view: Strided
    dtype: torch.dtype  # as wide as that of the base


class Operation:
    """A pure operation, to be done again with real data. `arguments` has a Ref in place of each tensor."""

    def __init__(self, function, arguments, keywords):
        self.function, self.arguments, self.keywords = function, arguments, keywords

    def refs(self):
        return [leaf for leaf in tree_leaves((self.arguments, self.keywords), is_leaf=_is_ref) if _is_ref(leaf)]


class Output(NamedTuple):
    """One tensor that an operation makes, as it was with meta tensors."""

    operation: Operation
    index: int
    made: Strided
    dtype: torch.dtype


class Step(NamedTuple):
    """target[region] = source, cast to the target's type."""

    source: Ref
    storage: int  # key of the parameter's storage
    region: Strided  # as many dimensions as the source's view
    dtype: torch.dtype  # that the storage is seen as


class Traits(NamedTuple):
    """What the schema of an operation says."""

    writes: tuple  # (position, name) of arguments that it writes into
    views: bool  # whether a result shows an argument's memory
    pure: bool  # whether it makes tensors only, always the same ones


@functools.lru_cache(maxsize=None)
def _traits(function):
    arguments, results = function._schema.arguments, function._schema.returns
    return Traits(
        tuple((at, argument.name) for at, argument in enumerate(arguments)
              if argument.alias_info is not None and argument.alias_info.is_write),
        any(result.alias_info is not None and not result.alias_info.is_write for result in results),
        all(isinstance(result.type, (torch.TensorType, torch.ListType)) for result in results)
        and torch.Tag.nondeterministic_seeded not in function.tags)


def _is_ref(leaf):
    return isinstance(leaf, Ref)


def key_of(tensor):
    """What tells storages apart, for as long as the tensor lives."""
    return tensor.untyped_storage()._cdata


def _uses(tensor):
    return torch._C._storage_Use_Count(key_of(tensor))


@functools.lru_cache(maxsize=None)
def _uses_of_one():
    return _uses(torch.empty(1))  # more than 1, as key_of() makes the storage an object


def is_held_elsewhere(tensor):
    """Whether anything but this one tensor, in Python or not, holds its memory."""
    return _uses(tensor) > _uses_of_one()


def names_of(ref):
    """The checkpoint tensors that a Ref depends on."""
    return {leaf.base for leaf in leaves_of(ref)}


def leaves_of(ref):
    """The views of checkpoint tensors that a Ref is made of."""
    if isinstance(ref.base, str):
        return [ref]
    return [leaf for argument in ref.base.operation.refs() for leaf in leaves_of(argument)]


def evaluate(ref, read, made=None):
    """The real tensor of a Ref. read(ref) gives that of a checkpoint tensor's view; `made` remembers operations."""
    if isinstance(ref.base, str):
        return read(ref)
    made, output = {} if made is None else made, ref.base
    operation = output.operation
    if operation not in made:
        arguments, keywords = tree_map_only(Ref, lambda leaf: evaluate(leaf, read, made),
                                            (operation.arguments, operation.keywords), is_leaf=_is_ref)
        made[operation] = tree_leaves(operation.function(*arguments, **keywords))
    real = made[operation][output.index]
    if tuple(real.shape) != output.made.sizes or real.dtype != output.dtype:
        raise RuntimeError(f"{operation.function} made {real.dtype} {list(real.shape)} of real data where {output.dtype} "
                           f"{list(output.made.sizes)} was expected; please report this model")
    if strided(real) != output.made:  # the order of dimensions in memory may follow that of what was loaded
        real = torch.empty_strided(output.made.sizes, output.made.strides, dtype=output.dtype).copy_(real)
    return real.as_strided(ref.view.sizes, ref.view.strides, ref.view.offset).view(ref.dtype)


class Tracer(TorchDispatchMode):
    """Watches load_weights. `targets` are the keys of the storages of parameters and buffers; fetch(name) gives a whole
    checkpoint tensor that may be written to."""

    def __init__(self, targets, fetch):
        super().__init__()
        self.steps, self.written = [], []  # written: (key, Strided) of what the model wrote itself
        self._targets, self._fetch = targets, fetch
        self._refs = {}  # key of a meta storage -> name or Output
        self._widths = {}  # key of a meta storage -> bytes of an element
        self._alive = []  # so that no key is used twice
        self._pending = {}  # key of a target -> its steps
        self.needs = None  # the NeedsReal that was raised, should the model have caught it

    def stand_in(self, source):
        """The empty tensor in place of a checkpoint tensor."""
        tensor = torch.empty(source.shape, dtype=source.dtype, device="meta")
        self._know(tensor, source.name)
        return tensor

    def ref(self, tensor):
        """The Ref of a tensor that was made of stand-ins, else None."""
        base = self._refs.get(key_of(tensor)) if tensor.is_meta else None
        return None if base is None else Ref(base, strided(tensor), tensor.dtype)

    def _know(self, tensor, base):
        self._refs[key_of(tensor)], self._widths[key_of(tensor)] = base, tensor.dtype.itemsize
        self._alive.append(tensor.detach())  # not the object that the model gets, so that it shows when the model keeps it

    def kept(self):
        """The checkpoint tensors of which other code has a stand-in, a view of one, or what was made of it."""
        return set().union(*(names_of(self.ref(tensor)) for tensor in self._alive if is_held_elsewhere(tensor)))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        try:
            return self._watch(function, args, kwargs or {})
        except NeedsReal as need:
            self.needs = need
            raise

    def _watch(self, function, args, kwargs):
        tensors = _tensors((*args, *kwargs.values()))
        if not any(self.ref(tensor) for tensor in tensors):
            return self._elsewhere(function, args, kwargs, tensors)
        if function in _COPIES and not self.ref(args[0]):
            return self._copy(*args[:2])
        if _traits(function).writes:
            raise NeedsReal(self._names(tensors), f"{function} writes into it")
        return self._pure(function, args, kwargs, tensors)

    def _names(self, tensors):
        refs = [self.ref(tensor) for tensor in tensors]
        names = set().union(*(names_of(ref) for ref in refs if ref))
        for tensor in tensors:
            for step in self._pending.get(key_of(tensor), ()):
                names |= names_of(step.source)
        return names

    def _copy(self, target, tensor):
        key, ref = key_of(target), self.ref(tensor.expand(target.shape))
        if key not in self._targets:
            target.copy_(self._real(ref))
        elif target.numel():
            step = Step(ref, key, strided(target), target.dtype)
            self.steps.append(step)
            self._pending.setdefault(key, []).append(step)
        return target

    def _pure(self, function, args, kwargs, tensors):
        """Views and operations without side effects, on stand-ins."""
        if not _traits(function).pure or not all(self.ref(tensor) for tensor in tensors):
            return self._with_real(function, args, kwargs, tensors)
        on_meta = {**kwargs, "device": torch.device("meta")} if kwargs.get("device") is not None else kwargs
        try:
            made = function(*args, **on_meta)
        except (NotImplementedError, RuntimeError):  # it has no meta form, or its result depends on values
            return self._with_real(function, args, kwargs, tensors)
        outputs = [made] if isinstance(made, torch.Tensor) else tree_leaves(made)
        if any(not isinstance(output, torch.Tensor) or not output.is_meta for output in outputs):
            return self._with_real(function, args, kwargs, tensors)
        if any(self.ref(output) is None for output in outputs):
            if not all(tensor.numel() for tensor in tensors) or any(output.storage_offset() for output in outputs):
                return self._with_real(function, args, kwargs, tensors)
            self._remember(function, args, kwargs, outputs)
        if any(self._widths[key_of(output)] != output.dtype.itemsize for output in outputs):
            raise NeedsReal(self._names(tensors), f"{function} sees its bytes as elements of another width")
        return made

    def _remember(self, function, args, kwargs, outputs):
        arguments, keywords = tree_map_only(torch.Tensor, self.ref, (args, kwargs))
        operation = Operation(function, arguments, keywords)
        for index, output in enumerate(outputs):
            if self.ref(output) is None:
                self._know(output, Output(operation, index, strided(output), output.dtype))

    def _with_real(self, function, args, kwargs, tensors):
        """The operation, on real data, now. Its result is an ordinary tensor."""
        def real(tensor):
            ref = self.ref(tensor)
            return tensor if ref is None else self._real(ref)

        self._check_unread(tensors, function)
        return function(*tree_map_only(torch.Tensor, real, args), **tree_map_only(torch.Tensor, real, kwargs))

    def _real(self, ref):
        def read(leaf):
            whole = self._fetch(leaf.base)
            offset = whole.storage_offset() + leaf.view.offset
            return whole.as_strided(leaf.view.sizes, leaf.view.strides, offset).view(leaf.dtype)

        return evaluate(ref, read)

    def _elsewhere(self, function, args, kwargs, tensors):
        """Operations that no stand-in takes part in are done at once."""
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta":
            kwargs = {**kwargs, "device": torch.device("cpu")}  # other code asked a stand-in where it lives
        traits = _traits(function)
        written = _tensors([args[at] if at < len(args) else kwargs.get(name) for at, name in traits.writes])
        for tensor in written:
            self._check_unordered(tensor, function)
        if not traits.views and function not in _ONLY_METADATA:
            skipped = {id(tensor) for tensor in written}
            self._check_unread([tensor for tensor in tensors if id(tensor) not in skipped], function)
        made = function(*args, **kwargs)
        self.written += [(key_of(tensor), strided(tensor)) for tensor in written
                         if tensor.numel() and key_of(tensor) in self._targets]
        return made

    def _check_unread(self, tensors, function):
        """What is put off cannot be read yet."""
        for tensor in tensors:
            if self._pending.get(key_of(tensor)):
                raise NeedsReal(self._names([tensor]), f"{function} reads a parameter that it was copied to")

    def _check_unordered(self, tensor, function):
        """What is put off must not undo what is written now. Reading before writing in place (add_) is reading, too."""
        pending = self._pending.get(key_of(tensor))
        if not pending or not tensor.numel():
            return
        first, end = _bytes_of(strided(tensor), tensor.dtype)
        spans = [(step, *_bytes_of(step.region, step.dtype)) for step in pending]
        over = [step for step, begin, stop in spans if begin < end and first < stop]
        if over:
            raise NeedsReal(set().union(*(names_of(step.source) for step in over)),
                            f"{function} writes over the parameter that it was copied to")


def _bytes_of(view, dtype):
    """(first, last + 1) of the bytes of its storage that a view may touch."""
    return tuple(at * dtype.itemsize for at in view.span)


def _tensors(arguments):
    """The tensors among the arguments of an operation, which are lists of tensors at most."""
    found = []
    for argument in arguments:
        leaves = argument if isinstance(argument, (list, tuple)) else (argument,)
        found += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return found
