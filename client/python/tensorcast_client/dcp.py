"""Checkpoints for torch.distributed.checkpoint: TensorcastReader in place of HuggingFaceStorageReader.

    from tensorcast_client.dcp import TensorcastReader

    torch.distributed.checkpoint.load(state_dict, storage_reader=TensorcastReader("/models/llama"))

Any layout that the daemon reads will do: plain files, DCP shards of any mesh, topology.json; also a variant of them.
"""
from __future__ import annotations

import math
import os
import uuid
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
from .options import Options
from .view import Progress, View


class TensorcastReader(StorageReader):
    """Reads what a rank's plan asks for as one view: exact slices, one request to the daemon.

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
        for items in _rounds([_Item(item, planner) for item in plan.items]):
            self._read(items, planner)
        done = Future()
        done.set_result(None)
        return done

    def _read(self, items, planner):
        for item in items:
            self._check(item)
        shapes = self._metadata.state_dict_metadata
        slices = {item.name: [(dim, part) for dim, part in item.slices if (part.start, part.stop) != (0, shapes[item.name].size[dim])]
                  for item in items}
        view = self._view.only([item.name for item in items]).view(slices)
        with view.tensor_dict(framework="torch", **self._how) as loaded:
            for item in items:
                item.fill(loaded[item.name], planner)

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
            raise errors.make(StatusCode.ABORTED, f"tensor {self.name} changed while it was loaded: {list(tensor.shape)} where "
                              f"{list(target.shape)} was planned; load it again", "SOURCE_CHANGED")
        if target.device.type == "cpu" and target.is_contiguous():
            memory.prefer_huge_pages(target.data_ptr(), target.nbytes)
        target.copy_(tensor)
        planner.commit_tensor(self.request, target)


def _rounds(items):
    """Lists of items with no tensor twice: nearly always one."""
    rounds, n_seen = [], {}
    for item in items:
        at = n_seen.get(item.name, 0)
        n_seen[item.name] = at + 1
        if at == len(rounds):
            rounds.append([])
        rounds[at].append(item)
    return rounds
