"""What a type checker says of programs that use the client: nothing, but where a line says that it has to complain. Checked by
`make lint`, never run. `# type: ignore` is an error where there is nothing to ignore."""
from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import assert_type

import tensorcast_client as tc

art = tc.artifact("/models/llama")
with art.subset(["a"]).view(slices={"a": (0, slice(0, 1))}).tensor_dict(framework="numpy", progress=True) as arrays:
    assert_type(arrays, tc.Tensors[np.ndarray[Any, Any]])
    first: np.ndarray[Any, Any] = arrays["a"]
assert_type(tc.load_file("/models/llama", framework="numpy"), "dict[str, np.ndarray[Any, Any]]")
for name, lazy in art.items():
    print(name.upper(), lazy.dtype.lower(), lazy[10:20, 0].sum())
    assert_type(lazy.shape, "tuple[int, ...]")
art.tensor_dict(framework="tf")  # type: ignore[call-overload]
tc.load_file("/models/llama", framework="jax")  # type: ignore[call-overload]
tc.Options(executor="fast")  # type: ignore[arg-type]
status = tc.connect(timeout=5.0).status()
print(status["memory"]["used_bytes"] + 1, status["replicas"][0]["artifact"].upper(), status["nobody"])  # type: ignore[typeddict-item]
print(art.describe()["tensors"][0]["shape"], art.describe()["metadata"].get("format", "").upper())
print(arrays.diagnostics["bytes"]["read"] + 1, art.view().explain()["text"].upper(), art.release()["released_bytes"] + 1)
