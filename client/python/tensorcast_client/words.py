"""How sizes and counts are written for people."""
from __future__ import annotations

from collections.abc import Iterable

_MOST_DTYPES = 3


def size_of(n_bytes: float) -> str:
    """
    As the command prints them.

    >>> size_of(105), size_of(16_060_522_496), size_of(55_640_000)
    ('105 B', '15.0 GiB', '53.1 MiB')
    """
    if n_bytes < 1024:
        return f"{n_bytes:.0f} B"
    unit = 0
    while n_bytes >= 1023.5 and unit < len(_UNITS) - 1:
        n_bytes, unit = n_bytes / 1024, unit + 1
    return f"{n_bytes:.{2 if n_bytes < 9.995 else 1 if n_bytes < 99.95 else 0}f} {_UNITS[unit]}"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def tensors(number: int) -> str:
    """
    >>> tensors(1), tensors(2)
    ('1 tensor', '2 tensors')
    """
    return f"{number} tensor{'s' * (number != 1)}"


def dtypes(pairs: Iterable[tuple[str, int]]) -> str:
    """Of (dtype, bytes) of tensors, the dtypes with most bytes first.

    >>> dtypes([("F32", 4), ("BF16", 8), ("F32", 1)])
    'BF16, F32'
    """
    sums: dict[str, int] = {}
    for dtype, n_bytes in pairs:
        sums[dtype] = sums.get(dtype, 0) + n_bytes
    names = sorted(sums, key=lambda name: (-sums[name], name))
    more = len(names) - _MOST_DTYPES
    return ", ".join(names[:_MOST_DTYPES]) + (f" and {more} more" if more > 0 else "")
