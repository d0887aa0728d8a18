"""Checksums of stores and manifests in stores: what loads, verify and manifest make of them. Wrong bytes on the way are in
test_store_contents.py."""
import json

import pytest

import checkpoints
from stage import MiB, Tensorcast
from stores_fixture import fake  # noqa: F401


@pytest.fixture
def bucket(fake, tmp_path):  # noqa: F811
    """gs://models/m with two parts and an index; returns its bytes by name."""
    checkpoints.write(tmp_path / "m", {"a": checkpoints.blob(1, MiB), "b": checkpoints.blob(2, 300_000)},
                      {"c": checkpoints.blob(3, 100_000)})
    files = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    for name, data in files.items():
        fake.world.put("gcs", f"models/m/{name}", data)
    return files


@pytest.fixture
def alone(fake, monkeypatch, tmp_path):  # noqa: F811
    """The command without a daemon, pointed at the fake."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    command = Tensorcast("/tmp/tensorcast-no-daemon-here.sock")
    return lambda *arguments: command.run(*arguments, "--standalone")


def test_a_load_is_verified_by_the_stores_crc32c(alone, bucket):
    done = alone("load", "gs://models/m", "--json")
    verified = done.report["verified"]
    assert (verified["status"], verified["by"], verified["healed"]) == ("verified", "crc32c", 0), done
    assert verified["bytes"] == MiB + 400_000


def test_a_part_of_an_object_is_not_verified_without_a_manifest(alone, bucket):
    done = alone("load", "gs://models/m", "--json", "--tensor", "b")
    assert done.report["verified"]["status"] == "unverified", done
    assert "only part of the file was read" in done.report["verified"]["reason"]


def test_verify_compares_every_byte_with_the_store(alone, bucket):
    done = alone("verify", "gs://models/m", "--json")
    assert done.report["verified"]["status"] == "verified", done
    assert done.report["verified"]["by"].startswith("crc32c")


def test_verify_finds_bytes_that_are_always_wrong(alone, bucket, fake):  # noqa: F811
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=0)
    done = alone("verify", "gs://models/m")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "model-00001-of-00002.safetensors" in done.err and "BAD" in done.out


def test_verify_reads_again_what_came_wrong_once(alone, bucket, fake):  # noqa: F811
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=1)
    done = alone("verify", "gs://models/m", "--json")
    assert done.code == 0 and done.report["verified"]["status"] == "verified", done
    assert [file["healed"] for file in done.report["checked"]] == [True, False]


def test_a_manifest_beside_the_objects_vouches_for_parts_of_them(alone, bucket, fake):  # noqa: F811
    made = alone("manifest", "gs://models/m", "--out", "-")
    assert made.code == 0, made
    assert all(file["version"] for file in json.loads(made.out)["files"])
    fake.world.put("gcs", "models/m/model.manifest.json", made.out.encode())
    done = alone("load", "gs://models/m", "--json", "--tensor", "b")
    verified = done.report["verified"]
    assert (verified["status"], verified["by"]) == ("verified", "manifest crc32c"), done


def test_a_manifest_is_not_made_of_bytes_that_the_store_denies(alone, bucket, fake):  # noqa: F811
    fake.fault({"flip": 700_000}, {"listener": "gcs", "path": "00001-of-00002.*alt=media", "covers": 700_000}, times=0)
    done = alone("manifest", "gs://models/m", "--out", "-")
    assert (done.code, done.status, done.out) == (1, "DATA_LOSS", ""), done


def test_a_wrong_tensor_of_a_partial_load_is_healed_or_named(alone, bucket, fake):  # noqa: F811
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
