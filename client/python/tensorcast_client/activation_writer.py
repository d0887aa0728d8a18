"""Appends samples to one host's folder of a store, through memory that is shared with the daemon."""
from __future__ import annotations

import contextlib
import json
import os
import weakref

import numpy as np

from . import activation_arrays as arrays
from . import errors, host_region, region
from .activation_messages import (SERVICE, ActivationsResume, AppendActivationsRequest, CloseActivationsRequest,
                                  CommitActivationsRequest, OpenActivationsRequest, OpenActivationsResponse)
from .load import Clock
from .wire import DecodeError

_writers = weakref.WeakSet()


class ActivationWriter:
    """One writer; the daemon knows it by the connection that its memory was offered on. One thread at a time."""

    def __init__(self, client, reference, host, segment_bytes, narrow, upload, keep_local, memory_bytes):
        self._client, self._narrow, self._id, self._lease = client, narrow, b"", None
        self._region = host_region.HostRegion(memory_bytes)
        self._memory = self._region.array(np.uint8, (memory_bytes,))
        offer = region.of_host(self._region.fd, memory_bytes)
        self._lease, token = region.offered(client, offer, Clock(client.timeout))
        try:
            request = OpenActivationsRequest.encode(store=reference, host=host, memory=token, segment_bytes=segment_bytes,
                                                    upload=upload, drop_local=not keep_local)
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

    def append(self, sample, layers, info):
        sample = arrays.sample_number(sample)
        planes = arrays.planes_of(sample, layers, self._narrow)
        columns = {"layers": [plane.layer for plane in planes], "dtypes": [plane.number for plane in planes],
                   "ranks": [len(plane.shape) for plane in planes], "dims": [n for plane in planes for n in plane.shape],
                   "narrowed": [at for at, plane in enumerate(planes) if plane.is_narrowed], "info": _text_of(sample, info)}
        filled = sent = 0
        for plane in planes:
            for piece, size in arrays.pieces(plane.source, len(self._memory), plane.bytes):
                if filled + size > len(self._memory):
                    self._send(sample, columns, sent, filled)
                    sent, filled = sent + filled, 0
                arrays.copy_into(self._memory, filled, piece, plane.number, size)
                filled += size
        self._send(sample, columns, sent, filled)

    def _send(self, sample, columns, offset, size):
        if offset:
            columns = {}
        self._ask("Append", AppendActivationsRequest.encode(writer=self._id, sample=sample, offset=offset, bytes=size, **columns))

    def commit(self):
        return self._ask("Commit", CommitActivationsRequest.encode(writer=self._id), ActivationsResume)

    def close(self):
        """Seals what was appended. The memory is let go of whatever the daemon says."""
        try:
            return self._ask("Close", CloseActivationsRequest.encode(writer=self._id), ActivationsResume)
        finally:
            self.abandon()

    def abandon(self):
        if self._lease is not None:
            self._lease.close()
        self._lease = self._memory = self._region = None


def _text_of(sample, info):
    if info is None:
        return ""
    if not isinstance(info, dict):
        raise errors.invalid(f"sample {sample}: info is a dict, and not {type(info).__name__}", "BAD_INFO")
    try:
        return json.dumps(info, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.invalid(f"sample {sample}: info cannot be written as JSON: {error}", "BAD_INFO") from None


def _after_fork_in_child():
    """A child that outlives its parent must not keep the folder taken."""
    for writer in list(_writers):
        with contextlib.suppress(OSError):
            writer.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
