"""A part file out of the memory of its folder: a prewarm or a whole load of the folder has loaded its files.

Programs open part files, one by one; prewarms, engines and other programs name folders, whose replica is another than those of
its files. So a file whose name is that of a part is looked for in its folder's replica first. What is handed out is that memory,
without a copy, and only if it is proven to hold this very file: the folder's own list says that each tensor lies in it whole, once
and as the file's header has it; and the file, looked at before and after the folder was, is the same. A folder that was looked at
once will do for all files of it that were open then.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..facts import Facts
from ..load import Clock
from ..tensors import Tensors

_PART = re.compile(r"(?:.*-\d{5,}-of-\d{5,}|model|diffusion_pytorch_model)\.safetensors")
_MOST_TENSORS = 200_000  # of a folder: its list is asked for, and kept with its handle


class Held(NamedTuple):
    """A folder that is in memory, and what it holds."""

    tensors: Tensors
    facts: Facts


def folder_of(artifact):
    """The Artifact of the folder that a part file lies in; None when it has no such name, or is no file of the daemon's host."""
    folder, name = os.path.split(artifact.reference.removeprefix("disk:"))
    if not artifact.reference.startswith("disk:/") or folder == "/" or not _PART.fullmatch(name):
        return None
    return artifact.view().client.artifact("disk:" + folder)


def held(tensors, folder):
    """Held, if the Tensors are those of a folder as it is now; else None."""
    facts = folder.view().client.resolve(folder.reference, Clock(None)) if len(tensors) <= _MOST_TENSORS else None
    return Held(tensors, facts) if facts and facts.identity == tensors.identity else None


def has_part(folder, artifact, facts):
    """Whether a Held folder has all that the Facts of one of its files say, of that very file: one that was opened before the folder
    was looked at, and that has not changed since."""
    name = os.path.basename(artifact.reference)
    own = facts.whole_in(name)
    if len(own) != len(facts.names) or not own.items() <= folder.facts.whole_in(name).items():
        return False
    return artifact.view().client.resolve(artifact.reference, Clock(None)).identity == facts.identity


class Part(Mapping):
    """Those of a folder's Tensors that a file has, each made when it is asked for."""

    def __init__(self, tensors, names):
        self._tensors, self._names = tensors, names

    def __getitem__(self, name):
        return self._tensors.alone(name)

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)
