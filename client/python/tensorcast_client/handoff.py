"""Trades a token for memory on the daemon's second socket.

The client sends the 32-byte token as one message; the daemon answers with a header and one file descriptor, or closes.
The connection that carried them is the lease, so it is kept open as long as the memory is mapped.
"""
import os
import socket
import struct

from grpc import StatusCode

from . import errors
from .memory import HUGE_PAGE_BYTES, map_leased

# magic, version, memory bytes, page kind, number of descriptors, reserved
_HEADER = struct.Struct("<4sIQIIQ")
_MAGIC, _VERSION = b"TCHO", 1
_PAGE_KIND_HUGETLB, _PAGE_KIND_DEVICE = 0, 3
_FD = struct.Struct("i")


def reachable(path, channel):
    """The daemon's second socket, also where the daemon's folder has another name, as in a container."""
    if os.path.exists(path):
        return path
    return os.path.join(os.path.dirname(channel.socket_path), os.path.basename(path))


def take(token, socket_path, timeout, writable=False, device=None):
    """The memory that the token stands for: a buffer (see memory.map_leased), or cuda.DeviceMemory on that device."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    fds = []
    try:
        peer.settimeout(timeout)
        peer.connect(socket_path)
        peer.sendall(token)
        memory_bytes, page_kind = _receive(peer, fds)
        if (page_kind == _PAGE_KIND_DEVICE) != (device is not None):
            raise errors.bad_answer(f"memory of kind {page_kind} for {device.uuid if device else 'the host'}")
        if device:
            return device.map_leased(fds.pop(), memory_bytes, peer.detach())
        page_bytes = HUGE_PAGE_BYTES if page_kind == _PAGE_KIND_HUGETLB else os.sysconf("SC_PAGESIZE")
        return map_leased(fds.pop(), memory_bytes, page_bytes, peer.detach(), writable)
    except (socket.timeout, BlockingIOError):  # no time left at all means: do not block
        raise errors.make(StatusCode.DEADLINE_EXCEEDED, f"no memory came over {socket_path} in {timeout:.3g} s",
                          "HANDOFF_TIMEOUT") from None
    except errors.TensorcastError:
        raise
    except OSError as error:
        raise errors.make(StatusCode.UNAVAILABLE, f"cannot take the memory from {socket_path}: {error}",
                          "HANDOFF_FAILED") from error
    finally:
        peer.close()
        for fd in fds:
            os.close(fd)


def _receive(peer, fds):
    """(memory bytes, page kind) of the daemon's answer; its descriptor goes into fds."""
    # not socket.recv_fds: before Python 3.12 it drops the flag that keeps the descriptor from our children
    data, control, flags, _ = peer.recvmsg(4096, socket.CMSG_SPACE(4 * _FD.size), socket.MSG_CMSG_CLOEXEC)
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
    if n_fds != 1 or len(fds) != 1 or not 0 < memory_bytes < 1 << 62:
        raise errors.bad_answer(f"a hand-off of {memory_bytes} bytes in {len(fds)} descriptors")
    if page_kind != _PAGE_KIND_DEVICE and os.fstat(fds[0]).st_size < memory_bytes:
        raise errors.bad_answer(f"a hand-off of {memory_bytes} bytes in a file of {os.fstat(fds[0]).st_size}")
    return memory_bytes, page_kind
