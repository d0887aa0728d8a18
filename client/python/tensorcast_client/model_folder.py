"""A folder that programs take for a model whose tensors are elsewhere: its configuration and tokenizer, fetched through the daemon,
and its tensors' names, types and shapes as a safetensors header without data.

Programs read a model's configuration before they open its weights, and know no references such as gs://.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile

from .sidecars import new_file_mode


def fetched(artifact, described, cache, header, keep=()):
    """(the folder, names of the files that came with the artifact). described: artifact.describe(). header: the name of the file
    that is a header without data. What the artifact had the last time is removed, except for `keep`."""
    folder = path_of(artifact, cache)
    names = {file.name for file in artifact.fetch_sidecars(folder)}
    tidy(folder, names | {header, *keep})
    write(folder, header, header_of(described["tensors"]))
    return folder, names


def tidy(folder, names):
    """Removes files but these."""
    kept = {name.partition("/")[0] for name in names}
    for name in set(os.listdir(folder)) - kept:
        if not name.startswith("."):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # another process does the same
                os.unlink(os.path.join(folder, name))


def default_cache(program):
    """Where the folders of a program are, such as "vllm"."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tensorcast", program)


def path_of(artifact, cache, more=b""):
    """The same for the same reference, recipe and `more`; its last part is the model's name."""
    reference, variant = artifact.reference, artifact.variant_json()
    name = reference.rstrip("/").rpartition("/")[2].partition("?")[0] or "model"
    key = reference.encode() + (b"\0" + variant if variant else b"") + more
    return os.path.join(os.path.abspath(cache), hashlib.sha256(key).hexdigest()[:16], name)


def header_of(tensors):
    """A safetensors file that ends behind its header: a reader of a tensor finds it too short, and never other bytes."""
    entries, end = {}, 0
    for tensor in tensors:
        begin, end = end, end + tensor["bytes"]
        entries[tensor["name"]] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def write(folder, name, content):
    """The file appears, or is replaced, when it is complete. Its mode is the process's default."""
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".tensorcast-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), new_file_mode())
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        os.unlink(temporary)
        raise
