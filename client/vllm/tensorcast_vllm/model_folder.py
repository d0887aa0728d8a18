"""A folder that vLLM takes for a model whose tensors are elsewhere: its configuration and tokenizer, fetched through the
daemon, a note that says where the tensors are, and their names, types and shapes as a safetensors header without data.

vLLM reads a model's configuration before it asks any loader, and knows no references such as gs:// for load formats that are
not its own. So the small files have to be in a folder first; see references.py and __main__.py for who makes it.
"""
from __future__ import annotations

import json
import os
import re
from typing import NamedTuple, Optional

import tensorcast_client as tc
from tensorcast_client import model_folder as shared
from tensorcast_client import sidecars
from tensorcast_client.redact import shown

NOTE = "tensorcast.json"
HEADER = "header.safetensors"
_NEEDED = "config.json"
# of a configuration, what two checkpoints of one model may say differently
_NO_MATTER = ("_commit_hash", "_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache")


class Origin(NamedTuple):
    """Where the tensors of a model folder are. identity: the checkpoint's when the folder was made, None for its own files."""

    artifact: str
    identity: Optional[str]

    @property
    def folder(self):
        """The folder of this host that has the tensors, None when they are elsewhere."""
        return self.artifact[len("disk:"):] if self.artifact.startswith("disk:") else None

    def check(self, identity):
        """Fails when the checkpoint is no longer the one that the configuration belongs to."""
        if self.identity not in (None, identity):
            raise ValueError(f"{shown(self.artifact)} was changed since its configuration was fetched; start again with the "
                             f"reference, or with the folder that this prints: tensorcast-vllm {shown(self.artifact)}")


def with_variant(artifact, options):
    """The artifact as the LoaderOptions want it; None for none."""
    if options is None or options.variant is None:
        return artifact
    return artifact.variant(options.variant, set=options.variant_set)


def prepare(reference, socket=None, cache=None, options=None):
    """Fetches the sidecars of an artifact and returns the folder, to be given to vLLM as the model. options: LoaderOptions,
    which may make another one of it."""
    with tc.connect(socket) as client:
        artifact = with_variant(client.artifact(reference), options)
        reference = artifact.reference
        described = artifact.describe()
        folder, fetched = shared.fetched(artifact, described, cache or shared.default_cache("vllm"), HEADER, keep=(NOTE,))
    if _NEEDED not in fetched:
        raise ValueError(f"{reference} has no {_NEEDED}, without which vLLM cannot know the model")
    shared.write(folder, NOTE, json.dumps(Origin(reference, described["identity"])._asdict()).encode())
    return folder


def origin_of(model):
    """The Origin of what vLLM calls the model."""
    if not os.path.isdir(model):
        of_hub = f"; a model of the Hugging Face hub is hf://{model}" if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else ""
        raise ValueError(f"--load-format tensorcast takes a folder or a reference such as gs://bucket/llama, and there is no "
                         f"folder {model} on this host{of_hub}")
    path = os.path.join(model, NOTE)
    if not os.path.exists(path):
        return Origin("disk:" + os.path.abspath(model), None)
    try:
        with open(path, encoding="utf-8") as file:
            note = json.load(file)
        origin = Origin(note["artifact"], note["identity"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); make the folder again with tensorcast-vllm") from None
    if not all(isinstance(value, str) and value for value in origin):
        raise ValueError(f"{path} is damaged; make the folder again with tensorcast-vllm")
    return origin


def config_of(client, origin):
    """What a checkpoint's config.json says of the model, None when it cannot be had."""
    try:
        config = sidecars.config_of(client, origin.artifact)
    except tc.TensorcastError:
        return None
    return {key: value for key, value in config.items() if key not in _NO_MATTER} or None
