"""GPU memory of this process, lent to the daemon to be filled by one load.

The memory is offered on the hand-off socket; the load names the token that comes back. The offer's connection ends when the
daemon does not touch the memory any more, whatever became of the load, and until then nobody here may.
"""
import contextlib
import math
import os
import select
import socket
import struct

from grpc import StatusCode

from . import errors, messages
from .handoff import reachable

# magic, version, kind, reserved, bytes of the allocation, offset in it, bytes to be filled, IPC handle
_OFFER = struct.Struct("<4sIIIQQQ64s")
_VERSION, _TOKEN_BYTES = 1, 32
_LONGEST_HOLD_S = 60  # a copy that does not end takes the device out of service sooner


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


@contextlib.contextmanager
def lent(client, device, buffer, clock):
    """The token for the memory of a GPU array. Leaving waits until the daemon has let go of it."""
    address, size = span_of(buffer)
    kind, allocation, offset, handle, memory_fd = device.share(address, size)
    offer = _OFFER.pack(b"TCRG", _VERSION, kind, 0, allocation, offset, size, handle)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        try:
            token = _exchange(client, peer, offer, memory_fd, clock)
        finally:
            if memory_fd is not None:
                os.close(memory_fd)
        try:
            yield token
        finally:
            _await_end(peer)
    finally:
        peer.close()


def _exchange(client, peer, offer, memory_fd, clock):
    status = client.ask("Status", messages.StatusRequest.encode(), messages.StatusResponse, clock.left(client.timeout))
    path = reachable(status.handoff_socket, client.channel)
    try:
        peer.settimeout(clock.left(_LONGEST_HOLD_S))
        peer.connect(path)
        socket.send_fds(peer, [offer], [] if memory_fd is None else [memory_fd])
        token = peer.recv(_TOKEN_BYTES + 1)
    except (socket.timeout, BlockingIOError):
        raise errors.make(StatusCode.DEADLINE_EXCEEDED, f"no answer to an offer of memory over {path}",
                          "HANDOFF_TIMEOUT") from None
    except OSError as error:
        raise errors.make(StatusCode.UNAVAILABLE, f"cannot offer memory over {path}: {error}", "HANDOFF_FAILED") from error
    if len(token) != _TOKEN_BYTES:
        raise errors.make(StatusCode.UNAVAILABLE, "the daemon does not take memory to be filled: it is shutting down, or older "
                          "than this client", "OFFER_REFUSED")
    return token


def _await_end(peer):
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_WR)  # ends an offer that no request took
    if not select.select([peer], [], [], _LONGEST_HOLD_S)[0]:
        raise errors.make(StatusCode.INTERNAL, f"the daemon has held the memory to be filled for {_LONGEST_HOLD_S} s after the "
                          "load ended; do not use or free it before the daemon is gone", "REGION_IN_USE")
