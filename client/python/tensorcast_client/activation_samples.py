"""Samples of an activation store, read back through the daemon: some at a time, the next ones while these are used."""
from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from . import errors, sidecars
from .activation_messages import SERVICE, DescribeActivationsRequest, DescribeActivationsResponse
from .json_pieces import JsonPieces
from .messages import FetchSidecarsRequest
from .wire import DecodeError

_NAME, _NUMBER = re.compile(r"layer_(\d+)/sample_(\d{8})"), re.compile(r"segment_(\d{6})\.safetensors")
_SEGMENT, _HOST = re.compile(r"/segment_(\d{6})\.safetensors$"), re.compile(r"/host_\d{3,5}$")
_LAST_SEGMENT = 999_999
_BATCH_BYTES = 64 << 20
# What is one artifact: neither descriptors nor memory, here or in the daemon, grow with the store.
_PAGE_SEGMENTS, _PAGE_ARRAYS, _PAGE_BYTES = 128, 1 << 16, 256 << 20
_LAG_S = 5.0  # a manifest may be so far behind a segment that has just been sealed, or that a crash has left
_LOOKS, _PAUSE_S = 5, 0.05  # in a row that found nothing new to read, of a store whose segments go to their bucket meanwhile


def read(client, reference, wanted):
    """(sample, {layer: array}) of each sample, as placed() finds them."""
    for (_, sample), arrays in placed(client, reference, wanted):
        yield sample, arrays


def placed(client, reference, wanted):
    """((segment's file, sample), {layer: array}) of each sample, of the layers `wanted` or, with None, of all; a generator, in the order
    of hosts and segments. Those that were uploaded and are not here any more come from their bucket, also when they went while this
    reads."""
    batches = _batches(client, reference if reference.startswith("disk:") else reference.rstrip("/"), wanted)
    with ThreadPoolExecutor(1, "tensorcast-samples") as pool:
        coming = pool.submit(_load_next, batches)
        while True:
            try:
                samples = coming.result()
            except _TooMuchError as much:  # beside the samples before these, which were still held: it may fit now
                samples = _load_again(batches, much.batch)
            if samples is None:
                return
            coming = pool.submit(_load_next, batches)
            yield from samples
            del samples


class _MovedError(Exception):
    def __init__(self, cause):
        super().__init__()
        self.cause = cause


class _TooMuchError(Exception):
    def __init__(self, batch, cause):
        super().__init__()
        self.batch, self.cause = batch, cause


def _load_next(batches, batch=None):
    """The samples of the next batch, or of this one; None behind the last one. One that went meanwhile is looked for again."""
    try:
        batch = batch or next(batches)
        while True:
            try:
                return _load(*batch)
            except errors.TensorcastError as error:
                if error.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise _TooMuchError(batch, error) from None
                if not _may_have_moved(error):  # files of a folder are named without it
                    message = f"{batch[0].reference}: {error.message}"
                    raise errors.make(error.code, message, error.reason, error.metadata) from None
                batch = batches.throw(_MovedError(error))
    except StopIteration:
        return None


def _load_again(batches, batch):
    try:
        return _load_next(batches, batch)
    except _TooMuchError as much:
        raise much.cause from None


def _may_have_moved(error):
    gone = (errors.ArtifactNotFoundError, errors.TensorNotFoundError)
    return isinstance(error, gone) or error.code == grpc.StatusCode.FAILED_PRECONDITION


def _batches(client, reference, wanted):
    """(artifact, batch) as _load() takes them, each of them loaded when the next one is asked for, or thrown back as moved."""
    seen, segment = _Seen(), _SEGMENT.search(reference)
    if segment:
        number = int(segment[1])
        yield from _of_folder(client, reference[:segment.start()], (number, number, reference), wanted, seen)
        return
    hosts = [] if _HOST.search(reference) else hosts_of(client, reference)
    n_found = 0
    for folder in [f"{reference}/host_{host:03}" for host in hosts] or [reference]:
        n_found += yield from _of_folder(client, folder, (1, _LAST_SEGMENT, None), wanted, seen)
    if not n_found and not hosts:
        _check_empty(client, reference)


def _check_empty(client, reference):
    """A host that has sealed nothing yet has no samples, and what is no store is an error."""
    try:
        names = client.artifact(reference).tensor_names
    except errors.ArtifactNotFoundError as error:
        if error.reason != "NO_CHECKPOINT" or not _HOST.search(reference):
            raise
    else:
        raise errors.invalid(f"{reference} is no activation store: it has {f'a tensor {names[0]}' if names else 'no tensors'}", "NOT_A_STORE")


def hosts_of(client, reference):
    data = client.channel.call(f"{SERVICE}/Describe", DescribeActivationsRequest.encode(store=reference, hosts_only=True), client.timeout)
    try:
        return [host.host for host in DescribeActivationsResponse.decode(data).hosts]
    except DecodeError as error:
        raise errors.bad_answer(error) from None


class _Seen:
    """Which arrays were read: a name is in one place, or what is read is not one store. Bits, since there may be many millions."""

    def __init__(self):
        self._bits = {}  # by layer and 1024 samples

    def check(self, folder, batch):
        for place, planes in batch:
            for layer, name, _ in planes:
                if self._bits.get((layer, place[1] >> 10), 0) >> (place[1] & 1023) & 1:
                    message = f"tensor {name} of {folder}/{place[0]} is in another segment, too; 'tensorcast activations merge' names both"
                    raise errors.make(grpc.StatusCode.DATA_LOSS, message, "DUPLICATE_TENSOR")

    def add(self, batch):
        for (_, sample), planes in batch:
            for layer, _, _ in planes:
                key = layer, sample >> 10
                self._bits[key] = self._bits.get(key, 0) | 1 << (sample & 1023)


def _of_folder(client, folder, span, wanted, seen):
    """The batches of one host's segments whose numbers are in `span`, some segments at a time; returns how many segments there are."""
    number, looks, n_found, loaded = span[0], 0, 0, set()  # loaded: (segment, sample) from `number` on
    while True:
        try:
            for page in _pages(manifest_of(client, folder), number, span):
                n_here = 0
                for artifact, tensors, narrowed in _parts(client, folder, page):
                    n_here += 1
                    for batch in _cut(artifact, tensors, narrowed, wanted, loaded):
                        seen.check(folder, batch)
                        yield artifact, batch
                        seen.add(batch)
                        loaded.update(place for place, _ in batch)
                        looks = 0
                number, n_found = page.last + 1, n_found + n_here
                loaded.clear()
            return n_found
        except _MovedError as moved:
            looks += 1
            if looks == _LOOKS:
                raise moved.cause from None
            time.sleep(_PAUSE_S)


class _Page:
    """Segments from one number to another. `told`: what the manifest says of them, by number."""

    def __init__(self, first, last, told, alone):
        self.first, self.last, self.told, self.alone = first, last, told, alone


def _pages(manifest, first, span):
    """All numbers from `first` to the end of the span: what no manifest lists is found, too."""
    told, n_arrays, n_bytes = {}, 0, 0
    for number in sorted(manifest):
        segment = manifest[number]
        if not first <= number <= span[1]:
            continue
        told[number] = segment
        n_arrays, n_bytes = n_arrays + segment["arrays"], n_bytes + segment["bytes"]
        if len(told) >= _PAGE_SEGMENTS or n_arrays >= _PAGE_ARRAYS or n_bytes >= _PAGE_BYTES:
            yield _Page(first, number, told, span[2])
            first, told, n_arrays, n_bytes = number + 1, {}, 0, 0
    if first <= span[1]:
        yield _Page(first, span[1], told, span[2])


def _parts(client, folder, page):
    """(artifact, its tensors, names of narrowed ones), in the order of segments: of those that lie here, and of each that does not."""
    artifact = client.artifact(page.alone or f"{folder}/segment_{page.first:06}-{page.last:06}")
    try:
        tensors = artifact.describe()["tensors"]
    except errors.ArtifactNotFoundError as error:
        if error.reason != "NO_CHECKPOINT" and not (page.alone and page.told):
            raise (_MovedError(error) if page.told else error) from None
        tensors = []
    except errors.TensorcastError as error:
        raise _MovedError(error) if _may_have_moved(error) else error from None
    here = {}
    for tensor in tensors:
        here.setdefault(_number(artifact, tensor), []).append(tensor)
    _complete(client, folder, page, here)
    run = []
    for number in sorted({*here, *page.told}):
        if number in here:
            run.append(number)
            continue
        if run:
            yield _part_here(artifact, page, here, run)
        run = []
        yield _uploaded(client, page.told[number])
    if run:
        yield _part_here(artifact, page, here, run)


def _part_here(artifact, page, here, numbers):
    return artifact, [tensor for number in numbers for tensor in here[number]], {name for n in numbers for name in page.told[n]["narrowed"]}


def _number(artifact, tensor):
    found = _NUMBER.fullmatch(tensor["file"].rpartition("/")[2])
    if not found:
        raise errors.invalid(f"{artifact.reference} is no activation store: it has a tensor {tensor['name']}", "NOT_A_STORE")
    return int(found[1])


def _complete(client, folder, page, here):
    """Waits for a manifest that lists all that are here: it says which arrays were narrowed. What it says is here, and is not, is
    lost, unless it was uploaded and went meanwhile, or comes back. Segments that were sealed after the folder was listed are left
    out: they are behind all that were there."""
    end, before, last = time.monotonic() + _LAG_S, set(page.told), max(here, default=0)
    while missing := here.keys() - page.told.keys():
        if time.monotonic() > end:
            message = f"{folder}/manifest.json does not describe segment_{min(missing):06}.safetensors; 'tensorcast activations verify' says more"
            raise errors.make(grpc.StatusCode.DATA_LOSS, message, "MANIFEST_BEHIND")
        time.sleep(_PAUSE_S)
        page.told = {number: segment for number, segment in manifest_of(client, folder).items()
                     if page.first <= number <= page.last and (number <= last or number in before)}
    lost = [number for number, segment in page.told.items() if number not in here and segment["local"]]
    if lost:
        message = (f"{folder}/segment_{min(lost):06}.safetensors is gone, and the manifest says that it is here; put it back, or remove "
                   "manifest.json as well")
        raise _MovedError(errors.make(grpc.StatusCode.DATA_LOSS, message, "SEGMENT_GONE"))


def _uploaded(client, segment):
    artifact = client.artifact(segment["uploaded"])
    try:
        told = artifact.describe()
    except errors.TensorcastError as error:
        raise _MovedError(error) if _may_have_moved(error) else error from None
    size = sum(file["bytes"] for file in told["files"])
    if size != segment["bytes"]:
        message = f"{artifact.reference} has {size} bytes, and the manifest says {segment['bytes']}"
        raise errors.make(grpc.StatusCode.DATA_LOSS, message, "SEGMENT_CHANGED")
    return artifact, told["tensors"], set(segment["narrowed"])


def _cut(artifact, tensors, narrowed, wanted, loaded):
    """Lists of ((segment, sample), [(layer, name, is narrowed)]) of about _BATCH_BYTES, in the order of the files."""
    samples, sizes = {}, {}  # by place
    for tensor in tensors:
        name = tensor["name"]
        found = _NAME.fullmatch(name)
        if not found:
            raise errors.invalid(f"{artifact.reference} is no activation store: it has a tensor {name}", "NOT_A_STORE")
        layer, sample = int(found[1]), int(found[2])
        place = tensor["file"].rpartition("/")[2], sample
        if place in loaded or wanted is not None and layer not in wanted:
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


def _load(artifact, batch):
    names = [name for _, planes in batch for _, name, _ in planes]
    tensors = artifact.subset(names).tensor_dict(framework="numpy")
    return [(place, {layer: _widened(tensors[name]) if narrowed else tensors[name] for layer, name, narrowed in sorted(planes)})
            for place, planes in batch]


def _widened(array):
    """32-bit floats of their upper halves."""
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(array.shape)


def add_segment(manifest, segment):
    """What reading needs of a segment that the manifest lists."""
    name, size, uploaded = segment["file"], segment["bytes"], segment.get("uploaded")
    narrowed, sums, local = segment.get("narrowed", ()), segment.get("array_crc32c", ""), segment.get("local") is not False
    texts = [name, sums, *narrowed, *([] if uploaded is None and local else [uploaded])]
    if not isinstance(size, int) or not all(isinstance(text, str) for text in texts):
        raise ValueError("it is no manifest of activations")
    found = _NUMBER.fullmatch(name)
    if found:
        manifest[int(found[1])] = {"bytes": size, "local": local, "uploaded": uploaded, "narrowed": narrowed, "arrays": len(sums) // 8}


def manifest_of(client, folder, add=add_segment):
    """{number: what is needed of a segment} of a host's folder; a host that has sealed nothing yet has none. Each segment that is
    sealed makes a new one: what was replaced while it was read is read again."""
    end = time.monotonic() + _LAG_S
    while True:
        try:
            told = sidecars.events(client, FetchSidecarsRequest.encode(artifact=folder, names=["manifest.json"]))
            return segments_in(folder, (event.chunk.data for event in told if event.chunk is not None), add)
        except errors.ArtifactNotFoundError:
            return {}
        except errors.TensorcastError as error:
            if error.code != grpc.StatusCode.FAILED_PRECONDITION or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_S)


def segments_in(folder, pieces, add):
    """Of the document; each of its segments is given to add(manifest, segment). It may have a GiB: no more than one segment's part of
    it is here at a time. It may come from a bucket, so it is untrusted."""
    manifest, kind = {}, None
    try:
        document = JsonPieces(pieces)
        for key in document.members():
            if key == "segments":
                for segment in document.items():
                    add(manifest, segment)
            elif key == "format":
                kind = document.value()
            else:
                document.value()
        document.end()
        if kind == "tensorcast-activations":
            return manifest
        complaint = "it is no manifest of activations"
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        complaint = error
    message = f"{folder}/manifest.json is damaged: {complaint}; removed, it is made anew from the segments that are here"
    raise errors.make(grpc.StatusCode.DATA_LOSS, message, "BAD_MANIFEST")

