"""Tensors in part files that were handed off as they are: where each of them lies, and a maker of arrays for every file.

A whole tensor, and a slice of the first dimension, is packed in its file as it would be in memory; any other slice has the
strides of the tensor that it is cut from. Whatever passes the check cannot make an array reach outside its file.
"""
from __future__ import annotations

import numpy as np

from . import errors
from .dtypes import BITS
from .layout import Dims, Layout, scatter, used

_FARTHEST = 1 << 60  # bytes; larger than any file


class FileLayout(Layout):
    """Columns of tensors in files: `files` are their numbers, offsets begin in the file, strides are bytes. An empty tensor
    lies nowhere: at 0 of the first file, if there is one."""

    def __init__(self, message, n_tensors, files):
        self._read(message, n_tensors)
        if len(message.file_indexes) != n_tensors or len(message.strides) != len(message.dims):
            raise errors.bad_answer(f"{len(message.file_indexes)} places in files and {len(message.strides)} strides for "
                                    f"{n_tensors} tensors")
        self.strides, self.file_names = Dims(message.ranks, message.strides), [file.name for file in files] or [""]
        has_bytes = self.sizes > 0
        self.files = np.where(has_bytes, message.file_indexes, 0).astype(np.int64)
        if (message.file_indexes[has_bytes] >= len(files)).any():
            raise errors.bad_answer(f"a tensor in a file that is none of the {len(files)}")
        self.spans, self.packed = self._measure()
        sizes = np.array([file.bytes for file in files] or [0], np.uint64)
        self._place(np.where(has_bytes, message.offsets, 0).astype(np.uint64), self.spans.astype(np.uint64), sizes[self.files])

    def _measure(self):
        """(bytes from each tensor's first to behind its last, whether there is nothing else between them)."""
        spans, packed = self.sizes.copy(), np.ones(len(self), bool)
        for (which, dims), (_, steps) in zip(self.shapes.by_rank, self.strides.by_rank):
            width = (BITS[self.dtypes[which]] // np.uint64(8)).astype(np.int64)
            simple = (width == 0) | (self.sizes[which] == 0)  # below a byte: packed bytes, without strides
            moves = np.where(dims > 1, steps, 0)
            if (moves < 0).any() or ((dims.astype(np.float64) * moves).sum(axis=1)[~simple] > _FARTHEST).any():
                raise errors.bad_answer("a tensor with impossible strides")
            inner = np.cumprod(np.column_stack([width, dims[:, :0:-1]]), axis=1)[:, ::-1][:, :dims.shape[1]]
            packed[which] = simple | ((dims <= 1) | (steps == inner)).all(axis=1)
            spans[which] = np.where(simple, self.sizes[which], ((dims - 1) * moves).sum(axis=1) + width)
        return spans, packed

    def shared(self):
        """Which tensors have bytes that are another one's, too."""
        order = np.lexsort((self.offsets, self.files))
        order = order[self.sizes[order] > 0]
        first, end = self.offsets[order], self.offsets[order] + self.spans[order]
        shared = set()
        for file in used(self.files[order]):
            here = (self.files[order] == file).nonzero()[0]
            behind = np.maximum.accumulate(end[here])
            shared.update(order[here[1:][first[here[1:]] < behind[:-1]]].tolist())
        return shared


class FileTensors:
    """Makes the tensors of a FileLayout. `make` is a framework's maker of (buffer, layout), buffers are the files'."""

    def __init__(self, make, buffers, layout, writable=False):
        self._make, self._buffers, self._layout = make, buffers or [b""], layout
        self._makers = {}
        # a write to one tensor must not change another: copied now, since later may be too late
        self._own = {index: _copy(self._make_one(index)) for index in layout.shared()} if writable else {}

    def one(self, index):
        return self._own[index] if index in self._own else self._make_one(index)

    def all(self):
        """Every tensor, in view order."""
        tensors = [None] * len(self._layout)
        for file in used(self._layout.files):
            which = (self._layout.files == file).nonzero()[0]
            scatter(tensors, which, self._maker(file).all(which))
        for index, tensor in self._own.items():
            tensors[index] = tensor
        return tensors

    def _make_one(self, index):
        return self._maker(int(self._layout.files[index])).one(index)

    def _maker(self, file):
        if file not in self._makers:
            self._makers[file] = self._make(self._buffers[file], self._layout)
        return self._makers[file]


def _copy(tensor):
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()
