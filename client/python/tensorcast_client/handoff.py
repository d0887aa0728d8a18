"""Trades a token for memory on the daemon's second socket.

The client sends the 32-byte token as one message; the daemon answers with a header and one file descriptor, or, for the pages
of part files, with several messages of a header and up to 64 descriptors each; or it closes. The connection that carried them
is the lease, so it is kept open as long as the memory is mapped.
"""
import contextlib
import errno
import os
import socket
import stat
import struct
import time

from grpc import StatusCode

from . import errors, unreachable
from .memory import HUGE_PAGE_BYTES, Lease, map_leased

# magic, version, memory bytes, page kind, number of descriptors, reserved
_HEADER = struct.Struct("<4sIQIIQ")
_MAGIC, _VERSION = b"TCHO", 1
_PAGE_KIND_HUGETLB, _PAGE_KIND_DEVICE, _PAGE_KIND_FILES = 0, 3, 4
_FD = struct.Struct("i")
_MOST_FDS = 253  # in one message, as the kernel has it
_ROOM_POLL_S = 0.002


def reachable(path, channel):
    """The daemon's second socket, also where the daemon's folder has another name, as in a container."""
    if os.path.exists(path):
        return path
    beside = os.path.join(os.path.dirname(channel.socket_path), os.path.basename(path))
    if not os.path.exists(beside) and not unreachable.attempt(channel.socket_path):  # a daemon that is gone has none, either
        raise unreachable.handoff(path, channel)
    return beside


def take(token, socket_path, timeout, writable=False, device=None):
    """The memory that the token stands for: a buffer (see memory.map_leased), or cuda.DeviceMemory on that device."""
    with _redeemed(token, socket_path, timeout) as (peer, fds):
        memory_bytes, page_kind = _receive(peer, fds, 4)
        if (page_kind == _PAGE_KIND_DEVICE) != (device is not None) or page_kind == _PAGE_KIND_FILES:
            raise errors.bad_answer(f"memory of kind {page_kind} for {device.uuid if device else 'the host'}")
        if len(fds) != 1:
            raise errors.bad_answer(f"a hand-off of {memory_bytes} bytes in {len(fds)} descriptors")
        if device:
            return device.map_leased(fds.pop(), memory_bytes, peer.detach())
        _check_size(fds[0], memory_bytes)
        page_bytes = HUGE_PAGE_BYTES if page_kind == _PAGE_KIND_HUGETLB else os.sysconf("SC_PAGESIZE")
        with _lease_of(peer) as lease:
            return map_leased(fds.pop(), memory_bytes, page_bytes, lease, writable)


def take_files(token, socket_path, timeout, sizes, writable=False):
    """Buffers of the part files that the token stands for, whose sizes the daemon has told, in the same order. Descriptors
    are closed before more are received, so that a process needs few of them for any number of files."""
    end, buffers = time.monotonic() + timeout, []
    with _redeemed(token, socket_path, timeout) as (peer, fds), _lease_of(peer) as lease:
        try:
            while len(buffers) < len(sizes):
                peer.settimeout(max(0, end - time.monotonic()))
                together, page_kind = _receive(peer, fds, _MOST_FDS)
                batch = sizes[len(buffers):len(buffers) + len(fds)]
                if page_kind != _PAGE_KIND_FILES or len(batch) != len(fds) or sum(batch) != together:
                    raise errors.bad_answer(f"a hand-off of {together} bytes in {len(fds)} files of kind {page_kind}, with "
                                            f"{len(sizes) - len(buffers)} files to come")
                for size in batch:
                    _check_size(fds[0], size)
                    buffers.append(map_leased(fds.pop(0), size, os.sysconf("SC_PAGESIZE"), lease, writable))
        except BaseException:
            buffers.clear()  # the exception's frames keep the list
            raise
    return buffers


def connect(peer, path, timeout):
    """peer.connect(path) that waits for room in a full backlog, which is BlockingIOError on a Unix socket; afterwards peer has
    that timeout in seconds."""
    until = time.monotonic() + timeout
    peer.settimeout(timeout)
    while True:
        try:
            return peer.connect(path)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_ROOM_POLL_S)


@contextlib.contextmanager
def _redeemed(token, socket_path, timeout):
    """(connection that has sent the token, list for the descriptors that come; those left in it are closed)."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    fds = []
    try:
        connect(peer, socket_path, timeout)
        peer.sendall(token)
        yield peer, fds
    except (socket.timeout, BlockingIOError):  # no time left at all means: do not block
        raise errors.make(StatusCode.DEADLINE_EXCEEDED, f"no memory came over {socket_path} in {timeout:.3g} s",
                          "HANDOFF_TIMEOUT") from None
    except errors.TensorcastError:
        raise
    except OSError as error:
        code = StatusCode.PERMISSION_DENIED if error.errno == errno.EACCES else StatusCode.UNAVAILABLE
        raise errors.make(code, f"cannot take the memory from {socket_path}: {error}", "HANDOFF_FAILED") from error
    finally:
        peer.close()
        for fd in fds:
            os.close(fd)


@contextlib.contextmanager
def _lease_of(peer):
    """The connection as a lease, ended at once when something fails: the exception's frames would keep it."""
    lease = Lease(peer.dup().detach())
    try:
        yield lease
    except BaseException:
        lease.end()
        raise


def _receive(peer, fds, most_fds):
    """(memory bytes, page kind) of one message of the daemon; its descriptors go into fds."""
    # not socket.recv_fds: before Python 3.12 it drops the flag that keeps the descriptor from our children
    data, control, flags, _ = peer.recvmsg(4096, socket.CMSG_SPACE(most_fds * _FD.size), socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            usable = len(payload) - len(payload) % _FD.size
            fds += [fd for (fd,) in _FD.iter_unpack(payload[:usable])]
    if not data:
        raise errors.make(StatusCode.ABORTED, "the daemon refused the hand-off token (used, expired, or another "
                          "user's)", "HANDOFF_REFUSED")
    if flags & socket.MSG_CTRUNC:
        raise errors.make(StatusCode.RESOURCE_EXHAUSTED, "the memory's file descriptor was lost; this process has "
                          "too many open files", "TOO_MANY_OPEN_FILES")
    if len(data) != _HEADER.size:
        raise errors.bad_answer(f"a hand-off header of {len(data)} bytes")
    magic, version, memory_bytes, page_kind, n_fds, _ = _HEADER.unpack(data)
    if magic != _MAGIC or version != _VERSION:
        raise errors.make(StatusCode.UNIMPLEMENTED, f"the daemon's hand-off speaks {magic!r} version {version}, "
                          f"this client {_MAGIC!r} version {_VERSION}", "HANDOFF_VERSION")
    if not n_fds or n_fds != len(fds) or not 0 < memory_bytes < 1 << 62:
        raise errors.bad_answer(f"a hand-off of {memory_bytes} bytes in {len(fds)} descriptors")
    return memory_bytes, page_kind


def _check_size(fd, size):
    """Behind the end of its file a mapping is a bus error."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_size < size:
        raise errors.bad_answer(f"a hand-off of {size} bytes in a file of {about.st_size}")
