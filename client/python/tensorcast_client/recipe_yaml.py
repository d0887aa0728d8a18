"""YAML as recipes may have it: its core schema alone, without tags of programs, a key twice, or aliases of lists and mappings."""
from __future__ import annotations

import re

import yaml

from . import errors

_MAX_DEPTH = 64
_FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = float("nan")
_CORE = "tag:yaml.org,2002:"
_WORDS = {**dict.fromkeys(("", "~", "null", "Null", "NULL")), **dict.fromkeys(("true", "True", "TRUE"), True),
          **dict.fromkeys(("false", "False", "FALSE"), False)}


def parse(text, name):
    """(what the text says, the line of each item of its `steps`). JSON is YAML, too. name: what messages call it."""
    try:
        reader = _Reader(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), name)
        return reader.document(), tuple(reader.lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _bad(f"{name}:{mark.line + 1 if mark else 1}: {getattr(error, 'problem', None) or error}") from None


def _bad(message):
    return errors.invalid(message, "BAD_RECIPE")


class _Reader:
    def __init__(self, events, name):
        self._events, self._name, self.lines, self._anchored = events, name, [], {}

    def _bad(self, event, why):
        return _bad(f"{self._name}:{event.start_mark.line + 1}: {why}")

    def document(self):
        found = [None, 0]  # an empty file is null
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                found[1] += 1
                if found[1] > 1:
                    raise self._bad(event, "a second document")
                found[0] = self._node(next(self._events), 1, ())
        return found[0]

    def _node(self, event, depth, path):
        """path: where it is, of which "steps" and the items of that are of interest."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchored:
                raise self._bad(event, f"the alias *{event.anchor} stands for no single value that has an anchor: write out what it means")
            return self._anchored[event.anchor]
        self._anchored.pop(event.anchor, None)  # a later anchor of the same name counts
        if depth > _MAX_DEPTH:
            raise self._bad(event, f"nested deeper than {_MAX_DEPTH}")
        if path == ("steps", "item"):
            self.lines.append(event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
            if value is _NOT_FINITE:
                raise self._bad(event, f"the number {event.value}, which JSON does not have")
            return value
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _CORE + ("map" if is_map else "seq")):
            raise self._bad(event, f"the tag {event.tag}")
        return self._map(depth, path) if is_map else self._list(depth, path)

    def _list(self, depth, path):
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1, (*path, "item")[:3]))
        return items

    def _map(self, depth, path):
        found = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._bad(event, "a key that is no text")
            self._scalar(event)  # its tag and its anchor; a key is text whatever its value would be
            if event.value in found:
                raise self._bad(event, f"the key {event.value!r} occurs twice")
            found[event.value] = self._node(next(self._events), depth + 1, (*path, event.value)[:3])
        return found

    def _scalar(self, event):
        value = self._value(event)
        if event.anchor:
            self._anchored[event.anchor] = value
        return value

    def _value(self, event):
        tag, text = event.tag, event.value
        if tag in ("!", _CORE + "str") or (tag is None and event.style):
            return text
        value = _plain(text)
        kind = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}[type(value)]
        if tag is not None and tag != _CORE + kind:
            raise self._bad(event, f"the tag {tag} on {text!r}")
        return value


def _plain(text):
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"[-+]?[0-9]{1,1000}", text):
        return int(text)
    if re.fullmatch(r"0o[0-7]{1,1000}|0x[0-9a-fA-F]{1,1000}", text):
        return int(text, 0)
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        return _NOT_FINITE
    return float(text) if _FRACTION.fullmatch(text) else text
