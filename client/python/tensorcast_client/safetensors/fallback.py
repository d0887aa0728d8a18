"""When the official package does the work: no daemon, no access for it, or no room; said once per process and reason."""
from __future__ import annotations

import os
import sys
import time
import warnings

from grpc import StatusCode

from .. import errors, unreachable
from ..warning import TensorcastFallbackWarning
from .official import official

_CODES = frozenset({StatusCode.UNAVAILABLE, StatusCode.PERMISSION_DENIED, StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNIMPLEMENTED})
# Of the file, or of what its header says: what the official package calls a SafetensorError.
_OF_THE_FILE = frozenset({StatusCode.DATA_LOSS, StatusCode.ABORTED, StatusCode.FAILED_PRECONDITION, StatusCode.INVALID_ARGUMENT,
                          StatusCode.UNIMPLEMENTED, StatusCode.OUT_OF_RANGE})
_OURS = tuple(name for package in ("tensorcast_client", "safetensors") for name in (package, f"{package}."))
_BEING_WRITTEN = "SOURCE_BEING_WRITTEN"  # whose bytes cannot be promised: read as ever, whatever is required
_ASK_AGAIN_S = 2.0  # after a daemon did not answer

_said: set[str] = set()
_unreachable: dict[str, tuple[float, errors.TensorcastError]] = {}  # {socket: (when to ask again, what is raised until then)}


def is_required():
    """Whether the user wants an error where the official package would take over."""
    return os.environ.get("TENSORCAST_REQUIRED", "").lower() not in ("", "0", "false", "no")


def may_fall_through(error):
    """Whether the official package may do what the daemon did not."""
    return error.reason == _BEING_WRITTEN or (error.code in _CODES and not is_required())


def is_of_the_file(error):
    return error.code in _OF_THE_FILE and error.reason != _BEING_WRITTEN


def is_of_another_file(error):
    """Whether a file that was open is not there any more under its name."""
    return error.code is StatusCode.NOT_FOUND or error.reason == "SOURCE_CHANGED"


def as_official(error):
    """The error as users of the official package expect it."""
    return official.SafetensorError(str(error)) if is_of_the_file(error) else error


def say(path, error):
    """Warns that the official package reads a file, once per process and reason."""
    if error.reason in _said:
        return
    _said.add(error.reason)
    warnings.warn(f"{path} is read by the safetensors package itself, without the tensorcast daemon: {error}. "
                  "TENSORCAST_REQUIRED=1 makes this an error.", TensorcastFallbackWarning, stacklevel=_users_level())


def _users_level():
    """The stacklevel, for say(), of the first caller that is neither ours nor the official package's."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level


def check_name(path):
    """Raises for a path that no reference can name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise errors.make(StatusCode.UNIMPLEMENTED, f"{path!a} is not UTF-8, which references are", "PATH_NOT_UTF8") from None


def check_reachable(client):
    """Raises at once what asking would raise after a while, where a daemon was not there a moment ago."""
    socket, other = client.socket_path, client.channel.other_socket
    until, error = _unreachable.get(socket, (0, None))
    if time.monotonic() < until:
        raise errors.make(error.code, error.message, error.reason)
    if not os.access(socket, os.W_OK):
        raise unreachable.error(socket, other)


def note_unreachable(client, error):
    """Not to wait for the same daemon with every one of many files."""
    if (error.code is StatusCode.UNAVAILABLE or error.reason == "SOCKET_FORBIDDEN") and not is_required():
        _unreachable[client.socket_path] = time.monotonic() + _ASK_AGAIN_S, error
