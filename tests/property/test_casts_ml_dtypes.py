"""Every cast is bit for bit what ml_dtypes makes of the same elements: all values of 8 and 16 bits, of F32 every exponent with
mantissas around every rounding, and random ones of 32 and 64 bits; in every version that this processor runs. TEST_SEED repeats
a run; a failure prints it."""
import os
import random
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / os.environ.get("TENSORCAST_BUILD", "build") / "tests" / "cast_tool"
SEED = int(os.environ.get("TEST_SEED", 0)) or random.SystemRandom().randrange(1, 2**32)
N_RANDOM = 200_000
EIGHTS = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
          "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, **EIGHTS}
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow and NaN are what is looked for


def versions():
    return subprocess.run([TOOL, "versions"], check=True, capture_output=True, text=True).stdout.split()


def bits(array):
    return array.view(BITS[array.dtype.itemsize])


def run_tool(*words, array):
    done = subprocess.run([TOOL, *map(str, words)], input=bits(array).tobytes(), capture_output=True)
    assert done.returncode in (0, 3), done
    return done.stdout if done.returncode == 0 else None


def around_roundings():
    """Magnitudes of F32: every exponent with mantissas that end where a type cuts, just before and behind."""
    tops = np.concatenate([np.arange(16, dtype=np.uint32) << 19, 1 << np.arange(23, dtype=np.uint32),
                           (1 << 23) - (1 << np.arange(23, dtype=np.uint32))])
    mantissas = np.unique(np.concatenate([tops ^ low for low in (0, 1, *(1 << n for n in range(10, 23)), *((1 << n) - 1 for n in range(10, 23)),
                                                                *((1 << n) + 1 for n in range(10, 23)))]) & 0x7fffff)
    return (np.arange(256, dtype=np.uint32)[:, None] << 23 | mantissas[None, :].astype(np.uint32)).ravel()


def inputs(name, rng):
    dtype = np.dtype(FLOATS[name])
    if dtype.itemsize <= 2:
        return np.arange(256**dtype.itemsize, dtype=BITS[dtype.itemsize]).view(dtype)
    edges = around_roundings()
    edges = np.concatenate([edges, edges | 1 << 31])
    if dtype.itemsize == 4:
        return np.concatenate([edges, rng.integers(0, 2**32, N_RANDOM, np.uint32)]).view(dtype)
    wide = edges.view(np.float32).astype(np.float64).view(np.uint64)  # and beside each of them, so that two roundings are told from one
    ranged = (np.exp2(rng.uniform(-160, 140, N_RANDOM)) * rng.choice([-1, 1], N_RANDOM)).view(np.uint64)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64).view(np.uint64)
    between = halves + (np.uint64(1) << np.uint64(41))  # ties of F16
    nans = rng.integers(0, 2**52, 2000, np.uint64) | np.uint64(0x7ff << 52) | rng.integers(0, 2, 2000, np.uint64) << np.uint64(63)
    return np.concatenate([wide, wide + np.uint64(1), wide - np.uint64(1), halves, between, between + np.uint64(1), between - np.uint64(1),
                           nans, ranged, rng.integers(0, 2**64, N_RANDOM, np.uint64)]).view(np.float64)


def random_scales(rng, n):
    """Most as models have them, some that leave the range of F32 with an element, and no NaN, whose payload is the processor's."""
    scales = np.exp2(rng.uniform(-20, 20, n)) * rng.choice([-1, 1, 1, 1], n)
    extreme = rng.choice([0, 2**-149, 2**-130, 2**118, 2**119, 2**120, 2**127, np.inf], n)
    return np.where(rng.random(n) < .05, extreme, scales).astype(np.float32)


def expected(array, to):
    eight_bits = {np.dtype(dtype) for dtype in EIGHTS.values()}
    if array.dtype != to and {array.dtype, np.dtype(to)} <= eight_bits:  # ml_dtypes has none between E8M0 and the others
        array = array.astype(np.float32)
    return array.astype(to)


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("source", FLOATS)
def test_a_cast_is_bit_for_bit_that_of_ml_dtypes(source, version):
    array = inputs(source, np.random.default_rng(SEED))
    for target, dtype in FLOATS.items():
        want = array if source == target else expected(array, dtype)
        got = run_tool("cast", version, source, target, array=array)
        if got is None:
            assert version != "chosen", f"{source} to {target} is no cast"
            continue
        wrong = np.flatnonzero(np.frombuffer(got, bits(want).dtype) != bits(want))
        first = wrong[0] if wrong.size else 0
        assert not wrong.size, (f"TEST_SEED={SEED} {version} {source} to {target}: {wrong.size} wrong, {bits(array)[first]:#x} gives "
                                f"{np.frombuffer(got, bits(want).dtype)[first]:#x} instead of {bits(want)[first]:#x}")


@pytest.mark.parametrize("target", ["F4", "F6_E2M3", "F6_E3M2", "I8", "U8", "BOOL", "I32", "C64", "I64"])
def test_types_that_are_no_floats_of_a_byte_or_more_have_no_cast(target):
    for source in FLOATS:
        assert run_tool("cast", "chosen", source, target, array=np.zeros(1, FLOATS[source])) is None
        assert run_tool("cast", "chosen", target, source, array=np.zeros(8, np.uint8)) is None


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("source", EIGHTS)
def test_a_scaled_run_is_the_product_in_f32_cast_to_the_target(source, version):
    rng = np.random.default_rng(SEED)
    for target, dtype in FLOATS.items():
        for block in (1, 3, 16, 64, 100, 128, 1000):
            column, n = int(rng.integers(0, 3 * block)), int(rng.integers(1, 3000))
            row = rng.integers(0, 256, column + n, np.uint8).view(FLOATS[source])
            scales = random_scales(rng, (column + n + block - 1) // block)
            want = expected(row.astype(np.float32) * np.repeat(scales, block)[:column + n], dtype)[column:]
            got = run_tool("dequantize", version, source, target, column, block, *bits(scales), array=row[column:])
            if got is None:
                assert version != "chosen"
                break
            assert got == want.tobytes(), f"TEST_SEED={SEED} {version} {source} to {target}, blocks of {block} from column {column}"
