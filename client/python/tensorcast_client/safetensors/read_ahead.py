"""Which tensors to load together with the requested one.

A load per tensor would cost a call and a lease each. So a reader of whole tensors gets the next ones along, in the order that fits
the requests so far, and at most an eighth of the bytes requested so far: a thousand tensors are some forty loads, and a reader that
stops has read an eighth too much. A reader of slices gets those alone. What was seen of a file counts for the others of its folder:
if one was read to its last tensor, all of the next one comes with its second tensor.
"""
from __future__ import annotations

import re

_MOST_BYTES = 256 << 20
_LEAST_BYTES = 64 << 10
_SHARE = 8
_BEFORE = 2  # whole tensors in a row, before anything is read ahead
_BEFORE_AFTER_SLICES = 16  # and once there were slices: ranks take a few tensors whole between them
_NEAR = 4  # places further in an order is still that order: threads overtake each other
_MOST_HABITS = 32
_DIGITS = re.compile(r"(\d+)")

_habits: dict[str, Habit] = {}


class Habit:
    """How this process reads the files of one folder. Threads: counters may miss one another, which costs nothing."""

    def __init__(self):
        self.asked_bytes, self._wholes_in_row, self._has_sliced = 0, 0, False
        self.reads_all = False  # a file of this folder was read to its last tensor, and no slice since

    @staticmethod
    def of(folder):
        habit = _habits.pop(folder, None) or Habit()
        _habits[folder] = habit
        for old in list(_habits)[:-_MOST_HABITS]:
            _habits.pop(old, None)
        return habit

    def note(self, n_bytes, is_whole):
        self.asked_bytes += n_bytes
        self._wholes_in_row = self._wholes_in_row + 1 if is_whole else 0
        self._has_sliced |= not is_whole
        self.reads_all &= is_whole

    def may_read_ahead(self):
        """How many bytes."""
        if self._wholes_in_row < (_BEFORE_AFTER_SLICES if self._has_sliced else _BEFORE):
            return 0
        return min(_MOST_BYTES, max(_LEAST_BYTES, self.asked_bytes // _SHARE))


class Orders:
    """The orders in which programs go through the tensors of a file: as they lie in it, by name, and by name as people count."""

    def __init__(self, names):
        self._orders = [list(names), sorted(names), sorted(names, key=_as_people_count)]
        self._places = [{name: place for place, name in enumerate(order)} for order in self._orders]
        self._hits, self._last = [0] * len(self._orders), None

    def note(self, name):
        """name was asked for."""
        if self._last is not None:
            for number, places in enumerate(self._places):
                self._hits[number] += 0 < places[name] - places[self._last] <= _NEAR
        self._last = name

    def following(self, name):
        """The names behind this one in the order that fits best."""
        best = max(range(len(self._orders)), key=self._hits.__getitem__)
        return self._orders[best][self._places[best][name] + 1:]


def _as_people_count(name):
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(name)]
