"""This user's own daemon (`tensorcastd --user`), started where none answers. It stays for later processes: queued uploads
are sent after the process that appended them has ended."""
from __future__ import annotations

import os
import subprocess
import time

from grpc import StatusCode

from . import errors, programs, unreachable

_started = []  # a process that is forgotten would be waited for, and warned of, by Popen


def ensure(socket_path, folder, timeout):
    """Returns when the daemon at this socket answers. One that is started reads and appends below the home and below `folder`, or
    what there is of it; None: below the home."""
    if unreachable.attempt(socket_path) == 0:
        return
    program = programs.find("tensorcastd")
    if program is None:
        raise _failed("tensorcastd is not in PATH, nor beside Python, nor beside the command that TENSORCAST_BIN names: no daemon of your own can be "
                      "started")
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    log = _log_file()
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        process = subprocess.Popen([program, "--user", *(["--root", folder] if folder else [])], cwd="/", stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, start_new_session=True)
    _started.append(process)
    _wait(process, socket_path, log, timeout)


def _wait(process, socket_path, log, timeout):
    """One that another process started at the same moment will do."""
    end = time.monotonic() + timeout
    while unreachable.attempt(socket_path) != 0:
        ended = process.poll() is not None
        if time.monotonic() > end or (ended and process.returncode != 0 and _is_alone(socket_path)):
            what = f"it ended with {process.returncode}" if ended else f"it does not answer on {socket_path}"
            raise _failed(f"a daemon of your own was started, but {what}; see {log}")
        time.sleep(0.02)


def _is_alone(socket_path):
    """Whether no other daemon has the socket: it would have kept ours from starting."""
    time.sleep(1)
    return unreachable.attempt(socket_path) != 0


def _log_file():
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = os.path.join(state if state.startswith("/") else os.path.expanduser("~/.local/state"), "tensorcast")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
    except OSError:
        return os.devnull
    return os.path.join(folder, "daemon.log")


def _failed(message):
    return errors.make(StatusCode.UNAVAILABLE, message, "DAEMON_UNREACHABLE")
