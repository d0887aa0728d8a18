"""Checkpoints for torch.distributed.checkpoint: TensorcastReader in place of HuggingFaceStorageReader.

    from tensorcast_client.dcp import TensorcastReader

    torch.distributed.checkpoint.load(state_dict, storage_reader=TensorcastReader("/models/llama"))

Any layout that the daemon reads will do: plain files, DCP shards of any mesh, topology.json; also a variant of them.
"""
from __future__ import annotations

import collections
import math
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from grpc import StatusCode
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, StorageMeta, TensorProperties,
                                                   TensorStorageMetadata)
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from . import errors, memory
from .artifact import Artifact
from .client import Client, connect
from .dtensor import Part, is_dtensor
from .dtypes import BITS, NAMES, of_torch
from .load import Clock
from .options import Options
from .view import Progress, View

_BATCH_BYTES = 128 << 20  # a load of its own: large beside what a request costs, and the first is there soon
_MOST_BATCHES = 16
_LOADS_AHEAD = 2  # the disk is not waited for between them


class TensorcastReader(StorageReader):
    """Reads what a rank's plan asks for, exact slices, as one view. A large plan is several, of 128 MiB and more and in the order of
    the files: while one is copied into torch's tensors, the next two are loaded.

    reference: "disk:/models/llama", gs://, s3://, hf://, https://, a path, or an Artifact or View of a client. variant: a recipe,
    as Artifact.variant takes it. client: None for tc.connect(). Tensors are converted to the dtype of where they go, as torch's
    own readers do. Missing keys and other shapes are errors of the planner, before anything is read."""

    def __init__(self, reference: str | os.PathLike[str] | Artifact | View, variant: Any = None, set: Any = None,  # noqa: A002
                 client: Client | None = None, options: Options | None = None, progress: Progress | bool | None = None):
        super().__init__()
        if set and variant is None:
            raise errors.invalid("set is for the recipe of a variant", "BAD_OPTION")
        self._reference, self._variant, self._set, self._client = reference, variant, set, client
        self._how = {"options": options, "progress": progress}
        self._view, self._load_id = None, uuid.uuid4().hex

    @property
    def checkpoint_id(self) -> str:
        reference = self._reference
        return reference.reference if isinstance(reference, Artifact) else str(reference)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._reference = checkpoint_id
        self._view, self._load_id = None, uuid.uuid4().hex

    def _opened(self):
        """The view of everything there is."""
        source = self._reference
        if isinstance(source, (str, os.PathLike)):
            self._client = self._client or connect()
            source = self._client.artifact(source)
        if self._variant is not None:
            if isinstance(source, View):
                raise errors.invalid("a view has the variant of its artifact; give variant with the artifact, or make the view of "
                                     "artifact.variant(...)", "BAD_OPTION")
            source = source.variant(self._variant, self._set)
        return source.view()

    def read_metadata(self) -> Metadata:
        self._view, described = self._opened(), {}
        facts = self._view.artifact.facts(fresh=True, allow_missing_shards=Options.of(self._how["options"]).allow_missing_shards)
        for name, shape in self._view.shapes().items():
            number = facts.dtype_number(name)
            if BITS[number] < 8:  # comes as the packed bytes
                shape = (math.prod(shape) * int(BITS[number]) // 8,)
            chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(shape)), sizes=torch.Size(shape))
            described[name] = TensorStorageMetadata(properties=TensorProperties(dtype=of_torch(number)),
                                                    size=torch.Size(shape), chunks=[chunk])
        return Metadata(state_dict_metadata=described,
                        storage_meta=StorageMeta(checkpoint_id=self.checkpoint_id, load_id=self._load_id))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        self._metadata = metadata

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner) -> Future[None]:
        items = [_Item(item, planner) for item in plan.items]
        for item in items:
            self._check(item)
        identity = None
        for batch, loaded in _ahead(self._loader(), self._batches(items)):
            with loaded:
                if loaded.identity != (identity := identity or loaded.identity):
                    raise _changed(f"{self.checkpoint_id} was replaced while it was loaded; load it again")
                for item in batch:
                    item.fill(loaded[item.name], planner)
        done = Future()
        done.set_result(None)
        return done

    def _batches(self, items):
        """Lists of items with no tensor twice, each of them one load: mostly one list, unless there are many bytes. A group is for one
        load of each rank, and progress is told of one."""
        at, shapes = self._view.artifact.facts().index, self._metadata.state_dict_metadata
        items = sorted(items, key=lambda item: at[item.name])
        sizes = [math.prod(item.request.lengths) * shapes[item.name].properties.dtype.itemsize for item in items]
        is_one = self._how["progress"] or Options.of(self._how["options"]).group
        limit = math.inf if is_one else max(_BATCH_BYTES, sum(sizes) // _MOST_BATCHES)
        batches, names, room = [], set(), 0
        for item, size in zip(items, sizes):
            if not batches or item.name in names or room < size:
                batches.append([])
                names, room = set(), limit
            batches[-1].append(item)
            names.add(item.name)
            room -= size
        return batches

    def _loader(self):
        """load(items), within one deadline for all calls. Any thread."""
        options, shapes = Options.of(self._how["options"]), self._metadata.state_dict_metadata
        clock = Clock(options.deadline)

        def load(items):
            slices = {item.name: [(dim, part) for dim, part in item.slices if (part.start, part.stop) != (0, shapes[item.name].size[dim])]
                      for item in items}
            view = self._view.only([item.name for item in items]).view(slices)
            how = {**self._how, "options": replace(options, deadline=clock.left())}
            return view.tensor_dict(framework="torch", **how)

        return load

    def _check(self, item):
        """Elements smaller than a byte come packed, and whole."""
        number = self._view.artifact.facts().dtype_number(item.name)
        if BITS[number] < 8 and tuple(item.request.lengths) != tuple(self._metadata.state_dict_metadata[item.name].size):
            raise errors.make(StatusCode.UNIMPLEMENTED, f"tensor {item.name} is {NAMES[number]}, whose elements are smaller than a "
                              "byte; it can be read as a whole, as its packed bytes", "DTYPE_UNSUPPORTED")
        if BITS[number] < 8:
            item.slices = []


class _Item:
    """A read item: what to load of which tensor, and where it goes."""

    def __init__(self, request, planner):
        self.name, self.request, self._part = request.storage_index.fqn, request, None
        target = getattr(planner, "state_dict", {}).get(request.dest_index.fqn)
        part = Part.of(target) if is_dtensor(target) else None
        if part is None or part.is_block:
            self.slices = [(dim, slice(start, start + length))
                           for dim, (start, length) in enumerate(zip(request.storage_offsets, request.lengths))]
            return
        # A strided shard whose rows do not lie together: torch's planner takes as many from the first one on. All from the
        # first to the last are loaded, and cut.
        local = target.to_local().shape
        self._part, self.slices = part, part.slices()
        self.request = replace(request, dest_offsets=torch.Size([0] * len(local)), lengths=local)

    def fill(self, loaded, planner):
        target = planner.resolve_tensor(self.request).detach()
        tensor = self._part.cut(loaded) if self._part else loaded
        if target.shape != tensor.shape:
            raise _changed(f"tensor {self.name} changed while it was loaded: {list(tensor.shape)} where {list(target.shape)} was planned; "
                           "load it again")
        if target.device.type == "cpu" and target.is_contiguous():
            memory.prefer_huge_pages(target.data_ptr(), target.nbytes)
        target.copy_(tensor)
        planner.commit_tensor(self.request, target)


def _changed(what):
    return errors.make(StatusCode.ABORTED, what, "SOURCE_CHANGED")


def _ahead(load, batches):
    """(batch, load(batch)) of each, in order. One batch is loaded here; of several, threads load those that come next."""
    if len(batches) == 1:
        yield batches[0], load(batches[0])
        return
    pool, coming = ThreadPoolExecutor(_LOADS_AHEAD), collections.deque()
    try:
        for batch in batches:
            coming.append((batch, pool.submit(load, batch)))
            if len(coming) > _LOADS_AHEAD:
                yield _first(coming)
        while coming:
            yield _first(coming)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _first(coming):
    batch, future = coming.popleft()
    return batch, future.result()
