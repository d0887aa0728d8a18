"""A file or an artifact that the daemon reads, opened for one framework: names, shapes, and tensors in as few loads as it takes.

Any thread; in a forked child it goes on with the child's own connection.
"""
from __future__ import annotations

import errno
import math
import os
import threading
import time
import weakref
from typing import NamedTuple

from grpc import StatusCode

from .. import errors, memory
from ..dtypes import BITS, NAMES
from ..options import Options
from ..selection import Selection
from ..view import View
from . import on_gpu, siblings
from .official import official
from .parts import Parts
from .read_ahead import Habit, Orders

_WORTH_A_COPY_BYTES = 16 << 10  # below, no tensor holds the memory that it came with
_NOT_RESIDENT = "NOT_RESIDENT"  # the daemon's reason
_EXACT = Options(executor="generic")  # of columns the local executor may read whole rows, the parts of all ranks
_BEFORE_OTHERS = 2  # tensors of a file that were asked for, before others come along: some open a file for each tensor
_MOST_BYTES_OF_ALL = 8 << 30
_LITTLE = 8  # one part in so many may come twice, if what is loaded is a whole file then
_MOST_LEASES = 64  # of this process; further tensors that came alone are copied, and their lease ends

_opened: weakref.WeakValueDictionary[int, Opened] = weakref.WeakValueDictionary()  # by id(); each use of it is one step for threads
_NOT_THERE_S = 1.0  # how long a folder that was not in memory is not asked for again


class _Plan(NamedTuple):
    """One load: of what, None for all that is in memory, and its waiters. boxes: {name: (start, stop) of each dimension};
    is_shared: for more than this call."""

    view: View | None
    boxes: dict
    is_shared: bool
    ended: threading.Event
    options: Options | None = None


class _ResidentView(View):
    """All tensors, but only if the daemon has them in memory, or is about to."""

    @staticmethod
    def of(artifact):
        return _ResidentView(artifact.view().client, artifact, Selection())

    def _request(self, options, clock, may_guess=False):
        names, request = super()._request(options, clock, may_guess)
        return names, {**request, "resident_only": True}


class Opened:
    """framework: see frameworks.py. Whatever was loaded is of the artifact as it was when this was made, or an error is raised."""

    def __init__(self, artifact, framework):
        self._artifact, self._framework = artifact, framework
        self.facts = artifact.facts()
        self._habit, self._orders = Habit.of(os.path.dirname(artifact.reference)), None
        self._keeps = True
        self._folder = siblings.folder_of(artifact)
        self.after_fork()
        _opened[id(self)] = self

    def after_fork(self):
        """Threads that held the lock or were loading are not in the child. What they had brought stays the parent's."""
        self._told = None  # of the folder by a sibling: siblings.Held, or when it was not in memory
        self._lock, self._coming, self._looked_for_all, self._took_all = threading.Lock(), {}, False, False
        self._parts, self._asked = [], set()
        self._brought = set()  # or comes by itself: is not read ahead
        if self._framework.room:
            self._brought.update(filter(self._goes_straight, self.facts.names))

    def number(self, name):
        return self.facts.dtype_number(name)

    def dtype(self, name):
        return NAMES[self.number(name)]

    def shape(self, name):
        return tuple(self.facts.shape(name))

    def tensor(self, name):
        return self._framework.done(self._get(name, self._whole(name)), self.number(name))

    def part(self, name, index):
        """What an index takes out of a tensor."""
        if index is ...:
            return self.tensor(name)
        framework, number, shape = self._framework, self.number(name), self.shape(name)
        selected = framework.select(index, shape)
        if BITS[number] < 8:  # whose bytes are no elements that the daemon could cut
            return framework.done(self._part_below_a_byte(name, index, selected), number)
        if selected.is_empty():
            piece = framework.empty([max(0, stop - start) for start, stop in selected.box], number)
        else:
            piece = self._get(name, selected.box)
        return framework.done(piece if isinstance(selected.rest, tuple) and not selected.rest else piece[selected.rest], number)

    def _part_below_a_byte(self, name, index, selected):
        """Of elements that share bytes: all, or rows of what the framework has a type for."""
        shape, rest = self.shape(name), selected.rest
        is_box = isinstance(rest, tuple) and not rest
        has_all_columns = selected.box[-1:] == self._whole(name)[-1:] and (
            is_box or (isinstance(rest, tuple) and len(rest) == len(shape) + 1 and isinstance(rest[-2], slice) and rest[-2].step in (None, 1)))
        array = self._get(name, self._whole(name))
        if is_box and selected.is_whole(shape):
            return array
        if array.ndim != len(shape) or not has_all_columns:
            raise official.SafetensorError(f"Error during slicing {name} with shape {list(shape)}: The slice is slicing for subbytes dtypes, "
                                           "and the slice does not end up at a byte boundary, this is invalid.")
        return array[index]

    def all(self):
        """{name: tensor} as they lie in the file."""
        tensors = self._straight(self._artifact.view(), self.facts.names) or self._of_folder() or self._load(self._artifact.view())
        return {name: self._framework.done(tensor, self.number(name)) for name, tensor in tensors.items()}

    def close(self):
        """Lets go of what was not asked for. Slices can still be loaded."""
        with self._lock:
            self._keeps, self._parts, self._told = False, [], None

    def _whole(self, name):
        return tuple((0, extent) for extent in self.shape(name))

    def _bytes(self, name, box):
        return math.prod((stop - start for start, stop in box), start=int(BITS[self.number(name)])) // 8

    def _get(self, name, box):
        """The array of a box of a tensor, which no other caller has."""
        self._note(name, box)
        if not self._bytes(name, box):
            return self._framework.empty([stop - start for start, stop in box], self.number(name))
        straight = self._straight_part(name, box)
        if straight is not None:
            return straight
        while True:
            with self._lock:
                array = self._take(name, box)
                if array is not None:
                    return array
                coming = self._coming.get(name) or self._coming.get(None)
                plan = None if coming else self._plan(name, box)
            if coming:
                coming.wait()
                continue
            array = self._carry_out(plan, name, box)
            if array is not None:
                return array

    def _note(self, name, box):
        is_whole = box == self._whole(name)
        self._habit.note(self._bytes(name, box), is_whole)
        with self._lock:
            if is_whole:
                self._asked.add(name)
                self._habit.reads_all |= len(self._asked) == len(self.facts.names)
            if self._orders:
                self._orders.note(name)

    def _take(self, name, box):
        """The array, if a load has brought it; under the lock."""
        for parts in self._parts:
            array = parts.take(name, box)
            if array is not None:
                if not parts.n_left:
                    self._parts.remove(parts)
                return self._framework.copy(array) if self._bytes(name, box) <= _WORTH_A_COPY_BYTES else array
        return None

    def _plan(self, name, box):
        """The next load; under the lock."""
        ended = threading.Event()
        if self._keeps and not self._looked_for_all:
            self._looked_for_all = True
            self._coming[None] = ended
            return _Plan(None, {}, True, ended)
        takes_all = self._keeps and self._habit.reads_all and not self._took_all and self.facts.total_bytes <= _MOST_BYTES_OF_ALL
        may_bring_others = self._keeps and len(self._asked) >= _BEFORE_OTHERS
        if takes_all and may_bring_others and name not in self._brought:
            self._took_all = True
            rest = [one for one in self.facts.names if one not in self._brought]  # what came before is not read again
            view = self._artifact.subset(rest)
            if sum(self._bytes(one, self._whole(one)) for one in self._brought) * _LITTLE <= self.facts.total_bytes:
                rest, view = self.facts.names, self._artifact.view()  # which the next opener of the file finds in memory
            self._brought.update(rest)
            self._coming.update(dict.fromkeys(rest, ended))
            return _Plan(view, {one: self._whole(one) for one in rest}, True, ended)
        names = [name, *self._read_ahead(name)] if may_bring_others and not takes_all and box == self._whole(name) else [name]
        self._brought.update(names)
        if len(names) > 1:
            self._coming.update(dict.fromkeys(names, ended))
            return _Plan(self._artifact.subset(names), {one: self._whole(one) for one in names}, True, ended)
        view, options = self._view_of(name, box)
        return _Plan(view, {name: box}, False, ended, options)

    def _view_of(self, name, box):
        """(View of a box of one tensor, the options to load it with)."""
        cuts = [(dim, slice(start, stop)) for dim, ((start, stop), all_of) in enumerate(zip(box, self._whole(name))) if (start, stop) != all_of]
        is_exact = all(dim == 0 for dim, _ in cuts)
        return self._artifact.subset([name]).view({name: cuts} if cuts else None), None if is_exact else _EXACT

    def _goes_straight(self, name, box=None):
        """Whether a tensor, or a box of it, is loaded by itself into memory that the framework has on a GPU."""
        return self._framework.room is not None and self._bytes(name, box or self._whole(name)) >= on_gpu.WORTH_A_LOAD_BYTES

    def _straight_part(self, name, box):
        """A box in memory on a GPU; None when it goes another way."""
        if not self._goes_straight(name, box):
            return None
        view, options = self._view_of(name, box)
        tensors = self._straight(view, [name], options)
        return tensors and tensors[name]

    def _straight(self, view, names, options=None):
        """{name: tensor} of a view in memory on a GPU; None when there is no such way."""
        room, client = self._framework.room, view.client
        if room is None or not on_gpu.may_fill(client, map(self.number, names)):
            return None
        return on_gpu.fill(view, self.facts, room, options)

    def _read_ahead(self, name):
        """The names that come next, as many as may be read along; under the lock."""
        self._orders = self._orders or Orders(self.facts.names)
        room, chosen = self._habit.may_read_ahead(), []
        for following in self._orders.following(name) if room else ():
            whole = self._whole(following)
            if following in self._brought or not self._bytes(following, whole):
                continue
            room -= self._bytes(following, whole)
            if room < 0:
                break
            chosen.append(following)
        return chosen

    def _carry_out(self, plan, name, box):
        """The array of one load; None when it is to be looked for among what has come."""
        try:
            tensors = self._load(plan.view, plan.options) if plan.view else self._resident()
            parts = Parts(tensors, plan.boxes or {one: self._whole(one) for one in tensors})
            with self._lock:
                if plan.is_shared:
                    if self._keeps:
                        self._parts.append(parts)
                    self._brought.update(parts.names())
                    return self._take(name, box)
            return self._alone(parts.take(name, box), self._bytes(name, box))
        except errors.TensorcastError as error:
            if error.reason != _NOT_RESIDENT:
                raise
            return None
        finally:
            with self._lock:
                for one in plan.boxes or [None]:
                    if self._coming.get(one) is plan.ended:
                        del self._coming[one]
            plan.ended.set()

    def _resident(self):
        """All tensors, of memory that is there; else the error says that it is not."""
        told, self._told = self._told, None
        tensors = self._of_held(told) if isinstance(told, siblings.Held) else None
        if tensors is not None:
            return tensors
        try:
            return self._load(_ResidentView.of(self._artifact))
        except errors.TensorcastError as error:
            is_missing = isinstance(told, float) and time.monotonic() < told + _NOT_THERE_S
            tensors = self._of_folder() if error.reason == _NOT_RESIDENT and not is_missing else None
            if tensors is None:
                raise
            return tensors

    def _of_folder(self):
        """The same out of the memory of the folder that the file lies in; None when that is not there, whatever the reason. The other
        files of the folder that are open are told."""
        if self._folder is None:
            return None
        others, held = self._siblings(), None
        try:
            tensors = _ResidentView.of(self._folder).tensor_dict(framework=self._framework.make, writable=True)
            held = siblings.held(tensors, self._folder)
        except (errors.TensorcastError, OSError):  # or it may not be read, or not be mapped
            pass
        for other in others:
            other._told = held or time.monotonic()
        return held and self._of_held(held)

    def _of_held(self, held):
        """The same out of a folder that a process holds; None when that is not this file's."""
        try:
            is_right = siblings.has_part(held, self._artifact, self.facts)
        except errors.TensorcastError:
            return None
        return siblings.Part(held.tensors, self.facts.names) if is_right else None

    def _siblings(self):
        """The other files of this folder that are open, and have not looked for its memory: one handle of each, since what one writes
        to is no other's."""
        found = {}
        for other in (reference() for reference in _opened.valuerefs()):
            if other is not None and other._keeps and not other._looked_for_all and other._is_beside(self):
                found[other._artifact.reference] = other
        return found.values()

    def _is_beside(self, other):
        """Whether this is another file of the same folder, for the same framework."""
        own, its = self._folder, other._folder
        return (own is not None and own.reference == its.reference and self._artifact.reference != other._artifact.reference
                and own.view().client is its.view().client and self._framework.make is other._framework.make)

    def _alone(self, array, n_bytes):
        """What came alone: copied where its lease would be one too many."""
        return self._framework.copy(array) if n_bytes <= _WORTH_A_COPY_BYTES or len(memory.leases) > _MOST_LEASES else array

    def _load(self, view, options=None):
        """The Tensors of a view of this very artifact."""
        try:
            tensors = view.tensor_dict(framework=self._framework.make, writable=True, options=options)
        except errors.TensorNotFoundError:
            raise self._replaced() from None
        except OSError as error:
            if isinstance(error, errors.TensorcastError) or error.errno != errno.ENOMEM:
                raise
            raise errors.make(StatusCode.RESOURCE_EXHAUSTED, f"this process may not map the tensors of {self._artifact.reference}: {error}",
                              "TOO_MUCH_MEMORY_MAPPED") from error
        if tensors.identity != self.facts.identity:
            raise self._replaced()
        return tensors

    def _replaced(self):
        return errors.make(StatusCode.ABORTED, f"{self._artifact.reference} was replaced after it was opened; open it again",
                           "SOURCE_CHANGED")


def _after_fork_in_child():
    for reference in _opened.valuerefs():
        opened = reference()
        if opened is not None:
            opened.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
