"""Which block of a tensor one device of a mesh holds: by PartitionSpecs, by DTensor placements, or by the best-effort rule.

The same rules as client/sharding.c; docs/meshes.md has them. Pure.
"""
from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping

from grpc import StatusCode

from . import errors
from .globs import glob

MAX_AXES = 16
MAX_DEVICES = 1 << 30
MAX_RUNS = 65536

# TPU topologies, hosts x chips. A v5e-64 has 4 hosts of 8 chips, so 32 devices.
PRESETS = {name: {"data": data, "model": model}
           for name, data, model in (("v5e-8", 1, 8), ("v5e-64", 4, 8), ("v5litepod-64", 16, 4), ("v5e-128", 8, 8),
                                     ("v5e-256", 16, 8), ("v4-32", 4, 4), ("v4-64", 8, 4))}

_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENTRY = re.compile(r"-(?=,|$)|\(([^()]*)\)|([^(),]+)")
_PLACEMENT = re.compile(r"\s*(?:(?P<replicate>Replicate|R)(?:\(\))?"
                        r"|(?P<kind>S|Shard|_S|SS|_?StridedShard)\(\s*(?:dim=)?(?P<dim>-?[0-9]{1,18})\s*"
                        r"(?:,\s*(?:sf=|split_factor=)?(?P<factor>[0-9]{1,18})\s*)?\))\s*")


def _bad(why, reason="BAD_SHARDING"):
    return errors.make(StatusCode.INVALID_ARGUMENT, why, reason)


class Mesh:
    """Axes in order, slowest first, and the coordinates of one device."""

    def __init__(self, given, rank):
        self.axes = _axes(given)
        self.n_devices = math.prod(self.axes.values())
        if len(self.axes) > MAX_AXES or self.n_devices > MAX_DEVICES:
            raise _bad(f"mesh {given!r}: it has more than {MAX_AXES} axes or {MAX_DEVICES} devices", "BAD_MESH")
        _check_rank(rank, self.n_devices)
        self.coordinates, left = dict.fromkeys(self.axes), rank
        for axis in reversed(self.axes):
            self.coordinates[axis], left = left % self.axes[axis], left // self.axes[axis]

    def __str__(self):
        return ", ".join(f"{axis}={size}" for axis, size in self.axes.items())


def _axes(given):
    """{axis: size} of "data=4,model=8", a preset's name, a mapping, or pairs."""
    if isinstance(given, str):
        if given in PRESETS:
            return PRESETS[given]
        given = [tuple(item.split("=")) for item in given.split(",")]
        if any(len(item) != 2 or not re.fullmatch("[0-9]+", item[1]) for item in given):
            raise _bad(f"mesh {given!r}: it is AXIS=SIZE,AXIS=SIZE and so on, or one of {', '.join(PRESETS)}", "BAD_MESH")
        given = [(axis, int(size)) for axis, size in given]
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    axes = dict(pairs)
    for axis, size in pairs:
        if not isinstance(axis, str) or not _AXIS.fullmatch(axis) or operator.index(size) < 1:
            raise _bad(f"mesh {given!r}: {axis!r}={size!r} is no axis with at least one device", "BAD_MESH")
    if not axes or len(axes) != len(pairs):
        raise _bad(f"mesh {given!r}: it has one axis at least, and no two of the same name", "BAD_MESH")
    return {axis: operator.index(size) for axis, size in pairs}


def _check_rank(rank, n_devices):
    if not 0 <= operator.index(rank) < n_devices:
        raise _bad(f"rank {rank} is not on a mesh of {n_devices} devices: ranks go from 0 to {n_devices - 1}")


# --- PartitionSpec ---

def spec_of(given, mesh):
    """One tuple of axes for each dimension, of "model,-", "(data,model),-", or a PartitionSpec or tuple."""
    entries = _spec_text(given) if isinstance(given, str) else \
        [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in given]
    used = [axis for entry in entries for axis in entry]
    for axis in used:
        if axis not in mesh.axes:
            raise _bad(f"spec {given!r}: the mesh has no axis {axis!r}; it is {mesh}", "NO_SUCH_AXIS")
    if len(set(used)) != len(used):
        raise _bad(f"spec {given!r}: an axis occurs twice, and can split a tensor only once", "AXIS_TWICE")
    return entries


def _spec_text(text):
    entries, at = [], 0
    while at < len(text) or (entries and text[-1:] == ","):
        found = _ENTRY.match(text, at)
        end = found and found.end()
        several, one = found.groups() if found else (None, None)
        entry = several.split(",") if several is not None else one.split("+") if one else []
        if not found or text[end:end + 1] not in ("", ",") or "" in entry:
            raise _bad(f"spec {text!r}: it has one entry per dimension, separated by commas: an axis of the mesh, several as "
                       "(a,b), or - for a dimension that is not split", "BAD_SPEC")
        entries.append(tuple(entry))
        at = end + 1
        if at > len(text):
            break
    return entries


def _apply_spec(entries, mesh, shape):
    if len(entries) > len(shape):
        raise _bad(f"the spec has {len(entries)} entries for {len(shape)} dimensions; put a spec of its own before this one",
                   "SPEC_TOO_LONG")
    block = []
    for dim, extent in enumerate(shape):
        parts, index = 1, 0
        for axis in entries[dim] if dim < len(entries) else ():
            parts, index = parts * mesh.axes[axis], index * mesh.axes[axis] + mesh.coordinates[axis]
        if extent % parts:
            raise _bad(f"dimension {dim} ({extent}) does not divide by the {parts} parts of {' x '.join(entries[dim])}; put a "
                       "spec of its own before this one, with - for that dimension", "DOES_NOT_DIVIDE")
        block.append((extent // parts * index, extent // parts * (index + 1)))
    return block


# --- placements ---

def placements_of(given, mesh):
    """(dimension, split factor) or None for each axis, of "S(0),R" or of torch's placements."""
    placements = _placement_text(given) if isinstance(given, str) else placements_of_torch(given)
    if len(placements) != len(mesh.axes):
        raise _bad(f"placements {given!r} are {len(placements)} for {len(mesh.axes)} axes; the mesh is {mesh}, and each axis has "
                   "one", "BAD_PLACEMENTS")
    return placements


def placements_of_torch(placements):
    """The same of torch's own."""
    return [_placement(one) for one in placements]


def _placement_text(text):
    placements, at = [], 0
    while True:
        found = _PLACEMENT.match(text, at)
        is_strided = found and found["kind"] not in (None, "S", "Shard")
        if not found or is_strided != (found["factor"] is not None) or text[found.end():found.end() + 1] not in ("", ","):
            raise _bad(f"placements {text!r}: each is R, S(dimension) or _S(dimension,split_factor)", "BAD_PLACEMENTS")
        factor = int(found["factor"] or 1)
        if not factor:
            raise _bad(f"placements {text!r}: a split factor is at least 1", "BAD_PLACEMENTS")
        placements.append(None if found["replicate"] else (int(found["dim"]), factor))
        at = found.end() + 1
        if at > len(text):
            return placements


def _placement(one):
    """Of torch.distributed.tensor.placement_types, or one in text."""
    if isinstance(one, str):
        return _placement_text(one)[0]
    dim = getattr(one, "dim", None)
    if dim is None and not one.is_replicate():
        raise _bad(f"placement {one}: a checkpoint has whole tensors and shards of them, no parts of a sum", "BAD_PLACEMENTS")
    return None if dim is None else (dim, int(getattr(one, "split_factor", 1)))


def runs_of(placements, sizes, coordinates, shape):
    """For each dimension the [(start, stop), ...] of its indices that the device has, in order, none empty, none touching.

    As torch 2.15 does (distributed/tensor/_utils.py): the axes of the mesh one after the other, each on what is left."""
    runs = [[(0, extent)] if extent else [] for extent in shape]
    for placement, size, at in zip(placements, sizes, coordinates):
        if placement is None:
            continue
        dim, factor = placement
        if not -len(shape) <= dim < len(shape):
            raise _bad(f"it has {len(shape)} dimensions, and dimension {dim} is to be split; put placements of its own before "
                       "these", "NO_SUCH_DIMENSION")
        runs[dim] = _split_runs(runs[dim], factor, size, at)
    return runs


def _chunk(extent, parts, index):
    """torch.chunk"""
    share = -(-extent // parts)
    return min(share * index, extent), min(share * (index + 1), extent)


def _split_runs(runs, factor, parts, index):
    total = sum(stop - start for start, stop in runs)
    piece = -(-total // factor)
    if piece and -(-total // piece) + len(runs) > MAX_RUNS:
        raise _bad(f"a strided placement cuts a dimension into more than {MAX_RUNS} runs", "TOO_MANY_RUNS")
    split, at, before = [], 0, 0
    for first in range(0, total, piece or 1):
        start, stop = (first + bound for bound in _chunk(min(piece, total - first), parts, index))
        while start < stop:
            run_start, run_stop = runs[at]
            if start - before >= run_stop - run_start:
                at, before = at + 1, before + run_stop - run_start
                continue
            begin = run_start + start - before
            end = min(run_stop, begin + stop - start)
            if split and split[-1][1] == begin:
                split[-1] = split[-1][0], end
            else:
                split.append((begin, end))
            start += end - begin
    return split


def _apply_placements(placements, mesh, shape):
    runs = runs_of(placements, mesh.axes.values(), mesh.coordinates.values(), shape)
    for dim, parts in enumerate(runs):
        if len(parts) > 1:
            raise errors.make(StatusCode.UNIMPLEMENTED, f"of dimension {dim} ({shape[dim]}) this device has {len(parts)} runs that "
                              f"do not lie together, from {parts[0][0]} and {parts[1][0]} on, and a view takes one; load the rows "
                              "between them, too", "NOT_ONE_BLOCK")
    return [parts[0] if parts else (extent, extent) for parts, extent in zip(runs, shape)]


# --- best effort ---

def best_effort_grid(shape, n_devices):
    """(replicas, parts of each dimension ...): from the last dimension to the first, what extent and devices have in common."""
    grid = []
    for extent in reversed(shape):
        grid.insert(0, math.gcd(extent, n_devices))
        n_devices //= grid[0]
    return n_devices, *grid


def best_effort_dimension(shape, n_data):
    """The dimension that an axis "data" of so many devices splits; None: it splits none."""
    return next((dim for dim in reversed(range(len(shape))) if n_data > 1 and shape[dim] % n_data == 0), None)


def _apply_best_effort(n_devices, rank, mesh, shape):
    block = [(0, extent) for extent in shape]
    if mesh:
        parts = mesh.axes.get("data", 1)  # without one there is one device
        dim = best_effort_dimension(shape, parts)
        if dim is not None:
            share = shape[dim] // parts
            block[dim] = share * mesh.coordinates["data"], share * (mesh.coordinates["data"] + 1)
        return block
    for dim, parts in reversed(list(enumerate(best_effort_grid(shape, n_devices)[1:]))):
        share = shape[dim] // parts
        block[dim] = share * (rank % parts), share * (rank % parts + 1)
        rank //= parts
    return block


# --- rules ---

class Sharding:
    """mesh, mesh_rank and one of spec, placements and best_effort, checked; block(name, shape) is what the device holds."""

    def __init__(self, mesh=None, mesh_rank=None, spec=None, placements=None, best_effort=None):
        ways = [way for way in (spec, placements, best_effort) if way is not None]
        if len(ways) != 1:
            raise _bad("it takes one of spec, placements and best_effort, which say how tensors are split")
        if mesh_rank is None:
            raise _bad("mesh_rank is missing: which of the devices this is")
        if mesh is None and best_effort is None:
            raise _bad("spec and placements need a mesh, such as data=4,model=8")
        self.mesh = None if mesh is None else Mesh(mesh, mesh_rank)
        if best_effort is not None:
            n_devices = operator.index(best_effort)
            if self.mesh and n_devices != self.mesh.n_devices:
                raise _bad(f"best effort over {n_devices} devices on a mesh of {self.mesh.n_devices} ({self.mesh}): give the "
                           "mesh's number, or no mesh")
            if self.mesh and n_devices > 1 and "data" not in self.mesh.axes:
                raise _bad(f"best effort on a mesh splits by its axis 'data', and {self.mesh} has none: every device would hold "
                           "everything; name an axis so, give no mesh, or give a spec")
            if not 1 <= n_devices <= MAX_DEVICES:
                raise _bad(f"best effort is over 1 to {MAX_DEVICES} devices, not {n_devices}")
            _check_rank(mesh_rank, n_devices)
            self._rules, self._apply = None, lambda _, shape: _apply_best_effort(n_devices, mesh_rank, self.mesh, shape)
        elif spec is not None:
            self._rules = [(pattern, glob(pattern), spec_of(value, self.mesh)) for pattern, value in _rules(spec)]
            self._apply = lambda entries, shape: _apply_spec(entries, self.mesh, shape)
        else:
            self._rules = [(pattern, glob(pattern), placements_of(value, self.mesh)) for pattern, value in _rules(placements)]
            self._apply = lambda given, shape: _apply_placements(given, self.mesh, shape)

    def block(self, name, shape):
        """((start, stop), ...) of a tensor; None: no rule is about it, and it is whole."""
        pattern, value = None, None
        if self._rules is not None:
            pattern, _, value = next((rule for rule in self._rules if rule[1](name)), (None, None, None))
            if pattern is None:
                return None
        try:
            return self._apply(value, shape)
        except errors.TensorcastError as error:
            raise errors.make(error.code, f"tensor {name}, rule for {pattern}: {error.message}", error.reason, {"tensor": name}) from None

    def slices(self, name, shape):
        """[(dimension, slice), ...] of the dimensions that are split."""
        block = self.block(name, shape) or ()
        return [(dim, slice(*bounds)) for dim, (bounds, extent) in enumerate(zip(block, shape)) if bounds != (0, extent)]


def _rules(given):
    """(glob, value) pairs of {glob: value}, "GLOB=VALUE", or a list of those; the first that matches decides."""
    if isinstance(given, str):
        given = [given]
    pairs = list(given.items() if isinstance(given, Mapping) else map(_split_rule, given) if isinstance(given, Iterable) else ())
    if not pairs:
        raise _bad(f"{given!r} is no rule; it is {{glob: how}} or a list of 'GLOB=HOW'", "BAD_RULE")
    return pairs


def _split_rule(text):
    depth = 0
    for at in range(len(text) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if text[at] == "=" and not depth:
            return text[:at], text[at + 1:]
    raise _bad(f"{text!r} is not GLOB=VALUE, as in '*.weight=model,-' or '*=S(0),R'", "BAD_RULE")
