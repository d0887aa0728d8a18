"""What each rank of an engine asked the daemon for the last time, kept per model and layout in the user's cache, so that the daemon
can be told before the next engine has imported anything.

It is a hint. Nothing is ever placed by it: the loader traces at every start, and asks for what that comes to. A file that is stale
makes the daemon read something that is not wanted; one that is damaged, too large or not the user's own is not used.
"""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from typing import NamedTuple, Optional

FOLDER = "vllm-traces"
MAX_BYTES = 64 << 20  # of a file
MAX_RANKS = 1024
MAX_MODELS = 64  # kept
_MAX_NUMBER = 1 << 62


class Layout(NamedTuple):
    """How an engine is cut up."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False


class Request(NamedTuple):
    """One load of a rank."""

    names: tuple
    slices: dict  # {name: [(dimension, slice), ...]} of those that are not whole
    placement: Optional[str]


def folder_of(artifact, variant, layout, cache=None):
    """Where the files of a model are, one a rank. variant: the recipe as JSON (bytes), None for none."""
    if cache is None:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tensorcast")
    text = json.dumps([artifact, variant and variant.decode(), *layout])
    return os.path.join(os.path.abspath(cache), FOLDER, hashlib.sha256(text.encode()).hexdigest()[:24])


def record(folder, rank, artifact, requests):
    """Writes what a rank asked for: Requests. What was there is replaced."""
    content = json.dumps({"version": 1, "artifact": artifact, "requests": [_written(request) for request in requests]}).encode()
    if len(content) > MAX_BYTES or rank >= MAX_RANKS:
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, os.path.join(folder, f"{rank}.json"))
    except BaseException:
        os.unlink(temporary)
        raise
    os.utime(folder)
    _drop_oldest(os.path.dirname(folder))


def read(folder, artifact):
    """[Request] of all ranks that wrote something of this artifact. Nothing where nothing is right."""
    requests = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return requests
    for name in names[:MAX_RANKS]:
        try:
            requests += _checked(json.loads(_content(os.path.join(folder, name))), artifact)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
    return requests


def _written(request):
    slices = {name: [[dim, part.start, part.stop] for dim, part in steps] for name, steps in request.slices.items()}
    return {"names": list(request.names), "slices": slices, "placement": request.placement}


def _content(path):
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > MAX_BYTES:
            raise ValueError(f"{path} is not a file of this user, or too large")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path} is too large")
    return content


def _checked(said, artifact):
    if said["version"] != 1 or said["artifact"] != artifact:
        raise ValueError("of something else")
    return [_request(item) for item in said["requests"]]


def _request(item):
    names, slices = item["names"], item["slices"]
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise ValueError("no names")
    if not names or not isinstance(slices, dict) or not slices.keys() <= set(names) or item["placement"] not in (None, "packed"):
        raise ValueError("no view")
    return Request(tuple(names), {name: [_step(step) for step in steps] for name, steps in slices.items()}, item["placement"])


def _step(step):
    dim, start, stop = step
    if not all(type(number) is int and 0 <= number < _MAX_NUMBER for number in step) or start >= stop:
        raise ValueError("no slice")
    return dim, slice(start, stop)


def _drop_oldest(folder):
    """So that a model that is not started any more does not stay for ever."""
    kept = sorted((entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)), key=lambda entry: -entry.stat().st_mtime)
    for entry in kept[MAX_MODELS:]:
        shutil.rmtree(entry.path, ignore_errors=True)
