"""Writing an artifact anew, in another layout: the command `tensorcast export`, with its options as keywords."""
from __future__ import annotations

import contextlib
import json
import operator
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from grpc import StatusCode

from . import errors, programs, progress_bar
from .artifact import Artifact
from .reference import parse

Progress = Callable[[str, int, int], object]
_DOCUMENTS = ("variant", "mapping", "view")  # options that name a file, of which a mapping is the content
_OPTIONS = frozenset("""allow_missing_shards best_effort dtype force format mapping max_file_size memory mesh mesh_rank no_sidecars placements
                     quiet rank resume set slice spec tensor timeout tp_rank tp_rule tp_size uneven variant verify view world_size""".split())


def export(reference: str | os.PathLike[str] | Artifact, out: str | os.PathLike, progress: Progress | bool | None = None,
           **options: Any) -> dict:
    """Runs `tensorcast export REFERENCE --out OUT` and returns the object of its --json. An Artifact is exported as its recipes make it.

    Options are the command's with underscores: format="topology", world_size=8, uneven="ceil", force=True; those that can be
    repeated are lists (tp_rule=["*.weight=1"]), set={"KEY": value} is one --set for each key, and mesh={"data": 4, "model": 8} is
    one mesh. variant, mapping and view are paths, or dicts of what would be in the file. progress(stage, done_bytes, total_bytes)
    is called on this thread, several times a second; what it raises ends the export. True shows a bar.
    """
    for name in options.keys() - _OPTIONS:  # also one whose value would leave it out of the command
        raise TypeError(f"export() got an unexpected keyword argument {name!r}")
    if isinstance(reference, Artifact):
        reference, options = reference.reference, _with_artifact(options, reference)
    with contextlib.ExitStack() as stack:
        if progress is True:
            progress = stack.enter_context(contextlib.closing(progress_bar.bar()))
        if any(isinstance(options.get(name), Mapping) for name in _DOCUMENTS):
            options = _written(options, stack.enter_context(tempfile.TemporaryDirectory(prefix="tensorcast-export-")))
        words = [command(), "export", parse(reference), "--out", os.fspath(out), "--json", *_words(options)]
        return _run(words + (["--progress", "json"] if progress else []), progress)


def _with_artifact(options, artifact):
    if artifact.allow_missing_shards:
        options = {"allow_missing_shards": True, **options}
    if (recipe := artifact.variant_json()) is None:
        return options
    if options.get("variant") is not None:
        raise errors.invalid("the artifact has a recipe already: put the other one on it by variant(), too", "USAGE")
    return {**options, "variant": json.loads(recipe)}


def _written(options, folder):
    """Dicts that stand for files are in some."""
    paths = {name: Path(folder, f"{name}.json") for name in _DOCUMENTS if isinstance(options.get(name), Mapping)}
    for name, path in paths.items():
        try:
            path.write_text(json.dumps(_with_paths(options[name]) if name == "variant" else options[name], default=operator.index))
        except (TypeError, ValueError) as error:
            raise errors.invalid(f"{name} is no JSON: {error}", "USAGE") from None
    return {**options, **paths}


def _with_paths(recipe):
    """A path in a dict begins where this program is, not where the file happens to be that the dict is written to."""
    steps = recipe.get("steps")
    if not isinstance(steps, list):
        return recipe
    return {**recipe, "steps": [{**step, "expect": os.path.abspath(step["expect"])}
                                if isinstance(step, Mapping) and isinstance(step.get("expect"), str) else step for step in steps]}


def _run(words, progress):
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
            raise error_of(report, complaints, status)
        return json.loads(report)


def command():
    found = programs.find("tensorcast")
    if not found:
        raise errors.make(StatusCode.FAILED_PRECONDITION, "the command tensorcast is not in PATH; TENSORCAST_BIN may name it",
                          "NO_COMMAND")
    return found


def _words(options):
    values = {name: list(_items(name, value)) for name, value in options.items() if value is not None}
    chosen = [values[name] for name in ("tensor", "slice") if name in values]
    if chosen and not any(chosen):  # without a word of them the command would take all tensors
        raise errors.invalid("tensor and slice name no tensor; leave them out for all of them", "USAGE")
    for name, items in values.items():
        flag = "--" + name.replace("_", "-")
        for item in items:
            if item is True:
                yield flag
            elif item is not False and item is not None:
                yield f"{flag}={os.fspath(item) if isinstance(item, os.PathLike) else item}"


def _items(name, value):
    """Each is one option of the command."""
    if isinstance(value, Mapping):
        items = [f"{key}={item}" for key, item in value.items()]
        return [",".join(items)] if name == "mesh" else items
    return value if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike)) else [value]


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


def error_of(report, complaints, status):
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
