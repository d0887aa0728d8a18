"""Patterns of tensors' names: * ? [a-z] [!a-z] and \\x for x itself, byte by byte, as everywhere in tensorcast."""
from __future__ import annotations

import re

_GLOB_PART = re.compile(rb"\*+|\\(?s:.)|\[(?:[!^]|(?![!^]))(?s:.)[^\]]*\]|(?s:.)")


def glob(pattern):
    """A function that says whether a name matches: * ? [a-z] [!a-z] and \\x for x itself, byte by byte, as everywhere in tensorcast."""
    parts = _GLOB_PART.findall(pattern.encode(errors="surrogatepass"))
    matches = re.compile(b"".join(map(_one_of_glob, parts)), re.DOTALL).fullmatch
    return lambda name: matches(name.encode(errors="surrogatepass"))


def _one_of_glob(part):
    if part[:1] == b"*" or part == b"?":
        return b"." if part == b"?" else b".*"
    if part[:1] == b"[" and len(part) > 1:
        return _set_of_glob(part[1:-1])
    return re.escape(part[-1:])  # behind its backslash


def _set_of_glob(inside):
    """Of single bytes and ranges, of which one from z to a has none."""
    no = inside[:1] in (b"!", b"^")
    ranges, at = [], int(no)
    while at < len(inside):
        is_range = inside[at + 1:at + 2] == b"-" and at + 2 < len(inside)
        low, high = inside[at], inside[at + 2 * is_range]
        ranges += [b"\\x%02x-\\x%02x" % (low, high)] if low <= high else []
        at += 3 if is_range else 1
    if not ranges:
        return b"." if no else b"(?!)"
    return b"[" + b"^" * no + b"".join(ranges) + b"]"
