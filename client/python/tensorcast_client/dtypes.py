"""Element types: safetensors name, bits per element, and what NumPy and torch call them.

Types below one byte are the packed bytes, as uint8. Where ml_dtypes is missing or too old, NumPy gets the unsigned integer of
the same width and a warning says so once; a type that torch lacks is an error.
"""
from __future__ import annotations

import difflib
import functools
import warnings
from typing import NamedTuple

import numpy as np
from grpc import StatusCode

from . import errors


class DType(NamedTuple):
    name: str
    bits: int
    numpy: str  # "ml:" = in ml_dtypes, "" = nowhere
    torch: str


# Numbers of proto DType, one up: DTYPES[0] is DTYPE_BOOL = 1.
DTYPES = (
    DType("BOOL", 8, "bool", "bool"),
    DType("F4", 4, "", ""),
    DType("F6_E2M3", 6, "", ""),
    DType("F6_E3M2", 6, "", ""),
    DType("U8", 8, "uint8", "uint8"),
    DType("I8", 8, "int8", "int8"),
    DType("F8_E5M2", 8, "ml:float8_e5m2", "float8_e5m2"),
    DType("F8_E4M3", 8, "ml:float8_e4m3fn", "float8_e4m3fn"),
    DType("F8_E8M0", 8, "ml:float8_e8m0fnu", "float8_e8m0fnu"),
    DType("F8_E4M3FNUZ", 8, "ml:float8_e4m3fnuz", "float8_e4m3fnuz"),
    DType("F8_E5M2FNUZ", 8, "ml:float8_e5m2fnuz", "float8_e5m2fnuz"),
    DType("I16", 16, "int16", "int16"),
    DType("U16", 16, "uint16", "uint16"),
    DType("F16", 16, "float16", "float16"),
    DType("BF16", 16, "ml:bfloat16", "bfloat16"),
    DType("I32", 32, "int32", "int32"),
    DType("U32", 32, "uint32", "uint32"),
    DType("F32", 32, "float32", "float32"),
    DType("C64", 64, "complex64", "complex64"),
    DType("F64", 64, "float64", "float64"),
    DType("I64", 64, "int64", "int64"),
    DType("U64", 64, "uint64", "uint64"),
)
BITS = np.array([0, *(dtype.bits for dtype in DTYPES)], np.uint64)  # by proto number
WIDTHS = tuple((BITS // 8).tolist())  # bytes of an element; 0 below one byte
NAMES = ("", *(dtype.name for dtype in DTYPES))


@functools.lru_cache(maxsize=None)
def of_numpy(number):
    """The NumPy dtype of a proto number."""
    dtype = DTYPES[number - 1]
    if not dtype.numpy.startswith("ml:"):
        return np.dtype(dtype.numpy or "uint8")
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, dtype.numpy[3:]))
    except (ImportError, AttributeError):
        unsigned = np.dtype(f"uint{dtype.bits}")
        warnings.warn(f"{dtype.name} tensors come as {unsigned}, their bits and not their values: ml_dtypes has no {dtype.numpy[3:]} "
                      "here; pip install 'ml_dtypes>=0.5'", UserWarning, stacklevel=2)
        return unsigned


_NUMBERS = {dtype.numpy[3:] if dtype.numpy.startswith("ml:") else dtype.numpy: number
            for number, dtype in enumerate(DTYPES, 1) if dtype.numpy}


def number_of(name):
    """The proto number of an element type that NumPy, ml_dtypes or torch call `name`, such as "bfloat16"; 0 for none of ours."""
    return _NUMBERS.get(name, 0)


@functools.lru_cache(maxsize=None)
def of_torch(number):
    """The torch dtype of a proto number."""
    import torch
    dtype = DTYPES[number - 1]
    if not hasattr(torch, dtype.torch or "uint8"):
        raise errors.make(StatusCode.UNIMPLEMENTED, f"a tensor is {dtype.name}, for which torch {torch.__version__} has no type; "
                          "pip install 'torch>=2.7'", "DTYPE_UNSUPPORTED")
    return getattr(torch, dtype.torch or "uint8")


# As daemon/base/dtype.c has them.
_OTHER_NAMES = {"half": "F16", "float": "F32", "double": "F64", "fp16": "F16", "fp32": "F32", "fp64": "F64", "fp8_e4m3": "F8_E4M3",
                "fp8_e4m3fn": "F8_E4M3", "f8_e4m3fn": "F8_E4M3", "float8_e4m3": "F8_E4M3", "fp8_e5m2": "F8_E5M2", "f8_e8m0fnu": "F8_E8M0",
                "bool_": "BOOL"}
_CODES = {np.dtype(dtype.numpy).str[1:]: dtype.name for dtype in DTYPES if dtype.numpy and not dtype.numpy.startswith("ml:")}
_READ = {**_OTHER_NAMES, **{word: dtype.name for dtype in DTYPES for word in (dtype.name.lower(), dtype.torch) if word}}
_AMBIGUOUS = ("f4", "f8", "i8", "u8")
_MODULES = ("torch.", "numpy.", "np.", "jax.numpy.", "jnp.", "ml_dtypes.")


def read_name(given):
    """The safetensors name of what a caller calls a type: "BF16", "bfloat16", "torch.bfloat16", torch.bfloat16, numpy.float32,
    numpy.dtype("float32"), jax.numpy.bfloat16. INVALID_ARGUMENT, a ValueError, for what is none."""
    text = given if isinstance(given, str) else _name_of_object(given) or repr(given)
    word = text.lower()
    word = next((word[len(module):] for module in _MODULES if word.startswith(module)), word)
    found = None if text in _AMBIGUOUS else _READ.get(word) or _CODES.get(text)
    if found:
        return found
    nearest = difflib.get_close_matches(word, _READ, 1)
    raise errors.invalid(f"dtype: expected one of {', '.join(NAMES[1:])}{f' (did you mean {_READ[nearest[0]]}?)' if nearest else ''}, not "
                         f"{given!r}", "UNKNOWN_DTYPE")


def _name_of_object(given):
    """None where it is no type."""
    if type(given).__module__ == "torch":
        return str(given)
    if isinstance(getattr(given, "dtype", None), np.dtype) and callable(given):  # as jax.numpy has them
        return given.dtype.name
    try:
        return np.dtype(given).name if isinstance(given, (type, np.dtype)) else None
    except TypeError:
        return None


def is_type(value):
    """Whether it is an object that stands for an element type, not its name."""
    return not isinstance(value, str) and _name_of_object(value) is not None


def cast_recipe(dtype):
    """The recipe of a load with dtype=: the step that `tensorcast load --dtype` adds."""
    return {"version": 1, "steps": [{"cast": {"tensors": ["*"], "dtype": read_name(dtype)}, "optional": True}]}
