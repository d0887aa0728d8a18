"""Samples of an activation store, read back through the daemon: some at a time, the next ones while these are used."""
from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from . import errors
from .messages import FetchSidecarsRequest, SidecarEvent
from .wire import DecodeError

_NAME = re.compile(r"layer_(\d+)/sample_(\d{8})")
_BATCH_BYTES = 64 << 20


def read(client, reference, layers):
    """(sample, {layer: array}) of each sample; a generator."""
    wanted = None if layers is None else {int(layer) for layer in layers}
    artifact = client.artifact(reference)
    batches = list(_batches(client, artifact, wanted))
    with ThreadPoolExecutor(1, "tensorcast-samples") as pool:
        coming = pool.submit(_load, artifact, batches[0]) if batches else None
        for at in range(len(batches)):
            samples = coming.result()
            coming = pool.submit(_load, artifact, batches[at + 1]) if at + 1 < len(batches) else None
            yield from samples
            del samples


def _batches(client, artifact, wanted):
    """Lists of (sample, [(layer, name, is narrowed)]) of about _BATCH_BYTES, in the order of the files."""
    told = artifact.describe()
    narrowed = _narrowed_names(client, artifact.reference, [file["name"] for file in told["files"]])
    batch, size, last = [], 0, None
    for tensor in told["tensors"]:
        name = tensor["name"]
        found = _NAME.fullmatch(name)
        if not found:
            raise errors.invalid(f"{artifact.reference} is no activation store: it has a tensor {name}", "NOT_A_STORE")
        layer, sample = int(found[1]), int(found[2])
        if wanted is not None and layer not in wanted:
            continue
        if (tensor["file"], sample) != last:
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append((sample, []))
            last = tensor["file"], sample
        batch[-1][1].append((layer, name, name in narrowed))
        size += tensor["bytes"]
    if batch:
        yield batch


def _load(artifact, batch):
    names = [name for _, planes in batch for _, name, _ in planes]
    tensors = artifact.subset(names).tensor_dict(framework="numpy")
    return [(sample, {layer: _widened(tensors[name]) if narrowed else tensors[name] for layer, name, narrowed in planes})
            for sample, planes in batch]


def _widened(array):
    """32-bit floats of their upper halves."""
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(array.shape)


def _narrowed_names(client, reference, files):
    """The names that the manifests beside these files mark as narrowed."""
    folders = {file.rpartition("/")[0] for file in files}
    single = re.search(r"/segment_\d{6}\.safetensors$", reference)
    base = reference[:single.start()] if single else reference
    narrowed = set()
    for folder in sorted(folders):
        manifest = _manifest(client, f"{base}/{folder}" if folder else base)
        for segment in manifest.get("segments", ()):
            narrowed.update(segment.get("narrowed", ()))
    return narrowed


def _manifest(client, reference):
    parts, call = [], client.channel.stream("FetchSidecars", FetchSidecarsRequest.encode(artifact=reference, names=["manifest.json"]), None)
    try:
        for data in call:
            event = SidecarEvent.decode(data)
            if event.chunk is not None:
                parts.append(event.chunk.data)
        return json.loads(b"".join(parts))
    except grpc.RpcError as error:
        error.__traceback__ = None
        raise errors.from_rpc(error, client.socket_path) from None
    except (DecodeError, ValueError) as error:
        raise errors.bad_answer(error) from None
    finally:
        call.cancel()
