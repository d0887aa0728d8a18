"""Random checkpoints in random layouts, random recipes, random views; and what NumPy and ml_dtypes make of them.

A tensor is its safetensors dtype and its bits, an array of unsigned integers. Files are written here, so that every type and
every layout can be: nothing of ours is asked how."""
import json
from typing import NamedTuple

import ml_dtypes
import numpy as np

FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
          "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
          "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}
EIGHTS = [name for name in FLOATS if name.startswith("F8") and name != "F8_E8M0"]  # that one is for scales
BYTES = {**{name: np.dtype(dtype).itemsize for name, dtype in FLOATS.items()}, "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "I32": 4,
         "U32": 4, "I64": 8, "U64": 8, "C64": 8}
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Tensor(NamedTuple):
    dtype: str
    bits: np.ndarray

    @property
    def shape(self):
        return self.bits.shape

    def data(self):
        return np.ascontiguousarray(self.bits).tobytes()

    def floats(self):
        return np.ascontiguousarray(self.bits).view(FLOATS[self.dtype]).reshape(self.shape)

    def cast(self, dtype):
        return self if self.dtype not in FLOATS or self.dtype == dtype else of_floats(self.floats(), dtype)


def of_floats(array, dtype):
    """What ml_dtypes does not convert at once (E8M0 from and to the other F8) goes by F32."""
    array = np.asarray(array)
    with np.errstate(all="ignore"):
        if array.dtype.itemsize == 1 == BYTES[dtype]:
            array = array.astype(np.float32)
        array = array.astype(FLOATS[dtype])
    return Tensor(dtype, array.view(BITS[array.dtype.itemsize]))


def dequantized(weight, scale, block, dtype):
    rows, columns = (np.arange(n) // b for n, b in zip(weight.shape, block))
    with np.errstate(all="ignore"):
        return of_floats(weight.floats().astype(np.float32) * scale.floats().astype(np.float32)[np.ix_(rows, columns)], dtype)


# --- checkpoints ---

def random_tensor(rng, dtype=None, shape=None):
    dtype = dtype or str(rng.choice(list(BYTES)))
    if shape is None:
        shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 4, 6, 8, 12], size=rng.integers(0, 5), p=[.03, .1, .17, .15, .2, .15, .1, .1]))
    raw = np.frombuffer(rng.bytes(int(np.prod(shape, dtype=int)) * BYTES[dtype]), BITS[BYTES[dtype]]).reshape(shape)
    return Tensor(dtype, raw & 1 if dtype == "BOOL" else raw)


def random_checkpoint(rng):
    """{name: Tensor}, with what the steps want: numbered tensors of one shape, heads, experts, blocks with their scales. One in
    ten has tensors of megabytes, which the engine reads in several windows, with elements across their ends."""
    large = int(rng.integers(200, 700)) if rng.random() < .1 else 1
    tensors = {f"other.{i}": random_tensor(rng) for i in range(rng.integers(0, 5))}
    shape, dtype = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4))), str(rng.choice(list(FLOATS)))
    shape = (shape[0] * (5 if large > 1 else 1), *shape[1:-1], shape[-1] * (2 * large if len(shape) > 1 else large))
    tensors.update({f"l.{i}.w": random_tensor(rng, dtype, shape) for i in range(rng.integers(1, 5))})
    if rng.random() < .5:
        tensors["l.0.q"] = random_tensor(rng, None, (int(rng.choice([4, 8, 12, 24])) * large, int(rng.integers(1, 9)) * large // 4 + 1))
    if rng.random() < .4:
        hidden, width = int(rng.choice([4, 8, 12])) * (16 if large > 1 else 1), int(rng.integers(1, 9)) * large
        kind = str(rng.choice(["w1", "w2", "w3"]))
        tensors[f"l.0.experts.{kind}"] = random_tensor(rng, None, (width, hidden) if kind == "w2" else (hidden, width))
    if rng.random() < .6:
        rows, columns, block = *(int(n) * (40 if large > 1 else 1) for n in rng.integers(1, 40, 2)), tuple(int(n) for n in rng.integers(1, 17, 2))
        block = (128, 128) if large > 1 else block
        tensors["quant"] = random_tensor(rng, str(rng.choice(EIGHTS)), (rows, columns))
        scales = (-(-rows // block[0]), -(-columns // block[1]))
        dtype = str(rng.choice(["F32", "F32", "BF16", "F16", "F64", "F8_E8M0"]))
        signs = 1 if dtype == "F8_E8M0" else rng.choice([-1, 1], scales)  # no NaN: times another it is one of either's sign
        tensors["quant_scale_inv"] = of_floats(np.exp2(rng.uniform(-9, 9, scales)) * signs, dtype)
        return tensors, block
    return tensors, None


def write_file(path, tensors, metadata=None):
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, tensor in tensors.items():
        size = tensor.bits.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensor.data() for tensor in tensors.values()))


def random_boxes(rng, shape, n):
    """n boxes, some of them perhaps empty, that tile the shape, cut anywhere."""
    boxes = [tuple(slice(0, extent) for extent in shape)]
    while len(boxes) < n:
        box = list(boxes.pop(int(rng.integers(len(boxes)))))
        d = int(rng.integers(len(shape)))
        at = int(rng.integers(box[d].start, box[d].stop + 1))
        for part in (slice(box[d].start, at), slice(at, box[d].stop)):
            boxes.append((*box[:d], part, *box[d + 1:]))
    return [boxes[i] for i in rng.permutation(n)]


def plain(rng, folder, tensors):
    n = int(rng.integers(1, 4))
    parts = [{} for _ in range(n)]
    for name in rng.permutation(list(tensors)):
        parts[rng.integers(0, n)][str(name)] = tensors[str(name)]
    names = ["model.safetensors"] if n == 1 else [f"model-{i:05d}-of-{n:05d}.safetensors" for i in range(1, n + 1)]
    for name, part in zip(names, parts):
        write_file(folder / name, part)
    if n > 1:
        weight_map = {tensor: name for name, part in zip(names, parts) for tensor in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def topology(rng, folder, tensors):
    n = int(rng.integers(1, 5))
    files, told = [{} for _ in range(n)], {}
    for name, tensor in tensors.items():
        entry = told[name] = {"shape": list(tensor.shape), "dtype": tensor.dtype}
        if tensor.bits.ndim == 0 or rng.random() < .3:
            holders = sorted(int(i) for i in rng.permutation(n)[:rng.integers(1, n + 1)])
            entry.update(type="Shared", filename_indices=holders)
            for at in holders:
                files[at][name] = tensor
        else:
            boxes, order = random_boxes(rng, tensor.shape, n), [int(i) for i in rng.permutation(n)]
            entry.update(type="Distributed", chunks=[{"offsets": [part.start for part in box], "filename_index": at,
                                                      "shape": [part.stop - part.start for part in box]} for box, at in zip(boxes, order)])
            for box, at in zip(boxes, order):
                files[at][name] = Tensor(tensor.dtype, tensor.bits[box])
    names = [f"rank{i}.safetensors" for i in range(n)]
    for name, part in zip(names, files):
        write_file(folder / name, part)
    (folder / "topology.json").write_text(json.dumps({"tensors": told, "filenames": names, "world_size": n}))


def dcp(rng, folder, tensors):
    n = int(rng.integers(1, 5))
    files, offsets = [{} for _ in range(n)], [{} for _ in range(n)]
    for name, tensor in tensors.items():
        whole = tensor.bits.ndim == 0 or tensor.bits.size == 0
        boxes = [tuple(slice(0, extent) for extent in tensor.shape)] if whole else random_boxes(rng, tensor.shape, int(rng.integers(1, n + 1)))
        for box, at in zip(boxes, rng.permutation(n)):
            for copy in {int(at), int(rng.integers(0, n))} if len(boxes) == 1 else {int(at)}:  # a replica, sometimes
                files[copy][name] = Tensor(tensor.dtype, tensor.bits[box])
                offsets[copy][name] = {"saved_offsets": [part.start for part in box]}
    for i, part in enumerate(files, 1):
        write_file(folder / f"shard-{i:05d}-model-00001-of-00001.safetensors", part,
                   {"DCP_SHARDING_INFO": json.dumps(offsets[i - 1]), "DCP_VERSION": "1.0", "format": "pt"})


LAYOUTS = [plain, topology, dcp]


# --- recipes ---

class Recipe:
    """Steps, and what they make of the tensors."""

    def __init__(self, rng, tensors, block):
        self.rng, self.tensors, self.block, self.steps, self.n_names = rng, dict(tensors), block, [], 0
        for _ in range(rng.integers(0, 7)):
            kind = KINDS[rng.integers(0, len(KINDS))]
            step = kind(self)
            if step:
                self.steps.append(step)

    def new_name(self):
        self.n_names += 1
        return f"made.{self.n_names}"

    def some(self, fits=lambda tensor: True, most=3):
        names = [name for name, tensor in self.tensors.items() if fits(tensor)]
        return [str(name) for name in self.rng.permutation(names)[:self.rng.integers(1, most + 1)]] if names else []

    def change(self, names, function):
        for name in names:
            self.tensors[name] = function(self.tensors[name])

    def drop(self):
        names = self.some(most=2)
        if len(self.tensors) < len(names) + 2 or any("quant" in name for name in names):
            return None
        for name in names:
            del self.tensors[name]
        return {"drop": names}

    def rename(self):
        names = [name for name in self.some() if "quant" not in name and "experts" not in name]
        if self.rng.random() < .3 and any(name.startswith("l.") and name.endswith(".w") for name in self.tensors):
            self.n_names += 1
            to = f"r{self.n_names}"
            self.tensors = {f"{to}.{name.split('.')[1]}.w" if name.startswith("l.") and name.endswith(".w") else name: tensor
                            for name, tensor in self.tensors.items()}
            return {"rename": {"l.{}.w": to + ".{}.w"}}
        rules = {name: self.new_name() for name in names}
        self.tensors = {rules.get(name, name): tensor for name, tensor in self.tensors.items()}
        return {"rename": rules} if rules else None

    def alias(self):
        rules = {self.new_name(): name for name in self.some(most=2)}
        self.tensors.update({new: self.tensors[name] for new, name in rules.items()})
        return {"alias": rules} if rules else None

    def slice(self):
        name = self.one(lambda tensor: tensor.bits.ndim)
        if not name:
            return None
        bounds = [random_bounds(self.rng, extent) for extent in self.tensors[name].shape]
        index = tuple(slice(*pair) if pair else slice(None) for pair in bounds)
        self.change([name], lambda tensor: Tensor(tensor.dtype, tensor.bits[index]))
        return {"slice": {"tensors": [name], "slices": bounds}}

    def one(self, fits):
        names = [name for name in self.some(fits, 1) if "quant" not in name]
        return names[0] if names else None

    def transpose(self):
        name = self.one(lambda tensor: tensor.bits.ndim)
        if not name:
            return None
        dims = [int(d) for d in self.rng.permutation(self.tensors[name].bits.ndim)]
        self.change([name], lambda tensor: Tensor(tensor.dtype, tensor.bits.transpose(dims)))
        return {"transpose": {"tensors": [name], "dims": dims}}

    def reshape(self):
        name = self.one(lambda tensor: tensor.bits.size)
        if not name:
            return None
        left, shape = self.tensors[name].bits.size, []
        while left > 1 and len(shape) < 4:
            divisors = [k for k in range(1, left + 1) if left % k == 0]
            shape.append(int(self.rng.choice(divisors)))
            left //= shape[-1]
        shape.append(left)
        if self.rng.random() < .3:
            shape[self.rng.integers(0, len(shape))] = -1
        self.change([name], lambda tensor: Tensor(tensor.dtype, tensor.bits.reshape(shape)))
        return {"reshape": {"tensors": [name], "shape": shape}}

    def concat(self):
        first = self.one(lambda tensor: tensor.bits.ndim)
        if not first:
            return None
        dtype, shape = self.tensors[first].dtype, self.tensors[first].shape
        dim = int(self.rng.integers(0, len(shape)))
        rest = shape[:dim] + shape[dim + 1:]
        names = self.some(lambda t: t.dtype == dtype and len(t.shape) == len(shape) and t.shape[:dim] + t.shape[dim + 1:] == rest, 4)
        names = [name for name in names if "quant" not in name]
        if not names:
            return None
        to = self.new_name()
        self.tensors[to] = Tensor(dtype, np.concatenate([self.tensors[name].bits for name in names], dim))
        for name in names:
            del self.tensors[name]
        return {"concat": {"from": names, "to": to, "dim": dim}}

    def split(self):
        name = self.one(lambda tensor: tensor.bits.ndim)
        if not name:
            return None
        dim = int(self.rng.integers(0, self.tensors[name].bits.ndim))
        extent, n = self.tensors[name].shape[dim], int(self.rng.integers(1, 4))
        cuts = sorted(int(c) for c in self.rng.integers(0, extent + 1, n - 1))
        to = [self.new_name() for _ in range(n)]
        even = extent % n == 0 and self.rng.random() < .5
        tensor = self.tensors.pop(name)
        parts = np.split(tensor.bits, n if even else cuts, dim)
        self.tensors.update({new: Tensor(tensor.dtype, part) for new, part in zip(to, parts)})
        how = {"even": True} if even else {"sizes": [part.shape[dim] for part in parts]}
        return {"split": {"from": name, "to": to, "dim": dim, **how}}

    def stack(self):
        names = [f"l.{i}.w" for i in range(20) if f"l.{i}.w" in self.tensors]
        if not names or names != [f"l.{i}.w" for i in range(len(names))] or len({(t.dtype, t.shape) for t in map(self.tensors.get, names)}) > 1:
            return None
        dim, to = int(self.rng.integers(0, self.tensors[names[0]].bits.ndim + 1)), self.new_name()
        stacked = [self.tensors.pop(name) for name in names]
        self.tensors[to] = Tensor(stacked[0].dtype, np.stack([tensor.bits for tensor in stacked], dim))
        return {"stack": {"from": "l.{}.w", "to": to, "dim": dim}}

    def unstack(self):
        name = self.one(lambda tensor: tensor.bits.ndim and 0 < max(tensor.shape) <= 8)
        if not name:
            return None
        dim = int(np.argmax(self.tensors[name].shape))
        tensor, to = self.tensors.pop(name), self.new_name()
        for i in range(tensor.shape[dim]):
            self.tensors[f"{to}.{i}"] = Tensor(tensor.dtype, np.take(tensor.bits, i, dim))
        return {"unstack": {"from": name, "to": to + ".{}", "dim": dim}}

    def permute_rope(self):
        name = self.one(lambda tensor: tensor.bits.ndim and tensor.shape[0] and tensor.shape[0] % 2 == 0)
        if not name:
            return None
        rows = self.tensors[name].shape[0]
        heads = int(self.rng.choice([n for n in range(1, rows + 1) if rows % (2 * n) == 0]))
        to = str(self.rng.choice(["interleaved", "halves"]))
        half = rows // heads // 2
        order = np.arange(rows).reshape(heads, half, 2).transpose(0, 2, 1).ravel()  # halves: row j * half + i is row 2 i + j
        if to == "interleaved":
            order = np.argsort(order)
        self.change([name], lambda tensor: Tensor(tensor.dtype, tensor.bits[order]))
        return {"permute_rope": {"tensors": [name], "heads": heads, "to": to}}

    def replicate_experts(self):
        name = next((name for name in self.tensors if name.startswith("l.0.experts.")), None)
        if not name or self.tensors[name].bits.ndim != 2:
            return None
        tensor, is_w2 = self.tensors[name], name.endswith("w2")
        hidden = tensor.shape[1 if is_w2 else 0]
        if not hidden:
            return None
        inter = int(self.rng.choice([n for n in range(1, hidden + 1) if hidden % n == 0]))
        groups = hidden // inter
        experts = groups * int(self.rng.integers(1, 4))
        seed = int(self.rng.integers(0, 1000)) if self.rng.random() < .5 else None
        orders = [np.arange(hidden), *(randperms(seed, hidden, experts // groups - 1) if seed is not None else [])]
        made = []
        for e in range(experts):
            rows = orders[e // groups if seed is not None else 0][e % groups * inter:(e % groups + 1) * inter]
            made.append(tensor.bits[:, rows] if is_w2 else tensor.bits[rows])
        self.tensors[name] = Tensor(tensor.dtype, np.stack(made))
        arguments = {"tensors": [name], "experts": experts, "inter_dim": inter, **({} if seed is None else {"shuffle_seed": seed})}
        return {"replicate_experts": arguments}

    def cast(self):
        dtype = str(self.rng.choice(list(FLOATS)))
        if self.rng.random() < .2:
            names, arguments = [name for name in self.tensors if "quant" not in name], {}
            if len(names) < len(self.tensors):
                return None
            arguments = {"tensors": ["*"]}
        else:
            names = [name for name in self.some() if "quant" not in name]
            arguments = {"tensors": names}
        if not names:
            return None
        only = [str(name) for name in self.rng.permutation(list(FLOATS))[:4]] if self.rng.random() < .3 else None
        self.change(names, lambda tensor: tensor.cast(dtype) if only is None or tensor.dtype in only else tensor)
        return {"cast": {**arguments, "dtype": dtype, **({"only": only} if only else {})}}

    def transpose_quantized(self):
        if "quant_scale_inv" not in self.tensors:
            return None
        self.change(["quant", "quant_scale_inv"], lambda tensor: Tensor(tensor.dtype, tensor.bits.T))
        self.block = self.block[::-1]
        return {"transpose": {"tensors": ["quant*"], "dims": [1, 0]}}

    def dequantize(self):
        weight = self.tensors.get("quant")
        if weight is None or "quant_scale_inv" not in self.tensors:
            return None
        dtype = str(self.rng.choice(["F32", "BF16", "F16", "F64", "F8_E4M3"]))
        self.tensors["quant"] = dequantized(weight, self.tensors.pop("quant_scale_inv"), self.block, dtype)
        return {"dequantize": {"tensors": ["quant"], "scale": "{tensor}_scale_inv", "block": list(self.block), "dtype": dtype}}


KINDS = [Recipe.drop, Recipe.rename, Recipe.alias, Recipe.slice, Recipe.transpose, Recipe.reshape, Recipe.concat, Recipe.split, Recipe.stack,
         Recipe.unstack, Recipe.permute_rope, Recipe.replicate_experts, Recipe.cast, Recipe.cast, Recipe.transpose_quantized, Recipe.dequantize,
         Recipe.dequantize]


def randperms(seed, n, count):
    """torch.randperm(n), `count` times after torch.manual_seed(seed), on a CPU."""
    state = np.random.RandomState(seed)
    for _ in range(count):
        order = list(range(n))
        for i in range(n - 1):
            z = i + int(state.randint(0, 1 << 32, dtype=np.uint32)) % (n - i)
            order[i], order[z] = order[z], order[i]
        yield np.array(order)


# --- views ---

def random_bounds(rng, extent):
    """[start, stop] as recipes and views have them; None for all."""
    if rng.random() < .3:
        return None
    return [None if rng.random() < .25 else int(rng.integers(-extent - 1, extent + 2)) for _ in range(2)]


def random_view(rng, tensors):
    """(names in some order, {name: slices as Artifact.view takes them}, {name: Tensor})"""
    names = [str(name) for name in rng.permutation(list(tensors))][:rng.integers(1, len(tensors) + 1)]
    slices, wanted = {}, {}
    for name in names:
        index = [slice(*bounds) if bounds else slice(None) for bounds in (random_bounds(rng, n) for n in tensors[name].shape)]
        if rng.random() < .5:
            index = []
        if index:
            slices[name] = [(d, part) for d, part in enumerate(index)]
        wanted[name] = Tensor(tensors[name].dtype, tensors[name].bits[tuple(index)])
    return names, slices, wanted
