"""What the daemon can write straight into parameters on a GPU: copies that change nothing but the order of elements.

A step of the plan that copies a box of a checkpoint tensor becomes a target: the parameter's own memory, seen in the dimensions
of that box. Boxes that continue each other on both sides, such as experts that are stacked in the checkpoint, become one. A
tensor has one target in a request; further boxes of it go into further requests. What is cast or made by an operation is left
to the way through host memory, as are parameters in which one step writes over another.
"""
from __future__ import annotations

from typing import NamedTuple

import torch

from .attempts import state_of
from .fill import seen
from .regions import MAX_BOXES, Box, Strided
from .trace import key_of


class Target(NamedTuple):
    """A box of a checkpoint tensor and where it belongs: as many dimensions as the box, in elements of the storage."""

    name: str
    storage: int  # key of the parameter's storage
    box: Box
    region: Strided
    steps: tuple  # of the plan, that it stands for

    def joined(self, other, dim):
        """This and one that begins where it ends in a dimension, as one target; None when they lie apart in the parameter."""
        if self.box.stop[dim] != other.box.start[dim]:
            return None
        step, left = divmod(other.region.offset - self.region.offset, other.box.start[dim] - self.box.start[dim])
        sizes = tuple(a if d != dim else a + b for d, (a, b) in enumerate(zip(self.region.sizes, other.region.sizes)))
        strides = tuple(step if d == dim else stride for d, stride in enumerate(self.region.strides))
        for part in (self, other):
            same = all(size == 1 or mine == theirs for size, mine, theirs in zip(part.region.sizes, part.region.strides, strides))
            if left or step <= 0 or not same:
                return None
        return self._replace(box=self.box.hull(other.box), region=Strided(self.region.offset, sizes, strides),
                             steps=self.steps + other.steps)


class InPlace(NamedTuple):
    """requests: for each load_into() {name: Target}. copies: [(Target, Target)] of the same box, from the first to the second,
    once the requests are done. rest: the steps of the plan that are left."""

    requests: list
    copies: list
    rest: list


def in_place(plan, device, owners):
    """The InPlace of a plan. owners: {key: the parameter that has this storage}."""
    targets, rest, dtypes = [], [], plan.dtypes
    for key, steps in plan.steps.items():
        apart = owners[key].device == device and are_apart([step.region for step in steps])
        for step in steps:
            target = apart and _target(plan, step, dtypes)
            if target:
                targets.append(target)
            else:
                rest.append(step)
    requests, copies = [], []
    for of_name in _by_name(_merged(targets)).values():
        boxes = {}
        for target in of_name:
            boxes.setdefault(target.box, []).append(target)
        for request, (first, *others) in enumerate(boxes.values()):
            if request >= MAX_BOXES:  # each would need a load of its own
                rest += [step for target in (first, *others) for step in target.steps]
                continue
            if request == len(requests):
                requests.append({})
            requests[request][first.name] = first
            copies += [(first, other) for other in others]
    return InPlace(requests, copies, rest)


def are_apart(regions):
    """Whether no two regions of one storage have an element in common."""
    spans = sorted(region.span for region in regions)
    if all(end <= first for (_, end), (first, _) in zip(spans, spans[1:])):
        return True
    low, high = spans[0][0], max(end for _, end in spans)
    taken = torch.zeros(high - low, dtype=torch.bool, device="cpu")
    for region in regions:
        mine = taken.as_strided(region.sizes, region.strides, region.offset - low)
        if mine.any():
            return False
        mine.fill_(True)
    return True


def _target(plan, step, dtypes):
    """The Target of a step; None for one that does more than copying."""
    source = step.source
    if not isinstance(source.base, str) or not source.dtype == step.dtype or step.dtype.itemsize != dtypes[source.base].itemsize:
        return None
    window = plan.window(source)
    region = window.onto(step.region)
    return region and Target(source.base, step.storage, window.box, region, (step,))


def _merged(targets):
    """The same with neighbours joined, one dimension after the other."""
    for dim in range(max((len(target.box.start) for target in targets), default=0)):
        lines, joined = {}, []
        for target in targets:
            at = dim if dim < len(target.box.start) else None
            across = tuple(bounds for d, bounds in enumerate(zip(*target.box)) if d != at)
            lines.setdefault((target.name, target.storage, at, across), []).append(target)
        for (_, _, at, _), line in lines.items():
            line.sort(key=lambda target: target.box.start[at] if at is not None else 0)
            joined.append(line[0])
            for target in line[1:]:
                both = None if at is None else joined[-1].joined(target, at)
                if both:
                    joined[-1] = both
                else:
                    joined.append(target)
        targets = joined
    return targets


def _by_name(targets):
    named = {}
    for target in targets:
        named.setdefault(target.name, []).append(target)
    return named


def fill_in_place(model, plan, checkpoint, device, warn):
    """Has the daemon write to a model's parameters on a GPU. Returns (the Plan of what is left, the reports, bytes written).

    Nothing of a piece is on the device but in its parameter. Where the daemon cannot write there, which warn() is told, all of
    the plan is left."""
    owners, dtypes = {key_of(tensor): tensor for _, tensor in state_of(model)}, plan.dtypes
    split = in_place(plan, device, owners)

    def tensor_of(target):
        return seen(owners[target.storage].untyped_storage(), target.region, dtypes[target.name])

    asked = [({name: target.box for name, target in request.items()},
              {name: tensor_of(target) for name, target in request.items()}) for request in split.requests]
    reports = checkpoint.load_into(plan, asked, warn)
    if reports is None:
        return plan, [], 0
    for first, other in split.copies:
        tensor_of(other).copy_(tensor_of(first))
    done = [target for request in split.requests for target in request.values()] + [other for _, other in split.copies]
    return plan.only(split.rest), reports, sum(target.box.elements * dtypes[target.name].itemsize for target in done)
