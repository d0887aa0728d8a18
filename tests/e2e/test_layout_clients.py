"""Every client on pieces: what it loads of topology.json or of shards is what it loads of plain files."""
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import digest, digests, random_array
from stage import BUILD, ROOT
from test_examples import run

sys.path.insert(0, str(ROOT / "tests/support"))
import layouts  # noqa: E402

LAYOUTS = ["topology", "dcp"]
TP = {"q_proj.weight": 0, "o_proj.weight": 1, "embed_tokens.weight": 0}


@pytest.fixture
def arrays():
    rng = np.random.default_rng(5)
    shapes = {"model.embed_tokens.weight": (64, 16), "l.q_proj.weight": (32, 16), "l.o_proj.weight": (16, 32), "l.cube": (6, 5, 4),
              "l.short": (2, 9), "norm.weight": (16,), "scalar": (), "none": (0, 7)}
    dtypes = [np.float32, np.float16, np.int64, np.uint8]
    return {name: random_array(rng, dtypes[at % 4], shape) for at, (name, shape) in enumerate(shapes.items())}


@pytest.fixture(params=LAYOUTS)
def pieces(request, models, arrays):
    return layouts.write(models / request.param, request.param, arrays)


def part(name, array, rank, size):
    dim = next((dim for end, dim in TP.items() if name.endswith(end)), None)
    return array if dim is None else np.split(array, size, dim)[rank]


def test_the_command_loads_whole_tensors_slices_and_ranks(daemon, pieces, arrays):
    for how in ([], ["--standalone"]):
        assert digests(daemon.cli.json("load", pieces, "--digest", *how)) == {name: digest(array) for name, array in arrays.items()}
        report = daemon.cli.json("load", pieces, "--slice", "l.cube[1:5, 2:, -3:-1]", "--slice", "l.short[:, 3:8]", "--digest", *how)
        assert digests(report) == {"l.cube": digest(arrays["l.cube"][1:5, 2:, -3:-1]), "l.short": digest(arrays["l.short"][:, 3:8])}
        for rank in range(4):
            report = daemon.cli.json("load", pieces, "--tp-size", 4, "--tp-rank", rank, "--digest", *how)
            assert digests(report) == {name: digest(part(name, array, rank, 4)) for name, array in arrays.items()}


def test_a_group_of_ranks_loads_together(start, pieces, arrays):
    daemon = start(engine={"materialization_strategy": {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": "0B"}})

    def load(rank):
        return daemon.cli.json("load", pieces, "--tp-size", 4, "--tp-rank", rank, "--group", "g", "--rank", rank, "--world-size", 4,
                               "--source-locality", "shared_source", "--collective", "required", "--digest")

    with ThreadPoolExecutor(4) as pool:
        for rank, report in enumerate(pool.map(load, range(4))):
            assert report["executor"] == "owner_file_collective"
            assert digests(report) == {name: digest(part(name, array, rank, 4)) for name, array in arrays.items()}


def test_a_replica_serves_who_comes_later(daemon, pieces, arrays):
    daemon.cli.json("prewarm", pieces)
    report = daemon.cli.json("load", pieces, "--digest")
    assert report["from_replica"] and digests(report) == {name: digest(array) for name, array in arrays.items()}


def test_the_c_example_prints_a_tensor_in_pieces(daemon, pieces, arrays):
    out = run(BUILD / "examples/load_tensor", pieces, "l.o_proj.weight", env=daemon.cli.environment)
    assert arrays["l.o_proj.weight"].tobytes()[:16].hex(" ") in out


def test_python_gets_arrays_of_pieces(daemon, pieces, arrays):
    with tc.connect(str(daemon.socket)) as client:
        artifact = client.artifact(pieces)
        with artifact.tensor_dict(framework="numpy") as got:
            assert {name: digest(array) for name, array in got.items()} == {name: digest(array) for name, array in arrays.items()}
        for rank in range(6):
            view = artifact.subset(["l.cube", "l.short"]).shard(mesh="a=2,b=3", mesh_rank=rank, placements={"*": "S(0),S(1)"})
            with view.tensor_dict(framework="numpy") as got:
                for name in ("l.cube", "l.short"):
                    rows, columns = (layouts.cut(arrays[name], 2, 0)[rank // 3][1], rank % 3)
                    assert digest(got[name]) == digest(layouts.cut(rows, 3, 1)[columns][1])


def test_a_slice_reads_the_pieces_that_it_meets(daemon, models):
    whole = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    for layout in LAYOUTS:
        reference = layouts.write(models / f"big-{layout}", layout, {"w": whole}, ranks=8)
        report = daemon.cli.json("load", reference, "--slice", "w[300:310, :]", "--digest", "--executor", "generic")
        assert digests(report) == {"w": digest(whole[300:310])} and report["bytes"]["unique_source"] == whole[300:310].nbytes
        assert report["bytes"]["read"] <= 2 * whole[300:310].nbytes
