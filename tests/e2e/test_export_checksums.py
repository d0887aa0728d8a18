"""What an export reads is held against the checksums of its source, a manifest's or a store's, before anything is published."""
import json

import numpy as np
import pytest

import checkpoints
from stage import MiB, Tensorcast
from store_scene import SCHEMES, SIZE, noise, place
from stores_fixture import checksums

NOTHING = "the source gives no checksum and there is no manifest"
FORMATS = [["--format", "hf"], ["--format", "hf", "--max-file-size", "3MiB"],
           ["--format", "topology", "--world-size", "2", "--uneven", "share", "--tp-rule", "*=0"],
           ["--format", "dcp", "--world-size", "2", "--uneven", "ceil", "--tp-rule", "m=1", "--tp-rule", "*=0"]]


def matrix(seed, rows, columns):
    return np.frombuffer(checkpoints.blob(seed, rows * columns).tobytes(), np.uint8).reshape(rows, columns)


@pytest.fixture
def model(alone, models):
    """Two files with a manifest beside them."""
    checkpoints.write(models / "m", {"a": checkpoints.blob(1, 9 * MiB), "b": checkpoints.blob(2, 5000)},
                      {"m": matrix(3, 1024, 3000), "s": np.float32(7)})
    alone.ok("manifest", f"disk:{models}/m", "--out", models / "m/model.manifest.json", "--standalone")
    return models / "m"


def flip(path, offset):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def export(alone, reference, out, *options):
    report = alone.json("export", reference, "--out", out, *options)
    return report["verified"]["status"], report["verified"]["by"], report["verified"]["bytes"], report["verified"]["reason"]


@pytest.mark.parametrize("form", FORMATS, ids=" ".join)
def test_every_byte_is_held_against_the_manifest_however_it_is_cut(alone, model, tmp_path, form):
    bytes_read = 9 * MiB + 5000 + 3000 * 1024 + 4
    assert export(alone, f"disk:{model}", tmp_path / "out", *form) == ("verified", "manifest crc32c", bytes_read, "")


@pytest.mark.parametrize("name,offset,tensor", [("model-00001-of-00002.safetensors", 5 * MiB, "a"),
                                                ("model-00002-of-00002.safetensors", MiB, "m")])
def test_a_damaged_source_is_named_and_nothing_is_published(alone, model, tmp_path, name, offset, tensor):
    flip(model / name, offset)
    done = alone.run("export", f"disk:{model}", "--out", tmp_path / "out")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert name in done.err and f"tensor {tensor} " in done.err and "the manifest says" in done.err, done
    assert not list(tmp_path.iterdir()), "there is nothing that could be resumed"
    flip(model / name, offset)
    assert export(alone, f"disk:{model}", tmp_path / "out", "--resume")[0] == "verified"


def test_a_part_is_verified_by_whole_tensors_and_what_is_converted_is_not(alone, model, tmp_path):
    status, by, count, reason = export(alone, f"disk:{model}", tmp_path / "1", "--tensor", "a", "--slice", "m[0:4, :]")
    assert (status, by, count) == ("partial", "manifest crc32c", 9 * MiB) and "only part of the file" in reason
    status, by, count, reason = export(alone, f"disk:{model}", tmp_path / "2", "--tensor", "s", "--dtype", "BF16")
    assert (status, by, count) == ("unverified", "", 0) and "converted" in reason


def test_without_a_manifest_nothing_is_claimed(alone, model, tmp_path):
    (model / "model.manifest.json").unlink()
    assert export(alone, f"disk:{model}", tmp_path / "out") == \
        ("unverified", "", 0, f"model-00001-of-00002.safetensors: {NOTHING}; and 1 more file")


def test_a_manifest_that_cannot_be_true_is_refused_before_anything_is_written(alone, model, tmp_path):
    manifest = model / "model.manifest.json"
    good = json.loads(manifest.read_text())
    good["files"][1]["bytes"] += 1
    for text, word in [("{}", "model.manifest.json"), (json.dumps(good), "by its manifest")]:
        manifest.write_text(text)
        done = alone.run("export", f"disk:{model}", "--out", tmp_path / "out")
        assert (done.code, done.status) == (1, "DATA_LOSS") and word in done.err, done
        assert not list(tmp_path.iterdir())


def test_files_of_ranks_are_verified_though_a_shared_tensor_is_read_from_one(alone, model, tmp_path, models):
    ranks = models / "ranks"
    alone.ok("export", f"disk:{model}", "--out", ranks, "--format", "topology", "--world-size", "3", "--tp-rule", "m=1",
             "--tp-rule", "a=0", "--tp-rule", "*=replicate")
    alone.ok("manifest", f"disk:{ranks}", "--out", ranks / "model.manifest.json", "--standalone")
    bytes_read = 9 * MiB + 5000 + 3000 * 1024 + 4
    assert export(alone, f"disk:{ranks}", tmp_path / "1") == ("verified", "manifest crc32c", bytes_read, "")
    flip(ranks / "rank2.safetensors", 2 * MiB)
    done = alone.run("export", f"disk:{ranks}", "--out", tmp_path / "2")
    assert (done.code, done.status) == (1, "DATA_LOSS") and "rank2.safetensors" in done.err, done


@pytest.fixture
def settled(fake, bare, aws_keys, monkeypatch):
    """The command finds the fake stores by the variables of their own SDKs."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url("s3"))
    monkeypatch.setenv("HF_ENDPOINT", fake.url("hub"))
    return Tensorcast("/tmp/tc8-no-daemon-here.sock")


STORES_SAY = {"gs": "crc32c", "s3": "crc32c", "hf": "", "http": ""}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_objects_are_held_against_the_sums_of_their_store(fake, settled, tmp_path, scheme):
    placed = place(fake, scheme, {"a": noise(1)}, {"m": matrix(5, 1024, 2048), "c": checkpoints.blob(3, 100_000)})
    if scheme == "s3":
        for name in placed.files:
            made = fake.world.get("s3", placed.prefix + name)
            made.declared = {"crc32c": checksums.text(made.checksum("crc32c"))}
    by, whole = STORES_SAY[scheme], SIZE + 2 * MiB + 100_000
    found = export(settled, placed.reference, tmp_path / "1")
    if by:
        assert found == ("verified", by, whole, "")
    else:
        assert found[:3] == ("unverified", "", 0) and ("tensorcast verify" in found[3]) == (scheme == "hf"), found
    assert export(settled, placed.reference, tmp_path / "2", "--format", "topology", "--world-size", "2", "--tp-rule", "m=1",
                  "--tp-rule", "*=replicate")[:2] == found[:2]


def test_bytes_that_came_wrong_from_a_store_are_published_nowhere(fake, settled, tmp_path):
    placed = place(fake, "gs", {"a": noise(1)}, {"c": checkpoints.blob(3, 100_000)})
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=1)
    done = settled.run("export", placed.reference, "--out", tmp_path / "out")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "model-00001-of-00002.safetensors" in done.err and "the store says crc32c" in done.err, done
    assert not (tmp_path / "out").exists()
    assert export(settled, placed.reference, tmp_path / "out", "--resume")[0] == "verified"
