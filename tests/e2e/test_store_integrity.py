"""Checksums of stores and manifests in stores: what loads, verify and manifest make of them. Wrong bytes on the way are in
test_store_contents.py."""
import json

import numpy as np
import pytest

import checkpoints
from stage import MiB, Tensorcast
from store_scene import SCHEMES, SIZE, load, noise, place
from stores_fixture import checksums


@pytest.fixture
def bucket(fake, tmp_path):
    """gs://models/m with two parts and an index; returns its bytes by name."""
    checkpoints.write(tmp_path / "m", {"a": checkpoints.blob(1, MiB), "b": checkpoints.blob(2, 300_000)},
                      {"c": checkpoints.blob(3, 100_000)})
    files = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    for name, data in files.items():
        fake.world.put("gcs", f"models/m/{name}", data)
    return files


@pytest.fixture
def alone(fake, monkeypatch, tmp_path):
    """The command without a daemon, pointed at the fake."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    command = Tensorcast("/tmp/tensorcast-no-daemon-here.sock")
    return lambda *arguments: command.run(*arguments, "--standalone")


def test_verify_compares_every_byte_with_the_store(alone, bucket):
    done = alone("verify", "gs://models/m", "--json")
    assert done.report["verified"]["status"] == "verified", done
    assert done.report["verified"]["by"].startswith("crc32c")


def test_verify_finds_bytes_that_are_always_wrong(alone, bucket, fake):
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=0)
    done = alone("verify", "gs://models/m")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "model-00001-of-00002.safetensors" in done.err
    assert "BAD  model-00001-of-00002.safetensors: bytes " in done.out and "no checksum" not in done.out, done


def test_verify_reads_again_what_came_wrong_once(alone, bucket, fake):
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=1)
    done = alone("verify", "gs://models/m", "--json")
    assert done.code == 0 and done.report["verified"]["status"] == "verified", done
    assert [file["healed"] for file in done.report["checked"]] == [True, False]


def test_a_manifest_without_checksums_is_no_reason_to_speak_of_blocks(alone, bucket, fake):
    files = [{"name": name, "bytes": len(data)} for name, data in sorted(bucket.items()) if name.endswith(".safetensors")]
    fake.world.put("gcs", "models/m/model.manifest.json",
                   json.dumps({"format": "tensorcast-manifest", "version": 1, "files": files}).encode())
    verified = alone("load", "gs://models/m", "--json", "--tensor", "b").report["verified"]
    assert verified["status"] == "unverified" and "has no checksums" in verified["reason"], verified


def test_a_manifest_is_not_made_of_bytes_that_the_store_denies(alone, bucket, fake):
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=0)
    done = alone("manifest", "gs://models/m", "--out", "-")
    assert (done.code, done.status, done.out) == (1, "DATA_LOSS", ""), done


def test_a_wrong_tensor_of_a_partial_load_is_healed_or_named(alone, bucket, fake):
    made = alone("manifest", "gs://models/m", "--out", "-")
    fake.world.put("gcs", "models/m/model.manifest.json", made.out.encode())
    fault = {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": MiB + 100_000}
    fake.fault({"flip": MiB + 100_000}, fault, times=1)
    done = alone("load", "gs://models/m", "--json", "--tensor", "b")
    assert done.code == 0 and done.report["verified"]["healed"] == 1, done
    fake.fault({"flip": MiB + 100_000}, fault, times=0)
    done = alone("load", "gs://models/m", "--tensor", "b")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "tensor b" in done.err


STORES_SAY = {"gs": "crc32c", "s3": "crc32c", "hf": "sha256", "http": ""}
NOTHING = "the source gives no checksum and there is no manifest"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_answer_says_what_was_verified_and_by_what(fake, store_daemon, scheme):
    matrix = np.frombuffer(checkpoints.blob(5, 2 * MiB).tobytes(), np.uint8).reshape(1024, 2048)
    placed = place(fake, scheme, {"a": noise(1)}, {"m": matrix, "c": checkpoints.blob(3, 100_000)})
    if scheme == "s3":
        for name in placed.files:
            made = fake.world.get("s3", placed.prefix + name)
            made.declared = {"crc32c": checksums.text(made.checksum("crc32c"))}
    daemon, by = store_daemon(), STORES_SAY[scheme]

    def verified(*view):
        outcome = load(daemon, placed, *view)
        assert outcome.code == 0, outcome
        daemon.cli.ok("release", "--all")
        found = outcome.report["verified"]
        return found["status"], found["by"], found["bytes"], found["reason"]

    whole = SIZE + 2 * MiB + 100_000
    nothing = ("unverified", "", 0, f"model-00001-of-00002.safetensors: {NOTHING}; and 1 more file")
    assert verified() == (("verified", by, whole, "") if by else nothing)
    second = "model-00002-of-00002.safetensors: "
    why = {"": NOTHING, "crc32c": "only part of the file was read, and its checksum is of all of it",
           "sha256": "only part of the file was loaded, and its checksum is of all of it"}[by]
    for view in (["--tensor", "c"], ["--slice", "m[:, :1024]"]):
        assert verified(*view) == ("unverified", "", 0, second + why)
    if by:
        assert verified("--tensor", "a", "--tensor", "c") == ("partial", by, SIZE, second + why)
    made = daemon.cli.ok("manifest", placed.reference, "--out", "-")
    placed.put("model.manifest.json", made.out.encode())
    if scheme == "hf":
        fake.world.repository("org/m").new_commit()
    assert verified("--tensor", "c") == ("verified", "manifest crc32c", 100_000, "")
    status, found_by, verified_bytes, reason = verified("--slice", "m[:, :1024]")
    assert (status, found_by, verified_bytes) == ("unverified", "", 0) and reason.startswith(second + "tensors that are loaded in part"), reason
