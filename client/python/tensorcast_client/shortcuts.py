"""One call for each of the most common uses, with a client of the module's own."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from . import errors
from .artifact import Artifact
from .default_client import default_client
from .options import Options
from .view import Progress, View

if TYPE_CHECKING:
    import numpy as np
    import torch


def artifact(reference: str | os.PathLike[str], allow_missing_shards: bool = False) -> Artifact:
    """A handle of an artifact, such as "gs://bucket/llama" or a path. Nothing is read before something has to be known.

    >>> art = tc.artifact("disk:/models/tiny")
    >>> len(art), "head.bias" in art
    (2, True)
    >>> art["head.weight"].shape
    (4, 3)

    The daemon is found as by connect(). allow_missing_shards: see Client.artifact()."""
    return default_client().artifact(reference, allow_missing_shards)


def source_of(source, function):
    """The Artifact or View that a function was given, or that a reference names. For this package."""
    if isinstance(source, (Artifact, View)):
        return source
    if isinstance(source, (str, os.PathLike)):
        return artifact(source)
    tensors = "; tensors that are loaded already go to module.load_state_dict() itself" if isinstance(source, Mapping) else ""
    raise errors.invalid(f"{function} takes an artifact, a view or a reference such as a path, not a {type(source).__name__}{tensors}",
                         "BAD_SOURCE")


@overload
def load_file(reference: str | os.PathLike[str], device: Any = "cpu", *, framework: Literal["torch"],
              progress: Progress | bool | None = None, options: Options | None = None, dtype: Any = None) -> dict[str, torch.Tensor]: ...
@overload
def load_file(reference: str | os.PathLike[str], device: Any = "cpu", *, framework: Literal["numpy"],
              progress: Progress | bool | None = None, options: Options | None = None,
              dtype: Any = None) -> dict[str, np.ndarray[Any, Any]]: ...
@overload
def load_file(reference: str | os.PathLike[str], device: Any = "cpu", framework: Literal["torch", "numpy", "dlpack"] | None = None,
              progress: Progress | bool | None = None, options: Options | None = None, dtype: Any = None) -> dict[str, Any]: ...
def load_file(reference: str | os.PathLike[str], device: Any = "cpu", framework: str | None = None,
              progress: Progress | bool | None = None, options: Options | None = None, dtype: Any = None) -> dict[str, Any]:
    """All tensors of a file or an artifact, {name: array} in artifact order, without a copy.

    >>> tensors = tc.load_file("disk:/models/tiny", framework="numpy")
    >>> tensors["head.weight"].shape, tensors["head.weight"].dtype
    ((4, 3), dtype('float32'))

    reference: a path of a file or a folder, or "gs://bucket/llama" and the like. device, framework, progress, options and
    dtype: those of View.tensor_dict(). The memory is given back when the last array is gone."""
    with artifact(reference).view().tensor_dict(device, framework=framework, progress=progress, options=options,  # type: ignore[call-overload]
                                              dtype=dtype) as tensors:
        return dict(tensors)
