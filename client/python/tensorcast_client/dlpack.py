"""DLPack capsules of memory that another object keeps alive, made with ctypes: the struct of dlpack.h, unversioned, which every
framework reads."""
from __future__ import annotations

import ctypes

from .dtypes import BITS, NAMES

_CODES = {"BOOL": 6, "I8": 0, "I16": 0, "I32": 0, "I64": 0, "U8": 1, "U16": 1, "U32": 1, "U64": 1, "F16": 2, "F32": 2,
          "F64": 2, "BF16": 4, "C64": 5}  # DLDataTypeCode; what is not here travels as bytes
_NAME = b"dltensor"


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("number", ctypes.c_int)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("rank", ctypes.c_int), ("dtype", _Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))

_alive = {}  # address of a Managed: what it needs, until its consumer calls the deleter


@_Deleter
def _delete(address):
    _alive.pop(address, None)


@_Destructor
def _destroy(raw):  # of a capsule that may have been consumed, which renames it
    if _is_valid(raw, _NAME):
        _delete(_pointer_of(raw, _NAME))


def dtype_of(name):
    """(code, bits) of a safetensors dtype; one byte where DLPack's frameworks know no such type."""
    return (_CODES[name], int(BITS[NAMES.index(name)])) if name in _CODES else (_CODES["U8"], 8)


def capsule(owner, address, dtype, shape, device):
    """A capsule of a C-ordered tensor. `owner` lives until the consumer is done with it."""
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    strides = [1] * max(1, len(shape))
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * max(1, shape[i + 1])
    steps = (ctypes.c_int64 * len(strides))(*strides)
    managed = Managed(_Tensor(address, _Device(*device), len(shape), _Type(*dtype, 1), dims, steps, 0), None, _delete)
    where = ctypes.addressof(managed)
    _alive[where] = (managed, dims, steps, owner)
    return _api.PyCapsule_New(where, _NAME, _destroy)


class DlpackTensors:
    """Makes the tensors of a layout in GPU memory, as objects with __dlpack__."""

    def __init__(self, memory, layout):
        self._memory, self._layout = memory, layout

    def one(self, index):
        from .cuda import DeviceTensor
        layout = self._layout
        name, shape = NAMES[int(layout.dtypes[index])], layout.shapes[index]
        if name not in _CODES:  # as bytes: the last dimension holds them where it can
            size = int(layout.sizes[index])
            whole = BITS[int(layout.dtypes[index])] == 8
            name, shape = "U8", shape if whole else (size,)
        return DeviceTensor(self._memory, self._memory.address + int(layout.offsets[index]), name, shape)

    def all(self):
        """Every tensor, in view order."""
        return list(map(self.one, range(len(self._layout))))
