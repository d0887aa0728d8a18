"""Models of the transformers library from any reference, without a copy on disk.

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from tensorcast_client.transformers import from_pretrained

    model = from_pretrained(AutoModelForCausalLM, "gs://bucket/llama", dtype="bfloat16")
    tokenizer = from_pretrained(AutoTokenizer, "gs://bucket/llama")

transformers wants a folder, so it gets one with the small files, fetched through the daemon, and files of weights that are
headers without data. Files of such folders it opens by ours instead of safetensors.safe_open; all others as before.
"""
from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

from grpc import StatusCode

from . import errors, model_files, model_folder
from .artifact import Artifact
from .shortcuts import artifact as artifact_of

# what opens safetensors files by a name of its own; accelerate opens them again for what is offloaded to disk
_OPENERS = ("transformers.modeling_utils", "transformers.modeling_layers", "transformers.integrations.accelerate", "accelerate.utils.offload")
_SHARDED = ("tp_plan", "tp_size", "distributed_config", "device_mesh")  # arguments that make each rank take its part only

# where the weights of a folder are, by the path of its header; as long as the process lives, since weights may be offloaded
_models: dict[str, Artifact] = {}


class _Weights:
    """An artifact as safetensors.safe_open shows a file."""

    def __init__(self, source):
        from .safetensors.frameworks import framework_for
        from .safetensors.opened import Opened
        self._opened = Opened(source, framework_for("torch", "cpu"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._opened.close()

    def keys(self):
        return list(self._opened.facts.names)

    offset_keys = keys

    def metadata(self):
        return dict(self._opened.facts.metadata) or None

    def get_tensor(self, name):
        return self._opened.tensor(name)

    def get_slice(self, name):
        self._opened.number(name)  # KeyError, if there is none such
        return _Slice(self._opened, name)


class _Slice:
    def __init__(self, opened, name):
        self._opened, self._name = opened, name

    def get_shape(self):
        return list(self._opened.shape(self._name))

    def get_dtype(self):
        return self._opened.dtype(self._name)

    def __getitem__(self, index):
        return self._opened.part(self._name, index)


def from_pretrained(cls: Any, reference: str | os.PathLike[str] | Artifact, *args: Any, **kwargs: Any) -> Any:
    """cls.from_pretrained(reference, *args, **kwargs) with weights and small files through the daemon.

    cls: an Auto class or a concrete one: of models, configurations, tokenizers, processors. reference: a path, "gs://bucket/llama"
    and the like, or an Artifact, also a variant. Of a folder those files are taken that transformers takes. Arguments are those of
    transformers, except for revision and subfolder, which a reference says itself ("hf://org/name@revision").

    Parameters that the model takes as they are in the checkpoint share the daemon's memory with other processes of this host until
    they are written to. With tp_plan="auto" or a DistributedConfig each rank loads its own parts, and nothing else."""
    if not hasattr(cls, "from_pretrained"):
        raise errors.invalid(f"{cls!r} has no from_pretrained", "BAD_CLASS")
    if any(base.__module__.partition(".")[0] == "diffusers" for base in getattr(cls, "__mro__", ())):
        raise errors.invalid(f"{cls.__name__} is a class of diffusers, which opens files by itself and not through this function: give it a "
                             "path, under python -m tensorcast_client run, or a folder that tensorcast folder makes", "BAD_CLASS")
    for name in ("revision", "subfolder"):
        if kwargs.pop(name, None) not in (None, "", "main"):
            raise errors.invalid(f"{name} is part of the reference: hf://org/name@revision, or the folder's own reference", "BAD_OPTION")
    kwargs.pop("disable_mmap", None)  # nothing is mapped from a file
    source = reference if isinstance(reference, Artifact) else artifact_of(reference)
    variant = kwargs.pop("variant", None)
    if model_files.is_file(source.reference):
        _check_variant(source, variant)
    has_weights = _has_weights(cls)
    folder, weights = _folder_of(source, variant, has_weights)
    if has_weights and variant is not None:
        kwargs["variant"] = variant
    if all(kwargs.get(name) is None for name in _SHARDED):
        _begin_to_load(weights)
    _install()
    return cls.from_pretrained(folder, *args, **kwargs)


def _check_variant(source, variant):
    """variant: what transformers wants in the files' names (model.fp16.safetensors); the header that it gets has a name of its own."""
    others = [] if variant is None else [file["name"] for file in source.describe()["files"] if f".{variant}" not in file["name"]]
    if others:
        raise errors.invalid(f"variant is {variant!r}, but the weights of {source.reference} are those of {min(others)}; by its path, "
                             "under python -m tensorcast_client run, transformers finds the files of a variant", "BAD_OPTION")


def _has_weights(cls):
    """Models, not configurations or tokenizers."""
    return hasattr(cls, "_model_mapping") or any(base.__name__ == "PreTrainedModel" for base in getattr(cls, "__mro__", ()))


def _begin_to_load(weights):
    """The daemon reads while transformers builds the model; a later open of the weights finds all of them, or waits for them."""
    for artifact in weights:
        try:
            artifact.prewarm(detach=True)
        except errors.TensorcastError as error:  # told again by what needs it; without room they are loaded in parts
            if error.code is not StatusCode.RESOURCE_EXHAUSTED:
                raise


def _folder_of(source, variant, has_weights):
    """(the folder that transformers gets, the artifacts that stand for the files of weights in it)"""
    cache = os.environ.get("TENSORCAST_MODEL_CACHE") or model_folder.default_cache("transformers")
    folder = model_folder.path_of(source, cache, b"" if variant is None else b"\0" + str(variant).encode())
    names = {file.name for file in source.fetch_sidecars(folder)}
    if not has_weights:
        return folder, ()
    weights = model_files.taken(source, variant, names)
    headers = {name: model_folder.header_of(artifact.describe()["tensors"]) for name, artifact in weights.artifacts.items()}
    files = {**headers, **dict([weights.index] if weights.index else [])}
    model_folder.tidy(folder, names | files.keys())
    for name, content in files.items():
        model_folder.write(folder, name, content)
    _models.update((os.path.join(folder, name), artifact) for name, artifact in weights.artifacts.items())
    return folder, weights.artifacts.values()


def _install():
    """Puts open_weights() where transformers looks for safe_open."""
    needed = importlib.import_module(_OPENERS[0])  # which imports the others as far as they are installed
    if not hasattr(needed, "safe_open"):
        raise errors.make(StatusCode.UNIMPLEMENTED, f"{_OPENERS[0]} has no safe_open, by which transformers 5.0 to 5.24 open files; "
                          "tensorcast_client.torch.StateDict works with any version", "UNKNOWN_VERSION")
    for name in _OPENERS:
        official = getattr(sys.modules.get(name), "safe_open", None)
        if official is not None and not hasattr(official, "of_tensorcast_models"):
            sys.modules[name].safe_open = _dispatching(official)


def _dispatching(official):
    @functools.wraps(official, updated=())
    def safe_open(filename, *args, **kwargs):
        source = _models.get(os.fspath(filename))
        if source is not None:
            return _Weights(source)
        return sys.modules["safetensors"].safe_open(filename, *args, **kwargs)  # the official one, or what patch() has put there

    safe_open.of_tensorcast_models = True
    return safe_open
