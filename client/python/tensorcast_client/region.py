"""Memory of this process, lent to the daemon to be filled by one load.

It is offered on the hand-off socket, each region on a connection of its own; the load names the tokens that come back. A
connection ends when the daemon does not touch that memory any more, whatever became of the load, and until then no code here may.
"""
import contextlib
import errno
import math
import os
import select
import socket
import struct
from typing import NamedTuple, Optional

from grpc import StatusCode

from . import errors, messages
from .handoff import connect, reachable

# magic, version, kind, reserved, bytes of the allocation, offset in it, bytes to be filled, IPC handle
_OFFER = struct.Struct("<4sIIIQQQ64s")
_VERSION, _TOKEN_BYTES = 1, 32
_HOST_MEMFD = 3  # kinds 1 and 2 are of GPU memory, see cuda.py
_LONGEST_HOLD_S = 60  # a copy that does not end takes the device out of service sooner


class Offer(NamedTuple):
    """What is said of one region, and the descriptor that comes along."""

    data: bytes
    fd: Optional[int]
    closes_fd: bool  # once it is sent


def span_of(buffer):
    """(address, bytes) of an object with __cuda_array_interface__, as torch's CUDA tensors and CuPy's arrays have it."""
    try:
        facts = buffer.__cuda_array_interface__
    except (AttributeError, TypeError, RuntimeError) as error:
        raise errors.invalid(f"into is no GPU array: {error}; give it as bytes, as tensor.view(torch.uint8) does",
                             "BAD_OPTION") from None
    size = int(facts["typestr"][2:])
    address, is_read_only = facts["data"]
    steps = facts.get("strides")
    packed = [size * math.prod(facts["shape"][i + 1:]) for i in range(len(facts["shape"]))]
    if is_read_only or (steps is not None and list(steps) != packed):
        raise errors.invalid("into is read-only or not contiguous", "BAD_OPTION")
    return address, size * math.prod(facts["shape"])


def of_gpu(device, address, size):
    """The offer of `size` bytes in one allocation on a GPU."""
    kind, allocation, offset, handle, fd = device.share(address, size)
    return Offer(_OFFER.pack(b"TCRG", _VERSION, kind, 0, allocation, offset, size, handle), fd, True)


def of_host(fd, size):
    """The offer of a memfd, whole. The descriptor stays the caller's."""
    return Offer(_OFFER.pack(b"TCRG", _VERSION, _HOST_MEMFD, 0, size, 0, size, b""), fd, False)


@contextlib.contextmanager
def lent(client, offers, clock):
    """The tokens of offers, in order. `offers` may be a generator. Leaving waits until the daemon has let go of all of it."""
    peers, tokens = [], []
    try:
        path = _handoff_path(client, clock)
        for offer in offers:
            peers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC))
            try:
                tokens.append(_exchange(path, peers[-1], offer, clock))
            finally:
                if offer.closes_fd and offer.fd is not None:
                    os.close(offer.fd)
        try:
            yield tokens
        finally:
            _await_end(peers)
    finally:
        for peer in peers:
            peer.close()


def offered(client, offer, clock):
    """(connection, token) of one offer, without an end: the connection is the caller's, and the memory the daemon's while it is open."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        token = _exchange(_handoff_path(client, clock), peer, offer, clock)
        peer.settimeout(None)
        return peer, token
    except BaseException:
        peer.close()
        raise


def _handoff_path(client, clock):
    status = client.ask("Status", messages.StatusRequest.encode(), messages.StatusResponse, clock.left(client.timeout))
    return reachable(status.handoff_socket, client.channel)


def _exchange(path, peer, offer, clock):
    try:
        connect(peer, path, clock.left(_LONGEST_HOLD_S))
        socket.send_fds(peer, [offer.data], [] if offer.fd is None else [offer.fd])
        token = peer.recv(_TOKEN_BYTES + 1)
    except (socket.timeout, BlockingIOError):
        raise errors.make(StatusCode.DEADLINE_EXCEEDED, f"no answer to an offer of memory over {path}",
                          "HANDOFF_TIMEOUT") from None
    except OSError as error:
        if error.errno == errno.EPERM:
            raise errors.make(StatusCode.FAILED_PRECONDITION, "the daemon takes no memory to be filled: it is older than this client, "
                              "or serves no GPU", "OFFER_REFUSED") from None
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise errors.make(StatusCode.UNAVAILABLE, f"cannot offer memory over {path}: {error}", "HANDOFF_FAILED") from error
        token = b""
    if len(token) != _TOKEN_BYTES:
        raise errors.make(StatusCode.UNAVAILABLE, "the daemon does not take memory: it is shutting down, older than this client, or "
                          "this user has all the leases or descriptors that they may have (handoff_refused in its log says)",
                          "OFFER_REFUSED")
    return token


def _await_end(peers):
    for peer in peers:
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_WR)  # ends an offer that no request took
    for peer in peers:
        end = select.poll()  # select() knows no descriptor above 1023
        end.register(peer, select.POLLIN)
        if not end.poll(_LONGEST_HOLD_S * 1000):
            raise errors.make(StatusCode.INTERNAL, f"the daemon has held the memory to be filled for {_LONGEST_HOLD_S} s after "
                              "the load ended; do not use or free it before the daemon is gone", "REGION_IN_USE")
