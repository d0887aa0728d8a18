"""The same files read by the safetensors package and through the daemon: every byte equal, whatever is asked for."""
import json

import numpy as np
import pytest

from checkpoints import TYPES, digest, digests, random_array, random_slices, read_back, write

SHAPES = [(), (0, 3), (1,), (7,), (5, 3), (64, 33), (2, 3, 4), (3, 1, 5, 2), (2, 2, 1, 3, 2), (1, 2, 2, 1, 2, 2)]


@pytest.fixture
def zoo(models):
    """Every type in every shape, in three part files."""
    rng = np.random.default_rng(1)
    arrays = {f"{np.dtype(t).name}.{i}": random_array(rng, t, s) for t in TYPES for i, s in enumerate(SHAPES)}
    names = sorted(arrays, key=lambda name: rng.random())
    return write(models / "m", *({n: arrays[n] for n in names[i::3]} for i in range(3)))


@pytest.mark.parametrize("executor", ["auto", "generic", "local"])
def test_every_type_and_shape_is_what_safetensors_reads(daemon, models, zoo, tmp_path, executor):
    report = daemon.cli.json("load", f"disk:{models}/m", "--executor", executor, "--digest", "--out", tmp_path / "out")
    assert digests(report) == {name: digest(value) for name, value in zoo.items()}
    back = read_back(tmp_path / "out")
    assert list(back) == [t["name"] for t in report["tensors"]]
    for name, value in zoo.items():
        assert back[name].dtype == value.dtype and back[name].shape == value.shape and digest(back[name]) == digest(value)


@pytest.mark.parametrize("executor", ["generic", "local"])
@pytest.mark.parametrize("seed", range(4))
def test_random_views_are_what_numpy_makes_of_them(daemon, models, zoo, tmp_path, executor, seed):
    rng = np.random.default_rng(seed)
    names = [str(n) for n in rng.choice(sorted(zoo), 25, replace=False)]
    view, want = [], {}
    for name in names:
        index, slices = random_slices(rng, zoo[name].shape)
        view.append({"name": name, "slices": slices} if slices else {"name": name})
        want[name] = zoo[name][index]
    align = int(2 ** rng.integers(0, 13))
    report = daemon.cli.json("load", f"disk:{models}/m", "--view", "-", "--executor", executor, "--digest",
                             stdin=json.dumps({"tensors": view, "align": align}))
    assert [t["name"] for t in report["tensors"]] == names
    assert digests(report) == {name: digest(value) for name, value in want.items()}
    end = 0
    for entry in report["tensors"]:
        assert entry["shape"] == list(want[entry["name"]].shape)
        assert entry["offset"] == -(-end // align) * align
        end = entry["offset"] + entry["bytes"]


def test_data_that_does_not_begin_at_a_multiple_of_eight_is_read_right(daemon, models, tmp_path):
    rng = np.random.default_rng(2)
    arrays = write(models / "m", {"a": random_array(rng, np.float64, (31, 17)), "b": random_array(rng, np.int32, (1000,))})
    path = models / "m" / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    for extra in range(8):
        header = raw[8:8 + length].rstrip() + b" " * extra
        path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length:])
        report = daemon.cli.json("load", f"disk:{models}/m", "--slice", "a[3:, 1:-1]", "--tensor", "b", "--digest")
        assert digests(report) == {"a": digest(arrays["a"][3:, 1:-1]), "b": digest(arrays["b"])}


@pytest.mark.parametrize("how, blocks", [
    (["--mesh", "v5e-8", "--spec", "w=model,-"], {"w": lambda w, rank: np.split(w, 8, 0)[rank]}),
    (["--mesh", "a=2,b=4", "--spec", "w=(b,a),-"], {"w": lambda w, rank: np.split(w, 8, 0)[rank % 4 * 2 + rank // 4]}),
    (["--mesh", "a=2,b=4", "--placements", "w=S(0),S(1)"],
     {"w": lambda w, rank: np.array_split(np.split(w, 2, 0)[rank // 4], [3, 6, 9], 1)[rank % 4]}),
    (["--best-effort", "8"], {"w": lambda w, rank: np.split(np.split(w, 4, 0)[rank // 2], 2, 1)[rank % 2],
                              "e": lambda e, rank: np.split(e, 8)[rank]})])
def test_the_devices_of_a_mesh_have_the_blocks_that_numpy_cuts(daemon, models, how, blocks):
    rng = np.random.default_rng(4)
    arrays = write(models / "m", {"w": random_array(rng, np.float32, (16, 10)), "e": random_array(rng, np.uint8, (8,)),
                                  "s": random_array(rng, np.float32, ())})
    for rank in range(8):
        report = daemon.cli.json("load", f"disk:{models}/m", *how, "--mesh-rank", rank, "--digest")
        assert digests(report) == {name: digest(blocks[name](value, rank) if name in blocks else value)
                                   for name, value in arrays.items()}, rank
        assert report["bytes"]["view"] < sum(value.nbytes for value in arrays.values())
    explained = daemon.cli.json("explain", f"disk:{models}/m", *how, "--mesh-rank", 7)
    assert explained["bytes"]["view"] == report["bytes"]["view"]
