"""The names of the safetensors package, served by the daemon: exact slices, memory that processes share, any store it reads.

    from tensorcast_client.safetensors import safe_open
    from tensorcast_client.safetensors.torch import load_file

    with safe_open("/models/llama/model.safetensors", framework="pt") as f:
        part = f.get_slice("model.embed_tokens.weight")[:1000]

Signatures, exceptions and results are those of safetensors 0.8. tensorcast_client.patch() puts safe_open in place of the
original for a whole program. docs/safetensors.md is the manual.
"""
from .handle import safe_open
from .official import official

SafetensorError = official.SafetensorError
deserialize, serialize, serialize_file = official.deserialize, official.serialize, official.serialize_file
TensorSpec = getattr(official, "TensorSpec", None)  # since 0.8
_safe_open_handle = getattr(official, "_safe_open_handle", None)  # since 0.6
__version__ = official.__version__
__all__ = ["SafetensorError", "TensorSpec", "deserialize", "safe_open", "serialize", "serialize_file"]
