"""Manifests and what they vouch for, end to end: made, found, believed, and held against damaged files."""
import hashlib
import json

import pytest

import checkpoints
from stage import MiB, soon

SIZES = {"model-00001-of-00002.safetensors": {"a": 9 * MiB, "b": 5 * MiB}, "model-00002-of-00002.safetensors": {"c": 3 * MiB + 7}}


@pytest.fixture
def model(models):
    checkpoints.write(models / "m", *[{name: checkpoints.blob(index, size) for index, (name, size) in enumerate(tensors.items())}
                                      for tensors in SIZES.values()])
    return models / "m"


@pytest.fixture
def manifest(either, model, tmp_path):
    """Beside the model."""
    done = either.run("manifest", f"disk:{model}", "--out", tmp_path / "made.json")
    assert done.code == 0, done
    assert not (model / "model.manifest.json").exists()  # that is for the user to put there
    (model / "model.manifest.json").write_text((tmp_path / "made.json").read_text())
    return json.loads((tmp_path / "made.json").read_text())


def flip(path, offset):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def parts(model):
    return sorted(model.glob("*.safetensors"))


def test_a_manifest_tells_size_and_digest_of_every_file(manifest, model):
    assert [file["name"] for file in manifest["files"]] == [path.name for path in parts(model)]
    for file, path in zip(manifest["files"], parts(model)):
        content = path.read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        assert len(file["blocks"]) == 8 * -(-len(content) // manifest["block_bytes"])


def test_a_load_without_anything_to_compare_with_says_so(either, model):
    done = either.run("load", f"disk:{model}", "--json")
    assert done.report["verified"]["status"] == "unverified", done
    assert "no manifest" in done.report["verified"]["reason"]


def test_a_load_and_a_part_of_one_are_verified_by_the_manifest(either, manifest, model):
    done = either.run("load", f"disk:{model}", "--json")
    verified = done.report["verified"]
    assert (verified["status"], verified["by"], verified["reason"]) == ("verified", "manifest crc32c", ""), done
    assert verified["bytes"] == done.report["bytes"]["view"]
    part = either.run("load", f"disk:{model}", "--json", "--tensor", "b")
    assert part.report["verified"]["status"] == "verified", part


def test_a_damaged_tensor_fails_the_loads_that_want_it(either, manifest, model):
    size = parts(model)[0].stat().st_size
    flip(parts(model)[0], size - 1)
    done = either.run("load", f"disk:{model}")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "model-00001-of-00002.safetensors" in done.err and "tensor b" in done.err
    assert either.run("load", f"disk:{model}", "--tensor", "a").code == 0


def test_verify_reads_everything_and_names_the_block(either, manifest, model):
    assert either.run("verify", f"disk:{model}", "--json").report["verified"]["status"] == "verified"
    flip(parts(model)[0], 5 * MiB)
    done = either.run("verify", f"disk:{model}")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert f"bytes {4 * MiB} to {8 * MiB}" in done.err
    assert [line.split()[0] for line in done.out.splitlines()[:2]] == ["BAD", "ok"]


def test_the_last_line_of_verify_is_the_verdict(either, model):
    last = lambda: either.run("verify", f"disk:{model}").out.splitlines()[-1]  # noqa: E731
    assert last().endswith("every header is valid and agrees with its file, no byte was compared: there is no checksum")
    either.run("manifest", f"disk:{model}", "--out", model / "model.manifest.json")
    assert last().endswith(", every byte with its checksum (manifest crc32c + manifest sha256)")
    flip(parts(model)[0], 5 * MiB)
    assert last() == f"disk:{model}: 1 of 2 files is damaged"
    flip(parts(model)[1], MiB)
    assert last() == f"disk:{model}: 2 of 2 files are damaged"


def test_damage_that_verify_finds_is_logged_as_an_error(daemon, models):
    write_with_manifest(daemon, models)
    assert "level=info event=verify_done" in said_of(daemon, models)
    flip(models / "m/model.safetensors", MiB)
    assert "level=error event=verify_done" in said_of(daemon, models)


def write_with_manifest(daemon, models):
    checkpoints.write(models / "m", {"a": checkpoints.blob(1, MiB)})
    daemon.cli.ok("manifest", f"disk:{models}/m", "--out", models / "m/model.manifest.json")


def said_of(daemon, models):
    """The log's line about the last verification."""
    before = daemon.log().count("event=verify_done")
    daemon.cli.run("verify", f"disk:{models}/m")
    assert soon(lambda: daemon.log().count("event=verify_done") > before)
    return [line for line in daemon.log().splitlines() if "event=verify_done" in line][-1]


def test_a_malformed_manifest_is_an_error_that_names_it(either, model):
    (model / "model.manifest.json").write_text("{}")
    for command in ("load", "verify"):
        done = either.run(command, f"disk:{model}")
        assert (done.code, done.status) == (1, "DATA_LOSS"), done
        assert "model.manifest.json" in done.err


def test_a_manifest_of_other_files_is_an_error(either, manifest, model):
    checkpoints.write(model, {"a": checkpoints.blob(9, 100)}, {"c": checkpoints.blob(9, 100)})
    done = either.run("load", f"disk:{model}")
    assert (done.code, done.status) == (1, "DATA_LOSS"), done
    assert "by its manifest" in done.err


def test_a_single_file_has_a_manifest_of_its_own_name(either, model):
    path = parts(model)[1]
    done = either.run("manifest", f"disk:{path}", "--out", model / "model-00002-of-00002.manifest.json")
    assert done.code == 0, done
    assert either.run("load", f"disk:{path}", "--json").report["verified"]["status"] == "verified"


def test_the_daemon_keeps_what_it_found_for_the_next_client(daemon, model):
    first = daemon.cli.json("load", f"disk:{model}")
    second = daemon.cli.json("load", f"disk:{model}")
    assert second["from_replica"] and second["verified"] == first["verified"]
    assert daemon.logged("verified=unverified")


def test_a_daemon_may_require_verification(start, model, models):
    daemon = start(sources={"verify": "required", "disk": {"trusted_roots": [str(models)]}})
    done = daemon.cli.run("load", f"disk:{model}")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION"), done
    assert "sources.verify is required" in done.err and "no manifest" in done.err
    made = daemon.cli.ok("manifest", f"disk:{model}", "--out", "-").out
    (model / "model.manifest.json").write_text(made)
    assert daemon.cli.json("load", f"disk:{model}")["verified"]["status"] == "verified"
    done = daemon.cli.run("load", f"disk:{model}", "--slice", "a[1:5]")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION"), done


def test_a_daemon_may_leave_it(start, model, models):
    daemon = start(sources={"verify": "none", "disk": {"trusted_roots": [str(models)]}})
    (model / "model.manifest.json").write_text("{}")
    assert daemon.cli.json("load", f"disk:{model}")["verified"]["status"] == "off"
