"""Everything that can go wrong, as exceptions.

Each is a TensorcastError with the gRPC status code, a reason for programs (UPPER_SNAKE_CASE) and metadata, and where
Python has a word for the case it is that, too: KeyError, ValueError, FileNotFoundError,
PermissionError, TimeoutError, ConnectionError, MemoryError.
"""
from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Mapping

from grpc import StatusCode

from .messages import ErrorInfo, Status
from .wire import DecodeError

DEADLINE_PASSED = "DEADLINE_PASSED"  # the caller's: it was not the daemon that gave up
# reasons that say nothing of what a load had done by then: the daemon was not heard, not understood, or cut the request off
HOW_FAR_IS_UNKNOWN = frozenset({DEADLINE_PASSED, "DAEMON_UNREACHABLE", "NO_ANSWER", "BAD_ANSWER", "DAEMON_STOPPING"})
_MOST_COMPARED = 2000  # names: comparing takes some 20 us each
_PASSED_THERE = "DEADLINE_EXCEEDED"  # when the daemon has noticed first
_DETAILS_KEY = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class TensorcastError(Exception):
    """A request that failed. `code` is a grpc.StatusCode, `reason` a word for programs, `metadata` a dict of strings.

    >>> try:
    ...     tc.artifact("disk:/models/tiny")["nobody"]
    ... except KeyError as error:
    ...     error.code.name, error.reason, error.metadata
    ('NOT_FOUND', 'TENSOR_NOT_FOUND', {'tensor': 'nobody'})
    """

    def __init__(self, message: str, code: StatusCode = StatusCode.INTERNAL, reason: str = "",
                 metadata: Mapping[str, str] | None = None):
        super().__init__(message)
        self.message, self.code = message, code
        self.reason = reason or code.name
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:  # KeyError would quote it, OSError would look for an errno
        return f"{self.code.name}: {self.message}"

    def __reduce__(self):
        return type(self), (self.message, self.code, self.reason, self.metadata)


class TensorNotFoundError(TensorcastError, KeyError):
    """A name that is not a tensor of the artifact."""


class InvalidRequestError(TensorcastError, ValueError):
    """A request that can never be right, such as a slice of a dimension that does not exist."""


class ArtifactNotFoundError(TensorcastError, FileNotFoundError):
    """No such file or folder inside a trusted root."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.errno = errno.ENOENT


class AccessDeniedError(TensorcastError, PermissionError):
    """Outside the trusted roots, another user's token, or a socket that this user cannot open."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.errno = errno.EACCES


class DeadlineExceededError(TensorcastError, TimeoutError):
    """A deadline has passed: that of the call, or that by which all ranks of a required group had to come."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.errno = errno.ETIMEDOUT


class DaemonUnreachableError(TensorcastError, ConnectionError):
    """No daemon answers."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.errno = errno.ECONNREFUSED


class BudgetExceededError(TensorcastError, MemoryError):
    """A load that the daemon has no room for."""


_BY_REASON = {
    "TENSOR_NOT_FOUND": TensorNotFoundError,
    "DAEMON_UNREACHABLE": DaemonUnreachableError,
    "HOST_BUDGET_EXCEEDED": BudgetExceededError,
    "DEVICE_BUDGET_EXCEEDED": BudgetExceededError,
}
_BY_CODE = {
    StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    StatusCode.NOT_FOUND: ArtifactNotFoundError,
    StatusCode.PERMISSION_DENIED: AccessDeniedError,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
}


def make(code, message, reason="", metadata=None):
    """The exception that fits."""
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, TensorcastError)
    return kind(message, code, reason, metadata)


def invalid(message, reason="INVALID_REQUEST", **metadata):
    return make(StatusCode.INVALID_ARGUMENT, message, reason, metadata)


def file_missing(file, tensor=None):
    """A file that the artifact's index names is not there, and a tensor of it, or all tensors, are asked for."""
    message = f"tensor {tensor} is in {file}, which is not there" if tensor else f"{file}, which the index names, is not there"
    return make(StatusCode.NOT_FOUND, message, "FILE_MISSING", {"file": file})


def tensor_not_found(name, artifact, names=()):
    """names: those that there are, of which the nearest is told."""
    nearest = difflib.get_close_matches(str(name), names if len(names) <= _MOST_COMPARED else (), 1)
    better = f"; did you mean {nearest[0]}?" if nearest else ""
    return make(StatusCode.NOT_FOUND, f"tensor {name} is not in {artifact}{better}", "TENSOR_NOT_FOUND", {"tensor": str(name)})


def metadata_too_large(artifact, n_bytes):
    return make(StatusCode.RESOURCE_EXHAUSTED, f"the metadata of {artifact} has {n_bytes} bytes; at most 8 MiB are told",
                "METADATA_TOO_LARGE")


def bad_answer(message):
    return make(StatusCode.INTERNAL, f"the daemon's answer makes no sense: {message}", "BAD_ANSWER")


def from_rpc(error, channel):
    """The exception for a grpc.RpcError of a channel.Channel."""
    from . import unreachable  # which needs these classes
    code, message = error.code(), error.details() or ""
    reason, metadata = _error_info(error.trailing_metadata())
    for name in metadata.get("unset", "").split():  # in the daemon's environment
        if os.environ.get(name):
            message += f"\n{name} is set in your environment, which the daemon does not see"
    if code is StatusCode.UNAVAILABLE and not reason:
        return unreachable.error(channel.socket_path, channel.other_socket)
    if reason == "UNKNOWN_METHOD":
        return unreachable.too_old(channel)
    if code is StatusCode.DEADLINE_EXCEEDED and reason in ("", _PASSED_THERE):
        message, reason = "not done within the deadline", DEADLINE_PASSED  # gRPC's own words are about its streams
    return make(code, message, reason, metadata)


def is_of_transport(error):
    """Whether no daemon said this grpc.RpcError: its connection could not be made, or was lost."""
    return error.code() is StatusCode.UNAVAILABLE and not _error_info(error.trailing_metadata())[0]


def _error_info(trailers):
    """(reason, metadata) of the google.rpc.ErrorInfo in the trailers; empty when there is none."""
    packed = next((value for key, value in trailers or () if key == _DETAILS_KEY), b"")
    try:
        for detail in Status.decode(packed).details:
            if detail.type_url == _ERROR_INFO:
                info = ErrorInfo.decode(detail.value)
                return info.reason, {entry.key: entry.value for entry in info.metadata}
    except DecodeError:
        pass  # the status itself is still good
    return "", {}
