"""Whether ranks tell the daemon that they load together.

By default none does, whatever file system the model is on: on a local disk each rank reading its own slices is better, and
on a shared one the collective route is not the default yet. The user asks for it (collective_hint, or a policy that
requires it); then all ranks of a tensor-parallel group name the same group.
"""
from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import tensorcast_client as tc

from .options import COLLECTIVE_POLICIES

LOCAL_FILE_SYSTEMS = frozenset(("xfs", "ext2", "ext3", "ext4", "btrfs", "zfs", "tmpfs"))


class Place(NamedTuple):
    """This worker among those of the same engine."""

    engine: str  # the same in all of its workers, different for every start
    group: str  # which of its tensor-parallel groups
    rank: int
    size: int


def file_system_of(path, mounts="/proc/self/mountinfo"):
    """The type of the file system that a path is on, None when it cannot be found out."""
    path, best = os.path.realpath(path), ("", None)
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                fields, _, kind = line.partition(" - ")
                point = fields.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0]):
                    best = (point, kind.split()[0])
    except (OSError, IndexError, UnicodeError):
        return None
    return best[1]


def hint(options, place, kind):
    """(whether to send a group, why), for a model on a file system of this type."""
    if place.size == 1:
        return False, "one rank"
    if options.collective_hint != "auto":
        return options.collective_hint == "always", f"collective_hint is {options.collective_hint}"
    if options.collective_policy != "allow_not_eligible_fallback":
        return options.collective_policy == "require_collective", f"collective_policy is {options.collective_policy}"
    if kind is None:
        return False, "unknown file system"
    return False, f"{kind} is {'local' if kind in LOCAL_FILE_SYSTEMS else 'not local, which makes no difference yet'}"


def group_of(place, artifact):
    """The group that every rank of `place` derives alike."""
    text = "\0".join((place.engine, place.group, str(place.size), artifact))
    return tc.CollectiveLoadGroup("vllm-" + hashlib.sha256(text.encode()).hexdigest()[:32], place.rank, place.size)


def client_options(options, place, artifact, hinted):
    """tensorcast_client.Options of a request; what only one rank may ask for cannot be required to be collective."""
    collective = COLLECTIVE_POLICIES[options.collective_policy]
    collective = "auto" if collective == "required" and not hinted else collective
    return tc.Options(executor=options.executor, collective=collective,
                      group=group_of(place, artifact) if hinted else None,
                      source_locality=options.source_locality, source_sharing_domain=options.source_sharing_domain,
                      memory="copied")  # what is adopted lies in the order of the parameters, packed
