"""A folder that vLLM takes for a model whose tensors are elsewhere: its configuration and tokenizer, fetched through the
daemon, and a note that says where the tensors are.

vLLM reads a model's configuration before it asks any loader, and refuses references such as gs:// for load formats it does
not know. So the small files have to be in a folder first: `vllm serve "$(tensorcast-vllm gs://bucket/llama)" ...`.
"""
from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import NamedTuple, Optional

import tensorcast_client as tc

NOTE = "tensorcast.json"
_NEEDED = "config.json"


class Origin(NamedTuple):
    """Where the tensors of a model folder are. identity: the checkpoint's when the folder was made, None for its own files."""

    artifact: str
    identity: Optional[str]

    @property
    def folder(self):
        """The folder of this host that has the tensors, None when they are elsewhere."""
        return self.artifact[len("disk:"):] if self.artifact.startswith("disk:") else None


def prepare(reference, socket=None, cache=None):
    """Fetches the sidecars of an artifact and returns the folder, to be given to vLLM as the model."""
    with tc.connect(socket) as client:
        artifact = client.artifact(reference)
        identity = artifact.describe()["identity"]
        folder = _folder_of(reference, cache)
        fetched = {file.name for file in artifact.fetch_sidecars(folder)}
    if _NEEDED not in fetched:
        raise ValueError(f"{reference} has no {_NEEDED}, without which vLLM cannot know the model")
    for name in set(os.listdir(folder)) - fetched - {NOTE}:
        if not name.startswith("."):
            os.unlink(os.path.join(folder, name))  # the artifact had it the last time
    _write_note(folder, Origin(reference, identity))
    return folder


def origin_of(model):
    """The Origin of what vLLM calls the model."""
    if not os.path.isdir(model):
        raise ValueError(f"--load-format tensorcast takes a folder, and {model} is none; for a model elsewhere give vLLM the "
                         f"folder that this prints: tensorcast-vllm {model if ':' in model else 'hf://' + model}")
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


def _folder_of(reference, cache):
    """The same for the same reference; its last part is the model's name, which vLLM serves it under."""
    if cache is None:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tensorcast", "vllm")
    name = reference.rstrip("/").rpartition("/")[2].partition("?")[0] or "model"
    return os.path.join(os.path.abspath(cache), hashlib.sha256(reference.encode()).hexdigest()[:16], name)


def _write_note(folder, origin):
    handle, temporary = tempfile.mkstemp(prefix=".tensorcast-", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(origin._asdict(), file)
    os.replace(temporary, os.path.join(folder, NOTE))
