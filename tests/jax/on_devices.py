"""Run by test_jax.py in a process with a forced number of devices: what jax.load gives is what the file holds."""
import gc
import os
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from safetensors import safe_open

import tensorcast_client as tc
from tensorcast_client import jax as tc_jax
from tensorcast_client.jax import best_effort_sharding, load
from tensorcast_client.sharding import best_effort_grid
from test_jax import TYPES  # and makes safetensors know FP8

COUNT = int(os.environ["JAX_COUNT"])
SMALL, WIDE = (Path(os.environ["JAX_MODELS"]) / name for name in ("small", "wide"))
DEVICES = np.array(jax.devices())


def content(folder):
    with safe_open(folder / "model.safetensors", "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@pytest.fixture
def client():
    with tc.connect() as client:
        yield client


@pytest.fixture
def small(client):
    return client.artifact(f"disk:{SMALL}")


@pytest.fixture
def requests(monkeypatch):
    """Bytes of the view of each request that was made."""
    made, tensor_dict = [], tc.View.tensor_dict

    def watched(view, *arguments, **how):
        tensors = tensor_dict(view, *arguments, **how)
        made.append(tensors.diagnostics["bytes"]["view"])
        return tensors

    monkeypatch.setattr(tc.View, "tensor_dict", watched)
    return made


def assert_blocks(array, whole, sharding):
    """Every device holds the same slice of the file that the sharding gives it."""
    assert array.shape == whole.shape and array.dtype == whole.dtype and array.sharding == sharding
    assert len(array.addressable_shards) == len(sharding.device_set)
    for shard in array.addressable_shards:
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes(), shard


def test_the_process_has_the_devices():
    assert len(DEVICES) == COUNT


def meshes():
    yield Mesh(DEVICES, ("a",))
    if COUNT >= 4:
        yield Mesh(DEVICES.reshape(2, -1), ("a", "b"))
        yield Mesh(DEVICES.reshape(2, -1)[::-1], ("a", "b"))
        yield Mesh(DEVICES[:2], ("a",))


def specs(mesh, shape):
    axes = [None, *mesh.axis_names, *([tuple(mesh.axis_names)] if len(mesh.axis_names) > 1 else [])]
    yield P()
    for dim in range(len(shape)):
        for axis in axes[1:]:
            parts = np.prod([mesh.shape[name] for name in np.atleast_1d(axis)])
            if shape[dim] % parts == 0:
                yield P(*[None] * dim, axis)
    if len(shape) > 1 and len(mesh.axis_names) > 1:
        a, b = mesh.axis_names
        if shape[0] % mesh.shape[a] == 0 and shape[1] % mesh.shape[b] == 0:
            yield P(a, b)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_block_of_every_sharding_is_the_slice_of_the_file(small, dtype):
    wholes = {name: whole for name, whole in content(SMALL).items() if name.endswith("." + dtype)}
    for mesh in meshes():
        options = {name: list(specs(mesh, whole.shape)) for name, whole in wholes.items()}
        for at in range(max(map(len, options.values()))):
            shardings = {name: NamedSharding(mesh, several[at % len(several)]) for name, several in options.items()}
            arrays = load(small.subset(list(wholes)), shardings)
            assert list(arrays) == list(wholes)
            for name, whole in wholes.items():
                assert_blocks(arrays[name], whole, shardings[name])


@pytest.mark.parametrize("layout", ["topology", "dcp"])
def test_blocks_come_out_of_shards_as_out_of_files(client, layout):
    wholes, artifact = content(SMALL), client.artifact(f"disk:{SMALL.parent / layout}")
    for name, array in load(artifact).items():
        assert_blocks(array, wholes[name], best_effort_sharding(wholes[name].shape))
    names, sharding = ["matrix.bf16", "tall.f32"], NamedSharding(Mesh(DEVICES, ("a",)), P(None, "a"))
    for name, array in load(artifact.subset(names), sharding).items():
        assert_blocks(array, wholes[name], sharding)


@pytest.mark.parametrize("part", ["a", "b"])
def test_blocks_come_out_of_the_files_own_pages_aligned_or_not(client, part):
    wholes, mapped = content(SMALL), tc.Options(memory="mapped")
    artifact = client.artifact(f"disk:{SMALL.parent / 'frozen' / part}.safetensors")
    for sharding in (None, NamedSharding(Mesh(DEVICES, ("a",)), P(None, "a"))):
        names = list(wholes) if sharding is None else [name for name, whole in wholes.items() if whole.ndim > 1 and whole.shape[1] % COUNT == 0]
        for name, array in load(artifact.subset(names), sharding, options=mapped).items():
            assert_blocks(array, wholes[name], sharding or best_effort_sharding(wholes[name].shape))
    arrays = load(artifact.subset(["matrix.f32"]), SingleDeviceSharding(DEVICES[0]), options=mapped)
    wait_for(lambda: client.status()["leases"] == (part == "a"))
    assert client.status()["leases"] == (part == "a"), "an array is the file itself exactly where it is aligned"
    del arrays


def test_a_reference_is_loaded_as_its_artifact_is(client, small, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", client.socket_path)
    wanted = load(small)
    assert all(np.array_equal(array, wanted[name], equal_nan=True) for name, array in load(str(SMALL)).items())
    with pytest.raises(tc.InvalidRequestError, match="load takes an artifact, a view or a reference"):
        load({})


def test_a_variant_is_sharded_by_its_own_names_and_shapes(client, small):
    recipe = {"version": 1, "steps": [{"select": ["matrix.f32", "cube.bf16"]}, {"rename": {"matrix.f32": "${to}"}},
                                      {"transpose": {"tensors": ["w"], "dims": [1, 0]}}, {"cast": {"tensors": ["w"], "dtype": "BF16"}}]}
    whole = content(SMALL)
    with np.errstate(all="ignore"):
        wanted = {"w": whole["matrix.f32"].T.astype(TYPES["bf16"]), "cube.bf16": whole["cube.bf16"]}
    for name, array in load(small, variant=recipe, set={"to": "w"}).items():
        assert_blocks(array, wanted.pop(name), best_effort_sharding(array.shape))
    assert not wanted
    with pytest.raises(tc.InvalidRequestError, match="artifact"):
        load(small.subset(["matrix.f32"]), variant=recipe)
    with pytest.raises(tc.InvalidRequestError, match="the recipe of a variant"):
        load(small, set={"to": "w"})


def test_without_shardings_the_best_effort_rule_decides(small):
    wholes, arrays = content(SMALL), load(small)
    assert list(arrays) == small.tensor_names
    for name, whole in wholes.items():
        assert_blocks(arrays[name], whole, best_effort_sharding(whole.shape))


def test_one_sharding_or_a_function_or_a_mesh_serves_all(small):
    names, wholes = ["matrix.f32", "tall.bf16"], content(SMALL)
    single = SingleDeviceSharding(DEVICES[-1])
    mesh = Mesh(DEVICES, ("data",))
    for given, sharding in [(single, lambda shape: single), (lambda name, shape: single, lambda shape: single),
                            (mesh, lambda shape: best_effort_sharding(shape, mesh))]:
        for name, array in load(small.subset(names), given).items():
            assert_blocks(array, wholes[name], sharding(wholes[name].shape))


def test_each_block_is_asked_for_once_and_replicas_share_it(small, requests):
    wholes = content(SMALL)
    for spec in (P(), P("a"), P(None, "a")):
        requests.clear()
        load(small.subset(["matrix.f32", "tall.u8"]), NamedSharding(Mesh(DEVICES, ("a",)), spec))
        assert requests == [wholes["matrix.f32"].nbytes + wholes["tall.u8"].nbytes]
    requests.clear()
    load(small.subset(["matrix.f32"]).view({"matrix.f32": (0, slice(0, 8))}), NamedSharding(Mesh(DEVICES[:1], ("a",)), P("a")))
    assert requests == [wholes["matrix.f32"].nbytes // 2]


def test_a_view_is_sharded_as_its_slices_leave_it(small):
    whole = content(SMALL)["matrix.f32"][4:12, -40:]
    view = small.subset(["matrix.f32"]).view({"matrix.f32": [(0, slice(4, 12)), (1, slice(-40, None))]})
    sharding = NamedSharding(Mesh(DEVICES, ("a",)), P("a"))
    assert_blocks(load(view, sharding)["matrix.f32"], whole, sharding)


def test_blocks_that_do_not_fill_their_hull_are_asked_for_one_by_one():
    boxes = {0: ((0, 2), (0, 4)), 1: ((6, 8), (0, 4)), 2: ((0, 2), (0, 4))}
    gaps = tc_jax._Tensor("gaps", (8, 4), None, boxes, np.dtype("u1"))
    full = tc_jax._Tensor("full", (8, 4), None, {0: ((0, 4), (0, 4)), 1: ((4, 8), (0, 4))}, np.dtype("u1"))
    assert tc_jax._requests({"gaps": gaps, "full": full}) == [{"gaps": boxes[0], "full": ((0, 8), (0, 4))}, {"gaps": boxes[1]}]


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.02)
    return condition()


def test_aligned_rows_become_the_devices_memory_and_hold_the_lease(client, small):
    assert wait_for(lambda: client.status()["leases"] == 0)
    arrays = load(small.subset(["tall.f32"]), NamedSharding(Mesh(DEVICES, ("a",)), P("a")))
    places = [shard.data.unsafe_buffer_pointer() for shard in arrays["tall.f32"].addressable_shards]
    assert np.diff(sorted(places)).tolist() == [64 * 8 * 4 // COUNT] * (COUNT - 1)  # neighbours, as in the daemon's memory
    assert any(int(line.split("-")[0], 16) <= places[0] < int(line.split("-")[1].split()[0], 16) and "memfd" in line
               for line in open("/proc/self/maps"))
    assert client.status()["leases"] == 1
    del arrays
    assert wait_for(lambda: client.status()["leases"] == 0)


def test_giving_an_array_away_changes_no_other_callers(small):
    sharding = NamedSharding(Mesh(DEVICES, ("a",)), P("a"))
    whole = content(SMALL)["matrix.f32"]
    step = jax.jit(lambda x: x * 0, donate_argnums=0)
    step(load(small.subset(["matrix.f32"]), sharding)["matrix.f32"]).block_until_ready()
    assert_blocks(load(small.subset(["matrix.f32"]), sharding)["matrix.f32"], whole, sharding)


def test_what_jax_would_make_smaller_is_refused_unless_it_may_be_wide(client):
    wide, whole = client.artifact(f"disk:{WIDE}"), content(WIDE)
    with pytest.raises(ValueError, match="tensor i64 is int64.*jax_enable_x64"):
        load(wide)
    assert np.asarray(load(wide.subset(["f32"]))["f32"]).tobytes() == whole["f32"].tobytes()
    with jax.enable_x64(True):
        sharding = best_effort_sharding((8, 4))
        assert_blocks(load(wide)["i64"], whole["i64"], sharding)


def test_shardings_that_do_not_fit_are_errors_that_name_the_tensor(small):
    everywhere = NamedSharding(Mesh(DEVICES, ("a",)), P())
    with pytest.raises(ValueError, match="tensor tall.u8 has no sharding"):
        load(small.subset(["matrix.f32", "tall.u8"]), {"matrix.f32": everywhere})
    with pytest.raises(KeyError, match="nobody"):
        load(small.subset(["matrix.f32"]), {"matrix.f32": everywhere, "nobody": everywhere})
    if COUNT > 1:
        with pytest.raises(ValueError, match=r"tensor odd.f32 of shape \[3, 5\] cannot be cut up so: .*evenly divide"):
            load(small.subset(["odd.f32"]), NamedSharding(Mesh(DEVICES, ("a",)), P("a")))


@pytest.mark.parametrize("shape, count, grid", [
    ((8,), 8, (1, 8)), ((2, 4), 8, (1, 2, 4)), ((4, 2), 8, (1, 4, 2)), ((8, 1), 8, (1, 8, 1)), ((1, 8), 8, (1, 1, 8)),
    ((2, 2, 2), 8, (1, 2, 2, 2)), ((2, 2, 2), 6, (3, 1, 1, 2)), ((4096, 14336), 8, (1, 1, 8)), ((4096, 14336), 6, (3, 1, 2)),
    ((3, 5), 8, (8, 1, 1)), ((6, 4), 8, (1, 2, 4)), ((128256, 4096), 32, (1, 1, 32)), ((), 4, (4,)), ((0, 3), 4, (1, 4, 1))])
def test_the_grid_of_the_best_effort_rule(shape, count, grid):
    assert best_effort_grid(shape, count) == grid


@pytest.mark.parametrize("shape, split", [((2, 4), 1), ((4, 2), 0), ((8, 8), 1), ((3, 5), None), ((), None)])
def test_a_mesh_splits_the_last_dimension_that_its_data_axis_divides(shape, split):
    if COUNT < 4:
        mesh, split = Mesh(DEVICES, ("data",)), None
    else:
        mesh = Mesh(DEVICES.reshape(-1, 4), ("model", "data"))
    expected = P(*("data" if dim == split else None for dim in range(len(shape))))
    assert best_effort_sharding(shape, mesh) == NamedSharding(mesh, expected)
