"""Constants that a load writes into targets: the bytes of one element of the target's type, or an error for what it cannot hold."""
from __future__ import annotations

import math
import operator

import numpy as np

from . import errors
from .dtypes import DTYPES, NAMES, of_numpy

BAD_FILL = "BAD_FILL"


def element(name, value, number):
    """The little-endian bytes of `value` as one element of the dtype with that proto number.

    Floats are rounded to the nearest that the type has. Refused: numbers out of range, fractions and NaN for whole types,
    infinity, NaN, zero or a sign where a type has none of it."""
    dtype = of_numpy(number)
    if dtype.kind in "biu" and DTYPES[number - 1].numpy != dtype.name:
        raise errors.invalid(f"fill {name}: this ml_dtypes has no {NAMES[number]}; pip install 'ml_dtypes>=0.5'", BAD_FILL, tensor=name)
    made = (_whole if dtype.kind in "biu" else _rounded)(name, value, number)
    return made.astype(dtype.newbyteorder("<")).tobytes() if dtype.isbuiltin == 1 else made.tobytes()


def _whole(name, value, number):
    """Of BOOL and the integers."""
    dtype = of_numpy(number)
    exact = _number(name, value, number)
    if isinstance(exact, float) and exact.is_integer():
        exact = int(exact)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not isinstance(exact, int) or not low <= exact <= high:
        raise _bad(name, value, number)
    return np.array(exact, dtype)


def _rounded(name, value, number):
    """Of everything with a fraction."""
    dtype, exact = of_numpy(number), _number(name, value, number)
    if dtype.kind == "c":
        exact = complex(exact)
        parts = [_nearest(part, np.dtype("f4")) for part in (exact.real, exact.imag)]
        made = None if None in parts else np.array(complex(*parts), dtype)
    else:
        made = _nearest(exact, dtype)
    if made is None:
        raise _bad(name, value, number)
    return made


def _nearest(exact, dtype):
    """The number as a value of that type; None when it has none that stands for it."""
    try:
        exact = float(exact)
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        made = np.array(exact, np.float64).astype(dtype)
    back = float(made)
    if math.isnan(exact):
        return made if math.isnan(back) else None
    if math.isinf(exact) or not exact:
        return made if back == exact else None
    return made if math.isfinite(back) and back * exact >= 0 else None


def _number(name, value, number):
    """The value as an int, a float or, where the type has an imaginary part, a complex."""
    if isinstance(value, (str, bytes, bytearray)):
        raise _bad(name, value, number)
    value = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    for convert in (operator.index, float, *([complex] if NAMES[number] == "C64" else [])):
        try:
            return convert(value)
        except (TypeError, ValueError):
            continue
        except OverflowError:
            break
    raise _bad(name, value, number)


def _bad(name, value, number):
    return errors.invalid(f"fill {name}: {NAMES[number]} cannot hold {value!r:.80}", BAD_FILL, tensor=name)
