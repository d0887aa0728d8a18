"""Writing an artifact anew, in another layout: the command `tensorcast export`, with its options as keywords."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grpc import StatusCode

from . import errors
from .reference import parse

Progress = Callable[[str, int, int], object]


def export(reference: str | os.PathLike[str], out: str | os.PathLike, progress: Progress | None = None, **options: Any) -> dict:
    """Runs `tensorcast export REFERENCE --out OUT` and returns the object of its --json.

    Options are the command's with underscores: format="topology", world_size=8, uneven="ceil", force=True; those that can be
    repeated are lists (tp_rule=["*.weight=1"]), and set={"KEY": value} is one --set for each key. progress(stage, done_bytes,
    total_bytes) is called on this thread, several times a second; what it raises ends the export.
    """
    words = [_command(), "export", parse(reference), "--out", os.fspath(out), "--json", *_words(options)]
    words += ["--progress", "json"] if progress else []
    with tempfile.TemporaryFile() as result:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=result, stderr=subprocess.PIPE)
        try:
            complaints = _follow(process.stderr, progress)
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            process.stderr.close()
        result.seek(0)
        report = result.read()
        if status:
            raise _error(report, complaints, status)
        return json.loads(report)


def _command():
    """The command beside this package, the one that TENSORCAST_BIN names, or that of PATH."""
    beside = Path(__file__).parent / "tensorcast"
    found = str(beside) if os.access(beside, os.X_OK) else os.environ.get("TENSORCAST_BIN") or shutil.which("tensorcast")
    if not found:
        raise errors.make(StatusCode.FAILED_PRECONDITION, "the command tensorcast is not in PATH; TENSORCAST_BIN may name it",
                          "NO_COMMAND")
    return found


def _words(options):
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, Mapping):
            value = [f"{key}={item}" for key, item in value.items()]
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                yield flag
            elif item is not False and item is not None:
                yield f"{flag}={os.fspath(item) if isinstance(item, os.PathLike) else item}"


def _follow(stream, progress):
    """The lines that are not about progress."""
    rest = []
    for line in stream:
        text = line.decode("utf-8", "replace").rstrip("\n")
        if progress and text.startswith("{"):
            told = json.loads(text)
            progress(told["stage"], told["done_bytes"], told["total_bytes"])
        else:
            rest.append(text)
    return rest


def _error(report, complaints, status):
    try:
        error = json.loads(report)["error"]
        return errors.make(StatusCode[error["code"]], error["message"], error["reason"], error["metadata"])
    except (ValueError, KeyError, TypeError):
        pass  # wrong usage, or the command was killed
    told = [line.removeprefix("tensorcast: ") for line in complaints if line.startswith("tensorcast: ")]
    code, _, message = (told[-1] if told else "").partition(": ")
    if code in StatusCode.__members__:
        return errors.make(StatusCode[code], message)
    if status == 2:
        return errors.invalid("\n".join(told) or "wrong usage", "USAGE")
    return errors.make(StatusCode.INTERNAL, "\n".join(complaints) or f"tensorcast ended with status {status}")
