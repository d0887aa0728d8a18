"""Element types: safetensors name, bits per element, and what NumPy and torch call them.

Types below one byte are the packed bytes, as uint8. Where ml_dtypes is missing or too old, NumPy gets the unsigned integer of
the same width and a warning says so once; a type that torch lacks is an error.
"""
from __future__ import annotations

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
