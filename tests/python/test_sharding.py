"""Blocks of a mesh's devices: the rules in Python against NumPy and torch, and the library in C against both."""
import ctypes
import itertools
import math
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client.sharding import MAX_RUNS, PRESETS, Sharding, runs_of

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / os.environ.get("TENSORCAST_BUILD", "build") / "libtensorcast.so"
SEED = int(os.environ.get("TEST_SEED", 0)) or random.SystemRandom().randrange(1, 2**32)
OPEN_END = 2**63 - 1


class Rules(ctypes.Structure):  # struct tc_sharding_options
    _fields_ = [("mesh", ctypes.c_char_p), ("mesh_rank", ctypes.c_int64), ("specs", ctypes.POINTER(ctypes.c_char_p)),
                ("placements", ctypes.POINTER(ctypes.c_char_p)), ("n_specs", ctypes.c_size_t),
                ("n_placements", ctypes.c_size_t), ("best_effort", ctypes.c_int64)]


class Error(ctypes.Structure):  # struct tc_error
    _fields_ = [("code", ctypes.c_int), ("reason", ctypes.c_char * 64), ("message", ctypes.c_char * 1024),
                ("notes", ctypes.c_char * 512)]


@pytest.fixture(scope="module")
def library():
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    lib = ctypes.CDLL(str(LIBRARY))
    lib.tc_sharding_create.restype = ctypes.c_void_p
    lib.tc_sharding_create.argtypes = [ctypes.POINTER(Rules), ctypes.POINTER(Error)]
    lib.tc_sharding_destroy.argtypes = [ctypes.c_void_p]
    lib.tc_sharding_slices.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t,
                                       ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(Error)]
    return lib


def texts(items):
    return (ctypes.c_char_p * len(items))(*(item.encode() for item in items))


def in_c(lib, shape, mesh=None, mesh_rank=0, spec=None, placements=None, best_effort=None):
    """((start, stop), ...), or the reason of the error."""
    error, slices = Error(), (ctypes.c_int64 * (2 * len(shape) + 1))()
    specs = [f"{glob}={value}" for glob, value in (spec or {}).items()]
    placed = [f"{glob}={value}" for glob, value in (placements or {}).items()]
    rules = Rules(mesh and mesh.encode(), mesh_rank, texts(specs), texts(placed), len(specs), len(placed), best_effort or 0)
    sharding = lib.tc_sharding_create(rules, error)
    if not sharding:
        return error.reason.decode()
    failed = lib.tc_sharding_slices(sharding, b"w", (ctypes.c_uint64 * (len(shape) + 1))(*shape), len(shape), slices, error)
    lib.tc_sharding_destroy(sharding)
    if failed:
        return error.reason.decode()
    return tuple((slices[2 * d], extent if slices[2 * d + 1] == OPEN_END else slices[2 * d + 1])
                 for d, extent in enumerate(shape))


def in_python(shape, **how):
    try:
        return tuple(Sharding(**how).block("w", shape) or ((0, extent) for extent in shape))
    except tc.TensorcastError as error:
        return error.reason


def extent_of(rng):
    return rng.choice([0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 13, 16, 24])


def normal(block):
    """Empty parts of a dimension are alike wherever they lie."""
    return block if isinstance(block, str) else tuple(bounds if bounds[0] < bounds[1] else (0, 0) for bounds in block)


def random_mesh(rng):
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 3))]
    return ",".join(f"{axis}={size}" for axis, size in zip(rng.sample(["data", "model", "expert"], len(sizes)), sizes)), sizes


def covered(shape, blocks):
    """How many devices have each element."""
    count = np.zeros(shape, int)
    for block in blocks:
        count[tuple(slice(*bounds) for bounds in block)] += 1
    return count


def test_c_and_python_agree_and_specs_cover_every_element_equally_often(library):
    rng = random.Random(SEED)
    for _ in range(400):
        mesh, sizes = random_mesh(rng)
        axes = [item.split("=")[0] for item in mesh.split(",")]
        shape = tuple(extent_of(rng) * rng.choice([1, 1, 12]) for _ in range(rng.randint(0, 3)))
        rng.shuffle(axes)
        groups = [axes[:1], axes[1:2], axes[2:]] if rng.random() < .5 else [axes[:2], axes[2:], []]
        spec = ",".join("-" if not group else group[0] if len(group) == 1 else f"({','.join(group)})" for group in groups)
        how = {"mesh": mesh, "spec": {"*": ",".join(spec.split(",")[:len(shape)]) if "(" not in spec else spec}}
        blocks = []
        for rank in range(math.prod(sizes)):
            got = in_python(shape, mesh_rank=rank, **how)
            assert got == in_c(library, shape, mesh_rank=rank, **how), f"TEST_SEED={SEED} {how} {shape} {rank}"
            blocks.append(got)
        if not isinstance(blocks[0], str):
            count = covered(shape, blocks)
            assert count.size == 0 or count.min() == count.max() >= 1, f"TEST_SEED={SEED} {how} {shape}"


def test_best_effort_covers_every_element_equally_often(library):
    rng = random.Random(SEED)
    for _ in range(300):
        shape, mesh, n = tuple(extent_of(rng) for _ in range(rng.randint(0, 3))), None, rng.randint(1, 24)
        if rng.random() < .4:
            mesh, sizes = random_mesh(rng)
            n = math.prod(sizes)
        blocks = [in_python(shape, mesh=mesh, mesh_rank=rank, best_effort=n) for rank in range(n)]
        assert blocks == [in_c(library, shape, mesh=mesh, mesh_rank=rank, best_effort=n) for rank in range(n)], SEED
        assert isinstance(blocks[0], str) == (mesh is not None and n > 1 and not re.search(r"\bdata=", mesh)), (mesh, blocks[0])
        if isinstance(blocks[0], str):
            continue
        count = covered(shape, blocks)
        assert count.size == 0 or count.min() == count.max() >= 1, f"TEST_SEED={SEED} {shape} {n}"


def random_placements(rng, n_axes, n_dims):
    return [None if not n_dims or rng.random() < .25 else (rng.randrange(n_dims), rng.choice([1, 1, 1, 2, 3, 4]))
            for _ in range(n_axes)]


def spelled(placements):
    return ",".join("R" if one is None else f"S({one[0]})" if one[1] == 1 else f"_S({one[0]},{one[1]})" for one in placements)


def by_brute_force(placements, sizes, at, shape):
    """The indices of each dimension, as numpy.array_split of a list cannot do: by torch.chunk's rule on the list itself."""
    def chunk(items, parts, index):
        share = -(-len(items) // parts)
        return items[share * index:share * (index + 1)]

    left = [list(range(extent)) for extent in shape]
    for one, size, coordinate in zip(placements, sizes, at):
        if one:
            dim, factor = one
            left[dim] = [i for k in range(factor) for i in chunk(chunk(left[dim], factor, k), size, coordinate)]
    return left


def test_placements_hold_the_indices_that_cutting_lists_gives(library):
    rng = random.Random(SEED)
    for _ in range(400):
        mesh, sizes = random_mesh(rng)
        shape = tuple(extent_of(rng) for _ in range(rng.randint(0, 3)))
        placements = random_placements(rng, len(sizes), len(shape))
        for rank, at in enumerate(itertools.product(*map(range, sizes))):
            where = f"TEST_SEED={SEED} {mesh} {spelled(placements)} {shape} {rank}"
            want = by_brute_force(placements, sizes, at, shape)
            runs = runs_of(placements, sizes, at, shape)
            assert [[i for start, stop in parts for i in range(start, stop)] for parts in runs] == want, where
            how = {"mesh": mesh, "mesh_rank": rank, "placements": {"*": spelled(placements)}}
            got = in_c(library, shape, **how)
            assert normal(got) == normal(in_python(shape, **how)), where
            if any(len(parts) > 1 for parts in runs):
                assert got == "NOT_ONE_BLOCK", where
            else:
                assert normal(got) == tuple((i[0], i[-1] + 1) if i else (0, 0) for i in want), where


def test_placements_are_torchs():
    pytest.importorskip("torch", reason="torch is not installed")
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as torchs
    from torch.distributed.tensor.placement_types import _StridedShard
    rng = random.Random(SEED)
    for _ in range(150):
        mesh, sizes = random_mesh(rng)
        shape = tuple(extent_of(rng) for _ in range(rng.randint(1, 3)))
        placements = random_placements(rng, len(sizes), len(shape))
        theirs = [Replicate() if one is None else Shard(one[0]) if one[1] == 1 else _StridedShard(one[0], split_factor=one[1])
                  for one in placements]
        for rank, at in enumerate(itertools.product(*map(range, sizes))):
            local, offset = torchs(shape, tuple(sizes), list(at), theirs)
            runs = runs_of(placements, sizes, at, shape)
            where = f"TEST_SEED={SEED} {mesh} {theirs} {shape} {rank}"
            assert [sum(stop - start for start, stop in parts) for parts in runs] == list(local), where
            assert [parts[0][0] for parts in runs if parts] == [first for first, parts in zip(offset, runs) if parts], where
            block = in_python(shape, mesh=mesh, mesh_rank=rank, placements={"*": theirs})
            assert block == in_python(shape, mesh=mesh, mesh_rank=rank, placements={"*": spelled(placements)}), where


@pytest.mark.parametrize("how, reason", [
    ({"mesh": "data=2", "spec": {"*": "model"}}, "NO_SUCH_AXIS"), ({"mesh": "data=2", "spec": {"*": "data,data"}}, "AXIS_TWICE"),
    ({"mesh": "data=2", "spec": {"*": "data,"}}, "BAD_SPEC"), ({"mesh": "data=2", "spec": {"*": "()"}}, "BAD_SPEC"),
    ({"mesh": "data=2", "spec": {"*": "data,-,-"}}, "SPEC_TOO_LONG"), ({"mesh": "data=3", "spec": {"*": "data"}}, "DOES_NOT_DIVIDE"),
    ({"mesh": "data=2", "placements": {"*": "S(2)"}}, "NO_SUCH_DIMENSION"), ({"mesh": "data=2", "placements": {"*": "P"}}, "BAD_PLACEMENTS"),
    ({"mesh": "data=2", "placements": {"*": "S(0),R"}}, "BAD_PLACEMENTS"), ({"mesh": "data=2", "placements": {"*": "_S(0)"}}, "BAD_PLACEMENTS"),
    ({"mesh": "data=2", "placements": {"*": f"_S(0,{MAX_RUNS})"}}, None), ({"mesh": "data=0", "best_effort": 1}, "BAD_MESH"),
    ({"mesh": "data=2,data=2", "best_effort": 4}, "BAD_MESH"), ({"mesh": "v5e-65", "best_effort": 4}, "BAD_MESH"),
    ({"mesh": f"data={2**30}", "best_effort": 2**30}, None), ({"mesh": "a=2,b=2", "best_effort": 4}, "BAD_SHARDING"),
    ({"mesh": f"a={2**30},b=2", "best_effort": 2**31}, "BAD_MESH"),
    ({"mesh": ",".join(f"a{i}=1" for i in range(16)), "best_effort": 1}, None),
    ({"mesh": ",".join(f"a{i}=1" for i in range(17)), "best_effort": 1}, "BAD_MESH"),
    ({"mesh": "data=2"}, "BAD_SHARDING"), ({"spec": {"*": "data"}}, "BAD_SHARDING"), ({"mesh": "data=2", "best_effort": 3}, "BAD_SHARDING"),
    ({"mesh": "data=2", "spec": {"*": "data"}, "mesh_rank": 2}, "BAD_SHARDING"), ({"best_effort": 4, "mesh_rank": 4}, "BAD_SHARDING"),
    ({"mesh": "data=2", "spec": {"*": "data"}, "placements": {"*": "R"}}, "BAD_SHARDING")])
def test_what_cannot_be_is_refused_in_c_and_python_alike(library, how, reason):
    how = {"mesh_rank": 0, **how}
    got = in_python((4, 8), **how)
    assert (got if reason else isinstance(got, tuple)) == (reason or True)
    assert in_c(library, (4, 8), **how) == got


def test_a_dimension_is_cut_into_65536_runs_and_not_more():
    how = {"mesh": "a=2", "mesh_rank": 0}
    assert in_python((4 * (MAX_RUNS - 1),), placements={"*": f"_S(0,{MAX_RUNS - 1})"}, **how) == "NOT_ONE_BLOCK"
    assert in_python((4 * MAX_RUNS,), placements={"*": f"_S(0,{MAX_RUNS})"}, **how) == "TOO_MANY_RUNS"


def test_placements_have_short_and_long_names():
    for placements in ("S(0),R", "Shard(0),Replicate", "Shard(dim=0),Replicate()", "S(0),R()"):
        assert Sharding("a=2,b=2", 2, placements={"*": placements}).block("w", (4, 3)) == [(2, 4), (0, 3)], placements


def test_meshes_and_specs_in_pythons_own_words():
    jax_like = (("data", "model"), None)
    assert Sharding({"data": 4, "model": 8}, 9, spec={"*": jax_like}).block("w", (64, 2)) == [(18, 20), (0, 2)]
    assert Sharding([("data", 4), ("model", 8)], 9, spec="*=(data,model),-").block("w", (64, 2)) == [(18, 20), (0, 2)]
    assert Sharding("v5e-64", 9, spec=["a.*=-", "*=model"]).slices("b.w", (64, 2)) == [(0, slice(8, 16))]
    assert Sharding("v5e-64", 9, spec=["a.*=-", "*=model"]).slices("a.w", (64, 2)) == []
    assert {name: math.prod(axes.values()) for name, axes in PRESETS.items()} == {
        "v5e-8": 8, "v5e-64": 32, "v5litepod-64": 64, "v5e-128": 64, "v5e-256": 128, "v4-32": 16, "v4-64": 32}


@pytest.mark.parametrize("glob, names, others", [
    ("*.w", ["a.w", ".w"], ["a.v", "a.w.x"]), ("a?b", ["a.b"], ["ab"]), ("[a-c]x", ["bx"], ["dx"]), ("[!a]x", ["bx"], ["ax"]),
    (r"a\*", ["a*"], ["ab"]), ("a.b", ["a.b"], ["axb"]), ("a(1)", ["a(1)"], ["a1"]),
    ("[]]x", ["]x"], ["x", "ax"]), ("[^a]x", ["bx"], ["ax"]), ("[!]x", ["[!]x"], ["ax"]), ("[z-a]*", [], ["b", "z-a"]), ("[!z-a]", ["b"], [""]),
    ("[a", ["[a"], ["a"]), ("[+--]", ["+", ",", "-"], ["."]), ("?", ["a"], ["é", ""]), ("**a", ["a", "ba"], ["b"]), ("a\\", ["a\\"], ["a"])])
def test_globs_are_those_of_the_command(glob, names, others):
    def sliced(name):
        return bool(Sharding("x=2", 0, spec={glob: "x"}).slices(name, (4,)))

    assert all(map(sliced, names)) and not any(map(sliced, others))


def test_a_device_loads_its_block(client, fake):
    fake.put("disk:/models/m", {"w": ("F32", np.arange(64, dtype=np.uint32).reshape(8, 8)), "n": ("F32", np.arange(8, dtype=np.uint32))})
    view = client.artifact("disk:/models/m").shard(mesh={"data": 2, "model": 4}, mesh_rank=6, spec={"w": "model,data"})
    assert view.shapes() == {"w": (2, 4), "n": (8,)}
    with view.tensor_dict(framework="numpy") as got:
        assert got["w"].view(np.uint32).tolist() == np.arange(64).reshape(8, 8)[4:6, 4:].tolist()
    with pytest.raises(ValueError, match="^INVALID_ARGUMENT: tensor n, rule for n: dimension 0 .8. does not divide by the 3 parts"):
        client.artifact("disk:/models/m").shard(mesh="a=3", mesh_rank=0, spec={"n": "a"})
