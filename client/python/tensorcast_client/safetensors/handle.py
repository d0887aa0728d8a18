"""safe_open: a file or an artifact, opened by the daemon or, where that cannot be, by the official package."""
from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from grpc import StatusCode

from .. import errors
from ..default_client import default_client
from . import fallback
from .frameworks import framework_for
from .official import KNOWN_VERSION, checked_framework, official, open_original
from .opened import Opened

_OF_THIS_PROCESS = ("/proc/", "/dev/")  # /proc/self, /dev/fd, /dev/stdin
_SCHEMES = ("disk:", "file://", "gs://", "s3://", "hf://", "http://", "https://")


def reference_of(filename):
    """(reference of the artifact, path): path is None when the name is no path but a reference."""
    try:
        text = os.fspath(filename)
    except TypeError as error:
        raise TypeError(f"argument 'filename': {error}") from None
    if not isinstance(text, str):
        raise TypeError(f"argument 'filename': '{type(text).__name__}' object is not an instance of 'str'")
    if isinstance(filename, str) and text.startswith(_SCHEMES):
        if text.startswith(("file:///", "file://localhost/")):
            return "disk:" + unquote(text[text.index("/", len("file://")):]), None
        return text, None
    if "\0" in text:
        raise FileNotFoundError(f"No such file or directory: {text}")
    path = os.path.expanduser(text) if text.startswith("~/") else text
    return "disk:" + _absolute(path), path


def _absolute(path):
    """The path from the root; `..` is followed as the system would, and so are names that mean another file in each process."""
    if path.startswith(_OF_THIS_PROCESS):
        return os.path.realpath(path)
    if ".." in path.split(os.sep):
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return os.path.abspath(path)


def _about(path):
    """What tells a file from another one in its place."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):  # or it has a NUL
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


class _Held:
    """A file as it was opened, whatever becomes of its name: by a descriptor that reads nothing."""

    def __init__(self, descriptor):
        self._own = f"/proc/self/fd/{descriptor}"
        self._close = weakref.finalize(self, os.close, descriptor)
        self.state = _about(self._own)

    @staticmethod
    def of(path):
        """None: there is no file, or no descriptor to be had."""
        try:
            return None if path is None else _Held(os.open(path, os.O_PATH | os.O_CLOEXEC))
        except (OSError, ValueError):
            return None

    def path(self, path, is_gone):
        """Where it is read: by its name, unless that is another file's; None where it was written to. is_gone: the daemon says so."""
        if not is_gone and _about(path) == self.state:
            return path
        now = _about(path)
        return self._own if _about(self._own) == self.state and (now is None or now[:2] != self.state[:2]) else None


class _File:
    """What a handle and its slices share: the daemon's file, or, once that had to be, the official package's handle."""

    def __init__(self, filename, framework, device, backend):
        self._reference, self._path = reference_of(filename)
        self._how = framework, device, backend
        module = checked_framework(*self._how)
        self._opened, self._original, self._held = None, None, _Held.of(self._path)
        if self._path is not None and not os.path.isfile(self._path):
            self._original = open_original(self._path, *self._how)  # which raises what there is to raise
        else:
            self._open(framework_for(module, device))

    def _open(self, framework):
        client = default_client()
        try:
            if self._path is not None:
                fallback.check_name(self._path)
            if self._path is not None and not fallback.is_required():
                fallback.check_reachable(client)
            self._opened = Opened(client.artifact(self._reference), framework)
            if self._held is not None and _about(self._path) != self._held.state:
                self._held = None  # the daemon may have opened another one
        except errors.TensorcastError as error:
            fallback.note_unreachable(client, error)
            self._opening_failed(error)

    def _opening_failed(self, error):
        if self._path is None:
            _raise(error)
        is_elsewhere = error.code is StatusCode.NOT_FOUND  # the daemon sees other folders than this process
        original = None
        if is_elsewhere or fallback.is_of_the_file(error):
            original = open_original(self._path, *self._how)  # the official package's own error, where it has one
        if not fallback.may_fall_through(error) and not (is_elsewhere and not fallback.is_required()):
            _raise(error)
        self._original = original or open_original(self._path, *self._how)
        fallback.say(self._path, error)

    def _fall_back(self, error):
        """In the middle of a file: goes on with the official package, if that would read the same file."""
        is_gone = self._path is not None and fallback.is_of_another_file(error)
        if not is_gone and (self._path is None or not fallback.may_fall_through(error)):
            _raise(error)
        path = None if self._held is None or (is_gone and fallback.is_required()) else self._held.path(self._path, is_gone)
        if path is None:
            raise official.SafetensorError(f"{self._path} was replaced or removed after it was opened: {error}") from error
        self._original = open_original(path, *self._how)
        fallback.say(self._path, error)

    def do(self, ours, theirs):
        """What ours(Opened) returns, or theirs(handle of the official package)."""
        if self._original is None:
            try:
                return ours(self._opened)
            except errors.TensorcastError as error:
                self._fall_back(error)
        return theirs(self._original)

    def newer(self, what):
        """What a newer official package's handle has and ours has not: that handle's own, which reads the file by itself."""
        error = errors.make(StatusCode.UNIMPLEMENTED, f"safe_open.{what} is newer than safetensors {KNOWN_VERSION}, which this client knows",
                            "NEWER_SAFETENSORS")
        if self._path is None or fallback.is_required():
            raise error
        fallback.say(self._path, error)
        return getattr(open_original(self._path, *self._how), what)

    def checked(self, name):
        """A tensor's name."""
        if not isinstance(name, str):
            what = "'None'" if name is None else f"'{type(name).__name__}' object"
            raise TypeError(f"argument 'name': {what} is not an instance of 'str'")
        if self._opened is not None and name not in self._opened.facts.index:
            raise official.SafetensorError(f"File does not contain tensor {name}")
        return name

    def close(self):
        if self._opened is not None:
            self._opened.close()


def _raise(error):
    """Raises an error as users of the official package expect it."""
    told = fallback.as_official(error)
    if told is error:
        raise error
    raise told from error


class PySafeSlice:
    """A tensor that is not loaded yet: an index loads what it takes. Made by safe_open.get_slice()."""

    def __init__(self, file, name):
        self._file, self._name = file, name

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return self._file.do(lambda opened: list(opened.shape(self._name)), lambda handle: handle.get_slice(self._name).get_shape())

    def get_dtype(self) -> str:
        """The element type of the tensor, such as "BF16"."""
        return self._file.do(lambda opened: opened.dtype(self._name), lambda handle: handle.get_slice(self._name).get_dtype())

    def __reduce_ex__(self, _protocol):
        raise TypeError("cannot pickle 'PySafeSlice' object")

    def __getitem__(self, index: Any) -> Any:
        return self._file.do(lambda opened: opened.part(self._name, index), lambda handle: handle.get_slice(self._name)[index])


class _Kind(type):
    """isinstance(f, safe_open) holds for every open file, ours or the official package's."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, official.safe_open) or safe_open in type(instance).__mro__


class safe_open(metaclass=_Kind):  # noqa: N801  the official name
    """Opens a file lazily: nothing but its header is read before a tensor is asked for.

    filename: a path, or any reference of the daemon's, such as "hf://org/model/model.safetensors" or a folder "disk:/models/llama".
    framework: "pt", "np", "flax", "tf", "mlx" or "paddle". device: where torch's and paddle's tensors are to be. backend is
    checked and has no other effect. docs/safetensors.md says what differs from the official package."""

    def __init__(self, filename: str | os.PathLike[str], framework: str, device: str | int | None = "cpu", *, backend: str = "mmap"):
        self._file: _File | None = _File(filename, framework, device, backend)

    def __reduce_ex__(self, _protocol):
        raise TypeError("cannot pickle 'safe_open' object")

    def _open_file(self):
        if self._file is None:
            raise official.SafetensorError("File is closed")
        return self._file

    if not TYPE_CHECKING:
        def __getattr__(self, name):
            if name.startswith("_") or not hasattr(official.safe_open, name):
                raise AttributeError(f"'safe_open' object has no attribute '{name}'")
            return self._open_file().newer(name)

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return self._open_file().do(lambda opened: sorted(opened.facts.names), lambda handle: handle.keys())

    def offset_keys(self) -> list[str]:
        """The names of the tensors, as they lie in the file."""
        return self._open_file().do(lambda opened: list(opened.facts.names), lambda handle: handle.offset_keys())

    def metadata(self) -> dict[str, str] | None:
        """The file's __metadata__; None when there is none."""
        return self._open_file().do(lambda opened: dict(opened.facts.metadata) if opened.facts.has_metadata else None,
                                    lambda handle: handle.metadata())

    def get_tensor(self, name: str) -> Any:
        """A whole tensor."""
        file = self._open_file()
        file.checked(name)
        return file.do(lambda opened: opened.tensor(name), lambda handle: handle.get_tensor(name))

    def get_tensors(self) -> dict[str, Any]:
        """All tensors by name, as they lie in the file, in one load."""
        return self._open_file().do(lambda opened: opened.all(), lambda handle: _all_of(handle))

    def get_slice(self, name: str) -> PySafeSlice:
        """A tensor to take parts of: f.get_slice(name)[:, 128:256] loads those columns."""
        file = self._open_file()
        file.checked(name)
        file.do(lambda opened: None, lambda handle: handle.get_slice(name))  # its exception, if there is none such
        return PySafeSlice(file, name)

    def __enter__(self) -> safe_open:
        self._open_file()
        return self

    def __exit__(self, _exc_type: Any, _exc_value: Any, _traceback: Any) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _all_of(handle):
    """get_tensors(), which older versions of the official package lack."""
    return handle.get_tensors() if hasattr(handle, "get_tensors") else {name: handle.get_tensor(name) for name in handle.offset_keys()}
