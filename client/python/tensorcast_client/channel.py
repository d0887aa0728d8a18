"""The gRPC channel to the daemon: bytes in, bytes out, errors as TensorcastError.

One channel per client, made at the first call. A forked child cannot use its parent's channel (and not even gRPC, unless
fork support was switched on before grpc was imported), so every channel is forgotten in the child and made anew there.
"""
import os
import sys
import threading
import urllib.parse
import weakref

_FORK_SWITCH = "GRPC_ENABLE_FORK_SUPPORT"
if "grpc" not in sys.modules:
    os.environ.setdefault(_FORK_SWITCH, "1")
_fork_support = os.environ.get(_FORK_SWITCH, "").lower() in ("1", "true", "yes", "y", "t", "on")

import grpc  # noqa: E402  after the switch, which it reads once
from grpc import StatusCode  # noqa: E402

from . import errors  # noqa: E402
from .messages import SERVICE  # noqa: E402

_RETRIES = ('{"methodConfig": [{"name": [{"service": "%s"}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.1s", '
            '"maxBackoff": "0.5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}' % SERVICE)
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # two clients are two connections, and a closed one is closed
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),  # a restarted daemon is found again within half a second
    ("grpc.min_reconnect_backoff_ms", 20000),  # in spite of its name: how long one attempt may take on a busy host
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.service_config", _RETRIES),
    ("SingleThreadedUnaryStream", 1),  # for gRPC's Python layer: no thread for each load
)

_channels = weakref.WeakSet()
_abandoned = []  # the parent's channels, kept in the child: to close them there is not safe


class Channel:
    """Calls the daemon at one socket. Any thread, any process that descends from the one that made it."""

    def __init__(self, socket_path):
        self.socket_path = socket_path
        self._target = "unix:" + urllib.parse.quote(socket_path)
        self._start_over()
        _channels.add(self)

    def _start_over(self):
        self._lock, self._grpc, self._methods, self._closed = threading.Lock(), None, {}, False

    def forget(self):
        """In a forked child: leave the parent's channel alone and make another at the next call."""
        closed = self._closed
        _abandoned.append((self._grpc, self._methods))
        self._start_over()
        self._closed = closed

    def close(self):
        """Ends the connection and every call in flight; a later call fails."""
        with self._lock:
            channel, self._grpc, self._methods, self._closed = self._grpc, None, {}, True
        if channel:
            channel.close()

    def call(self, method, request, timeout):
        """One answer as bytes."""
        try:
            return self._start("unary_unary", method, request, timeout)
        except grpc.RpcError as error:
            raise errors.from_rpc(error, self.socket_path) from None

    def stream(self, method, request, timeout):
        """An iterator of answers as bytes with cancel(); it raises grpc.RpcError (see errors.from_rpc)."""
        return self._start("unary_stream", method, request, timeout)

    def _start(self, kind, method, request, timeout):
        method = self._method(kind, method)
        try:
            return method(request, timeout=timeout)
        except ValueError:  # gRPC's word for a channel that was closed this instant
            raise _closed() from None

    def _method(self, kind, name):
        with self._lock:
            if self._closed:
                raise _closed()
            if name not in self._methods:
                if self._grpc is None:
                    self._grpc = grpc.insecure_channel(self._target, _OPTIONS)
                path = name if "/" in name else f"{SERVICE}/{name}"  # most are of one service
                self._methods[name] = getattr(self._grpc, kind)(f"/{path}")
            return self._methods[name]


def _closed():
    return errors.make(StatusCode.FAILED_PRECONDITION, "the client is closed", "CLIENT_CLOSED")


def _after_fork_in_child():
    if not _fork_support and any(channel._grpc for channel in list(_channels)):
        # nothing that gRPC does in this child can work; say so at the next call instead of failing oddly
        Channel._method = _refuse
    for channel in list(_channels):
        channel.forget()


def _refuse(channel, kind, name):
    raise errors.make(StatusCode.FAILED_PRECONDITION,
                      f"gRPC was imported without fork support, so this forked process cannot use it: import "
                      f"tensorcast_client before grpc, or set {_FORK_SWITCH}=1", "NO_FORK_SUPPORT")


os.register_at_fork(after_in_child=_after_fork_in_child)
