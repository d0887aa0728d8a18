"""How a load is to be done: by which executor, together with whom, and until when."""
from __future__ import annotations

import numbers
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Optional

from . import errors

_EXECUTORS = {"auto": 0, "generic_byte_range": 1, "tensor_batched_local": 2, "owner_file_collective": 3}
_EXECUTOR_ALIASES = {"generic": 1, "local": 2, "collective": 3}
_COLLECTIVE = {"auto": 0, "required": 1, "disabled": 2}
_LOCALITY = {"auto": 0, "host_local": 1, "shared_source": 2}
_MEMORY = {"auto": 1, "copied": 2, "mapped": 3}
_FOR_THE_PACKAGE = {"memory_preference", "of", "policy", "topology"}  # not what users look for


def _one_of(choices, what, value, aliases=None):
    named = {**choices, **(aliases or {})}
    if value not in named:
        raise errors.invalid(f"{what} is {value!r}; it is one of {', '.join(choices)}", "BAD_OPTION")
    return named[value]


@dataclass(frozen=True)
class CollectiveLoadGroup:
    """Clients that load together: the group's name, this client's rank, and how many there are."""

    id: str
    rank: int
    world_size: int

    def __post_init__(self):
        counted = all(isinstance(number, numbers.Integral) for number in (self.rank, self.world_size))
        if not isinstance(self.id, str) or not counted:
            raise errors.invalid(f"{self} is no group; id is a string, rank and world_size are whole numbers", "BAD_OPTION")
        if not self.id or not 0 <= self.rank < self.world_size:
            wrong = "id is empty" if not self.id else f"rank is {self.rank}, and with world_size={self.world_size} " + (
                f"ranks go from 0 to {self.world_size - 1}" if self.world_size > 0 else "there are no ranks")
            raise errors.invalid(f"CollectiveLoadGroup: {wrong}", "BAD_OPTION")


@dataclass(frozen=True)
class Options:
    """executor: auto, generic_byte_range, tensor_batched_local or owner_file_collective, as reports name them (or generic,
    local, collective). collective: auto, required or disabled. group: the ranks that load together.
    source_locality: auto, host_local or shared_source. source_sharing_domain: a name that hosts sharing one source agree
    on. deadline: seconds from the call, None for no limit. allow_missing_shards: of PyTorch's DCP shards, a rank that saved
    nothing has no file; see Client.artifact(). memory: copied, mapped (the files' own pages, or an error where their bytes
    could change), or auto, which maps where that is possible and faster (docs/mapped.md)."""

    executor: Literal["auto", "generic_byte_range", "tensor_batched_local", "owner_file_collective", "generic", "local", "collective"] = "auto"
    collective: Literal["auto", "required", "disabled"] = "auto"
    group: Optional[CollectiveLoadGroup] = None
    source_locality: Literal["auto", "host_local", "shared_source"] = "auto"
    source_sharing_domain: Optional[str] = None
    deadline: Optional[float] = None
    allow_missing_shards: bool = False
    memory: Literal["auto", "copied", "mapped"] = "auto"

    def __post_init__(self):
        if self.group is not None and not isinstance(self.group, CollectiveLoadGroup):
            raise errors.invalid(f"group is {self.group!r}; it is a CollectiveLoadGroup", "BAD_OPTION")
        self.policy()
        self.topology()
        self.memory_preference()
        if self.source_sharing_domain is not None and not isinstance(self.source_sharing_domain, str):
            raise errors.invalid(f"source_sharing_domain is {self.source_sharing_domain!r}; it is a string", "BAD_OPTION")
        is_time = isinstance(self.deadline, numbers.Real) and self.deadline >= 0  # not NaN
        if self.deadline is not None and not is_time:
            raise errors.invalid(f"deadline is {self.deadline!r}; it is a number of seconds from 0", "BAD_OPTION")

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()) - _FOR_THE_PACKAGE)

    @staticmethod
    def of(given):
        """What a caller gave as options, checked; None means the defaults."""
        if given is not None and not isinstance(given, Options):
            raise errors.invalid(f"options is {given!r}; it is tensorcast_client.Options(...)", "BAD_OPTION")
        return given or Options()

    def policy(self):
        """Fields of RetrievalPolicy."""
        return {"executor": _one_of(_EXECUTORS, "executor", self.executor, _EXECUTOR_ALIASES),
                "collective": _one_of(_COLLECTIVE, "collective", self.collective)}

    def memory_preference(self):
        """The number of MemoryPreference."""
        return _one_of(_MEMORY, "memory", self.memory)

    def topology(self):
        """Fields of ExecutionTopology. Each call is another attempt; gRPC's own retries send the same message again."""
        group = self.group
        return {"group": group and {"id": group.id, "rank": group.rank, "world_size": group.world_size,
                                    "attempt": uuid.uuid4().hex},
                "source_locality": _one_of(_LOCALITY, "source_locality", self.source_locality),
                "source_sharing_domain": self.source_sharing_domain}
