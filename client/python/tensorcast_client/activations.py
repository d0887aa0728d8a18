"""Activation stores: folders that hosts append samples to, and that are read like any artifact (docs/activations.md)."""
from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import activation_arrays, activation_samples, errors
from .activation_writer import ActivationWriter
from .reference import parse as parse_reference

if TYPE_CHECKING:
    from .client import Client

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.I)
_MAX_HOST = 99_999
_MAX_SIZE = (1 << 63) - 1  # what a message holds; how much it may be the daemon says
_MEMORY_BYTES = 64 << 20


class ActivationStore:
    """A store, as one host's writer (`host=N`) or to be read. See Client.activation_store()."""

    def __init__(self, client: Client, reference: str | os.PathLike[str], host: int | None, segment_bytes: int | str,
                 narrow: str | None, upload: str | None, keep_local: bool):
        self._client, self.reference, self.host, self._writer = client, parse_reference(reference), _host_number(host), None
        if narrow not in (None, "none", "auto"):
            raise errors.invalid(f"narrow is {narrow!r}; it is None or 'auto'", "BAD_OPTION")
        if host is None:
            return
        if not isinstance(upload, (str, type(None))):
            raise errors.invalid(f"upload is {upload!r}; it is a place in a bucket, such as 'gs://bucket/acts'", "BAD_OPTION")
        if upload is None and not keep_local:
            raise errors.invalid("keep_local=False deletes what was uploaded; it needs upload=", "BAD_OPTION")
        self._writer = ActivationWriter(client, self.reference, self.host, _bytes_of(segment_bytes), narrow == "auto", upload, keep_local,
                                        _MEMORY_BYTES)
        self._resume = self._writer.opened

    def __repr__(self):
        if self.host is None:
            return f"<activation store {self.reference}>"
        return f"<activation store {self.reference}, writer of host {self.host}{'' if self._writer else ', closed'}>"

    def _open_writer(self):
        if self._writer is None:
            raise errors.invalid(f"{self!r} is not open for writing", "NOT_A_WRITER")
        return self._writer

    @property
    def resume(self) -> dict[str, int | None]:
        """What is durable: "last_sample" (the highest number, None without any), "next_segment", "samples" (how many). As of the
        opening, or of the last commit."""
        if self.host is None:
            raise errors.invalid(f"{self!r} has no writer; name the host", "NOT_A_WRITER")
        told = self._resume
        return {"last_sample": told.last_sample if told.has_samples else None, "next_segment": told.next_segment,
                "samples": told.samples}

    def append(self, sample: int, layers: Mapping[int, Any], info: Mapping[str, Any] | None = None) -> None:
        """Takes one sample: an array of NumPy, torch or JAX for each layer, of any shape and strides. When this returns the daemon
        has the bytes, and the arrays may change. It waits while the disk quota has no room.

        sample: 0 to 99,999,999, in any order, each once per host (ValueError). info: what the manifest is to say about it."""
        self._open_writer().append(sample, layers, info)

    def commit(self) -> None:
        """Returns when everything that was appended is durable."""
        self._resume = self._open_writer().commit()

    def close(self) -> None:
        """Seals the open segment; the host's folder is free for another writer."""
        writer, self._writer = self._writer, None
        if writer:
            self._resume = writer.close() or self._resume

    def __enter__(self) -> ActivationStore:
        return self

    def __exit__(self, kind, value, traceback) -> None:
        if kind is None and self._writer:
            try:
                self.commit()
            except BaseException:
                with contextlib.suppress(errors.TensorcastError):
                    self.close()  # whatever it says, the host is free then
                raise
            self.close()
            return
        with contextlib.suppress(errors.TensorcastError):  # the first error is the one to be told
            self.close()

    def samples(self, layers: Iterable[int] | None = None) -> Iterator[tuple[int, dict[int, Any]]]:
        """(number, {layer: array}) of every sealed sample of all hosts, of these layers or all; read ahead while they are used."""
        return activation_samples.read(self._client, self.reference, activation_arrays.layer_numbers(layers))


def _host_number(host):
    if host is None:
        return None
    try:
        number = activation_arrays.whole_number(host)
    except TypeError:
        number = -1
    if not 0 <= number <= _MAX_HOST:
        raise errors.invalid(f"host is {host!r}; it is a number from 0 to {_MAX_HOST}", "BAD_OPTION")
    return number


def _bytes_of(size):
    number = 0
    if isinstance(size, str):
        found = _SIZE.fullmatch(size.strip())
        number = int(float(found[1]) * (1 << 10 * ("", "k", "m", "g", "t").index(found[2].lower()))) if found else 0
    else:
        with contextlib.suppress(TypeError):
            number = activation_arrays.whole_number(size)
    if not 0 < number <= _MAX_SIZE:
        raise errors.invalid(f"{size!r} is no size; write a number of bytes, or such as '1GiB'", "BAD_OPTION")
    return number
