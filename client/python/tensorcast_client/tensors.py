"""The result of a load: a mapping of names to arrays or tensors, in the order of the view.

Arrays are made when they are first asked for. A caller that asks for many one by one (`dict(tensors)`) gets all of them made at
once, which costs a fraction per array.
"""
from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TypeVar

from . import errors, html_table, report, words
from .answers import LoadReport
from .dtypes import NAMES

_SINGLES = 16  # so many are made one by one before all are
_GC_MATTERS = 1000  # arrays

_gc_lock = threading.Lock()
_gc_pauses = 0
_gc_was_on = False


@contextlib.contextmanager
def collector_paused(n_made):
    """Making 100,000 tensors sets off the collector again and again, and none of them is garbage. A few do not matter."""
    global _gc_pauses, _gc_was_on
    if n_made <= _GC_MATTERS:
        yield
        return
    with _gc_lock:
        if not _gc_pauses:
            _gc_was_on = gc.isenabled()
            gc.disable()
        _gc_pauses += 1
    try:
        yield
    finally:
        with _gc_lock:
            _gc_pauses -= 1
            if not _gc_pauses and _gc_was_on:
                gc.enable()


T = TypeVar("T")  # np.ndarray or torch.Tensor


class Tensors(Mapping[str, T]):
    """Tensors by name, in the order of the view. They stay valid after close(), for as long as one of them is alive.

    >>> tensors = tc.artifact("disk:/models/tiny").tensor_dict(framework="numpy")
    >>> list(tensors), tensors.dtypes["head.bias"]
    (['head.weight', 'head.bias'], 'F32')
    >>> tensors["head.bias"]
    array([0., 1., 2., 3.], dtype=float32)
    """

    def __init__(self, names, layout, maker, load_report):
        self._names, self._layout, self._maker, self._report = names, layout, maker, load_report
        self._made, self._index, self._diagnostics, self._dtypes = {}, None, None, None
        self._complete, self._lock = False, threading.RLock()

    def close(self) -> None:
        """Lets go of the memory; it is freed once no array is left. Names and diagnostics stay."""
        with self._lock:
            self._maker, self._made = None, {}

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()) - {"alone", "span"})

    def __enter__(self) -> Tensors[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> T:
        try:
            return self._made[name]
        except (KeyError, TypeError):
            return self._make(name)

    def _make(self, name):
        with self._lock:
            index = self._position(name)
            if index is None:
                raise errors.tensor_not_found(name, f"this view of {self._report.artifact}", self._names)
            self._check_open()
            if len(self._made) >= _SINGLES:
                self._make_all()
            elif name not in self._made:
                self._made[name] = self._maker.one(index)
            return self._made[name]

    def alone(self, name):
        """A tensor of its own: neither kept nor made along with others. For the package."""
        with self._lock:
            self._check_open()
            return self._maker.one(self._positions()[name])

    def span(self, name, skip, count):
        """`count` elements of the memory, from `skip` elements behind the beginning of a torch tensor: neighbours as one. For packages."""
        with self._lock:
            self._check_open()
            return self._maker.span(self._positions()[name], skip, count)

    def _make_all(self):
        """Makes what is missing and puts everything into view order."""
        with self._lock:
            self._check_open()
            if not self._complete:
                with collector_paused(len(self._names)):
                    made = dict(zip(self._names, self._maker.all()))
                made.update(self._made)  # holders of one keep seeing the same
                self._made, self._complete = made, True
            return self._made

    def _check_open(self):
        if self._maker is None:
            raise errors.invalid("these tensors are closed", "TENSORS_CLOSED")

    def _position(self, name):
        following = len(self._made)  # a pass through all of them needs no index
        if following < len(self._names) and self._names[following] is name:
            return following
        return self._positions().get(name)

    def _positions(self):
        if self._index is None:
            self._index = dict(zip(self._names, range(len(self._names))))
        return self._index

    def __contains__(self, name: object) -> bool:
        return name in self._positions()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    __eq__, __hash__ = object.__eq__, object.__hash__  # no comparison of arrays name by name

    def items(self) -> ItemsView[str, T]:
        return self._make_all().items()

    def values(self) -> ValuesView[T]:
        return self._make_all().values()

    def __repr__(self):
        state = words.size_of(self._report.view_bytes) + ", closed" * (self._maker is None)
        kinds = words.dtypes(zip(self.dtypes.values(), self._layout.sizes.tolist()))
        return f"<Tensors of {self._report.artifact}: {', '.join(filter(None, [words.tensors(len(self)), state, kinds]))}>"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        layout = self._layout
        return html_table.of(self, lambda: zip(self._names, self.dtypes.values(), layout.shapes.tolist(), layout.sizes.tolist()))

    def _ipython_key_completions_(self) -> list[str]:
        """The names, for tensors["lm_<TAB>."""
        return list(self._names)

    @property
    def dtypes(self) -> dict[str, str]:
        """{name: safetensors dtype}, also where the framework has no such type."""
        if self._dtypes is None:
            self._dtypes = {name: NAMES[number] for name, number in zip(self._names, self._layout.dtypes.tolist())}
        return self._dtypes

    @property
    def identity(self) -> str:
        """Which version of the artifact these are of; the same for the same bytes."""
        return str(self._report.identity)

    @property
    def diagnostics(self) -> LoadReport:
        """What was planned and done, as `tensorcast load --json` prints it."""
        if self._diagnostics is None:
            self._diagnostics = report.load(self._report, self._names, self._layout)
        return self._diagnostics
