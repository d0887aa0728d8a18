"""Random checkpoints, written by the safetensors package, some of their tensors in pieces, and random views of them: the
transfers of our mapping, applied to the files' bytes, are what NumPy's slicing makes of the arrays. TEST_SEED repeats a run; a failure prints it."""
import os
import random
import subprocess
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / os.environ.get("TENSORCAST_BUILD", "build") / "tests" / "mapping_tool"
SEED = int(os.environ.get("TEST_SEED", 0)) or random.SystemRandom().randrange(1, 2**32)
N_CHECKPOINTS, N_VIEWS = 60, 60
DTYPES = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"]


def random_array(rng):
    shape = tuple(int(rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 13], p=[.04] + [.12] * 8)) for _ in range(rng.integers(0, 7)))
    dtype = np.dtype(str(rng.choice(DTYPES)))
    raw = rng.integers(0, 2 if dtype == np.bool_ else 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def cut(rng, name, array):
    """Whole, or in pieces that tests/support/pieces.h puts together."""
    if not array.ndim or rng.random() < .5:
        return {name: array}
    boxes = [[(0, n) for n in array.shape]]
    for d in rng.integers(0, array.ndim, 3):
        at = int(rng.integers(0, array.shape[d] + 1))
        boxes = [box[:d] + [part] + box[d + 1:] for box in boxes
                 for part in ([(box[d][0], at), (at, box[d][1])] if box[d][0] < at < box[d][1] else [box[d]])]
    return {f"{name}@{','.join(str(b) for b, _ in box)}": np.ascontiguousarray(array[tuple(slice(*b) for b in box)]) for box in boxes}


def write_checkpoint(rng, folder):
    tensors = {f"layer.{i}.{'w' * int(rng.integers(1, 9))}": random_array(rng) for i in range(rng.integers(1, 9))}
    parts = [{} for _ in range(rng.integers(1, 4))]
    for name, array in tensors.items():
        for stored, piece in cut(rng, name, array).items():
            parts[rng.integers(0, len(parts))][stored] = piece
    folder.mkdir()
    for i, part in enumerate(parts):
        save_file(part, folder / f"part-{i}.safetensors")
    return tensors


def random_bound(rng, extent):
    return None if rng.random() < .2 else int(rng.integers(-extent - 2, extent + 3))


def random_view(rng, tensors):
    names = [str(name) for name in rng.permutation(list(tensors))][:rng.integers(1, len(tensors) + 1)]
    return [(name, None if rng.random() < .2 else [slice(random_bound(rng, n), random_bound(rng, n)) for n in tensors[name].shape])
            for name in names]


def spell(reference, align, view):
    words = [reference, align, len(view)]
    for name, slices in view:
        words += [name, len(slices or [])] + ["." if b is None else b for s in slices or [] for b in (s.start, s.stop)]
    return " ".join(map(str, words)) + "\n"


def check(lines, folder, tensors, align, view):
    """Takes one answer off `lines`."""
    kind, n_tensors, n_runs, view_bytes, replica_bytes = next(lines).split()
    assert kind == "mapping" and int(n_tensors) == len(view)
    placed = [next(lines).split() for _ in view]
    files = {path.name: np.fromfile(path, np.uint8) for path in folder.iterdir()}
    replica, written, before = np.zeros(int(replica_bytes), np.uint8), 0, ("", 0)
    for _ in range(int(n_runs)):
        _, file, *numbers, operation = next(lines).split()
        src, dst, row, rows, stride, dst_stride = map(int, numbers)
        assert operation == "copy"
        assert (file, src) >= before and stride >= row > 0 < rows, "sorted, disjoint, not empty"
        assert dst_stride >= row
        before = (file, src + (rows - 1) * stride + row)
        assert before[1] <= files[file].size
        at = np.arange(rows)[:, None]
        replica[dst + at * dst_stride + np.arange(row)] = files[file][src + at * stride + np.arange(row)]
        written += rows * row
    end = 0
    for (_, name, offset, size, *shape), (wanted_name, slices) in zip(placed, view):
        wanted = tensors[name][tuple(slices)] if slices is not None else tensors[name]
        offset, size = int(offset), int(size)
        assert name == wanted_name and tuple(map(int, shape)) == wanted.shape and size == wanted.nbytes
        assert offset == -(-end // align) * align, "packed, each at the next multiple of the alignment"
        assert replica[offset:offset + size].tobytes() == wanted.tobytes()
        end = offset + size
    assert written == int(view_bytes) == sum(int(p[3]) for p in placed) and end == int(replica_bytes)


def test_mappings_agree_with_numpy(tmp_path, capsys):
    rng = np.random.default_rng(SEED)
    cases = []
    for i in range(N_CHECKPOINTS):
        folder = tmp_path / f"model-{i}"
        tensors = write_checkpoint(rng, folder)
        cases += [(folder, tensors, int(2 ** rng.integers(0, 9)), random_view(rng, tensors)) for _ in range(N_VIEWS)]
    text = "".join(spell(f"disk:{folder}", align, view) for folder, _, align, view in cases)
    answers = subprocess.run([TOOL], input=text, capture_output=True, text=True, check=True, timeout=300)
    lines = iter(answers.stdout.splitlines())
    for folder, tensors, align, view in cases:
        try:
            check(lines, folder, tensors, align, view)
        except Exception as problem:
            raise AssertionError(f"TEST_SEED={SEED}: {folder.name}, align {align}, {view}") from problem
    assert next(lines, None) is None
    with capsys.disabled():
        print(f"\n{len(cases)} views agree with NumPy, TEST_SEED={SEED}")
