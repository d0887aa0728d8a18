"""Random checkpoints, some of their tensors in pieces; random recipes; random views of what comes out: the transfers of our
mapping, applied to the files' bytes, give what NumPy makes of the same steps. The oracle is that of e2e/test_chain.py, which asks
a daemon; here no daemon is in the way, and there are many more cases. TEST_SEED repeats a run; a failure prints it."""
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from chain import Recipe, Tensor, random_checkpoint, random_view, write_file  # noqa: E402

TOOL = ROOT / os.environ.get("TENSORCAST_BUILD", "build") / "tests" / "variant_tool"
SEED = int(os.environ.get("TEST_SEED", 0)) or random.SystemRandom().randrange(1, 2**32)
N_CHECKPOINTS, N_VARIANTS, N_VIEWS, MAX_BYTES = 25, 25, 5, 1 << 14


def cut(rng, name, t):
    """Whole, or in pieces that tests/support/pieces.h puts together."""
    if not t.shape or 0 in t.shape or rng.random() < .4:
        return {name: t}
    boxes = [[(0, n) for n in t.shape]]
    for d in rng.integers(0, len(t.shape), 3):
        at = int(rng.integers(0, t.shape[d] + 1))
        boxes = [box[:d] + [part] + box[d + 1:] for box in boxes
                 for part in ([(box[d][0], at), (at, box[d][1])] if box[d][0] < at < box[d][1] else [box[d]])]
    return {f"{name}@{','.join(str(b) for b, _ in box)}": Tensor(t.dtype, t.bits[tuple(slice(*b) for b in box)]) for box in boxes}


def write_checkpoint(rng, folder):
    while True:
        tensors, block = random_checkpoint(rng)
        if sum(t.bits.nbytes for t in tensors.values()) <= MAX_BYTES:
            break
    parts = [{} for _ in range(rng.integers(1, 4))]
    for name, t in tensors.items():
        for stored, piece in cut(rng, name, t).items():
            parts[rng.integers(0, len(parts))][stored] = piece
    folder.mkdir()
    for i, part in enumerate(parts):
        write_file(folder / f"part-{i}.safetensors", part)
    return tensors, block


def spell(reference, recipe, names, slices):
    words = [reference, recipe, len(names)]
    for name in names:
        bounds = [b for _, part in slices.get(name, []) for b in (part.start, part.stop)]
        words += [name, len(bounds) // 2, *("." if b is None else b for b in bounds)]
    return " ".join(map(str, words)) + "\n"


def test_variants_hold_what_numpy_makes_of_the_steps(tmp_path):
    rng = np.random.default_rng(SEED)
    questions, asked = "", []
    for c in range(N_CHECKPOINTS):
        stored, block = write_checkpoint(rng, tmp_path / f"model-{c}")
        for v in range(N_VARIANTS):
            recipe, path = Recipe(rng, stored, block), tmp_path / f"{c}-{v}.json"
            path.write_text(json.dumps({"version": 1, "steps": recipe.steps}))
            for names, slices, wanted in [([], {}, recipe.tensors), *(random_view(rng, recipe.tensors) for _ in range(N_VIEWS))]:
                questions += spell(f"disk:{tmp_path}/model-{c}", path, names, slices)
                asked.append((path, slices, wanted))
    done = subprocess.run([TOOL], input=questions, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (SEED, done.returncode, done.stderr[-2000:])
    lines = iter(done.stdout.splitlines())
    for path, slices, wanted in asked:
        first = next(lines).split(maxsplit=2)
        where = f"TEST_SEED={SEED} {path.read_text()} {slices}"
        assert first[0] == "variant", (where, first)
        got = {name: rest for name, *rest in (next(lines).split() for _ in range(int(first[2])))}
        assert got == {name: [t.dtype, "".join(f"{n}," for n in t.shape) + ".", t.data().hex() + "."] for name, t in wanted.items()}, where
    assert len(asked) == N_CHECKPOINTS * N_VARIANTS * (1 + N_VIEWS)
