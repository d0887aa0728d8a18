"""What progress=True shows, on standard error: tqdm's bar when tqdm is installed, else a plain one."""
from __future__ import annotations

import os
import sys
import time

from .words import size_of

_WIDTH, _USUAL_SIZE = 24, {"ncols": 80, "nrows": 24}
_LINE_EVERY_S = 10.0  # where standard error is no terminal


def bar():
    """A function for `progress=`, with a close() that ends the line also after an error."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Plain(sys.stderr)
    return _Tqdm(tqdm)


class _Tqdm:
    def __init__(self, make):
        self._make, self._bar = make, None

    def __call__(self, stage, done_bytes, total_bytes):
        if self._bar is None:
            if not total_bytes:
                return  # a bar of unknown length would be taken for one that is full
            self._bar = self._make(total=total_bytes, unit="iB", unit_scale=True, unit_divisor=1024, **_size())
        if stage != "done":
            self._bar.set_description(stage, refresh=False)
        self._bar.total = max(total_bytes, done_bytes)
        self._bar.update(done_bytes - self._bar.n)

    def close(self):
        if self._bar is not None:
            self._bar.close()


def _size():
    """Nothing for tqdm's own; a terminal that does not know its size, as in containers, would get an empty line."""
    try:
        return {} if os.get_terminal_size(sys.stderr.fileno()).columns else _USUAL_SIZE
    except (AttributeError, OSError, ValueError):  # no terminal
        return {}


class _Plain:
    """A line that is written over on a terminal; elsewhere one every ten seconds, and one at the end."""

    def __init__(self, file):
        self._file, self._began, self._next, self._is_open = file, time.monotonic(), _LINE_EVERY_S, False
        self._untold = ""  # the last line, where it was not time for one
        self._is_terminal = file is not None and file.isatty()

    def __call__(self, stage, done_bytes, total_bytes):
        if self._file is None:  # a program without standard error, such as pythonw
            return
        passed = max(time.monotonic() - self._began, 1e-3)
        text = f"{done_bytes / max(total_bytes, 1):4.0%}  {size_of(done_bytes)} of {size_of(total_bytes)}  {size_of(done_bytes / passed)}/s"
        if self._is_terminal:
            full = _WIDTH * done_bytes // max(total_bytes, 1)
            line = f"{stage:<8} [{'#' * full:.<{_WIDTH}}] {text}"
            self._file.write(f"\r{stage if stage.startswith('waiting') else line}\033[K")
            self._is_open = True
        elif stage == "done" or passed >= self._next:
            self._next, self._untold = passed + _LINE_EVERY_S, ""
            self._file.write(f"{stage:<8} {text}\n")
        else:
            self._untold = f"{stage:<8} {text}\n"
        self._file.flush()

    def close(self):
        if self._is_open or self._untold:
            self._file.write(self._untold or "\n")
            self._file.flush()
