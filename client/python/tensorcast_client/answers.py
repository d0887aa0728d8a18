"""What describe(), explain(), diagnostics, status() and the like return, for type checkers: plain dicts at run time.

Keys of later versions of the daemon may come on top."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class File(TypedDict):
    name: str
    bytes: int


class TensorEntry(TypedDict):
    """A tensor of an artifact. shape: elements of each dimension. file: the name of the file that it begins in."""

    name: str
    dtype: str
    shape: List[int]
    file: str
    bytes: int


class _Description(TypedDict):
    artifact: str
    identity: str
    files: List[File]
    layout: str
    metadata: Dict[str, str]
    tensors: List[TensorEntry]
    total_bytes: int


class Description(_Description, total=False):
    """Of Artifact.describe() and `tensorcast inspect --json`."""

    world_size: int
    missing_shards: List[int]
    missing_files: List[int]
    notes: List[str]
    absent_files: List[str]
    metadata_left_out_bytes: int
    has_metadata: bool


class PlannedBytes(TypedDict):
    """view: of the tensors. shared, cached: that another load, or a cache, had already."""

    view: int
    unique_source: int
    copied: int
    residual: int
    shared: int
    cached: int


class Bytes(PlannedBytes):
    """read: asked of the source."""

    read: int


class PlannedMilliseconds(TypedDict):
    resolve: float
    plan: float
    total: float


class Milliseconds(PlannedMilliseconds):
    execute: float


class Candidate(TypedDict):
    executor: str
    eligible: bool
    reason: str
    requested_bytes: int
    unique_source_bytes: int
    read_bytes: int
    requests: int
    peak_temporary_bytes: int
    estimated_ms: float


class Estimated(TypedDict):
    read_bytes: int
    execute_ms: float


class _Common(TypedDict):
    artifact: str
    identity: str
    executor: str
    selection_reason: str
    candidates: List[Candidate]
    requests: int
    peak_temporary_bytes: int
    from_replica: bool
    joined: bool


class _Told(_Common, total=False):
    memory: str
    device: str
    collective: Dict[str, Any]
    into: Dict[str, Any]
    change_detection: Dict[str, str]
    verified: Dict[str, Any]
    mapped: Dict[str, Any]


class _Plan(_Told):
    bytes: PlannedBytes
    ms: PlannedMilliseconds
    text: str


class Plan(_Plan, total=False):
    """Of View.explain(). text: a table for people."""

    estimated: Estimated


class Prewarmed(_Told):
    """Of View.prewarm()."""

    load_id: str
    bytes: Bytes
    ms: Milliseconds


class _LoadedTensor(TypedDict):
    name: str
    dtype: str
    shape: List[int]
    offset: int
    bytes: int


class LoadedTensor(_LoadedTensor, total=False):
    """Where a tensor lies in memory, or in a file. strides: bytes."""

    file: str
    strides: List[int]
    region: int


class LoadReport(Prewarmed):
    """Of Tensors.diagnostics, View.load_into() and `tensorcast load --json`."""

    tensors: List[LoadedTensor]


class Memory(TypedDict):
    host_budget_bytes: int
    used_bytes: int
    staging_bytes: int
    extent_bytes: int
    pool_bytes: int
    kept_bytes: int
    cached_headers_bytes: int


class Holder(TypedDict):
    pid: int
    uid: int
    command: str
    since_s: float
    cgroup: str


class _Replica(TypedDict):
    artifact: str
    view_digest: str
    bytes: int
    leases: int
    memory: str
    idle_s: float
    identity: str
    held_by: List[Holder]


class Replica(_Replica, total=False):
    device: str
    pinned: bool


class RunningLoad(TypedDict):
    load_id: str
    artifact: str
    stage: str
    done_bytes: int
    total_bytes: int
    clients: int
    age_s: float


class Status(TypedDict):
    """Of Client.status() and `tensorcast status --json`."""

    version: str
    pid: int
    uptime_s: float
    state: str
    memory: Memory
    replicas: List[Replica]
    loads: List[RunningLoad]
    leases: int
    connections: int
    calibration: Dict[str, Dict[str, Any]]
    stores: Dict[str, Dict[str, Any]]
    devices: List[Dict[str, Any]]
    devices_problem: Optional[str]
    users: List[Dict[str, Any]]
    quotas: Dict[str, Dict[str, Any]]
    prewarms: List[Dict[str, Any]]
    uploads: Dict[str, int]
    hosts: Dict[str, Any]
    handoff_socket: str
    metrics_address: str


class Released(TypedDict):
    """Of Client.release()."""

    released_replicas: int
    released_bytes: int
    leased_replicas: int
    leased_bytes: int
    replicas_of_others: int
