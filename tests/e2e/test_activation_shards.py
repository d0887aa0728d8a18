"""Shards of pickles: imported without executing any, exported for those who read them."""
import gzip
import hashlib
import itertools
import json
import os
import pickle
import re
import sys

import numpy as np
import pytest
import tensorcast_client as tc

from activation_scene import holds, sample, stored


@pytest.fixture
def daemon(start, models):
    return start(activations={"roots": [str(models)]})


def shard(path, layers, protocol=4):
    entries = {layer: [{"sample_idx": i, "activation": a, "shape": a.shape, "text_preview": f"t{i} \u00e4"} for i, a in items]
               for layer, items in layers.items()}
    path.write_bytes(gzip.compress(pickle.dumps(entries, protocol)))


@pytest.mark.parametrize("protocol", [4, 5])
def test_samples_that_straddle_shards_become_whole_and_may_be_imported_again(daemon, acts, tmp_path, protocol):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(i, sample(i)[4]) for i in range(5)], 7: [(i, sample(i)[7]) for i in range(4)]}, protocol)
    shard(tmp_path / "shard_0002.pkl.gz", {"layer_7": [(4, sample(4)[7])]}, protocol)
    for skipped in (0, 5):
        assert daemon.cli.json("activations", "import", acts, tmp_path, "--host", 3) == {"shards": 2, "samples": 5, "skipped": skipped}
    holds(acts / "host_003", range(5))
    info = {k: v for s in json.loads((acts / "host_003/manifest.json").read_text())["segments"] for k, v in s["info"].items()}
    assert info["4"] == {"text_preview": "t4 \u00e4"}


@pytest.mark.parametrize("protocol", [4, 5])
def test_every_plain_type_and_order_comes_through(daemon, acts, tmp_path, protocol):
    kinds = ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "f8", "i8", "u8")
    arrays = {k: np.asfortranarray((np.arange(24) % 2 * 3).astype(kind).reshape(2, 3, 4)) for k, kind in enumerate(kinds)}
    arrays |= {50: np.array(2.5, np.float32), 51: np.zeros((0, 3), np.float32), 52: np.arange(6.0).reshape(2, 3).T}
    cube = np.arange(120.0).reshape(2, 3, 4, 5)  # NumPy 2.4 writes the order of dimensions into pickles of protocol 5
    arrays |= {60 + k: cube.transpose(order) for k, order in enumerate(itertools.permutations(range(4)))}
    arrays[90] = cube[:, :0].transpose(1, 3, 0, 2)
    shard(tmp_path / "shard_0001.pkl.gz", {k: [(1, a)] for k, a in arrays.items()}, protocol)
    daemon.cli.ok("activations", "import", acts, tmp_path, "--host", 3)
    (got,) = stored(acts / "host_003").values()
    assert all(got[k].dtype == a.dtype and got[k].shape == a.shape and (got[k] == a).all() for k, a in arrays.items())


@pytest.mark.parametrize("protocol", [4, 5])
def test_big_endian_arrays_are_stored_as_the_same_numbers(daemon, acts, tmp_path, protocol):
    kinds = ("i2", "u2", "f2", "i4", "u4", "f4", "c8", "f8", "i8", "u8")
    arrays = {k: (np.arange(24) * 1.37 + 300).astype(f">{kind}").reshape(2, 3, 4) for k, kind in enumerate(kinds)}
    arrays |= {20 + k: np.asfortranarray(a) for k, a in arrays.items()} | {40 + k: a.transpose(2, 0, 1) for k, a in arrays.items()}
    arrays |= {60: arrays[5].astype("<f4"), 61: np.array(2.5, ">f4"), 62: np.zeros((0, 3), ">f8")}
    arrays[5].flat[:2] = np.nan, -0.0
    shard(tmp_path / "shard_0001.pkl.gz", {k: [(1, a)] for k, a in arrays.items()}, protocol)
    for skipped in (0, 1):
        assert daemon.cli.json("activations", "import", acts, tmp_path, "--host", 3) == {"shards": 1, "samples": 1, "skipped": skipped}
    (got,) = stored(acts / "host_003").values()
    for k, a in arrays.items():
        assert got[k].dtype == a.dtype.newbyteorder("<") and got[k].shape == a.shape
        assert got[k].tobytes() == a.astype(got[k].dtype).tobytes(), k


class Runs:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def test_a_shard_that_would_run_something_is_refused_and_nothing_of_the_import_is_kept(daemon, acts, tmp_path):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(1, np.zeros(3))]})
    (tmp_path / "shard_0002.pkl.gz").write_bytes(gzip.compress(pickle.dumps({4: Runs(os.system, (f"touch {tmp_path}/ran",))}, 4)))
    outcome = daemon.cli.run("activations", "import", acts, tmp_path, "--host", 3)
    assert outcome.status == "INVALID_ARGUMENT" and "shard_0002.pkl.gz" in outcome.err and "system" in outcome.err
    assert not (tmp_path / "ran").exists() and not list(acts.rglob("*.safetensors"))


def test_without_the_python_client_it_is_said_what_to_install(daemon, acts, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
    bare.chmod(0o755)
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(0, np.zeros(3))]})
    for python in (bare, tmp_path / "none"):
        for words in (["import", acts, tmp_path, "--host", 3], ["export", acts, "--out", tmp_path / "out"]):
            environment = {**daemon.cli.environment, "TENSORCAST_PYTHON": str(python)}
            outcome = daemon.cli.run("activations", *words, "--json", env=environment)
            assert outcome.failed and outcome.status == "FAILED_PRECONDITION" and "pip install ./client/python" in outcome.err, outcome
            assert outcome.report["error"]["reason"] == "NO_PYTHON_CLIENT" and outcome.report["error"]["message"] in outcome.err
    assert not acts.exists() and not (tmp_path / "out").exists()


def test_nothing_is_imported_from_the_folder_where_the_command_runs(daemon, acts, tmp_path):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(0, sample(0)[4])]})
    for name in ("gzip", "pickle", "numpy", "tensorcast_client"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    packages = os.pathsep.join(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    environment = {**daemon.cli.environment, "PYTHONPATH": packages}
    daemon.cli.ok("activations", "import", acts, "shard_0001.pkl.gz", "--host", 3, cwd=tmp_path, env=environment)
    assert sorted(stored(acts / "host_003")) == [0] and not (tmp_path / "ran").exists()


def test_what_is_exported_is_what_pickle_reads_and_comes_back(daemon, acts, tmp_path):
    large = [(1 << 31) - 1, 1 << 31, (1 << 32) - 1]  # numbers of layers on both sides of what four bytes hold with a sign
    with tc.connect(daemon.socket).activation_store(acts, host=3, segment_bytes="2KiB", narrow="auto") as store:
        for i in range(9):
            store.append(i, {**sample(i), 9: np.ones((2, 2), np.float32), **dict.fromkeys(large, sample(i)[4])}, info={"text_preview": f"t{i}"})
    daemon.cli.ok("activations", "export", acts, "--out", tmp_path / "out")
    folder, got = tmp_path / "out/host_003", {}
    told = json.loads((folder / "metadata.json").read_text())
    assert told["total_unique_samples"] == 9 and told["total_shards"] == len(list(folder.glob("shard_*.pkl.gz"))) > 1
    for path in folder.glob("shard_*.pkl.gz"):
        for layer, entries in pickle.loads(gzip.decompress(path.read_bytes())).items():
            for entry in entries:
                assert entry["shape"] == entry["activation"].shape and entry["text_preview"] == f"t{entry['sample_idx']}"
                got.setdefault(entry["sample_idx"], {})[layer] = entry["activation"]
    assert sorted(got) == list(range(9)) and all((got[i][k] == a).all() for i in got for k, a in sample(i).items())
    assert got[0][9].dtype == np.float32 and (got[0][9] == 1).all()
    daemon.cli.ok("activations", "import", acts, folder, "--host", 8)
    there = stored(acts / "host_008")
    assert sorted(there) == list(range(9)) and all((there[i][layer] == sample(i)[4]).all() for i in there for layer in large)
    assert daemon.cli.run("activations", "export", acts, "--out", tmp_path / "out").status == "ALREADY_EXISTS"


CONTRADICTIONS = {
    "tells of 3 shards, there are 2": {"total_shards": 3},
    "tells of 11 activations, there are 10": {"total_activations": 11},
    "tells of 6 samples, there are 5": {"total_unique_samples": 6},
    "lists shard_0003.pkl.gz, which is not there": {"shards": [{"filename": "shard_0003.pkl.gz"}]},
    "tells of 8 activations in shard_0001.pkl.gz, there are 9": {"shards": [{"filename": "shard_0001.pkl.gz", "total_samples_in_shard": 8}]},
    "tells of 4 samples in shard_0001.pkl.gz, there are 5": {"shards": [{"num_samples": 4, "filename": "shard_0001.pkl.gz"}]},
    "has another checksum of shard_0002.pkl.gz": {"shards": [{"filename": "shard_0002.pkl.gz", "checksum": "sha256:" + "0" * 64}]},
}


@pytest.mark.parametrize("said", CONTRADICTIONS)
def test_what_metadata_say_and_shards_are_not_is_told_and_the_shards_are_believed(daemon, acts, tmp_path, said):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(i, sample(i)[4]) for i in range(5)], 7: [(i, sample(i)[7]) for i in range(4)]})
    shard(tmp_path / "shard_0002.pkl.gz", {7: [(4, sample(4)[7])]})
    right = {"total_shards": 2, "total_activations": 10, "total_unique_samples": 5, "shards": [
        {"filename": path.name, "checksum": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"} for path in sorted(tmp_path.iterdir())]}
    (tmp_path / "metadata.json").write_text(json.dumps({**right, **CONTRADICTIONS[said]}))
    outcome = daemon.cli.ok("activations", "import", acts, tmp_path, "--host", 3)
    assert outcome.err.splitlines() == [line for line in outcome.err.splitlines() if said in line] != []
    holds(acts / "host_003", range(5))


@pytest.mark.parametrize("what", ["bytes", "shape", "type", "layer", "order"])
def test_a_number_that_the_host_has_for_another_sample_is_refused_before_anything_is_appended(daemon, acts, tmp_path, what):
    first, other = (tmp_path / name for name in ("first", "other"))
    first.mkdir()
    other.mkdir()
    arrays = [np.asfortranarray(sample(i)[4]) for i in range(6)]
    shard(first / "shard_0001.pkl.gz", {4: list(enumerate(arrays))})
    daemon.cli.ok("activations", "import", acts, first, "--host", 3)
    assert daemon.cli.json("activations", "import", acts, first, "--host", 3)["skipped"] == 6
    same = [(7, arrays[0]), (2, arrays[2].copy("C"))]
    shard(other / "shard_0001.pkl.gz", {4: same})
    assert daemon.cli.json("activations", "import", acts, other, "--host", 3) == {"shards": 1, "samples": 2, "skipped": 1}
    changed = {"bytes": arrays[5] * np.float32(1.0001), "shape": arrays[5].reshape(-1), "type": arrays[5].view(np.int32), "layer": arrays[5],
               "order": arrays[5].T.reshape(arrays[5].shape)}[what]
    shard(other / "shard_0002.pkl.gz", {5 if what == "layer" else 4: [(8, arrays[0]), (5, changed)]})
    refused = daemon.cli.run("activations", "import", acts, other, "--host", 3)
    assert refused.status == "INVALID_ARGUMENT" and "shard_0002" in refused.err and "host_003 has sample 5" in refused.err
    assert sorted(stored(acts / "host_003")) == [*range(6), 7]
    daemon.cli.ok("activations", "import", acts, other, "--host", 4)


@pytest.mark.parametrize("text", ["{", '{"total_shards": 1', '{"total_shards": 1} x', "", None])
def test_metadata_that_are_damaged_or_no_file_are_told_and_the_shards_are_believed(daemon, acts, tmp_path, text):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(1, sample(1)[4])]})
    path = tmp_path / "metadata.json"
    os.mkfifo(path) if text is None else path.write_text(text)
    told = daemon.cli.ok("activations", "import", acts, tmp_path, "--host", 3).err
    assert re.search("metadata.json is not compared: .*is no regular file" if text is None else "metadata.json is damaged", told), told
    assert sorted(stored(acts / "host_003")) == [1]


@pytest.mark.parametrize("more", [0, 1])
def test_a_metadata_json_of_256_mib_is_read_and_of_a_longer_one_it_is_said_that_it_is_not(daemon, acts, tmp_path, more):
    shard(tmp_path / "shard_0001.pkl.gz", {4: [(1, sample(1)[4])]})
    with open(tmp_path / "metadata.json", "wb") as file:
        file.truncate((256 << 20) + more)  # zeros, which are no JSON
    told = "metadata.json is not compared: .* is longer than 256 MiB" if more else "metadata.json is damaged"
    assert re.search(told, daemon.cli.ok("activations", "import", acts, tmp_path, "--host", 3).err)


def test_exported_metadata_are_those_of_the_programs_and_of_their_description_and_contradict_nothing(daemon, acts, tmp_path):
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, segment_bytes="2KiB") as store:
        for i in range(7):
            store.append(i, sample(i))
    daemon.cli.ok("activations", "export", acts, "--out", tmp_path / "out")
    text = (tmp_path / "out/host_003/metadata.json").read_text()
    told = json.loads(text)
    assert text.startswith('{\n  "') and told["version"] and told["created_at"].endswith("Z") and told["distributed_config"] == {"host_id": 3}
    assert (told["total_shards"], told["total_activations"], told["total_unique_samples"]) == (len(told["shards"]), 14, 7)
    assert told["statistics"]["total_samples"] == 7 and told["shard_size_gb"] > 0
    for one in told["shards"]:
        raw = (tmp_path / "out/host_003" / one["filename"]).read_bytes()
        ids = sorted(entry["sample_idx"] for entry in pickle.loads(gzip.decompress(raw))[4])
        assert one["checksum"] == f"sha256:{hashlib.sha256(raw).hexdigest()}" and one["size_bytes"] == len(raw)
        assert (one["num_samples"], one["sample_id_range"], one["total_samples_in_shard"]) == (len(ids), [ids[0], ids[-1]], 2 * len(ids))
    assert daemon.cli.ok("activations", "import", acts, tmp_path / "out/host_003", "--host", 8).err == ""


@pytest.mark.parametrize("place", ["abc", "disk:/etc/host_003/segment_000001.safetensors", "https://127.0.0.1:1/host_003/s"])
def test_a_segment_that_is_said_to_be_in_no_bucket_is_a_damaged_manifest(daemon, acts, tmp_path, place):
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3) as store:
        store.append(1, sample(1))
    path = acts / "host_003/manifest.json"
    told = json.loads(path.read_text())
    told["segments"][0] |= {"uploaded": place, "local": False}
    path.write_text(json.dumps(told))
    outcome = daemon.cli.run("activations", "export", acts, "--out", tmp_path / "out")
    assert outcome.status == "DATA_LOSS" and "to no bucket" in outcome.err, outcome


def test_an_export_that_fails_takes_back_what_it_wrote_and_nothing_else(daemon, acts, tmp_path):
    for host in (3, 4):
        with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=host, segment_bytes="4KiB") as store:
            for i in range(20):
                store.append(i, sample(i))
    victim = sorted((acts / "host_004").glob("*.safetensors"))[1]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    out = tmp_path / "out"
    (out / "host_004").mkdir(parents=True)
    (out / "host_004/metadata.json").write_text("mine")
    refused = daemon.cli.run("activations", "export", acts, "--out", out)
    assert refused.status == "ALREADY_EXISTS" and (out / "host_004/metadata.json").read_text() == "mine"
    assert [p.name for p in out.iterdir()] == ["host_004"]
    (out / "host_004").rename(out / "other")
    outcome = daemon.cli.run("activations", "export", acts, "--out", out)
    assert outcome.status == "DATA_LOSS" and victim.name in outcome.err and [p.name for p in out.iterdir()] == ["other"]
    victim.write_bytes(whole)
    assert daemon.cli.json("activations", "export", acts, "--out", out)["hosts"] == 2


def test_a_sample_that_no_store_takes_is_refused_before_any_other_is_appended(daemon, acts, tmp_path):
    entry = lambda i, text: {"sample_idx": i, "activation": np.zeros(2, np.int8), "shape": (2,), "text_preview": text}  # noqa: E731
    for n, layers in enumerate([{1: [entry(0, "x"), entry(1, "\0" * 200_000)]}, {layer: [entry(0, "")] for layer in range(65537)}]):
        path = tmp_path / f"shard_{n:04}.pkl"
        path.write_bytes(pickle.dumps(layers, 4))
        outcome = daemon.cli.run("activations", "import", acts, path, "--host", 3)
        assert outcome.status == "INVALID_ARGUMENT" and f"sample {1 - n}" in outcome.err, outcome
        assert "not complete" not in outcome.err and not list(acts.rglob("*.safetensors"))
