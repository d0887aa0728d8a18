"""What Resolve says about an artifact: names, dtypes, shapes, files. Immutable, shared by handles of one client."""
from __future__ import annotations

import functools

import numpy as np

from . import errors
from .dtypes import NAMES
from .layout import Shapes


class Facts:
    """The answer to one Resolve."""

    def __init__(self, answer):
        n = len(answer.names)
        columns = {len(answer.dtypes), len(answer.ranks), len(answer.file_indexes), len(answer.sizes)}
        if columns != {n}:
            raise errors.bad_answer(f"columns of {sorted(columns)} entries for {n} tensors")
        if n and (int(answer.dtypes.max()) >= len(NAMES) or int(answer.file_indexes.max()) >= len(answer.files)):
            raise errors.bad_answer("a tensor of an unknown dtype or file; is this client too old?")
        self.artifact, self.identity, self.names = answer.artifact, answer.identity, answer.names
        self.total_bytes, self.shapes = answer.total_bytes, Shapes(answer.ranks, answer.dims)
        self._files, self._dtypes = answer.files, answer.dtypes.astype(np.int64)
        self._file_indexes, self._sizes = answer.file_indexes.astype(np.int64), answer.sizes

    @functools.cached_property
    def index(self):
        """{name: position}"""
        return dict(zip(self.names, range(len(self.names))))

    def shape(self, name):
        if name not in self.index:
            raise errors.tensor_not_found(name, self.artifact)
        return self.shapes[self.index[name]]

    def dtype_number(self, name):
        """The proto number of a tensor's dtype; see dtypes.py."""
        if name not in self.index:
            raise errors.tensor_not_found(name, self.artifact)
        return int(self._dtypes[self.index[name]])

    def describe(self):
        """The object of `tensorcast inspect --json`."""
        files = [file.name for file in self._files]
        columns = zip(self.names, self._dtypes.tolist(), self.shapes.tolist(), self._file_indexes.tolist(),
                      self._sizes.tolist())
        return {
            "artifact": self.artifact,
            "identity": self.identity,
            "files": [{"name": file.name, "bytes": file.bytes} for file in self._files],
            "tensors": [{"name": name, "dtype": NAMES[number], "shape": list(shape), "file": files[file], "bytes": size}
                        for name, number, shape, file, size in columns],
            "total_bytes": self.total_bytes,
        }
