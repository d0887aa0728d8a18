"""What a view selects, and its form on the wire.

Slices are kept as the user gave them. The wire form has one pair of bounds for every dimension of a sliced tensor, up to the
last one that is sliced; only dimensions that count from the end need the rank, and slices of slices the shape.
"""
from __future__ import annotations

import operator
from typing import NamedTuple, Optional

from grpc import StatusCode

from . import errors
from .globs import glob
from .layout import MAX_RANK
from .messages import OPEN_END

MAX_ALIGN_BYTES = 2 << 20
PLACEMENTS = {"packed": 0, "source": 1}  # numbers on the wire


class Selection(NamedTuple):
    """names: None = every tensor of the artifact. slices: {name: ((dimension, slice), ...)}, applied in order."""

    names: Optional[tuple] = None
    slices: dict = {}
    align: int = 0
    placement: str = "source"


def names_of(names):
    """The names and patterns of a subset, checked."""
    if isinstance(names, str) and has_patterns((names,)):
        return (names,)
    if isinstance(names, (str, bytes)):
        raise errors.invalid(f"subset takes a list of names or patterns, or one pattern, not the one name {names!r}", "BAD_NAMES")
    names = tuple(names)
    if not names:
        raise errors.invalid("a subset of no tensors", "EMPTY_VIEW")
    for name in names:
        if not isinstance(name, str):
            raise errors.invalid(f"a tensor's name is a string, not {name!r}", "BAD_NAMES")
    return names


def has_patterns(names):
    """Whether a name may be a pattern; only the artifact's names tell."""
    return any(set("*?[") & set(name) for name in names)


def matched(names, known, artifact):
    """`names` with those that each pattern stands for in its place, in the order of `known`. A name that is known is itself."""
    chosen, there = {}, set(known)
    for name in names:
        is_pattern = name not in there and has_patterns((name,))
        found = list(filter(glob(name), known)) if is_pattern else [name]
        if not found:
            raise errors.make(StatusCode.NOT_FOUND, f"no tensor of {artifact} matches {name}", "TENSOR_NOT_FOUND", {"tensor": name})
        chosen.update(dict.fromkeys(found))
    return tuple(chosen)


def align_of(align):
    if align is None:
        return 0
    if not isinstance(align, int) or not 1 <= align <= MAX_ALIGN_BYTES or align & (align - 1):
        raise errors.invalid(f"align is {align!r}; it is a power of two up to {MAX_ALIGN_BYTES}", "BAD_ALIGN")
    return align


def placement_of(placement):
    if placement not in PLACEMENTS:
        raise errors.invalid(f'placement is {placement!r}; it is "packed" or "source"', "BAD_PLACEMENT")
    return placement


def sliced(selection, slices):
    """The selection with more slices; those of a tensor that is sliced already apply to what is left of it."""
    merged, known = dict(selection.slices), selection.names and set(selection.names)
    for name, given in dict(slices or {}).items():
        if known and name not in known:
            raise errors.make(StatusCode.NOT_FOUND, f"slice of tensor {name}, which is not in this view",
                              "TENSOR_NOT_FOUND", {"tensor": str(name)})
        merged[name] = merged.get(name, ()) + (_steps(name, given),)
    return selection._replace(slices=merged)


def _steps(name, given):
    """slice | (dimension, slice) | [(dimension, slice), ...] as a tuple of (dimension, slice)."""
    if isinstance(given, slice):
        given = ((0, given),)
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], slice):
        given = (given,)
    try:
        steps = tuple([(operator.index(dim), slice(_whole(part.start), _whole(part.stop), _whole(part.step)))
                       for dim, part in given])
    except (TypeError, ValueError, AttributeError):
        raise _bad(name, f"{given!r} is not (dimension, slice) with whole numbers") from None
    for dim, part in steps:
        if part.step not in (None, 1):
            raise _bad(name, f"step {part.step} in dimension {dim}; only step 1 can be loaded")
    if len(steps) > 1 and len({dim for dim, _ in steps}) != len(steps):
        raise _bad(name, "the same dimension twice")
    return steps


def _whole(bound):
    return None if bound is None else operator.index(bound)


def _bad(name, why):
    return errors.make(StatusCode.INVALID_ARGUMENT, f"slice of tensor {name}: {why}", "BAD_SLICE", {"tensor": str(name)})


def to_wire(selection, facts):
    """(names in view order or None for the artifact's own, fields of the View message, None = the default one).

    `facts` may be None when needs_facts() says so: the daemon then judges names and slices."""
    names, slices = selection.names, {name: steps for name, steps in selection.slices.items() if any(steps)}
    if slices and names is None:
        names = facts.names
    whole = names is None or (facts is not None and facts.is_whole and len(names) == len(facts.names) and list(names) == facts.names)
    fields = {"align_bytes": selection.align, "placement": PLACEMENTS[selection.placement]}
    if whole and not slices:
        return None, {**fields, "whole": True} if any(fields.values()) else None
    if names is None:
        names = facts.names
    fields["names"] = names
    if slices:
        fields.update(_slice_columns(names, slices, facts))
        fields["leading"] = facts is None
    return names, fields


def needs_facts(selection):
    """Whether the wire form depends on what the artifact holds."""
    slices = selection.slices.values()
    return any(slices) and (selection.names is None or any(
        len(rounds) > 1 or any(not 0 <= dim < MAX_RANK for dim, _ in rounds[0]) for rounds in slices))


def _slice_columns(names, slices, facts):
    n_slices, starts, stops = [0] * len(names), [], []
    for name in slices.keys() - set(names):
        facts.shape(name)  # there is no such tensor
    shapes = facts.shapes_of(slices) if facts else {}
    for at, name in enumerate(names):
        if name in slices:
            bounds = _bounds(name, slices[name], shapes[name]) if facts else _leading_bounds(slices[name][0])
            n_slices[at] = len(bounds)
            for start, stop in bounds:
                starts.append(start)
                stops.append(stop)
    return {"n_slices": n_slices, "starts": starts, "stops": stops}


def _leading_bounds(steps):
    """One (start, stop) per dimension up to the last of them, of one round of slices."""
    bounds = [(0, OPEN_END)] * (1 + max(dim for dim, _ in steps))
    for dim, part in steps:
        bounds[dim] = _given(part)
    return bounds


def _bounds(name, rounds, shape):
    """One (start, stop) per dimension."""
    if len(rounds) == 1 and len(rounds[0]) == 1:  # of nearly all tensors of a rank
        (dim, part), bounds = rounds[0][0], [(0, OPEN_END)] * len(shape)
        bounds[_dimension(name, dim, shape)] = _given(part)
        return bounds
    chains = [[] for _ in shape]
    for steps in rounds:
        seen = set()
        for dim, part in steps:
            at = _dimension(name, dim, shape)
            if at in seen:
                raise _bad(name, "the same dimension twice")
            seen.add(at)
            chains[at].append(part)
    return [_combined(chain, extent) for chain, extent in zip(chains, shape)]


def _dimension(name, dim, shape):
    at = dim + len(shape) if dim < 0 else dim
    if not 0 <= at < len(shape):
        raise _bad(name, f"no dimension {dim} in its shape {list(shape)}")
    return at


def shape_of(selection, facts, name):
    """A tensor's shape as the selection's slices leave it."""
    shape = facts.shape(name)
    if not any(selection.slices.get(name, ())):
        return tuple(shape)
    bounds = _bounds(name, selection.slices[name], shape)
    return tuple(len(range(extent)[start:stop]) for (start, stop), extent in zip(bounds, shape))


def _combined(chain, extent):
    """The bounds that a chain of slices of one dimension comes to."""
    if not chain:
        return 0, OPEN_END
    if len(chain) == 1:
        return _given(chain[0])
    left = range(extent)
    for part in chain:
        left = left[part.start:part.stop]
    return (left.start, left.stop) if len(left) else (0, 0)


def _given(part):
    """As they were given: what they mean is the daemon's business, which may know of a newer shape."""
    return _clamped(part.start, 0), _clamped(part.stop, OPEN_END)


def _clamped(bound, missing):
    return missing if bound is None else -OPEN_END if bound < -OPEN_END else OPEN_END if bound > OPEN_END else bound
