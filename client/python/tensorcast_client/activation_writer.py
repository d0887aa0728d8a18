"""Appends samples to one host's folder of a store, through memory that is shared with the daemon."""
from __future__ import annotations

import contextlib
import json
import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np
from grpc import StatusCode

from . import activation_arrays as arrays
from . import errors, host_region, region
from .activation_messages import (SERVICE, ActivationsResume, AppendActivationsRequest, AppendActivationsResponse, CloseActivationsRequest,
                                  CommitActivationsRequest, OpenActivationsRequest, OpenActivationsResponse)
from .load import Clock
from .wire import DecodeError

_BLOCK_BYTES, _WIDEST_BYTES = 4096, 16  # of the disk; of an element
_writers = weakref.WeakSet()


class ActivationWriter:
    """One writer; the daemon knows it by the connection that its memory was offered on. Threads take turns.

    Parts of samples lie in one half of the memory and then in the other: the daemon writes one to the disk while the next is copied.
    A half may be used again when the call after that which named it has returned."""

    def __init__(self, client, reference, host, segment_bytes, narrow, upload, keep_local, memory_bytes):
        self._client, self._narrow, self._id, self._lease = client, narrow, b"", None
        self._region = host_region.HostRegion(memory_bytes)
        self._memory, self._half_bytes = self._region.array(np.uint8, (memory_bytes,)), memory_bytes // 2
        self._turn, self._is_inherited = threading.Lock(), False
        self._interrupted = None  # a sample
        self._at = self._sent = self._part_bytes = 0  # where the coming part begins in the memory; what of its sample was sent; how long parts are
        offer = region.of_host(self._region.fd, memory_bytes)
        self._lease, token = region.offered(client, offer, Clock(client.timeout))
        try:
            request = OpenActivationsRequest.encode(store=reference, host=host, memory=token, segment_bytes=segment_bytes,
                                                    upload=upload, drop_local=not keep_local, overlapped=True)
            answer = self._ask("Open", request, OpenActivationsResponse)
        except BaseException:
            self._lease.close()
            raise
        self._id, self.opened = answer.writer, answer.resume
        _writers.add(self)

    def _ask(self, method, request, table=None):
        data = self._client.channel.call(f"{SERVICE}/{method}", request, None)  # the daemon says how long it waits for room
        try:
            return table and table.decode(data)
        except DecodeError as error:
            raise errors.bad_answer(error) from None

    def _check_open(self):
        if self._lease is None:
            whose = "belongs to the process that this one was forked from; open the store here, as another host"
            raise errors.invalid(f"the writer {whose if self._is_inherited else 'was closed'}", "NOT_A_WRITER")

    def append(self, sample, layers, info):
        with self._turn:
            self._check_open()
            self._append(sample, layers, info)

    def _append(self, sample, layers, info):
        sample = arrays.sample_number(sample)
        if self._interrupted is not None:
            message = f"the append of sample {self._interrupted} was interrupted; close the store and open it again to see whether it is there"
            raise errors.make(StatusCode.ABORTED, message, "APPEND_INTERRUPTED")
        planes = arrays.planes_of(sample, layers, self._narrow)
        columns = {"layers": [plane.layer for plane in planes], "dtypes": [plane.number for plane in planes],
                   "ranks": [len(plane.shape) for plane in planes], "dims": [n for plane in planes for n in plane.shape],
                   "narrowed": [at for at, plane in enumerate(planes) if plane.is_narrowed], "info": _text_of(sample, info)}
        self._sent, filled = 0, self._at
        self._part_bytes = _even_part(sum(plane.bytes for plane in planes), self._half_bytes)
        for plane in planes:
            for piece, size in arrays.pieces(plane.source, self._part_bytes, plane.bytes):
                filled = self._take(sample, columns, piece, size, filled)
        self._send(sample, columns, filled)

    def _take(self, sample, columns, piece, size, filled):
        """Copies a piece behind what the memory has already. Parts end at a block of memory and file, where the next one begins."""
        while size:
            count = min(size, self._half() + self._part_bytes - filled)
            head, piece = arrays.cut(piece, count) if count < size else (piece, None)
            arrays.copy_into(self._memory, filled, head, count)
            filled, size = filled + count, size - count
            if size:
                self._send(sample, columns, filled)
                filled = self._at
        return filled

    def _half(self):
        return 0 if self._at < self._half_bytes else self._half_bytes

    def _send(self, sample, columns, end):
        if self._sent:
            columns = {}
        size = end - self._at
        request = AppendActivationsRequest.encode(writer=self._id, sample=sample, offset=self._sent, memory_offset=self._at, bytes=size,
                                                  **columns)
        self._interrupted = sample  # the daemon may go on reading what a call says that did not return, a KeyboardInterrupt
        try:
            answer = self._ask("Append", request, AppendActivationsResponse)
        except errors.TensorcastError:
            self._interrupted = None
            raise
        self._interrupted = None
        self._sent += size
        block_offset = answer.block_offset if answer.block_offset % _WIDEST_BYTES == 0 and self._half_bytes >= _BLOCK_BYTES else 0
        self._at = self._half_bytes - self._half() + block_offset

    def commit(self):
        with self._turn:
            self._check_open()
            return self._ask("Commit", CommitActivationsRequest.encode(writer=self._id), ActivationsResume)

    def close(self):
        """Seals what was appended. The memory is let go of whatever the daemon says. None: it is closed, or another process's."""
        with self._turn:
            if self._lease is None:
                return None
            try:
                return self._ask("Close", CloseActivationsRequest.encode(writer=self._id), ActivationsResume)
            finally:
                self.abandon()

    def abandon(self):
        if self._lease is not None:
            self._lease.close()
        self._lease = self._memory = self._region = None


def _even_part(size, most):
    """How long the parts are of a sample of so many bytes: none is much shorter than the others. Whole blocks."""
    if most <= _BLOCK_BYTES:
        return most
    n_parts = -(-(size + _BLOCK_BYTES) // most)
    return min(most, -(-(size + _BLOCK_BYTES) // (n_parts * _BLOCK_BYTES)) * _BLOCK_BYTES)


def _text_of(sample, info):
    if info is None:
        return ""
    if not isinstance(info, Mapping):
        raise errors.invalid(f"sample {sample}: info is a dict, and not {type(info).__name__}", "BAD_INFO")
    try:
        text = json.dumps(dict(info), ensure_ascii=False, allow_nan=False)
        text.encode()  # lone surrogates
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.invalid(f"sample {sample}: info cannot be written as JSON: {error}", "BAD_INFO") from None


def _after_fork_in_child():
    """A child that outlives its parent must not keep the folder taken, and one that ends must not close the parent's writer."""
    for writer in list(_writers):
        writer._turn, writer._is_inherited = threading.Lock(), True
        with contextlib.suppress(OSError):
            writer.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
