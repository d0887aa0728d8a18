"""The client: one daemon, found by its socket."""
from __future__ import annotations

import contextlib
import numbers
import os
import stat
import threading
from collections.abc import Iterable

from . import errors, own_daemon as own_daemons, report
from .activations import ActivationStore
from .answers import Released, Status
from .artifact import Artifact
from .channel import Channel
from .facts import Facts
from .messages import (ReleaseRequest, ReleaseResponse, ResolveRequest, ResolveResponse, StatusRequest,
                       StatusResponse, UnpinRequest, UnpinResponse)
from .redact import shown
from .reference import parse
from .wire import DecodeError

DEFAULT_SOCKET = "/run/tensorcast/daemon.sock"
_TIMEOUT_S = 30.0
_LONGEST_TIMEOUT_S = 1e6  # threading.Timer and gRPC know no infinity
_ASK_BEFORE_S = 0.5  # how long before a deadline passes the daemon is asked what it waits for
_SUN_PATH_BYTES = 107
_REMEMBERED_OF_ANY_SIZE, _REMEMBERED_ARTIFACTS, _REMEMBERED_TENSORS = 8, 256, 200_000  # a checkpoint has some hundred files
_FOR_THE_PACKAGE = {"ask", "channel", "first_answer_timeout", "of_own_daemon", "resolve"}  # not what users look for


def connect(address: str | os.PathLike[str] | None = None, timeout: float | None = None) -> Client:
    """A client of the daemon at `address` ("unix:/path" or "/path"), else at $TENSORCAST_SOCKET, else at the
    default: the system's, then this user's own (`tensorcastd --user`).

    >>> with tc.connect(timeout=5.0) as client:
    ...     client.artifact("disk:/models/tiny").tensor_names
    ['head.weight', 'head.bias']

    Nothing is sent yet. `timeout`, in seconds, is how long the daemon may take to answer (30 s when nothing is said); a
    load has to begin within it, not to end (see Options.deadline)."""
    named = os.fspath(address) if address else os.environ.get("TENSORCAST_SOCKET")
    path, other = (named, None) if named else _default_sockets()
    return Client(_checked_path(path), timeout, other)


def _default_sockets():
    """(the socket of the daemon that is ours by default, the other one that was looked at): the system's daemon, unless only this
    user's own (`tensorcastd --user`) is there for us."""
    own = f"{_runtime_folder()}/daemon.sock"
    if _is_trusted(own) and not os.access(DEFAULT_SOCKET, os.W_OK) and os.access(own, os.W_OK):
        return own, DEFAULT_SOCKET
    return DEFAULT_SOCKET, own


def _is_trusted(own):
    """Whether the socket of this user's own daemon lies where no other user could have made it."""
    folder = os.path.dirname(own)
    return folder.startswith("/") and _is_of(folder, os.geteuid(), 0)


def _runtime_folder():
    """Where `tensorcastd --user` has its sockets: the rule of daemon/base/runtime_folder.h."""
    runtime = _named_folder()
    session = f"/run/user/{os.geteuid()}"
    if not runtime and not _is_of(session, os.geteuid()):
        return f"/tmp/tensorcast-{os.geteuid()}"
    return f"{runtime or session}/tensorcast"


def _named_folder():
    """$XDG_RUNTIME_DIR, unless it is left over from another session: gone, or another user's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if not runtime or not runtime.startswith("/"):
        return runtime
    try:
        about = os.stat(runtime)
    except OSError:
        return None
    is_usable = stat.S_ISDIR(about.st_mode) and about.st_uid in (0, os.geteuid()) and os.access(runtime, os.X_OK)
    return runtime if is_usable else None


def _is_of(folder, *users):
    """Every user can make a folder in /tmp, and run a daemon in it."""
    try:
        about = os.lstat(folder)
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid in users and not about.st_mode & 0o022


def _checked_path(path):
    if path.startswith("unix:"):
        path = path[len("unix:"):]
        path = path[2:] if path.startswith("//") else path
    elif "://" in path:
        raise errors.invalid(f"{path} is no Unix socket; memory can be handed over on the daemon's host only",
                             "BAD_ADDRESS")
    if not path:
        raise errors.invalid("the address names no socket", "BAD_ADDRESS")
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > _SUN_PATH_BYTES:
        raise errors.invalid(f"the socket path {path} is longer than {_SUN_PATH_BYTES} bytes", "BAD_ADDRESS")
    return path


class Client:
    """Talks to one daemon. Any thread; in a forked child it connects anew."""

    def __init__(self, socket_path: str, timeout: float | None, other_socket: str | None = None):
        """other_socket: the second default, which was looked at, too."""
        if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout > 0):
            raise errors.invalid(f"timeout is {timeout!r}; it is a positive number of seconds", "BAD_OPTION")
        self.channel = Channel(socket_path, other_socket)
        self.timeout = _TIMEOUT_S if timeout is None else min(float(timeout), _LONGEST_TIMEOUT_S)
        self.first_answer_timeout = timeout and self.timeout
        self._resolved = {}  # oldest use first; no lock, which a fork could leave locked: each step is atomic

    @property
    def socket_path(self) -> str:
        return self.channel.socket_path

    def __repr__(self):
        return f"<Client of {self.socket_path}>"

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()) - _FOR_THE_PACKAGE)

    def __reduce__(self):
        """In another process, such as one that multiprocessing spawns, and as a copy: another connection to the same daemon."""
        return Client, (self.socket_path, self.first_answer_timeout, self.channel.other_socket)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Tensors that are loaded stay valid."""
        self.channel.close()

    def artifact(self, reference: str | os.PathLike[str], allow_missing_shards: bool = False) -> Artifact:
        """A handle of an artifact: a path such as "/models/llama", "./llama", "~/llama" or a pathlib.Path, or in a store such
        as "gs://bucket/llama". Whether it exists is found out when it is used.

        allow_missing_shards: numbers of PyTorch's DCP shards may be missing as long as their boxes are complete."""
        return Artifact(self, parse(reference), allow_missing_shards)

    def activation_store(self, reference: str | os.PathLike[str], host: int | None = None, *, segment_bytes: int | str = "1GiB",
                         narrow: str | None = None, upload: str | None = None, keep_local: bool = True,
                         own_daemon: bool = False) -> ActivationStore:
        """A store of activations, such as "disk:/data/acts" (docs/activations.md).

        host: the number under which this process appends; one writer each. Without it the store is read-only.
        segment_bytes: how large a segment gets before the next one is begun.
        narrow: "auto" stores 32-bit floats whose lower 16 bits are all zero as BF16; they come back as they were.
        upload: where sealed segments go, "gs://bucket/acts"; keep_local=False deletes them here once they are there.
        own_daemon: through this user's own daemon and not this client's; `tensorcastd --user` is started when it does not run."""
        client = self.of_own_daemon(parse(reference)) if own_daemon else self
        return ActivationStore(client, reference, host, segment_bytes, narrow, upload, keep_local)

    def of_own_daemon(self, reference):
        """A client of this user's own daemon, which is started if it does not run, with the reference's folder as a root."""
        own = f"{_runtime_folder()}/daemon.sock"
        scheme, _, folder = reference.partition(":")
        if _is_trusted(own) or not os.path.lexists(os.path.dirname(own)):
            own_daemons.ensure(own, folder if scheme == "disk" else None, self.timeout)
        if not _is_trusted(own):
            raise errors.invalid(f"{os.path.dirname(own)} is not yours alone: remove it, or set XDG_RUNTIME_DIR", "FOREIGN_FOLDER")
        return Client(_checked_path(own), self.first_answer_timeout)

    def ask(self, method, request, answer_table, timeout):
        """Sends one request and decodes the answer."""
        data = self.channel.call(method, request, timeout)
        try:
            return answer_table.decode(data)
        except DecodeError as error:
            raise errors.bad_answer(error) from None

    def status(self) -> Status:
        """What the daemon holds and does: the object of `tensorcast status --json`, as a dict."""
        return report.status(self.ask("Status", StatusRequest.encode(), StatusResponse, self.timeout))

    def release(self, reference: str | os.PathLike[str] | None = None) -> Released:
        """Makes the daemon drop the replicas that no client holds, of one artifact or of all. Returns released_replicas,
        released_bytes, leased_replicas and leased_bytes (kept, because clients hold them: see status()), and
        replicas_of_others (kept, because another user has loaded them); of those that are pinned pinned_replicas and
        pinned_bytes."""
        request = ReleaseRequest.encode(artifact=None if reference is None else parse(reference), all=reference is None)
        answer = dict(vars(self.ask("Release", request, ReleaseResponse, self.timeout)))
        del answer["folder"]  # of `tensorcast release DIR`
        return answer

    def unpin(self, reference: str | os.PathLike[str] | None = None) -> dict[str, int]:
        """Removes this user's pins (prewarm with pin=True), of one artifact or of all; for root and the daemon's own user,
        the pins of all users. Returns unpinned_replicas and unpinned_bytes. What is not pinned is NOT_FOUND."""
        request = UnpinRequest.encode(artifact=None if reference is None else parse(reference), all=reference is None)
        answer = self.ask("Unpin", request, UnpinResponse, self.timeout)
        return {"unpinned_replicas": answer.replicas, "unpinned_bytes": answer.bytes}

    def resolve(self, reference, clock, allow_missing_shards=False, variant=None):
        """The Facts of an artifact, or of its variant. Lists that the daemon says are unchanged are not sent again."""
        key = reference, variant
        known = self._resolved.get(key)
        request = ResolveRequest.encode(artifact=reference, known_identity=known and known.identity, variant=variant,
                                        allow_missing_shards=allow_missing_shards or None,
                                        allow_absent_files=None if variant else True)
        with _Waiting(self, reference, clock.left(self.timeout)) as left:
            answer = self.ask("Resolve", request, ResolveResponse, left)
        if not answer.unchanged or known is None or answer.identity != known.identity:
            known = Facts(answer)
        self._resolved.pop(key, None)
        self._resolved[key] = known
        self._forget_oldest()
        return known

    def _forget_oldest(self):
        n_tensors = 0
        for n, (key, facts) in enumerate(reversed(list(self._resolved.items()))):
            n_tensors += len(facts.present)
            if n >= _REMEMBERED_ARTIFACTS or (n >= _REMEMBERED_OF_ANY_SIZE and n_tensors > _REMEMBERED_TENSORS):
                self._resolved.pop(key, None)


class _Waiting:
    """A call to resolve something in a store, within `seconds`: the error when they have passed says what the daemon was waiting for,
    which it is asked shortly before."""

    def __init__(self, client, reference, seconds):
        self._client, self._reference, self._seconds, self._told = client, reference, seconds, ""
        is_local = reference.startswith("disk:")
        self._timer = None if is_local else threading.Timer(max(seconds - _ASK_BEFORE_S, seconds / 2), self._ask)

    def __enter__(self):
        if self._timer:
            self._timer.daemon = True
            self._timer.start()
        return self._seconds

    def __exit__(self, kind, error, traceback):
        if self._timer:
            self._timer.cancel()
        if isinstance(error, errors.DeadlineExceededError) and error.reason == errors.DEADLINE_PASSED:
            waited = f"; waiting for {self._told}" if self._told else ""
            raise errors.make(error.code, f"{shown(self._reference)} was not resolved within {self._seconds:.3g} s{waited}",
                              error.reason) from None

    def _ask(self):
        with contextlib.suppress(errors.TensorcastError):
            status = self._client.ask("Status", StatusRequest.encode(own_requests_only=True), StatusResponse, _ASK_BEFORE_S)
            self._told = next((row.waiting_for for row in status.requests if row.method == "Resolve"), "")
