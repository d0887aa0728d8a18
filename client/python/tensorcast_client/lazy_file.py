"""An artifact as safetensors.safe_open shows a file, for libraries that open checkpoints lazily and take torch tensors.

Whole tensors are loaded in groups, one request for each group of neighbours, because a library that asks for one asks for nearly all
of them: thousands of tensors are then a few loads and a few leases. Parts of tensors are loaded one by one, exactly.
"""
from __future__ import annotations

import threading

from .lazy import LazyTensor
from .options import Options

_GROUP_BYTES = 256 << 20
_MOST_GROUPS = 64
_EXACT = Options(executor="generic")  # of columns the local executor may read whole rows, which is what other ranks need
_COPY_BYTES = 1 << 20  # a part below this is copied, so that it holds no lease and no descriptor


class LazyFile:
    """`by_parts`: whole tensors are loaded one by one, too, since this process takes parts of most."""

    def __init__(self, artifact, by_parts=False):
        self._artifact, self._by_parts = artifact, by_parts
        self._groups, self._of = _grouped(artifact)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        """Groups that were loaded go with the last tensor of theirs."""
        for group in self._groups:
            group.close()

    def keys(self):
        return self._artifact.tensor_names

    offset_keys = keys

    def metadata(self):
        return self._artifact.metadata or None

    def get_slice(self, name):
        return _Slice(self, self._artifact, name)

    def get_tensor(self, name):
        return self.get_slice(name)[...]

    def whole(self, lazy):
        """A tensor as a part of its group's load."""
        if self._by_parts:
            return _own(lazy.load(framework="torch"))
        return self._of[lazy.name].tensor(self._artifact, lazy.name)


class _Slice(LazyTensor):
    """What get_slice() returns: torch tensors."""

    __slots__ = ("_file",)

    def __init__(self, file, artifact, name):
        super().__init__(artifact, name)
        self._file = file

    def get_shape(self):
        return list(self.shape)

    def get_dtype(self):
        return self.dtype

    def __getitem__(self, index):
        if index is ... or index == slice(None):
            return self._file.whole(self)
        return _own(self.load(index, framework="torch", options=_EXACT))


def _own(tensor):
    """A small part as memory of this process."""
    return tensor.clone() if tensor.numel() * tensor.element_size() < _COPY_BYTES else tensor


class _Group:
    """Tensors that are loaded together when the first of them is asked for."""

    def __init__(self, identity):
        self.names, self._identity, self._loaded, self._lock = [], identity, None, threading.Lock()

    def tensor(self, artifact, name):
        with self._lock:  # whoever comes second waits for the load of the first
            if self._loaded is None:
                loaded = artifact.subset(self.names).tensor_dict(framework="torch")
                artifact.expect(self._identity, loaded.identity)
                self._loaded = loaded
            return self._loaded[name]

    def close(self):
        with self._lock:
            self._loaded = None


def _grouped(artifact):
    """([_Group], {name: its group}) of neighbours in artifact order."""
    names = artifact.tensor_names
    sizes = [artifact[name].nbytes for name in names]
    limit = max(_GROUP_BYTES, sum(sizes) // _MOST_GROUPS)
    groups, of, filled = [], {}, limit
    for name, size in zip(names, sizes):
        if filled + size > limit:
            groups.append(_Group(artifact.facts().identity))
            filled = 0
        filled += size
        groups[-1].names.append(name)
        of[name] = groups[-1]
    return groups, of
