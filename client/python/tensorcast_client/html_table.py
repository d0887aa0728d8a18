"""Tensors as a table, for notebooks."""
from __future__ import annotations

import itertools
from html import escape

from .errors import TensorcastError
from .words import size_of

_MOST_ROWS = 60


def of(mapping, rows):
    """rows(): (name, dtype, shape, bytes) of each tensor that a mapping, or a view, has. Its repr() stands above the table."""
    try:
        head = list(itertools.islice(rows(), _MOST_ROWS + 1))
        more = len(mapping.tensor_names if hasattr(mapping, "tensor_names") else mapping) - _MOST_ROWS
    except TensorcastError as error:  # a look at a handle is no place for a traceback
        return f"<p>{escape(repr(mapping))}: {escape(str(error))}</p>"
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{dtype}</td><td>{list(shape)}</td><td>{size_of(n_bytes)}</td></tr>"
                    for name, dtype, shape, n_bytes in head[:_MOST_ROWS])
    return (f"<p>{escape(repr(mapping)[1:-1])}</p><table><tr><th>name</th><th>dtype</th><th>shape</th><th>bytes</th></tr>{cells}</table>"
            + (f"<p>and {more} more</p>" if more > 0 else ""))
