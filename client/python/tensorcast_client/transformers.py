"""Models of the transformers library from any reference, without a copy on disk.

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from tensorcast_client.transformers import from_pretrained

    model = from_pretrained(AutoModelForCausalLM, "gs://bucket/llama", dtype="bfloat16")
    tokenizer = from_pretrained(AutoTokenizer, "gs://bucket/llama")

transformers wants a folder, so it gets one with the small files, fetched through the daemon, and a model.safetensors that is a
header without data. Files of such folders it opens by ours instead of safetensors.safe_open; all others as before.
"""
from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from typing import Any

from grpc import StatusCode

from . import errors, model_folder
from .artifact import Artifact
from .lazy_file import LazyFile
from .shortcuts import artifact as artifact_of

_HEADER = "model.safetensors"
_INDEX = "model.safetensors.index.json"  # of an artifact of several files; transformers would look for them
# what opens safetensors files by a name of its own; accelerate opens them again for what is offloaded to disk
_OPENERS = ("transformers.modeling_utils", "transformers.modeling_layers", "transformers.integrations.accelerate", "accelerate.utils.offload")
_SHARDED = ("tp_plan", "tp_size", "distributed_config", "device_mesh")  # arguments that make each rank take its part only

_lock = threading.Lock()
_models: dict[str, _Model] = {}  # by the path of its header; as long as the process lives, since weights may be offloaded


class _Model:
    """Where the weights of a folder are."""

    def __init__(self, source, by_parts):
        self.source, self.by_parts = source, by_parts


def from_pretrained(cls: Any, reference: str | os.PathLike[str] | Artifact, *args: Any, **kwargs: Any) -> Any:
    """cls.from_pretrained(reference, *args, **kwargs) with weights and small files through the daemon.

    cls: an Auto class or a concrete one: of models, configurations, tokenizers, processors. reference: a path, "gs://bucket/llama"
    and the like, or an Artifact, also a variant. Arguments are those of transformers, but for revision and subfolder, which a
    reference says itself ("hf://org/name@revision").

    Parameters that the model takes as they are in the checkpoint share the daemon's memory with other processes of this host until
    they are written to. With tp_plan="auto" or a DistributedConfig each rank loads its own parts, and nothing else."""
    if not hasattr(cls, "from_pretrained"):
        raise errors.invalid(f"{cls!r} has no from_pretrained", "BAD_CLASS")
    for name in ("revision", "subfolder"):
        if kwargs.pop(name, None) not in (None, "", "main"):
            raise errors.invalid(f"{name} is part of the reference: hf://org/name@revision, or the folder's own reference", "BAD_OPTION")
    kwargs.pop("disable_mmap", None)  # nothing is mapped from a file
    source = reference if isinstance(reference, Artifact) else artifact_of(reference)
    folder = _folder_of(source, any(kwargs.get(name) is not None for name in _SHARDED))
    _install()
    return cls.from_pretrained(folder, *args, **kwargs)


def _folder_of(source, by_parts):
    cache = os.environ.get("TENSORCAST_MODEL_CACHE") or model_folder.default_cache("transformers")
    folder, _ = model_folder.fetched(source, source.describe(), cache, _HEADER, without=(_INDEX,))
    with _lock:
        _models[os.path.join(folder, _HEADER)] = _Model(source, by_parts)
    return folder


def _install():
    """Puts open_weights() where transformers looks for safe_open."""
    needed = importlib.import_module(_OPENERS[0])  # which imports the others as far as they are installed
    if not hasattr(needed, "safe_open"):
        raise errors.make(StatusCode.UNIMPLEMENTED, f"{_OPENERS[0]} has no safe_open, by which transformers 5.0 to 5.23 open files; "
                          "tensorcast_client.torch.StateDict works with any version", "UNKNOWN_VERSION")
    for name in _OPENERS:
        official = getattr(sys.modules.get(name), "safe_open", None)
        if official is not None and not hasattr(official, "of_tensorcast_models"):
            sys.modules[name].safe_open = _dispatching(official)


def _dispatching(official):
    @functools.wraps(official, updated=())
    def safe_open(filename, *args, **kwargs):
        model = _models.get(os.fspath(filename))
        if model is None:
            return official(filename, *args, **kwargs)
        return LazyFile(model.source, model.by_parts)

    safe_open.of_tensorcast_models = True
    return safe_open
