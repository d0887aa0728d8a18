"""An artifact as a table, for notebooks."""
from __future__ import annotations

from html import escape

from .errors import TensorcastError
from .words import size_of

_MOST_ROWS = 60


def of_artifact(artifact):
    try:
        rows = [artifact[name] for name in artifact.tensor_names[:_MOST_ROWS]]
    except TensorcastError as error:  # a look at a handle is no place for a traceback
        return f"<p>{escape(repr(artifact))}: {escape(str(error))}</p>"
    cells = "".join(f"<tr><td>{escape(row.name)}</td><td>{row.dtype}</td><td>{list(row.shape)}</td><td>{size_of(row.nbytes)}</td></tr>"
                    for row in rows)
    more = len(artifact) - len(rows)
    return (f"<p>{escape(repr(artifact)[1:-1])}</p><table><tr><th>name</th><th>dtype</th><th>shape</th><th>bytes</th></tr>{cells}</table>"
            + (f"<p>and {more} more</p>" if more > 0 else ""))
