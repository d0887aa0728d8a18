"""A tensor of an artifact that is not loaded yet: known by name, shape and dtype, read when it is looked into."""
from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from . import errors
from .dtypes import BITS, NAMES
from .redact import shown
from .words import size_of

if TYPE_CHECKING:
    import numpy as np

    from .artifact import Artifact
    from .options import Options


class LazyTensor:
    """One tensor of an artifact. `lazy[...]` loads it, `lazy[10:20, 0]` loads that part and nothing else: NumPy arrays.

    >>> lazy = tc.artifact("disk:/models/tiny")["head.weight"]
    >>> lazy.shape, lazy.dtype
    ((4, 3), 'F32')
    >>> lazy[1:3, -1].tolist()
    [5.0, 8.0]
    >>> np.asarray(lazy).sum()
    np.float32(66.0)

    Whole numbers, slices and an ellipsis mean what they mean for NumPy; of a step, the rows between are read, too. Each look is a
    load of its own; for many tensors take Artifact.subset(names).tensor_dict(). It is a tensor of one version: when the artifact
    was replaced since, a look is an error (ABORTED, SOURCE_CHANGED), and art["name"] is the new one."""

    __slots__ = ("_artifact", "_bits", "_identity", "dtype", "name", "shape")
    __hash__ = object.__hash__

    def __init__(self, artifact: Artifact, name: str):
        facts = artifact.facts()
        number = facts.dtype_number(name)
        self._artifact, self._bits, self._identity = artifact, int(BITS[number]), facts.identity
        self.name, self.dtype = name, NAMES[number]  #: the safetensors name of the type, such as "BF16"
        self.shape: tuple[int, ...] = tuple(facts.shape(name))

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it has in the checkpoint."""
        return self.size * self._bits // 8

    def load(self, index: Any = ..., framework: str | None = None, device: Any = "cpu", options: Options | None = None,
             dtype: Any = None) -> Any:
        """The tensor, or the part that the index means, as View.tensor_dict() makes it: torch's when that is installed. dtype: what
        a floating-point tensor is converted to, such as "float32".

        >>> tc.artifact("disk:/models/tiny")["head.bias"].load(slice(2), framework="numpy")
        array([0., 1.], dtype=float32)
        """
        slices, taken = self._read(index)
        view = self._artifact.subset([self.name]).view({self.name: slices} if slices else None)
        with view.tensor_dict(device, framework=framework, options=options, dtype=dtype) as tensors:  # type: ignore[call-overload]
            # what is converted has an identity of its own
            self._artifact.expect(self._identity, tensors.identity if dtype is None else self._artifact.facts(fresh=True).identity)
            tensor = tensors[self.name]
        tensor = tensor[taken] if taken and self._bits >= 8 else tensor
        return _copy(tensor) if any(isinstance(part, slice) and part.step not in (None, 1) for part in taken) else tensor

    def _read(self, index):
        """([(dimension, slice)] that the daemon has to load, the index of what came that drops the dimensions of whole numbers and
        takes every nth)."""
        parts = list(index) if isinstance(index, tuple) else [index]
        dots = [at for at, part in enumerate(parts) if part is ...]
        if len(dots) > 1:
            raise IndexError("an index can only have a single ellipsis ('...')")
        missing = self.ndim - len(parts) + len(dots)
        if missing < 0:
            raise IndexError(f"too many indices: {self.name} has {self.ndim} dimensions, {len(parts) - len(dots)} were indexed")
        at = dots[0] if dots else len(parts)
        parts[at:at + len(dots)] = [slice(None)] * missing
        slices, taken = [], []
        for dim, part in enumerate(parts):
            if not isinstance(part, slice):
                first = self._whole(part, dim)
                part = slice(first, first + 1)
                taken.append(0)
            elif part.step in (None, 1):
                taken.append(slice(None))
            else:
                part, step = self._covering(part, dim)
                taken.append(step)
            if part != slice(None):
                slices.append((dim, part))
        return slices, tuple(taken) if any(step != slice(None) for step in taken) else ()

    def _covering(self, part, dim):
        """(slice of step 1 that holds what a slice of another step takes, the slice of that)"""
        if self._bits < 8 or not (isinstance(part.step, int) and part.step > 1):
            raise self._bad_index(part)
        rows = range(self.shape[dim])[part]
        return slice(rows.start, rows[-1] + 1) if len(rows) else slice(0, 0), slice(None, None, part.step)

    def _whole(self, number, dim):
        extent = self.shape[dim]
        try:
            if isinstance(number, bool):
                raise TypeError
            given = operator.index(number)
        except TypeError:
            raise self._bad_index(number) from None
        if not -extent <= given < extent:
            raise IndexError(f"index {given} is out of bounds for dimension {dim} of {self.name} with {extent} entries")
        return given % extent

    def _bad_index(self, index):
        return errors.make(StatusCode.INVALID_ARGUMENT, f"index {index!r} of tensor {self.name}: only whole numbers, slices of a positive step "
                           "and an ellipsis can be loaded; load it first and index the array", "BAD_SLICE", {"tensor": self.name})

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.load(index, framework="numpy")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self[...]
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self.name} cannot be {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self[...])  # as NumPy: of more than one element a ValueError

    def __float__(self) -> float:
        return float(self[...])  # as NumPy: of more than one element a TypeError

    def __int__(self) -> int:
        return int(self[...])

    def __iter__(self) -> Iterator[Any]:
        return iter(self[...])  # one load, not one for each row

    def __repr__(self) -> str:
        return (f"<LazyTensor {self.name}: {self.dtype} {list(self.shape)}, {size_of(self.nbytes)}, "
                f"of {shown(self._artifact.reference)}>")


def _copy(tensor):
    """Every nth element, without the memory of those between."""
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()
