"""Tensors of a checkpoint from the tensorcast daemon of this host, without a copy.

    import tensorcast_client as tc

    client = tc.connect()
    view = client.artifact("disk:/models/llama").subset(names).view(slices={"w": (0, slice(0, 128))})
    with view.tensor_dict(framework="torch") as tensors:
        use(tensors["w"])
"""
from . import channel as _channel  # first: it prepares gRPC for fork before gRPC is imported
from ._version import VERSION as __version__
from .artifact import Artifact
from .client import DEFAULT_SOCKET, Client, connect
from .errors import (AccessDeniedError, ArtifactNotFoundError, DeadlineExceededError, InvalidRequestError,
                     TensorcastError, TensorNotFoundError)
from .export import export
from .host_region import HostRegion
from .options import CollectiveLoadGroup, Options
from .sidecars import Sidecar
from .tensors import Tensors
from .view import View

del _channel
__all__ = ["AccessDeniedError", "Artifact", "ArtifactNotFoundError", "Client", "CollectiveLoadGroup", "DEFAULT_SOCKET",
           "DeadlineExceededError", "HostRegion", "InvalidRequestError", "Options", "Sidecar", "TensorcastError",
           "TensorNotFoundError", "Tensors", "View", "connect", "export", "__version__"]
