"""One load: the Materialize stream, its progress, and the hand-off at its end."""
from __future__ import annotations

import time

import grpc

from . import errors, handoff, progress_bar
from .alarm import alarms
from .messages import MaterializeEvent, MaterializeRequest
from .wire import DecodeError
from .words import size_of

_PROGRESS_INTERVAL_S = 0.1
_FOREVER_S = 1e6  # gRPC takes infinity for a deadline that has passed
_HANDOFF_TIMEOUT_S = 10.0  # as long as a token lives


class Clock:
    """What is left of a deadline."""

    def __init__(self, seconds):
        self._end = None if seconds is None or seconds > _FOREVER_S else time.monotonic() + seconds
        self._seconds = seconds

    def left(self, otherwise=None):
        """Seconds left, at most `otherwise`. Raises DeadlineExceededError when there are none: gRPC rounds up to milliseconds,
        in which a daemon answers."""
        if self._end is None:
            return otherwise
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left if otherwise is None else min(left, otherwise)


    def passed(self, event=None):
        """The error that says so, and how far it was: event is the last Progress."""
        far = "when last heard of, the daemon had not begun to read"
        if event and not event.total_bytes:
            far += f": {_stage(event)}"
        elif event:
            far = f"{_stage(event)}: {size_of(event.done_bytes)} of {size_of(event.total_bytes)}"
        return errors.make(grpc.StatusCode.DEADLINE_EXCEEDED, f"not done within the deadline of {self._seconds:.3g} s; {far}",
                           errors.DEADLINE_PASSED)


def _stage(event):
    return f"waiting for {event.waiting_for}" if event.waiting_for else event.stage


class Teller:
    """Calls the user's function at most ten times a second. True is a bar on standard error, closed at the end of the context."""

    def __init__(self, function):
        if function is not None and not isinstance(function, bool) and not callable(function):
            raise errors.invalid(f"progress is {function!r}; it is True, or a function (stage, done_bytes, total_bytes)", "BAD_OPTION")
        self._bar = progress_bar.bar() if function is True else None
        self._function, self._next, self.last = self._bar or function or None, 0.0, None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._bar:
            self._bar.close()

    def tell(self, event):
        self.last = event
        now = time.monotonic()
        if self._function and now >= self._next:
            self._next = now + _PROGRESS_INTERVAL_S
            self._function(_stage(event), event.done_bytes, event.total_bytes)

    def finish(self, total_bytes):
        if self._function:
            self._function("done", total_bytes, total_bytes)


def materialize(channel, load_request, clock, progress, first_answer_timeout, writable=False, device=None):
    """(LoadResult, buffer of the memory that came with it); the buffer is empty when there is none, and a list of buffers when
    it is of files."""
    is_lent = "targets" in load_request or "region" in load_request  # the memory is the caller's
    call = channel.stream("Materialize", MaterializeRequest.encode(load=load_request), clock.left())
    watch = _FirstAnswer(call, first_answer_timeout)
    try:
        result, buffer = None, b""
        for data in call:
            event = MaterializeEvent.decode(data)
            if not event.progress or event.progress.total_bytes:  # before, it only says what it waits for
                watch.answered()
            if event.progress:
                progress.tell(event.progress)
            if event.result:
                result = event.result
                if is_lent and (result.files or result.memory_bytes):
                    raise errors.bad_answer("memory of the daemon for a load into the client's")
                buffer = _take(channel, result, clock, writable, device)
    except grpc.RpcError as error:
        error.__traceback__ = None  # gRPC raises the call itself, which lives on and would keep our frames
        raise watch.error() or _told(errors.from_rpc(error, channel), clock, progress) from None
    except DecodeError as error:
        raise errors.bad_answer(error) from None
    finally:
        watch.answered()
        call.cancel()  # without effect on a stream that has ended
    if result is None or not result.report or result.layout is None:
        raise errors.bad_answer("a load that ended without a result")
    return result, buffer


def _told(error, clock, progress):
    """The error, or one that tells how far the load was. Not in materialize(): its frame would keep the error, and that it."""
    return clock.passed(progress.last) if error.reason == errors.DEADLINE_PASSED else error


def _take(channel, result, clock, writable, device):
    """The memory of a result; empty for a view without bytes."""
    if result.files and (device or result.memory_bytes):
        raise errors.bad_answer(f"{len(result.files)} files and {result.memory_bytes} bytes of memory")
    path = handoff.reachable(result.handoff_socket, channel)
    if result.files:
        sizes = [file.bytes for file in result.files]
        return handoff.take_files(result.handoff_token, path, clock.left(_HANDOFF_TIMEOUT_S), sizes, writable)
    if not result.memory_bytes:
        return b""
    return handoff.take(result.handoff_token, path, clock.left(_HANDOFF_TIMEOUT_S), writable, device)


class _FirstAnswer:
    """Cancels a stream whose first answer does not come in time. A deadline would bound the whole load instead."""

    def __init__(self, call, seconds):
        self._late = False
        self._seconds, self._call = seconds, call
        self._alarm = None if seconds is None else alarms.set(seconds, self._cancel)

    def _cancel(self):
        self._late = True
        self._call.cancel()

    def answered(self):
        if self._alarm:
            alarms.cancel(self._alarm)
            self._alarm = None

    def error(self):
        if self._late:
            return errors.make(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer from the daemon in {self._seconds:.3g} s",
                               "NO_ANSWER")
        return None
