"""The gRPC channel to the daemon: bytes in, bytes out, errors as TensorcastError.

One channel per client, made at the first call. A forked child cannot use its parent's channel (and not even gRPC, unless
fork support was switched on before grpc was imported), so every channel is forgotten in the child and made anew there.
"""
import os
import sys
import threading
import time
import urllib.parse
import weakref

_FORK_SWITCH = "GRPC_ENABLE_FORK_SUPPORT"
if "grpc" not in sys.modules:
    os.environ.setdefault(_FORK_SWITCH, "1")
_fork_support = os.environ.get(_FORK_SWITCH, "").lower() in ("1", "true", "yes", "y", "t", "on")

import grpc  # noqa: E402  after the switch, which it reads once
from grpc import StatusCode  # noqa: E402

from . import errors, unreachable  # noqa: E402
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

_TRIES = 3  # as long as connections fail before an answer, and a daemon listens
_READY_S = 20.0  # for room in a full backlog
_channels = weakref.WeakSet()
_abandoned = []  # the parent's channels, kept in the child: to close them there is not safe


class Channel:
    """Calls the daemon at one socket. Any thread, any process that descends from its creator."""

    def __init__(self, socket_path, other_socket=None):
        self.socket_path, self.other_socket = socket_path, other_socket
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
        tries = _Tries(self, timeout)
        while True:
            try:
                return self._start("unary_unary", method, request, tries.left())
            except grpc.RpcError as error:
                if not tries.another(error):
                    raise errors.from_rpc(error, self) from None

    def stream(self, method, request, timeout):
        """An iterator of answers as bytes with cancel(); it raises grpc.RpcError (see errors.from_rpc)."""
        tries = _Tries(self, timeout)
        return _Stream(lambda: self._start("unary_stream", method, request, tries.left()), tries)

    def becomes_ready(self, timeout):
        """Whether there is a connection within so many seconds, if a daemon listens at all. A full backlog is taken for a connection
        under way by gRPC, which fails at its first read."""
        if unreachable.attempt(self.socket_path):
            return False
        with self._lock:
            channel = self._grpc
        try:
            return channel is not None and not grpc.channel_ready_future(channel).result(timeout)
        except (grpc.FutureTimeoutError, ValueError):  # ValueError: it was closed meanwhile
            return False

    def _start(self, kind, method, request, timeout):
        method = self._method(kind, method)
        try:
            return method(request, timeout=timeout, metadata=_trace_context())
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


def _trace_context():
    """The span that is current in OpenTelemetry, as metadata. None without one, as where the program has not imported that."""
    current_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    context = current_span().get_span_context() if current_span else None
    if not context or not context.is_valid:
        return None
    return (("traceparent", f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xff:02x}"),)


class _Tries:
    """How often one call is sent: again while its connection fails before anything was answered, as libtensorcast does."""

    def __init__(self, channel, timeout):
        self._channel, self._n = channel, 1
        self._until = None if timeout is None else time.monotonic() + timeout

    def left(self):
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def another(self, error):
        """Waits for a connection. False: the error stands."""
        error.__traceback__ = None  # gRPC raises the call itself, which lives on and would keep our frames
        left = self.left()
        if self._n == _TRIES or left == 0 or not errors.is_of_transport(error):
            return False
        self._n += 1
        return self._channel.becomes_ready(_READY_S if left is None else min(left, _READY_S))


class _Stream:
    """The answers of one call, which is sent again before the first of them."""

    def __init__(self, start, tries):
        self._start, self._tries, self._cancelled, self._call = start, tries, False, start()

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            try:
                data = next(self._call)
            except grpc.RpcError as error:
                if self._cancelled or not self._tries or not self._tries.another(error):
                    raise
                self._call = self._start()
                if self._cancelled:  # meanwhile, by another thread
                    self._call.cancel()
                continue
            self._tries = None
            return data

    def cancel(self):
        self._cancelled = True
        self._call.cancel()


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
