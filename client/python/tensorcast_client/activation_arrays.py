"""Arrays of a sample on their way into shared memory: what they are, and one copy of their elements wherever they lie."""
from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import dtypes, errors

MAX_SAMPLE = 99_999_999
MAX_LAYER = 0xFFFFFFFF
_F32, _BF16 = dtypes.number_of("float32"), dtypes.number_of("bfloat16")


class Plane(NamedTuple):
    """One layer's array, ready to be copied."""

    layer: int
    number: int  # of its element type on the wire
    shape: tuple
    bytes: int
    source: Any  # a NumPy array of any strides, or a torch tensor
    is_narrowed: bool


def whole_number(value):
    """TypeError when it is none; True and False are none."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


def sample_number(sample):
    try:
        number = whole_number(sample)
    except TypeError:
        raise errors.invalid(f"{sample!r} is no number of a sample; it is a whole number", "BAD_SAMPLE") from None
    if not 0 <= number <= MAX_SAMPLE:
        raise errors.invalid(f"{number} is no number of a sample; those are 0 to {MAX_SAMPLE}", "BAD_SAMPLE")
    return number


def layer_numbers(layers):
    """The set of those that are to be read; None for all."""
    if layers is None:
        return None
    try:
        numbers = None if isinstance(layers, (str, bytes)) else {whole_number(layer) for layer in layers}
    except TypeError:
        numbers = None
    if numbers is None or not all(0 <= number <= MAX_LAYER for number in numbers):
        raise errors.invalid(f"layers is {layers!r}; it is a list of layers, [10, 15], from 0 to {MAX_LAYER}", "BAD_LAYER")
    return numbers


def planes_of(sample, layers, narrow):
    """The planes of a sample, widest elements first, so that every array lies aligned behind the one before."""
    if not isinstance(layers, Mapping) or not layers:
        raise errors.invalid(f"sample {sample}: its layers are a dict with at least one array, {{10: array}}", "NO_LAYERS")
    planes = [_plane(sample, layer, array, narrow) for layer, array in layers.items()]
    return sorted(planes, key=lambda plane: (-int(dtypes.BITS[plane.number]), plane.layer))


def _plane(sample, layer, array, narrow):
    try:
        layer = whole_number(layer)
    except TypeError:
        raise errors.invalid(f"sample {sample}: layer {layer!r} is no whole number", "BAD_LAYER") from None
    if not 0 <= layer <= MAX_LAYER:
        raise errors.invalid(f"sample {sample}: layer {layer}; layers are 0 to {MAX_LAYER}", "BAD_LAYER")
    source, name = _elements(sample, layer, array)
    number = dtypes.number_of(name)
    if not number:
        raise errors.invalid(f"sample {sample}, layer {layer}: arrays of {name} cannot be stored", "BAD_DTYPE")
    shape = tuple(int(n) for n in source.shape)
    narrowed = _narrowed(source) if narrow and number == _F32 else None
    if narrowed is not None:
        source, number = narrowed, _BF16
    size = int(np.prod(shape, dtype=object)) * int(dtypes.BITS[number]) // 8
    return Plane(layer, number, shape, size, source, narrowed is not None)


def _elements(sample, layer, array):
    """(a NumPy array or a torch tensor, the name of its element type)."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.layout is not torch.strided or array.is_meta or array.is_nested:
            kind = "a tensor without data" if array.is_meta else "a nested tensor" if array.is_nested else f"a tensor of the layout {array.layout}"
            raise errors.invalid(f"sample {sample}, layer {layer}: {kind} cannot be stored; it has to be dense", "NO_ARRAY")
        return array.detach(), str(array.dtype).removeprefix("torch.")
    if isinstance(array, np.ma.MaskedArray):
        raise errors.invalid(f"sample {sample}, layer {layer}: masks are not stored; fill or drop what is masked", "NO_ARRAY")
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise errors.invalid(f"sample {sample}, layer {layer}: {type(array).__name__} is no array of NumPy, torch or JAX", "NO_ARRAY")
    try:
        source = np.asarray(array)
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:  # JAX: of traced and deleted arrays, and keys
        said = str(error).partition("\n")[0]
        raise errors.invalid(f"sample {sample}, layer {layer}: its elements cannot be read: {said}", "NO_ARRAY") from None
    return source, source.dtype.name


def _narrowed(source):
    """The upper halves of 32-bit floats, where all the lower ones are zero; else None. A view, not a copy."""
    if not isinstance(source, np.ndarray):
        if source.device.type != "cpu":
            source = source.cpu()
        source = source.resolve_neg().numpy()
    if not source.size:
        return None
    bits = source if source.dtype.isnative else source.astype(source.dtype.newbyteorder("="))
    if not bits.flags.c_contiguous:
        bits = np.ascontiguousarray(bits)
    halves = bits.reshape(-1).view(np.uint16)
    low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
    return None if _any_set(halves[low::2]) else halves[high::2].reshape(source.shape)


def _any_set(halves, step=1 << 18):
    """Piece by piece: the first difference mostly comes early."""
    return any(halves[at:at + step].any() for at in range(0, len(halves), step))


def pieces(source, limit, size):
    """(piece, bytes) of an array of `size` bytes in C order. Pieces are views, contiguous or of no more than `limit` bytes."""
    if size <= limit or _is_contiguous(source):
        yield source, size
        return
    row = size // source.shape[0]
    if row > limit:
        for at in range(source.shape[0]):
            yield from pieces(source[at], limit, row)
        return
    rows = limit // row
    for at in range(0, source.shape[0], rows):
        part = source[at:at + rows]
        yield part, row * part.shape[0]


def _is_contiguous(source):
    return source.flags.c_contiguous if isinstance(source, np.ndarray) else source.is_contiguous()


def cut(piece, size):
    """The first `size` bytes of a piece, whole elements, and the rest, both as one dimension; copied where it is not contiguous."""
    if isinstance(piece, np.ndarray):
        flat, width = np.ascontiguousarray(piece).reshape(-1), piece.itemsize
    else:
        flat, width = piece.contiguous().reshape(-1), piece.element_size()
    return flat[:size // width], flat[size // width:]


def copy_into(memory, offset, piece, size):
    """Copies the elements of a piece, in C order, to memory[offset:offset + size], a NumPy array of bytes."""
    if not size:
        return
    target = memory[offset:offset + size]
    if not isinstance(piece, np.ndarray):
        import torch
        torch.from_numpy(target).view(piece.dtype).reshape(piece.shape).copy_(piece)
        return
    kind = piece.dtype.newbyteorder("=")
    np.copyto(target.view(kind).reshape(piece.shape), piece, casting="equiv")
