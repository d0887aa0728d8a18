"""A LoadReport message as the object that `tensorcast load --json` prints."""
from __future__ import annotations

import math

from .dtypes import NAMES, WIDTHS

_MEMORY = ("host_budget_bytes", "used_bytes", "staging_bytes", "extent_bytes", "pool_bytes", "kept_bytes", "cached_headers_bytes")


def plan(report):
    """What a plan and a load have in common: also the object of `tensorcast explain --json`."""
    run = {"load_id": report.load_id, "memory": report.memory, "device": report.device}  # a plan that was not run has neither
    group = {"collective": collective(report.collective)} if report.collective else {}
    into = {"into": dict(vars(report.into))} if report.into else {}
    changes = {"change_detection": dict(vars(report.change_detection))} if report.change_detection else {}
    verified = {"verified": dict(vars(report.verified))} if report.verified else {}
    ways = {"hosts": hosts(report.hosts, bool(report.load_id))} if report.hosts else {}
    maps = {"mapped": mapped(report.mapped)} if report.mapped else {}
    told = {
        **{key: value for key, value in run.items() if value},
        "artifact": report.artifact,
        "identity": report.identity,
        "executor": report.executor,
        "selection_reason": report.selection_reason,
        "candidates": [dict(vars(candidate)) for candidate in report.candidates],
        "bytes": {"view": report.view_bytes, "unique_source": report.unique_source_bytes, "read": report.read_bytes,
                  "copied": report.copied_bytes, "residual": report.residual_bytes, "shared": report.shared_bytes,
                  "cached": report.cached_bytes, "peer": report.peer_bytes, **({"target": report.target_bytes} if into else {})},
        "requests": report.requests,
        "peak_temporary_bytes": report.peak_temporary_bytes,
        "from_replica": report.from_replica,
        "joined": report.joined,
        "ms": {"resolve": report.resolve_ms, "plan": report.plan_ms, "execute": report.execute_ms,
               "total": report.total_ms},
        **changes,
        **verified,
        **maps,
        **ways,
        **group,
        **into,
    }
    if not report.load_id:  # what is expected is not told under the names of what was measured
        told["estimated"] = {"read_bytes": told["bytes"].pop("read"), "execute_ms": told["ms"].pop("execute")}
    return told


def status(answer):
    """A StatusResponse as the object that `tensorcast status --json` prints."""
    fields = dict(vars(answer))
    calibration = {costs.pop("device"): costs for costs in map(_fields, fields.pop("calibration"))}
    stores = {store.pop("origin"): store for store in map(_fields, fields.pop("stores"))}
    quotas = {quota.pop("resource"): quota for quota in map(_fields, fields.pop("quotas"))}
    memory = {name: fields.pop(name) for name in _MEMORY}
    lists = {name: [_fields(item) for item in fields.pop(name)] for name in ("replicas", "loads", "devices", "users", "prewarms", "requests")}
    folders = [{key: getattr(folder, key) for key in ("path", "artifact", "bytes", "uid")} for folder in fields.pop("folders")]
    for name in ("totals", "uploads"):
        fields[name] = _fields(fields[name]) if fields[name] else {}
    for replica in lists["replicas"]:
        replica["held_by"] = [_fields(lease) for lease in replica["held_by"]]
        if not replica["device"]:  # as the command, which says nothing of host memory
            del replica["device"]
    fields["hosts"] = _hosts(fields["hosts"])
    return {**fields, "memory": memory, **lists, "folders": folders, "calibration": calibration, "stores": stores, "quotas": quotas}


def _hosts(told):
    if not told:
        return {"enabled": False, "hosts": []}
    rows = [_fields(row) for row in told.hosts]
    for row in rows:
        row["bytes"] = {"in": row.pop("in_bytes"), "out": row.pop("out_bytes")}
        row["answers"] = {"late": row.pop("late_answers"), "wrong": row.pop("wrong_answers")}
    return {"enabled": True, "name": told.name, "domain": told.domain, "etcd": {"state": told.etcd_state, "reason": told.etcd_reason}, "hosts": rows}


def _fields(message):
    return dict(vars(message))


def _numbers(numbers):
    return {f"collective_{name}": value for name, value in vars(numbers).items()}


def collective(report):
    """What became of the group: absent keys say that the ranks did not meet, or that nothing was run."""
    named = {"group_id": report.group_id, "rank": report.rank, "world_size": report.world_size,
             "transport": report.transport, "skip_reason": report.skip_reason, "assemble_ms": report.assemble_ms}
    measured = _numbers(report.measured) if report.measured else {}
    return {**named, **measured, **({"estimated": _numbers(report.estimated)} if report.estimated else {})}


def hosts(chosen, has_run):
    """Which way the bytes come while several hosts load; a plan has the other ways as well, a load what came of it."""
    ways = {"candidates": [_fields(way) for way in chosen.candidates]} if chosen.candidates else {}
    came = {"from": {row.host: row.bytes for row in chosen.from_hosts}, "hedged_bytes": chosen.hedged_bytes} if has_run else {}
    return {"choice": chosen.choice, "reason": chosen.reason, "alive": chosen.alive, **ways, **came}


def mapped(facts):
    """Whether the bytes could be handed out as the files' own pages; null where there is no proof, or nothing in the way."""
    return {"possible": facts.possible, "proof": facts.proof or None, "reason": facts.reason or None}


def load(report, names, layout):
    """The whole object, with one entry per tensor. Of a file, the offset is in the file."""
    columns = zip(names, layout.dtypes.tolist(), layout.shapes.tolist(), layout.offsets.tolist(), layout.sizes.tolist())
    tensors = [{"name": name, "dtype": NAMES[number], "shape": list(shape), "offset": offset, "bytes": size}
               for name, number, shape, offset, size in columns]
    if layout.strides:
        places = zip(tensors, layout.files.tolist(), layout.strides.tolist(), layout.dtypes.tolist())
        tensors = [{**tensor, **_place(tensor, layout.file_names[file], steps, number)} for tensor, file, steps, number in places]
    return {**plan(report), "tensors": tensors}


def load_into(report, targets, lending):
    """The whole object of a load into memory of this process: of each tensor in which region it lies, and where its first
    element is there."""
    tensors = [{"name": target.name, "dtype": NAMES[target.dtype], "shape": list(target.shape), "offset": offset,
                "bytes": math.prod(target.shape) * WIDTHS[target.dtype], "region": index}
               for target, index, offset in zip(targets, lending.indexes, lending.offsets)]
    return {**plan(report), "tensors": tensors}


def _place(tensor, file, steps, number):
    """Where a tensor of a file lies. One without bytes lies nowhere, and elements below a byte have no strides."""
    if not tensor["bytes"]:
        return {}
    return {"file": file, "strides": list(steps)} if WIDTHS[number] else {"file": file}
