"""Samples of an activation store, read back through the daemon: some at a time, the next ones while these are used."""
from __future__ import annotations

import contextlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from . import errors
from .activation_messages import SERVICE, DescribeActivationsRequest, DescribeActivationsResponse
from .messages import FetchSidecarsRequest, SidecarEvent
from .wire import DecodeError

_NAME = re.compile(r"layer_(\d+)/sample_(\d{8})")
_SEGMENT, _HOST = re.compile(r"/segment_\d{6}\.safetensors$"), re.compile(r"/host_\d{3,5}$")
_BATCH_BYTES = 64 << 20
_LAG_S = 5.0  # a manifest may be so far behind a segment that has just been sealed, or that a crash has left


_LOOKS, _PAUSE_S = 5, 0.05  # in a row that found nothing new to read, of a store that is written to, or goes to its bucket, meanwhile


def read(client, reference, wanted):
    """(sample, {layer: array}) of each sample, of the layers `wanted` or, with None, of all; a generator. Segments that were uploaded
    and are not here any more come from their bucket, behind the others. One that goes there while this reads is looked for again."""
    read, looks = set(), 0  # (host, segment, sample)
    if not reference.startswith("disk:"):
        reference = reference.rstrip("/")  # names are put behind it
    while True:
        coming = _read_once(client, reference, wanted, read)
        try:
            for samples in coming:
                looks = 0
                for place, sample, arrays in samples:
                    read.add(place)
                    yield sample, arrays
                del samples
            return
        except _Moved as moved:
            looks += 1
            if looks == _LOOKS:
                raise moved.cause from None
            time.sleep(_PAUSE_S)
        finally:
            coming.close()


class _Moved(Exception):
    def __init__(self, cause):
        super().__init__()
        self.cause = cause


def _read_once(client, reference, wanted, read):
    """A list of (place, sample, {layer: array}) for each batch of what is not read yet."""
    try:
        parts = list(_parts(client, reference))
    except errors.TensorcastError as error:
        is_none = isinstance(error, errors.ArtifactNotFoundError) and not read
        raise _Moved(error) if _may_have_moved(error) and not is_none else error from None
    batches = [(artifact, batch) for artifact, told, narrowed in parts for batch in _batches(artifact, told, narrowed, wanted, read)]
    with ThreadPoolExecutor(1, "tensorcast-samples") as pool:
        coming = pool.submit(_load, *batches[0]) if batches else None
        for at in range(len(batches)):
            try:
                samples = _result(coming, batches[at])
            except errors.TensorcastError as error:
                raise _Moved(error) if _may_have_moved(error) else error from None
            coming = pool.submit(_load, *batches[at + 1]) if at + 1 < len(batches) else None
            yield samples
            del samples


def _result(coming, batch):
    """What was too much beside the samples before these, which were still held, may fit now that these are asked for."""
    try:
        return coming.result()
    except errors.TensorcastError as error:
        if error.code != grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
    return _load(*batch)


def _may_have_moved(error):
    gone = (errors.ArtifactNotFoundError, errors.TensorNotFoundError)
    return isinstance(error, gone) or error.code == grpc.StatusCode.FAILED_PRECONDITION


def _parts(client, reference):
    """(artifact, what describe() says, names of narrowed tensors): of all that is here, and of each segment that is not."""
    artifact = client.artifact(reference)
    try:
        told = artifact.describe()
    except errors.ArtifactNotFoundError as error:
        told, missing = None, error
    found = _folders(client, reference, told)
    folders = [(names, _manifest(client, folder, names)) for folder, names in found]
    segments = [segment for _, manifest in folders for segment in manifest.get("segments", ())]
    gone = [segment for here, manifest in folders for segment in manifest.get("segments", ())
            if segment.get("local") is False and segment["file"] not in here and not _SEGMENT.search(reference)]
    _check_here(client, reference, folders, [folder for folder, _ in found])
    if told is not None:
        yield artifact, told, {name for segment in segments for name in segment.get("narrowed", ())}
    elif not gone and (not found or missing.reason != "NO_CHECKPOINT"):
        raise missing  # else there are hosts, and none of them has sealed anything yet
    for segment in gone:
        yield _uploaded(client, segment)


def _check_here(client, reference, folders, names):
    """What a manifest says is here, and is not, is lost, unless it came, or was uploaded and went, since the folder was listed."""
    if _SEGMENT.search(reference):
        return
    for (here, manifest), folder in zip(folders, names):
        lost = {segment["file"] for segment in manifest.get("segments", ()) if segment.get("local") is not False} - here
        if not lost:
            continue
        with contextlib.suppress(errors.ArtifactNotFoundError):
            lost -= {file["name"].rpartition("/")[2] for file in client.artifact(folder).describe()["files"]}
        lost &= {segment["file"] for segment in (_read_manifest(client, folder) or {}).get("segments", ()) if segment.get("local") is not False}
        if lost:
            message = f"{folder}/{min(lost)} is gone, and the manifest says that it is here; put it back, or remove manifest.json as well"
            raise errors.make(grpc.StatusCode.DATA_LOSS, message, "SEGMENT_GONE")


def _uploaded(client, segment):
    artifact = client.artifact(segment["uploaded"])
    told = artifact.describe()
    size = sum(file["bytes"] for file in told["files"])
    if size != segment["bytes"]:
        message = f"{artifact.reference} has {size} bytes, and the manifest says {segment['bytes']}"
        raise errors.make(grpc.StatusCode.DATA_LOSS, message, "SEGMENT_CHANGED")
    return artifact, told, set(segment.get("narrowed", ()))


def _folders(client, reference, told):
    """(reference, names of its segments that are here) of each host's folder."""
    if _SEGMENT.search(reference):
        folder, _, name = reference.rpartition("/")
        return [(folder, {name})]
    here = {} if _HOST.search(reference) else {f"host_{host:03}": set() for host in _known_hosts(client, reference)}
    for file in told["files"] if told else ():
        folder, _, name = file["name"].rpartition("/")
        here.setdefault(folder, set()).add(name)
    if _HOST.search(reference):
        return [(reference, here.get("", set()))]
    return [(f"{reference}/{name}" if name else reference, here[name]) for name in sorted(here)]


def _known_hosts(client, reference):
    """Also those of which nothing is here any more: the daemon that has uploaded them knows. One that may not write there has
    uploaded nothing."""
    try:
        data = client.channel.call(f"{SERVICE}/Describe", DescribeActivationsRequest.encode(store=reference), client.timeout)
        return [host.host for host in DescribeActivationsResponse.decode(data).hosts]
    except (errors.TensorcastError, DecodeError):
        return []


def _batches(artifact, told, narrowed, wanted, read):
    """Lists of (place, [(layer, name, is narrowed)]) of about _BATCH_BYTES, in the order of the files."""
    samples, sizes = {}, {}  # by place
    for tensor in told["tensors"]:
        name = tensor["name"]
        found = _NAME.fullmatch(name)
        if not found:
            raise errors.invalid(f"{artifact.reference} is no activation store: it has a tensor {name}", "NOT_A_STORE")
        layer, sample = int(found[1]), int(found[2])
        place = (*_host_and_segment(artifact.reference, tensor["file"]), sample)
        if place in read or wanted is not None and layer not in wanted:
            continue
        samples.setdefault(place, []).append((layer, name, name in narrowed))
        sizes[place] = sizes.get(place, 0) + tensor["bytes"]
    batch, size = [], 0
    for place, planes in samples.items():
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((place, planes))
        size += sizes[place]
    if batch:
        yield batch


def _host_and_segment(reference, file):
    """Of a store, a host's folder or a segment: the same wherever a segment lies."""
    path = reference if _SEGMENT.search(reference) else f"{reference}/{file}"
    return path.rsplit("/", 2)[1:]


def _load(artifact, batch):
    names = [name for _, planes in batch for _, name, _ in planes]
    tensors = artifact.subset(names).tensor_dict(framework="numpy")
    return [(place, place[-1], {layer: _widened(tensors[name]) if narrowed else tensors[name] for layer, name, narrowed in sorted(planes)})
            for place, planes in batch]


def _widened(array):
    """32-bit floats of their upper halves."""
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(array.shape)


def _manifest(client, reference, here):
    """Of a host's folder, with all of the segments that are `here`: it says which arrays were narrowed, so nothing is read without
    it. A host that has sealed nothing yet has none."""
    end = time.monotonic() + _LAG_S
    while True:
        manifest = _read_manifest(client, reference) or {}
        missing = here - {segment["file"] for segment in manifest.get("segments", ())}
        if not missing:
            return manifest
        if time.monotonic() > end:
            message = f"{reference}/manifest.json does not describe {min(missing)}; 'tensorcast activations verify' says more"
            raise errors.make(grpc.StatusCode.DATA_LOSS, message, "MANIFEST_BEHIND")
        time.sleep(0.05)


def _checked(reference, text):
    """A manifest of what this reads of it: it may come from a bucket, and from anybody."""
    try:
        manifest = json.loads(text)
        segments = manifest["segments"]
        whole = all(isinstance(s["file"], str) and isinstance(s["bytes"], int) and isinstance(s.get("uploaded", ""), str) and
                    all(isinstance(name, str) for name in s.get("narrowed", ())) for s in segments)
        if whole and manifest["format"] == "tensorcast-activations" and all("uploaded" in s for s in segments if s.get("local") is False):
            return manifest
        complaint = "it is no manifest of activations"
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        complaint = error
    message = f"{reference}/manifest.json is damaged: {complaint}; removed, it is made anew from the segments that are here"
    raise errors.make(grpc.StatusCode.DATA_LOSS, message, "BAD_MANIFEST")


def _read_manifest(client, reference):
    parts, call = [], client.channel.stream("FetchSidecars", FetchSidecarsRequest.encode(artifact=reference, names=["manifest.json"]), None)
    try:
        for data in call:
            event = SidecarEvent.decode(data)
            if event.chunk is not None:
                parts.append(event.chunk.data)
        return _checked(reference, b"".join(parts))
    except grpc.RpcError as error:
        error.__traceback__ = None
        if error.code() == grpc.StatusCode.NOT_FOUND:
            return None
        raise errors.from_rpc(error, client.socket_path) from None
    except DecodeError as error:
        raise errors.bad_answer(error) from None
    finally:
        call.cancel()
