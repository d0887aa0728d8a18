"""Which files of a folder transformers takes for a model's weights: its own rules, whatever the daemon takes for the artifact.

The file `transformers_weights` of config.json, else model.safetensors, else the shards that the index names, the last of which has a
tensor that is in several; with variant="fp16" model.fp16.safetensors and so on; beside adapter_config.json adapter_model.safetensors.
Where the daemon's artifact has exactly these tensors of these files, it stands for them, so that all faces share one replica.
"""
from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from grpc import StatusCode

from . import errors, sidecars
from .artifact import Artifact
from .redact import shown

HEADER, ADAPTER = "model.safetensors", "adapter_model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_RESOLVED_AT_ONCE = 16


class Weights(NamedTuple):
    """What stands for each file that transformers opens, and an index that it reads."""

    artifacts: dict[str, Artifact]
    index: tuple[str, bytes] | None = None


def taken(source, variant, names):
    """Weights of what `source` names. names: the files that lie beside the tensors."""
    if is_file(source.reference):
        return Weights({with_variant(HEADER, variant): source})
    artifacts, index, config = {}, None, {}
    if "adapter_config.json" in names:
        artifacts = {ADAPTER: source.at(_below(source, ADAPTER))} if _is_there(source, ADAPTER) else {}
    if "config.json" in names:
        config = sidecars.config_of(source.view().client, source.reference)
    if "config.json" in names or not artifacts:  # else an adapter alone, whose model is elsewhere
        model, index = _of_model(source, variant, config.get("transformers_weights"))
        artifacts.update(model)
    return Weights(artifacts, index)


def is_file(reference):
    """Whether a reference names a file and not a folder, or cannot have names appended."""
    return reference.endswith(".safetensors") or "?" in reference


def with_variant(name, variant):
    """model.fp16.safetensors, model.safetensors.index.fp16.json."""
    stem, _, ending = name.rpartition(".")
    return name if variant is None else f"{stem}.{variant}.{ending}"


def _of_model(source, variant, explicit):
    """({name: Artifact} of the model's files, (name, bytes) of their index or None)"""
    single, index = (with_variant(name, variant) for name in (HEADER, _INDEX))
    if isinstance(explicit, str):
        single, index = (None, explicit) if explicit.endswith(".index.json") else (explicit, None)
    plain = Artifact(source.view().client, source.reference, source.allow_missing_shards)  # without a recipe
    if single and _is_inside(single):
        file = Artifact(source.view().client, _below(source, single))
        if _is_there(source, single):
            return {single: source if _has_all_of(plain, {single: file}) else source.at(file.reference)}, None
    weight_map, metadata = _read_index(source, index) if index else (None, None)
    if weight_map:
        files = {name: Artifact(source.view().client, _below(source, name)) for name in sorted(set(weight_map.values()))}
        if not source.variant_json() and not _is_of_boxes(plain) and not _has_all_of(plain, files):
            return files, (index, json.dumps({"metadata": metadata, "weight_map": weight_map}).encode())
    elif variant is not None or explicit is not None:
        raise errors.invalid(f"{shown(source.reference)} has no {' and no '.join(filter(None, [single, index]))}, which transformers reads "
                             + (f"for variant={variant!r}" if explicit is None else "by its config.json"), "BAD_OPTION")
    elif not source.variant_json() and not _is_of_boxes(plain):
        _refuse_pickled(source)
    return {single or HEADER: source}, None


def _refuse_pickled(source):
    """Where transformers would read a file that the daemon does not, other files are other weights."""
    for name in _PICKLED:
        if _is_there(source, name):
            raise errors.invalid(f"{shown(source.reference)} has no {HEADER} and no {_INDEX}, so transformers reads {name} there, and "
                                 "tensorcast reads safetensors files alone: convert it, or name the safetensors file that you mean",
                                 "BAD_OPTION")


def _below(source, name):
    return f"{source.reference.rstrip('/')}/{name}"


def _is_there(source, name):
    folder, _, name = _below(source, name).rpartition("/")
    try:
        return sidecars.is_there(source.view().client, folder, name)
    except errors.TensorcastError as error:
        # a store may hide what is not there behind "forbidden"
        if error.code is StatusCode.NOT_FOUND or (error.code is StatusCode.PERMISSION_DENIED and not source.reference.startswith("disk:")):
            return False
        raise


def _read_index(source, name):
    """({tensor: file}, metadata) of an index; (None, None) where there is none, or none of safetensors files below its folder."""
    document = sidecars.document_of(source.view().client, source.reference, name)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not all(map(_is_inside, weight_map.values())):
        return None, None
    metadata = document.get("metadata")
    return weight_map, metadata if isinstance(metadata, dict) else {}


def _is_inside(name):
    return (isinstance(name, str) and name.endswith(".safetensors") and name.isprintable() and "\\" not in name
            and all(part and not part.startswith(".") for part in name.split("/")))


def _is_of_boxes(folder):
    """Whether a tensor may lie in several files, which transformers does not read."""
    try:
        return folder.facts().layout != "plain"
    except errors.TensorcastError:
        return False


def _has_all_of(folder, files):
    """Whether an artifact has the tensors of these files, of several of one name that of the last file, and no others. Raises for a
    file that is missing or damaged."""
    if len(files) > 1:
        with ThreadPoolExecutor(min(len(files), _RESOLVED_AT_ONCE)) as pool:
            list(pool.map(Artifact.facts, files.values()))
    holder = {name: file for file, artifact in files.items() for name in artifact.facts().names}
    try:
        facts = folder.facts()
        n_names = len(facts.names)
    except errors.TensorcastError:
        return False  # of the folder the daemon takes other files, or none, or not all are there
    if n_names != len(holder):
        return False
    for file, artifact in files.items():
        own, there = artifact.facts(), facts.whole_in(file)
        if any(there.get(name) != (own.dtype_number(name), tuple(own.shape(name))) for name in own.names if holder[name] == file):
            return False
    return True
