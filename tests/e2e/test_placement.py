"""Where tensors lie in memory, and what of a cold load a CPU has to copy: counted, on the disk that the tests run on."""
import json
import os
import struct
import threading

import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import digest, digests, random_array

SHAPES = {"embed": (4096, 1024), "a.up": (2048, 1536), "a.norm": (1024,), "a.down": (1024, 2048), "b.up": (2048, 1536),
          "b.norm": (1024,), "b.down": (1024, 2048), "scalar": (), "none": (0, 8), "head": (4096, 1024)}
RANKS = 4


@pytest.fixture
def checkpoint(models):
    """One file of 38 MB, data 8 bytes behind a multiple of 64: what alignment to more than an element cannot match."""
    rng = np.random.default_rng(8)
    arrays = {name: random_array(rng, ml_dtypes.bfloat16, shape) for name, shape in SHAPES.items()}
    header, end = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    path = models / "m" / "model.safetensors"
    path.parent.mkdir()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(array.tobytes())
        os.fsync(file.fileno())
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"no O_DIRECT here: {error}")
    return path, arrays


def drop_from_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bits(array):
    return np.asarray(array).view(np.uint16)


def load_cold(view, path):
    drop_from_cache(path)
    loaded = view.tensor_dict(framework="numpy")
    moved = loaded.diagnostics["bytes"]
    assert moved["cached"] < moved["view"] / 10
    return loaded, moved


def test_a_cold_load_of_everything_copies_one_percent_at_most(daemon, checkpoint):
    path, arrays = checkpoint
    with tc.connect(daemon.socket) as client:
        artifact = client.artifact(f"disk:{path.parent}")
        loaded, moved = load_cold(artifact.view(), path)
        assert moved["copied"] <= moved["view"] / 100
        assert all((bits(loaded[name]) == bits(array)).all() for name, array in arrays.items())
        loaded, moved = load_cold(artifact.view(placement="packed"), path)
        assert moved["copied"] > moved["view"] / 2  # what the count above is about
        assert all((bits(loaded[name]) == bits(array)).all() for name, array in arrays.items())


def test_ranks_that_split_rows_copy_one_percent_at_most(daemon, checkpoint):
    path, arrays = checkpoint
    slices = {name: shape for name, shape in SHAPES.items() if len(shape) == 2 and shape[0]}
    results = [None] * RANKS

    def load(rank):
        with tc.connect(daemon.socket) as client:
            split = {name: slice(rows[0] // RANKS * rank, rows[0] // RANKS * (rank + 1)) for name, rows in slices.items()}
            view = client.artifact(f"disk:{path.parent}").subset(list(split)).view(split)
            ready.wait()
            results[rank] = load_cold(view, path), split

    ready = threading.Barrier(RANKS)
    threads = [threading.Thread(target=load, args=(rank,)) for rank in range(RANKS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for (loaded, _), split in results:
        assert all((bits(loaded[name]) == bits(arrays[name][part])).all() for name, part in split.items())
    assert sum(moved["copied"] for (_, moved), _ in results) <= sum(moved["view"] for (_, moved), _ in results) / 100


def test_columns_and_single_tensors_are_right_in_any_order(daemon, checkpoint):
    path, arrays = checkpoint
    with tc.connect(daemon.socket) as client:
        view = client.artifact(f"disk:{path.parent}").subset(["head", "a.norm", "b.down", "scalar", "a.up", "none"])
        loaded, _ = load_cold(view.view({"b.down": (1, slice(512, 1024)), "a.up": [(0, slice(1, -1)), (1, slice(3, 700))]}), path)
        assert (bits(loaded["b.down"]) == bits(arrays["b.down"][:, 512:1024])).all()
        assert (bits(loaded["a.up"]) == bits(arrays["a.up"][1:-1, 3:700])).all()
        assert all((bits(loaded[name]) == bits(arrays[name])).all() for name in ("head", "a.norm", "scalar", "none"))


def test_what_lies_between_tensors_is_zero(daemon, checkpoint):
    path, arrays = checkpoint
    with tc.connect(daemon.socket) as client:
        loaded, _ = load_cold(client.artifact(f"disk:{path.parent}").subset(["head", "a.down", "a.up"]).view(
            {"head": slice(1000, 3001), "a.up": slice(7, 1000)}), path)
    arrays = [loaded[name] for name in loaded]
    first = min(array.ctypes.data for array in arrays) & ~4095
    memory = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (max(a.ctypes.data + a.nbytes for a in arrays) - first)).from_address(first))
    taken = np.zeros(len(memory), bool)
    for array in arrays:
        taken[array.ctypes.data - first:array.ctypes.data - first + array.nbytes] = True
    assert not memory[~taken].any() and (~taken).any()


def test_replicas_of_both_placements_do_not_mix(daemon, checkpoint):
    path, _ = checkpoint
    reference = f"disk:{path.parent}"
    with tc.connect(daemon.socket) as client:
        artifact = client.artifact(reference)
        artifact.view().prewarm()
        assert artifact.tensor_dict().diagnostics["from_replica"]
        assert not artifact.view(placement="packed").tensor_dict().diagnostics["from_replica"]
        assert not artifact.view(align=64).tensor_dict().diagnostics["from_replica"]
    assert daemon.cli.json("load", reference)["from_replica"]
    assert daemon.cli.json("load", reference, "--placement", "packed")["from_replica"]


def test_a_rank_of_everything_is_placed_as_by_the_libraries(daemon, checkpoint):
    """Nobody has asked for an order, so the command and Python share one replica of the rank's slices."""
    path, arrays = checkpoint
    reference, rows = f"disk:{path.parent}", arrays["head"].shape[0]
    rank = ["--tp-size", "2", "--tp-rank", "1", "--tp-rule", "head=0", "--tp-rule", "*=replicate"]
    daemon.cli.ok("prewarm", reference, *rank)
    with tc.connect(daemon.socket) as client:
        said = client.artifact(reference).view({"head": slice(rows // 2, None)}).tensor_dict(options=tc.Options(memory="copied"))
    assert said.diagnostics["from_replica"] and daemon.cli.json("load", reference, *rank)["from_replica"]
    assert not daemon.cli.json("load", reference, *rank, "--placement", "packed")["from_replica"]


def test_the_command_places_as_it_is_told(daemon, checkpoint, tmp_path):
    path, arrays = checkpoint
    reference = f"disk:{path.parent}"
    view = {"tensors": [{"name": "head"}, {"name": "embed"}]}
    offsets = {}
    for how in ("packed", "source"):
        for more in ([], ["--standalone"]):
            said = daemon.cli.json("load", reference, "--view", "-", "--digest", *more, stdin=json.dumps({**view, "placement": how}))
            assert digests(said) == {name: digest(arrays[name]) for name in ("head", "embed")}
            offsets[how] = [tensor["offset"] for tensor in said["tensors"]]
    assert offsets["packed"][0] < offsets["packed"][1] and offsets["source"][0] > offsets["source"][1]
    said = daemon.cli.json("load", reference, "--view", "-", "--placement", "packed", stdin=json.dumps({**view, "placement": "source"}))
    assert [tensor["offset"] for tensor in said["tensors"]] == offsets["packed"]
    said = daemon.cli.json("load", reference, "--view", "-", stdin=json.dumps(view))
    assert [tensor["offset"] for tensor in said["tensors"]] == offsets["packed"]  # the order that was asked for
    assert daemon.cli.json("load", reference, "--view", "-", "--out", tmp_path / "o", stdin=json.dumps(view))["from_replica"]


@pytest.mark.parametrize("bad", ["", "PACKED", 1, None, "disk"])
def test_other_placements_are_refused(daemon, checkpoint, bad):
    path, _ = checkpoint
    view = {"tensors": [{"name": "head"}], "placement": bad}
    refused = daemon.cli.run("load", f"disk:{path.parent}", "--view", "-", stdin=json.dumps(view))
    assert refused.code and "placement" in refused.err or "string" in refused.err
    with tc.connect(daemon.socket) as client, pytest.raises(ValueError, match="placement"):
        client.artifact(f"disk:{path.parent}").view(placement=bad or "x")


def test_what_fits_the_budget_only_packed_is_packed(start, models):
    (models / "m").mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [16 << 20], "data_offsets": [0, 16 << 20]}}).encode()
    with open(models / "m" / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(file.tell() + (16 << 20))
    daemon = start(memory={"host_budget": "16MiB"})
    with tc.connect(daemon.socket) as client:
        loaded = client.artifact(f"disk:{models}/m").tensor_dict(framework="numpy")
        assert loaded["w"].ctypes.data % 4096 == 0 and not loaded["w"].any()
        assert daemon.status()["memory"]["used_bytes"] == 16 << 20
        loaded.close()
    with tc.connect(daemon.socket) as client:
        half = client.artifact(f"disk:{models}/m").view(slices={"w": (0, slice(8 << 20))}).tensor_dict(framework="numpy")
        assert half["w"].ctypes.data % 4096, "it fits as in its file"


def test_a_view_that_would_take_half_as_much_again_for_its_placement_is_packed(start, models):
    (models / "m").mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [4 << 20], "data_offsets": [0, 4 << 20]}}).encode()
    with open(models / "m" / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (4 << 20))
    daemon = start()
    with tc.connect(daemon.socket) as client:
        loaded = client.artifact(f"disk:{models}/m").tensor_dict(framework="numpy")
        assert not loaded["w"].any() and daemon.status()["memory"]["used_bytes"] == 4 << 20
