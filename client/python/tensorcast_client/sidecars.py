"""The small files beside an artifact's tensors: which there are, and into a folder with them.

Nothing the daemon says is believed before it is checked: names are plain file names, sizes are bounded, and chunks follow
each other exactly. Files are written under a hidden name and renamed when they are complete, so a folder never holds half
of one, and a link that lies in the way is replaced instead of followed.
"""
from __future__ import annotations

import json
import os
import tempfile
import warnings
from typing import NamedTuple

import grpc

from . import errors
from .messages import FetchSidecarsRequest, SidecarEvent
from .redact import shown
from .wire import DecodeError

_MAX_FILES, _MAX_BYTES, _MAX_NAME_BYTES = 128, 64 << 20, 255
_MANIFEST, _MAX_MANIFEST_BYTES = "manifest.json", 1 << 30  # of an activation store's host: it names every sample


class Sidecar(NamedTuple):
    name: str
    bytes: int


def listed(client, reference, variant=None):
    """[Sidecar]"""
    files = None
    for event in events(client, FetchSidecarsRequest.encode(artifact=reference, list_only=True, variant=variant or b"")):
        files = _checked_list(event, files)
    if files is None:
        raise errors.bad_answer("no list of sidecars")
    return files


def is_there(client, reference, name):
    """Whether a file, also one of tensors, lies beside an artifact's tensors; asked as cheaply as the source can tell."""
    try:
        for event in events(client, FetchSidecarsRequest.encode(artifact=reference, names=[name], list_only=True)):
            if event.list is not None:
                return True
    except errors.TensorcastError as error:
        if error.reason != "NO_SUCH_SIDECAR":
            raise
    return False


def fetch(client, reference, folder, names, variant=None):
    """[Sidecar] of what was written into the folder. variant: a recipe as JSON, of which the documents are true then."""
    if isinstance(names, (str, bytes)):
        raise errors.invalid(f"names is a list of file names, not the one name {names!r}", "BAD_NAMES")
    if names is not None and not list(names):
        return []
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    receiver = _Receiver(folder)
    try:
        for event in events(client, FetchSidecarsRequest.encode(artifact=reference, names=names, variant=variant or b"")):
            receiver.take(event)
        return receiver.finish()
    finally:
        receiver.close()


def config_of(client, reference):
    """What the artifact's config.json says at its top level; nothing when it has none."""
    return document_of(client, reference, "config.json")


def document_of(client, reference, name):
    """The object in a JSON file beside an artifact's tensors, such as an index; {} when there is none."""
    with tempfile.TemporaryDirectory(prefix="tensorcast-") as folder:
        try:
            fetch(client, reference, folder, [name])
        except errors.TensorcastError as error:
            if error.reason != "NO_SUCH_SIDECAR":
                raise
            return {}
        try:
            with open(os.path.join(folder, name), "rb") as file:
                document = json.load(file)
        except (ValueError, RecursionError) as error:
            raise errors.invalid(f"the {name} of {shown(reference)} is no JSON: {error}", "BAD_CONFIG") from None
    return document if isinstance(document, dict) else {}


def events(client, request):
    call = client.channel.stream("FetchSidecars", request, None)
    try:
        for data in call:
            yield SidecarEvent.decode(data)
    except grpc.RpcError as error:
        error.__traceback__ = None  # gRPC raises the call itself, which lives on and would keep our frames
        raise errors.from_rpc(error, client.channel) from None
    except DecodeError as error:
        raise errors.bad_answer(error) from None
    finally:
        call.cancel()  # without effect on a stream that has ended


def _is_plain(name):
    return (name and not name.startswith(".") and name.isprintable() and not set(name) & set("/\\")
            and len(name.encode()) <= _MAX_NAME_BYTES)


def _checked_list(event, known):
    if event.list is None or known is not None:
        raise errors.bad_answer("a list of sidecars is one list")
    files = [Sidecar(file.name, file.bytes) for file in event.list.files]
    if len(files) > _MAX_FILES or len({file.name for file in files}) != len(files):
        raise errors.bad_answer(f"{len(files)} sidecars, or one of them twice")
    for file in files:
        if not _is_plain(file.name) or file.bytes > (_MAX_MANIFEST_BYTES if file.name == _MANIFEST else _MAX_BYTES):
            raise errors.bad_answer(f"a sidecar {file.name[:100]!r} of {file.bytes} bytes")
    return files


class _Receiver:
    """Writes one file after the other."""

    def __init__(self, folder):
        self._folder, self._files, self._at, self._offset = folder, None, 0, 0
        self._open, self._temporary = None, None

    def take(self, event):
        if self._files is None or event.chunk is None:
            self._files = _checked_list(event, self._files)
            for note in event.list.notes:
                warnings.warn(note, stacklevel=4)
        else:
            self._write(event.chunk)

    def _write(self, chunk):
        size = self._files[self._at].bytes if self._at < len(self._files) else -1
        left = size - self._offset
        if chunk.file != self._at or chunk.offset != self._offset or len(chunk.data) > left or (left and not chunk.data):
            raise errors.bad_answer("a chunk of a sidecar that does not follow the one before")
        if self._open is None:
            handle, self._temporary = tempfile.mkstemp(prefix=".tensorcast-", dir=self._folder)
            self._open = os.fdopen(handle, "wb")
        self._open.write(chunk.data)
        self._offset += len(chunk.data)
        if self._offset == size:
            self._commit(self._files[self._at].name)

    def _commit(self, name):
        self._open.flush()
        os.fchmod(self._open.fileno(), new_file_mode())
        os.fsync(self._open.fileno())
        self._open.close()
        os.replace(self._temporary, os.path.join(self._folder, name))
        self._open, self._temporary = None, None
        self._at, self._offset = self._at + 1, 0

    def finish(self):
        if self._files is None or self._at < len(self._files):
            raise errors.bad_answer("not every sidecar came")
        return self._files

    def close(self):
        """Drops what was not completed."""
        if self._open:
            self._open.close()
        if self._temporary:
            os.unlink(self._temporary)


def new_file_mode():
    """What open() gives a new file and mkstemp() does not. Linux tells the umask without changing it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return 0o666 & ~next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)
