"""Memory of the client as a stranger would lend it: memfds, offers and requests by the raw wire."""
import contextlib
import fcntl
import mmap
import os
import socket
import struct

import numpy as np

from wire import Wire

F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 2, 4, 8


def memfd(size, seals=F_SEAL_SHRINK):
    fd = os.memfd_create("client", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Region:
    """A memfd, filled with one byte (None: without pages), and what the client sees of it."""

    def __init__(self, size, fill=0xEE, seals=F_SEAL_SHRINK):
        self.fd, self.size = memfd(size, seals), size
        self.map = mmap.mmap(self.fd, size)
        self.bytes = np.frombuffer(self.map, np.uint8)
        if fill is not None:
            self.bytes[:] = fill

    def array(self, dtype, shape, offset=0):
        return np.ndarray(shape, dtype, self.map, offset)

    def close(self):
        os.close(self.fd)


def offer(daemon, fd, kind=3):
    """A token and its connection, which ends when the daemon touches the memory no more."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(daemon.handoff))
    peer.settimeout(60)
    socket.send_fds(peer, [b"TCRG" + struct.pack("<III", 1, kind, 0) + bytes(88)], [fd])
    return peer.recv(64), peer


@contextlib.contextmanager
def wire(daemon):
    with daemon.channel() as channel:
        yield Wire(channel)


def materialize(wire, request, timeout=60):
    """The result; an error is the exception of gRPC."""
    events = list(wire.call("Materialize", wire.message("MaterializeRequest", load=request), timeout))
    assert events[-1].WhichOneof("event") == "result"
    return events[-1].result
