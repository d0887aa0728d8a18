"""Checkpoints in pieces, on disk and in every store: found, proven complete, read once. NumPy is the oracle."""
import json
import sys

import numpy as np
import pytest
import tensorcast_client as tc
from safetensors.numpy import save_file

from checkpoints import digest, digests, random_array
from stage import ROOT
from store_scene import DATA, SCHEMES
from store_scene import place as place_parts

sys.path.insert(0, str(ROOT / "tests/support"))
import layouts  # noqa: E402


def shard(rank, file=1, files=1):
    return f"shard-{rank:05d}-model-{file:05d}-of-{files:05d}.safetensors"


@pytest.fixture
def arrays():
    rng = np.random.default_rng(6)
    shapes = {"embed": (64, 16), "rows": (33, 8), "columns": (9, 64), "cube": (6, 5, 4), "norm": (16,), "step": ()}
    return {name: random_array(rng, [np.float32, np.float16, np.int64][at % 3], shape) for at, (name, shape) in enumerate(shapes.items())}


def place(fake, scheme, folder):
    """The files of a folder as a checkpoint in a store; its reference."""
    placed = place_parts(fake, scheme, {"other": np.zeros(1, np.uint8)}, name=folder.name)
    fake.world.remove(placed.listener, placed.prefix + DATA)
    for path in sorted(folder.iterdir()):
        placed.put(path.name, path.read_bytes())
    return placed


def same(report, arrays):
    assert digests(report) == {name: digest(array) for name, array in arrays.items()}


# --- stores ---

@pytest.mark.parametrize("layout", ["topology", "dcp"])
@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "http"])
def test_stores_that_list_have_every_layout(fake, store_daemon, arrays, tmp_path, scheme, layout):
    layouts.write(tmp_path / layout, layout, arrays)
    placed, daemon = place(fake, scheme, tmp_path / layout), store_daemon()
    told = daemon.cli.json("inspect", placed.reference)
    assert (told["layout"], told["world_size"], told["total_bytes"]) == (layout, 4, sum(a.nbytes for a in arrays.values()))
    report = daemon.cli.json("load", placed.reference, "--digest")
    same(report, arrays)
    assert report["bytes"]["view"] == report["bytes"]["unique_source"]
    part = daemon.cli.json("load", placed.reference, "--slice", "rows[10:20, 2:-1]", "--digest")
    assert part["tensors"][0]["sha256"] == digest(arrays["rows"][10:20, 2:-1])
    daemon.cli.ok("verify", placed.reference)
    fake.journal.clear()
    assert daemon.cli.json("inspect", placed.reference)["identity"] == told["identity"]
    assert not [entry for entry in fake.requests() if entry["range"]], "a header or the document is read again"


@pytest.mark.parametrize("standalone", [[], ["--standalone"]])
def test_a_web_server_has_a_topology(fake, store_daemon, arrays, tmp_path, standalone, monkeypatch):
    layouts.write(tmp_path / "m", "topology", arrays)
    placed, daemon = place(fake, "http", tmp_path / "m"), store_daemon()
    same(daemon.cli.json("load", placed.reference, "--digest", *standalone), arrays)


def test_shards_on_a_web_server_need_an_index_that_names_the_last_one(fake, store_daemon, arrays, tmp_path):
    layouts.write(tmp_path / "m", "dcp", arrays)
    placed, daemon = place(fake, "http", tmp_path / "m"), store_daemon()
    assert daemon.cli.run("inspect", placed.reference).status == "NOT_FOUND"
    index = {name: next(path.name for path in sorted((tmp_path / "m").iterdir(), reverse=True) if has(path, name)) for name in arrays}
    placed.put("model.safetensors.index.json", json.dumps({"weight_map": index}).encode())
    assert shard(4) in index.values() and len(set(index.values())) < 4
    same(daemon.cli.json("load", placed.reference, "--digest"), arrays)
    told = daemon.cli.json("inspect", placed.reference)
    assert (told["layout"], told["world_size"], len(told["files"])) == ("dcp", 4, 4)


def has(path, name):
    with open(path, "rb") as file:
        return name in json.loads(file.read(int.from_bytes(file.read(8), "little")))


def test_one_shard_on_a_web_server_is_not_taken_for_all(fake, store_daemon, tmp_path):
    (tmp_path / "m").mkdir()
    info = {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [0]}})}
    save_file({"w": np.zeros(3, np.uint8)}, tmp_path / "m" / DATA, metadata=info)
    placed, daemon = place(fake, "http", tmp_path / "m"), store_daemon()
    outcome = daemon.cli.run("load", placed.reference)
    assert outcome.status == "FAILED_PRECONDITION" and "model.safetensors.index.json" in outcome.err


def test_verify_finds_copies_that_differ_in_a_store(fake, store_daemon, arrays, tmp_path):
    layouts.write(tmp_path / "m", "topology", {**arrays, "norm": np.arange(1 << 20, dtype=np.float32)})
    with open(tmp_path / "m" / "rank2.safetensors", "r+b") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        file.seek(header["norm"]["data_offsets"][1] - 4, 1)
        file.write(b"\xff")
    placed, daemon = place(fake, "s3", tmp_path / "m"), store_daemon()
    daemon.cli.ok("load", placed.reference)
    for outcome in daemon.cli.run("verify", placed.reference), daemon.cli.run("verify", f"disk:{tmp_path}/m", "--standalone"):
        assert outcome.status == "DATA_LOSS" and "norm" in outcome.err and "rank2.safetensors" in outcome.err, outcome


# --- shards that are missing ---

def write_with_a_hole(folder):
    """Ranks 1 and 3 of three have w; rank 2 has nothing of its own."""
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    folder.mkdir()
    for rank, first in ((1, 0), (3, 2)):
        info = {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [first, 0]}}), "DCP_VERSION": "1.0", "format": "pt"}
        save_file({"w": w[first:first + 2].copy()}, folder / shard(rank), metadata=info)
    return f"disk:{folder}", w


@pytest.mark.parametrize("how", [[], ["--standalone"]])
def test_missing_shards_may_be_allowed_by_every_command(daemon, models, how):
    reference, w = write_with_a_hole(models / "m")
    for command in ["inspect", "load", "explain", "verify", *([] if how else ["prewarm"])]:
        for _ in range(2):
            outcome = daemon.cli.run(command, reference, *how)
            assert outcome.status == "DATA_LOSS" and "shard-00002 is missing; if rank 2 saved nothing, pass --allow-missing-shards" in outcome.err
            daemon.cli.ok(command, reference, *how, "--allow-missing-shards")
    told = daemon.cli.json("inspect", reference, *how, "--allow-missing-shards")
    assert (told["world_size"], told["missing_shards"]) == (3, [2]) and "missing_files" not in told
    assert "1 without a file (the first is 2)" in daemon.cli.ok("inspect", reference, *how, "--allow-missing-shards").out
    same(daemon.cli.json("load", reference, "--digest", *how, "--allow-missing-shards"), {"w": w})


def test_missing_shards_may_be_allowed_in_python(daemon, models):
    reference, w = write_with_a_hole(models / "m")
    client, allowing = tc.connect(str(daemon.socket)), tc.Options(allow_missing_shards=True)
    with pytest.raises(tc.TensorcastError, match="shard-00002 is missing"):
        client.artifact(reference).tensor_dict(framework="numpy")
    with pytest.raises(tc.TensorcastError, match="shard-00002 is missing"):
        client.artifact(reference).describe()
    with client.artifact(reference).tensor_dict(framework="numpy", options=allowing) as got:
        assert (got["w"] == w).all()
    with client.artifact(reference).view({"w": (0, slice(1, 3))}).tensor_dict(framework="numpy", options=allowing) as got:
        assert (got["w"] == w[1:3]).all()
    told = client.artifact(reference, allow_missing_shards=True).describe()
    assert told == daemon.cli.json("inspect", reference, "--allow-missing-shards") and told["missing_shards"] == [2]
    assert [piece["file"] for piece in told["tensors"][0]["pieces"]] == [shard(1), shard(3)]


# --- copies ---

def test_a_copy_is_read_from_a_file_that_the_load_reads_anyway(daemon, models):
    w, s = np.arange(1 << 16, dtype=np.uint32).reshape(4, -1), np.arange(1000, dtype=np.uint8)
    reference = layouts.write(models / "m", "topology", {"s": s, "w": w})
    for rank in range(4):
        report = daemon.cli.json("explain", reference, "--tensor", "s", "--slice", f"w[{rank}:{rank + 1}, 0:1]", "--executor", "generic")
        assert next(c for c in report["candidates"] if c["executor"] == "generic_byte_range")["read_bytes"] <= 1000 + 4 * w.shape[1]
        text = daemon.cli.ok("explain", reference, "--tensor", "s", "--tensor", "w", "--slice", f"w[:, {rank * 4096}:{rank * 4096 + 4096}]").out
        assert f"rank{rank}.safetensors" in text and f"rank{(rank + 1) % 4}.safetensors" not in text


@pytest.mark.parametrize("layout", ["topology", "dcp"])
def test_a_manifest_covers_pieces_and_copies(daemon, models, arrays, layout):
    arrays["big"] = np.arange(1 << 18, dtype=np.float32)
    reference = layouts.write(models / "m", layout, arrays)
    daemon.cli.ok("manifest", reference, "--out", models / "m" / "model.manifest.json")
    checked = daemon.cli.json("verify", reference)
    assert {file["status"] for file in checked["checked"]} == {"verified"}
    report = daemon.cli.json("load", reference, "--tensor", "big")
    assert (report["verified"]["status"], report["verified"]["bytes"]) == ("verified", 1 << 20)
    same(daemon.cli.json("load", reference, "--digest"), arrays)


def test_the_plan_of_the_original_loader_is_refused_for_pieces(daemon, models, arrays):
    outcome = daemon.cli.run("plan", layouts.write(models / "m", "dcp", arrays), "--compat")
    assert outcome.status == "UNIMPLEMENTED" and "lies in several files" in outcome.err


# --- defects of other readers ---

def test_no_defect_of_the_reference_tools_makes_wrong_bytes(daemon, models):
    rng = np.random.default_rng(8)
    w, scalar = random_array(rng, np.float32, (6, 4)), np.array(3, np.int64)
    folder = models / "m"
    save = lambda rank, content: save_file({name: np.array(array, order="C") for name, array in content.items()}, folder / f"r{rank}")  # noqa: E731
    document = {"tensors": {
        "w": {"type": "Distributed", "shape": [6, 4], "dtype": "F32",
              "chunks": [{"offsets": [0, i], "shape": [6, 1], "filename_index": i} for i in range(4)]},
        "s": {"type": "Shared", "shape": [], "dtype": "I64", "filename_indices": [0]}}, "filenames": [f"r{i}" for i in range(4)], "world_size": 4}
    folder.mkdir()
    for i in range(4):
        save(i, {"w": w[:, i:i + 1], **({"s": scalar} if i == 0 else {})})

    def put(change=lambda document: None):
        changed = json.loads(json.dumps(document))
        change(changed)
        (folder / "topology.json").write_text(json.dumps(changed))
        return daemon.cli.run("load", f"disk:{folder}", "--digest", "--json")

    assert digests(put().report) == {"w": digest(w), "s": digest(scalar)}  # columns of width 1, and a scalar
    for complaint, change in {
        "s": lambda d: d["tensors"]["s"].update(filename_indices=[]), "ghost": lambda d: d["tensors"].update(ghost=d["tensors"]["s"]),
        "r0": lambda d: d["tensors"].update(s={**d["tensors"]["s"], "filename_indices": [1]}), "w": lambda d: d["tensors"]["w"].update(dtype="I32"),
    }.items():
        outcome = put(change)
        assert outcome.status == "DATA_LOSS" and complaint in outcome.err, (complaint, outcome)
    save(2, {"other": w})
    outcome = put()  # a rank's file without the tensor
    assert outcome.status == "DATA_LOSS" and "r2" in outcome.err, outcome
