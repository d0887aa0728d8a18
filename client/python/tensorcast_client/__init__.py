"""Tensors of a checkpoint from the tensorcast daemon of this host, without a copy.

>>> import tensorcast_client as tc
>>> tensors = tc.load_file("disk:/models/tiny", framework="numpy")
>>> tensors["head.weight"].shape
(4, 3)
>>> art = tc.artifact("disk:/models/tiny")
>>> art["head.weight"][1:3, 0].tolist()
[3.0, 6.0]
>>> view = art.subset(["head.weight"]).view(slices={"head.weight": (0, slice(0, 2))})
>>> with view.tensor_dict(framework="numpy") as tensors:
...     tensors["head.weight"].shape
(2, 3)
"""
from . import channel as _channel  # first: it prepares gRPC for fork before gRPC is imported
from ._version import VERSION as __version__
from .activations import ActivationStore
from .artifact import Artifact
from .client import DEFAULT_SOCKET, Client, connect
from .errors import (AccessDeniedError, ArtifactNotFoundError, BudgetExceededError, DaemonUnreachableError, DeadlineExceededError,
                     InvalidRequestError, TensorcastError, TensorNotFoundError)
from .export import export
from .host_region import HostRegion
from .lazy import LazyTensor
from .options import CollectiveLoadGroup, Options
from .partition import partition
from .patching import Patch, patch, unpatch
from .shortcuts import artifact, load_file
from .sidecars import Sidecar
from .tensors import Tensors
from .view import View
from .warning import TensorcastFallbackWarning

del _channel
__all__ = ["AccessDeniedError", "ActivationStore", "Artifact", "ArtifactNotFoundError", "BudgetExceededError", "Client",
           "CollectiveLoadGroup", "DEFAULT_SOCKET", "DaemonUnreachableError", "DeadlineExceededError", "HostRegion",
           "InvalidRequestError", "LazyTensor", "Options", "Patch", "Sidecar", "TensorNotFoundError", "TensorcastError",
           "TensorcastFallbackWarning", "Tensors", "View", "__version__", "artifact", "connect", "export", "load_file",
           "partition", "patch", "unpatch"]


def __dir__() -> list[str]:
    """Not the modules that this is made of."""
    return __all__
