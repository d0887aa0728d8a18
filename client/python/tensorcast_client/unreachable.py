"""Why a daemon cannot be asked, and what helps: the words of client/unreachable.c.

Looks at the socket again, since gRPC tells a number in words of its own.
"""
from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat

from grpc import StatusCode

from . import errors
from ._version import VERSION
from .messages import StatusRequest, StatusResponse

_OWN = "(tensorcastd --user &)"


def attempt(path):
    """The errno of a connection to a socket, 0 where a process listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            return 0  # no room now
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def error(path, other, cause="the connection ended"):
    """The exception for a daemon at `path` that does not answer. other: the second default, None where the socket was named."""
    number = attempt(path)
    if number in (errno.EACCES, errno.EPERM):
        return forbidden(path, other)
    told = f"no daemon answers on {path} ({os.strerror(number) if number else cause})"
    if not number:
        return _unreachable(f"{told}; check that tensorcastd runs")
    if other is None:
        return _unreachable(f"{told}; is tensorcastd running there? One of your own needs no TENSORCAST_SOCKET and no address {_OWN}")
    return _unreachable(f"{told}, nor on {other}; start one of your own {_OWN}")


def _unreachable(message):
    return errors.make(StatusCode.UNAVAILABLE, message, "DAEMON_UNREACHABLE")


def forbidden(path, other):
    """The exception for a socket that this user may not open."""
    user, closed = _name(pwd.getpwuid, os.geteuid(), "pw_name"), _closed_folder(path)
    told = f"user {user or os.geteuid()} may not open the daemon's socket {path}"
    try:
        about = os.stat(closed or path)
    except OSError:
        return errors.make(StatusCode.PERMISSION_DENIED, told, "SOCKET_FORBIDDEN")
    group = _name(grp.getgrgid, about.st_gid, "gr_name")
    told += f", which is in {closed}" if closed else ""
    told += f" ({stat.S_IMODE(about.st_mode):04o} {_name(pwd.getpwuid, about.st_uid, 'pw_name') or about.st_uid}:{group or about.st_gid})"
    if not closed and os.access(path, os.W_OK, effective_ids=True):
        return errors.make(StatusCode.PERMISSION_DENIED, f"{told}; its mode allows it, so a sandbox, SELinux or AppArmor forbids it",
                           "SOCKET_FORBIDDEN")
    told += f"; {_advice(user, group, about, stat.S_IXGRP if closed else stat.S_IWGRP)}"
    return errors.make(StatusCode.PERMISSION_DENIED, told + (f"; or start a daemon of your own {_OWN}" if other else ""), "SOCKET_FORBIDDEN")


def _advice(user, group, about, bits):
    """bits: of the mode, that let members of the group in."""
    if not about.st_mode & bits or about.st_gid == 0:
        return "an administrator can let you in with server.socket_mode and server.socket_group of the daemon's configuration"
    if user is None or group is None:
        return f"start this process with the group {about.st_gid} (docker run --group-add {about.st_gid})"
    if about.st_gid in os.getgrouplist(user, os.getegid()):
        return f"{user} is in the group {group} by now, so log in again"
    return f"have an administrator run: usermod -aG {group} {user}, then log in again"


def _name(look_up, number, field):
    """None: only a number, as in most containers."""
    try:
        return getattr(look_up(number), field)
    except KeyError:
        return None


def _closed_folder(path):
    """Of the folders that lead to a path, the first that this process may not enter."""
    parts = path.split("/")
    for n in range(2, len(parts)):
        folder = "/".join(parts[:n])
        if os.path.isdir(folder) and not os.access(folder, os.X_OK, effective_ids=True):
            return folder
    return None


def handoff(path, channel):
    """The exception for a daemon that answers, and whose hand-off socket is not seen here."""
    return errors.make(StatusCode.FAILED_PRECONDITION, f"the daemon answers on {channel.socket_path}, and its second socket {path} is not there, "
                       f"nor beside the first; in a container, mount the folder of both sockets ({os.path.dirname(path)}), not the socket alone",
                       "HANDOFF_NOT_MOUNTED")


def too_old(channel):
    """The exception for a method that a daemon does not have."""
    try:
        version = StatusResponse.decode(channel.call("Status", StatusRequest.encode(own_requests_only=True), 1.0)).version
    except (errors.TensorcastError, errors.DecodeError):
        version = "unknown"
    return errors.make(StatusCode.UNIMPLEMENTED, f"the daemon on {channel.socket_path} (version {version}) cannot do this; it is older than "
                       f"this client (version {VERSION}): install its newer version and restart it", "UNKNOWN_METHOD")
