"""Random checkpoints, some of their tensors in pieces; random recipes; random views of what comes out: the transfers of our
mapping, applied to the files' bytes, give what NumPy makes of the same steps. TEST_SEED repeats a run; a failure prints it."""
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")
ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / os.environ.get("TENSORCAST_BUILD", "build") / "tests" / "variant_tool"
SEED = int(os.environ.get("TEST_SEED", 0)) or random.SystemRandom().randrange(1, 2**32)
N_CHECKPOINTS, N_VARIANTS, N_VIEWS = 25, 25, 5

FLOATS = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64,
          "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn}
PLAIN = {"BOOL": np.uint8, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "I32": np.int32, "U32": np.uint32,
         "I64": np.int64, "U64": np.uint64, "C64": np.uint64}


class Tensor:
    """Elements as unsigned numbers of their width; of F4 a number per element, of which two are packed into a byte."""

    def __init__(self, dtype, bits):
        self.dtype, self.bits = dtype, bits

    def bytes(self):
        flat = np.ascontiguousarray(self.bits).reshape(-1)
        return (flat[::2] | flat[1::2] << 4).tobytes() if self.dtype == "F4" else flat.tobytes()

    def with_bits(self, bits):
        return Tensor(self.dtype, bits)


def random_tensor(rng):
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 4, 6, 8, 12], rng.integers(0, 5), p=[.02, .1, .2, .12, .2, .16, .12, .08]))
    dtype = str(rng.choice([*FLOATS, *PLAIN, "F4"]))
    if dtype == "F4":
        shape = (*shape, 2 * int(rng.integers(1, 5)))
        return Tensor(dtype, rng.integers(0, 16, shape, np.uint8))
    if dtype in FLOATS:
        values = (rng.standard_normal(shape) * 10).astype(FLOATS[dtype])
        return Tensor(dtype, values.reshape(shape).view(f"u{values.dtype.itemsize}") if shape else np.array(values).view(f"u{values.dtype.itemsize}"))
    width = np.dtype(PLAIN[dtype]).itemsize
    return Tensor(dtype, np.frombuffer(rng.bytes(int(np.prod(shape, dtype=int)) * width), f"u{width}").reshape(shape))


def write_file(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.bytes()
        header[name] = {"dtype": t.dtype, "shape": list(t.bits.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def cut(rng, name, t):
    """Whole, or in pieces that tests/support/pieces.h puts together."""
    shape = t.bits.shape
    if not shape or 0 in shape or t.dtype == "F4" or rng.random() < .4:
        return {name: t}
    boxes = [[(0, n) for n in shape]]
    for d in rng.integers(0, len(shape), 3):
        at = int(rng.integers(0, shape[d] + 1))
        boxes = [box[:d] + [part] + box[d + 1:] for box in boxes
                 for part in ([(box[d][0], at), (at, box[d][1])] if box[d][0] < at < box[d][1] else [box[d]])]
    return {f"{name}@{','.join(str(b) for b, _ in box)}": t.with_bits(t.bits[tuple(slice(*b) for b in box)]) for box in boxes}


def write_checkpoint(rng, folder):
    tensors = {f"t.{i}": random_tensor(rng) for i in range(rng.integers(2, 7))}
    shape = [int(rng.integers(1, 7)), int(rng.integers(1, 7))]
    block = [int(rng.integers(1, 4)), int(rng.integers(1, 4))]
    grid = [-(-n // b) for n, b in zip(shape, block)]
    tensors["w"] = Tensor("F8_E4M3", rng.standard_normal(shape).astype(FLOATS["F8_E4M3"]).view("u1"))
    tensors["w_scale"] = Tensor("F32", (rng.standard_normal(grid) * 3).astype(np.float32).view("u4"))
    parts = [{} for _ in range(rng.integers(1, 4))]
    for name, t in tensors.items():
        for stored, piece in cut(rng, name, t).items():
            parts[rng.integers(0, len(parts))][stored] = piece
    folder.mkdir()
    for i, part in enumerate(parts):
        write_file(folder / f"part-{i}.safetensors", part)
    return tensors, block


# --- steps: each changes the tensors as NumPy would, and returns what the recipe says ---

def step_rename(rng, tensors, name, fresh):
    tensors[fresh] = tensors.pop(name)
    return {"rename": {name: fresh}}


def step_slice(rng, tensors, name, fresh):
    t = tensors[name]
    slices = [[int(a) if rng.random() < .8 else None for a in rng.integers(-n - 1, n + 2, 2)] for n in t.bits.shape]
    part = t.with_bits(t.bits[tuple(slice(*s) for s in slices)])
    if t.dtype == "F4" and part.bits.size % 2:
        return None
    tensors[name] = part
    return {"slice": {"tensors": [name], "slices": slices}}


def step_transpose(rng, tensors, name, fresh):
    t = tensors[name]
    dims = [int(d) for d in rng.permutation(t.bits.ndim)]
    tensors[name] = t.with_bits(t.bits.transpose(dims))
    return {"transpose": {"tensors": [name], "dims": [d - t.bits.ndim if rng.random() < .2 else d for d in dims]}}


def step_reshape(rng, tensors, name, fresh):
    t, left, shape = tensors[name], int(tensors[name].bits.size), []
    while left > 1 and rng.random() < .7:
        factors = [n for n in range(2, left + 1) if left % n == 0]
        shape.append(int(rng.choice(factors[:8])))
        left //= shape[-1]
    if left != 1 or rng.random() < .3:
        shape.append(left)
    tensors[name] = t.with_bits(t.bits.reshape(shape))
    if shape and t.bits.size and rng.random() < .4:
        shape[rng.integers(0, len(shape))] = -1
    return {"reshape": {"tensors": [name], "shape": shape}}


def step_split_and_join(rng, tensors, name, fresh):
    t = tensors[name]
    if not t.bits.ndim:
        return None
    dim = int(rng.integers(0, t.bits.ndim))
    at = int(rng.integers(0, t.bits.shape[dim] + 1))
    first, second = np.split(t.bits, [at], dim)
    if t.dtype == "F4" and (first.size % 2 or second.size % 2):
        return None
    del tensors[name]
    steps = [{"split": {"from": name, "to": [f"{fresh}.0", f"{fresh}.1"], "sizes": [at, t.bits.shape[dim] - at], "dim": dim}}]
    if rng.random() < .3:
        tensors |= {f"{fresh}.0": t.with_bits(first), f"{fresh}.1": t.with_bits(second)}
        return steps
    tensors[fresh] = t.with_bits(np.concatenate([second, first], dim))
    return [*steps, {"concat": {"from": [f"{fresh}.1", f"{fresh}.0"], "to": fresh, "dim": dim}}]


def step_stack(rng, tensors, name, fresh):
    t, n = tensors.pop(name), int(rng.integers(1, 4))
    if t.bits.ndim > 5 or t.bits.size * n > 3000:
        tensors[name] = t
        return None
    dim = int(rng.integers(0, t.bits.ndim + 1))
    tensors[fresh] = t.with_bits(np.stack([t.bits] * n, dim))
    return [{"rename": {name: f"{fresh}.0"}}, *({"alias": {f"{fresh}.{i}": f"{fresh}.0"}} for i in range(1, n)),
            {"stack": {"from": fresh + ".{}", "to": fresh, "dim": dim}}]


def step_unstack(rng, tensors, name, fresh):
    t = tensors[name]
    if not t.bits.ndim or t.bits.shape[0] > 6 or (t.dtype == "F4" and (t.bits.size // max(t.bits.shape[0], 1)) % 2):
        return None
    del tensors[name]
    tensors |= {f"{fresh}.{i}": t.with_bits(t.bits[i]) for i in range(t.bits.shape[0])}
    return {"unstack": {"from": name, "to": fresh + ".{}", "dim": 0}}


def step_rope(rng, tensors, name, fresh):
    t = tensors[name]
    if not t.bits.ndim or not t.bits.shape[0] or t.bits.shape[0] % 2:
        return None
    rows = t.bits.shape[0]
    heads = int(rng.choice([h for h in range(1, rows // 2 + 1) if rows % (2 * h) == 0]))
    to = str(rng.choice(["halves", "interleaved"]))
    inner = (rows // heads // 2, 2) if to == "halves" else (2, rows // heads // 2)
    bits = t.bits.reshape(heads, *inner, *t.bits.shape[1:]).swapaxes(1, 2)
    tensors[name] = t.with_bits(bits.reshape(t.bits.shape))
    return {"permute_rope": {"tensors": [name], "heads": heads, "to": to}}


def randperms(seed, n, count):
    state = np.random.RandomState(seed)
    for _ in range(count):
        a = list(range(n))
        for i in range(n - 1):
            z = int(state.randint(0, 1 << 32, dtype=np.uint32)) % (n - i)
            a[i], a[i + z] = a[i + z], a[i]
        yield a


def step_replicate(rng, tensors, name, fresh):
    t = tensors[name]
    if t.bits.ndim != 2 or not t.bits.size or t.bits.size > 100:
        return None
    kind, replicas = str(rng.choice(["w1", "w2", "w3.weight"])), int(rng.integers(1, 4))
    columns = kind == "w2"
    hidden = t.bits.shape[columns]
    inner = int(rng.choice([n for n in range(1, hidden + 1) if hidden % n == 0]))
    groups, seed = hidden // inner, int(rng.integers(0, 100)) if rng.random() < .6 else None
    perms = [list(range(hidden)), *(randperms(seed, hidden, replicas - 1) if seed is not None else [])]
    picks = [[perms[e // groups if seed is not None else 0][e % groups * inner + m] for m in range(inner)]
             for e in range(groups * replicas)]
    del tensors[name]
    tensors[f"{fresh}.{kind}"] = t.with_bits(np.stack([t.bits[:, pick] if columns else t.bits[pick] for pick in picks]))
    arguments = {"tensors": [f"{fresh}.{kind}"], "experts": groups * replicas, "inter_dim": inner}
    return [{"rename": {name: f"{fresh}.{kind}"}}, {"replicate_experts": arguments | ({"shuffle_seed": seed} if seed is not None else {})}]


def step_cast(rng, tensors, name, fresh):
    t, dtype = tensors[name], str(rng.choice(list(FLOATS)))
    if t.dtype == "F4":
        return None
    if t.dtype in FLOATS:
        with np.errstate(all="ignore"):
            values = np.ascontiguousarray(t.bits).view(FLOATS[t.dtype]).astype(FLOATS[dtype])
        tensors[name] = Tensor(dtype, np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(t.bits.shape))
    return {"cast": {"tensors": [name], "dtype": dtype}}


STEPS = [step_rename, step_slice, step_transpose, step_transpose, step_reshape, step_reshape, step_split_and_join, step_stack, step_unstack,
         step_rope, step_replicate, step_cast]


def dequantize(rng, tensors, block):
    """Of the weights as they are stored, or transposed before with their scales."""
    before = []
    if rng.random() < .4:
        for name in ["w", "w_scale"]:
            tensors[name] = tensors[name].with_bits(tensors[name].bits.T)
        block, before = block[::-1], [{"transpose": {"tensors": ["w", "w_scale"], "dims": [1, 0]}}]
    w, scale = tensors["w"], tensors.pop("w_scale")
    i, k = (np.arange(n) // b for n, b in zip(w.bits.shape, block))
    dtype = str(rng.choice(["F32", "BF16"]))
    values = w.bits.view(FLOATS["F8_E4M3"]).astype(np.float32) * scale.bits.view(np.float32)[np.ix_(i, k)]
    values = np.ascontiguousarray(values.astype(FLOATS[dtype]))
    tensors["w"] = Tensor(dtype, values.view(f"u{values.dtype.itemsize}"))
    return [*before, {"dequantize": {"tensors": ["w"], "scale": "{tensor}_scale", "block": block, "dtype": dtype}}]


def random_recipe(rng, tensors, block):
    """The steps; `tensors` become what they give."""
    steps = dequantize(rng, tensors, block) if rng.random() < .6 else []
    for i in range(rng.integers(1, 8)):
        name = str(rng.choice(list(tensors)))
        step = STEPS[rng.integers(0, len(STEPS))](rng, tensors, name, f"new{i}")
        steps += step if isinstance(step, list) else [step] if step else []
    return steps


def random_bound(rng, extent):
    return None if rng.random() < .2 else int(rng.integers(-extent - 2, extent + 3))


def random_view(rng, tensors):
    names = [str(name) for name in rng.permutation(list(tensors))][:rng.integers(1, len(tensors) + 1)]
    return [(name, None if rng.random() < .3 else [slice(random_bound(rng, n), random_bound(rng, n)) for n in tensors[name].bits.shape])
            for name in names]


def spell(reference, recipe, view):
    words = [reference, recipe, len(view)]
    for name, slices in view:
        words += [name, 0 if not slices else len(slices)]
        words += ["." if b is None else b for s in slices or [] for b in (s.start, s.stop)]
    return " ".join(map(str, words)) + "\n"


def test_variants_hold_what_numpy_makes_of_the_steps(tmp_path):
    rng = np.random.default_rng(SEED)
    questions, wanted = "", []
    for c in range(N_CHECKPOINTS):
        stored, block = write_checkpoint(rng, tmp_path / f"model-{c}")
        for v in range(N_VARIANTS):
            tensors = dict(stored)
            recipe = tmp_path / f"{c}-{v}.json"
            recipe.write_text(json.dumps({"version": 1, "steps": random_recipe(rng, tensors, block)}))
            for view in [[], *(random_view(rng, tensors) for _ in range(N_VIEWS))]:
                questions += spell(f"disk:{tmp_path}/model-{c}", recipe, view)
                wanted.append((recipe, view, tensors))
    done = subprocess.run([TOOL], input=questions, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (SEED, done.returncode, done.stderr[-2000:])
    lines = iter(done.stdout.splitlines())
    n_compared = 0
    for recipe, view, tensors in wanted:
        first = next(lines).split(maxsplit=2)
        where = f"TEST_SEED={SEED} {recipe.read_text()} {view}"
        selection = dict(view) or dict.fromkeys(tensors)
        if first[0] == "error":  # only elements that share a byte cannot be moved
            assert first[1] == "UNIMPLEMENTED" and any(tensors[name].dtype == "F4" for name in selection), (where, first)
            continue
        got = [next(lines).split() for _ in range(int(first[2]))]
        assert {g[0] for g in got} == set(selection), where
        for name, dtype, shape, raw in got:
            t, slices = tensors[name], selection[name]
            want = t.with_bits(t.bits[tuple(slices)] if slices else t.bits)
            assert (dtype, shape) == (t.dtype, "".join(f"{n}," for n in want.bits.shape) + "."), (where, name)
            assert raw[:-1] == want.bytes().hex(), (where, name)
            n_compared += 1
    assert n_compared > 1000
