"""JSON text that comes in pieces and is looked at value by value: memory for the largest value that is asked for, not for all."""
from __future__ import annotations

import codecs
import json
import re

_SPACES = re.compile(r"[ \t\r\n]*")


class JsonPieces:
    """ValueError for whatever is no JSON, and RecursionError, as json.loads()."""

    def __init__(self, pieces):
        self._pieces, self._text, self._at, self._is_whole = iter(pieces), "", 0, False
        self._decode, self._read = codecs.getincrementaldecoder("utf-8")().decode, json.JSONDecoder().raw_decode

    def members(self):
        """Key after key of an object: value() or members() or items() is called for each."""
        for _ in self._each("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise ValueError("a member's name is no text")
            self._take(":")
            yield key

    def items(self):
        """Value after value of an array."""
        for _ in self._each("[", "]"):
            yield self.value()

    def value(self):
        self._peek()
        while True:
            try:
                value, end = self._read(self._text, self._at)
                if end < len(self._text) or self._is_whole:
                    self._at = end
                    return value
            except ValueError:
                if self._is_whole:
                    raise
            self._add(len(self._text) - self._at)  # as much again: a value is tried a few times, whatever its size

    def end(self):
        if self._peek():
            raise ValueError("it goes on behind its end")

    def _each(self, first, last):
        self._take(first)
        if self._peek() == last:
            self._at += 1
            return
        while True:
            yield
            if self._take("," + last) == last:
                return

    def _take(self, wanted):
        found = self._peek()
        if not found or found not in wanted:
            raise ValueError(f"{found!r} where {' or '.join(wanted)} is to be")
        self._at += 1
        return found

    def _peek(self):
        """The next character that is no space; "" at the end."""
        while True:
            self._at = _SPACES.match(self._text, self._at).end()
            if self._at < len(self._text) or self._is_whole:
                return self._text[self._at:self._at + 1]
            self._add(0)

    def _add(self, least):
        """At least so many characters, and one piece; all before the place that is looked at goes."""
        more = []
        while not self._is_whole and (not more or sum(map(len, more)) < least):
            piece = next(self._pieces, None)
            self._is_whole = piece is None
            more.append(self._decode(piece or b"", self._is_whole))
        self._text, self._at = self._text[self._at:] + "".join(more), 0
