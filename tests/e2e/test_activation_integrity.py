"""Bytes of activation stores are held against the sums in their manifests by all readers: loads, samples(), verify."""
import json
import re
import struct

import numpy as np
import pytest
import tensorcast_client as tc

from activation_scene import same, sample

LARGE = {1: (200, 100), 2: (3,), 3: (0, 4), 9: (150, 70)}


def large(i):
    """Arrays with and without bytes; several samples of them make a segment."""
    return {layer: np.random.default_rng([i, layer]).standard_normal(shape, np.float32) for layer, shape in LARGE.items()}


@pytest.fixture
def daemon(start, models):
    return start(activations={"roots": [str(models)]})


@pytest.fixture
def filled(daemon, acts):
    """Host 0 with several segments, host 5 with one."""
    for host, ids, make, options in ((0, range(9), large, {"segment_bytes": "500KiB"}), (5, range(20, 24), sample, {"narrow": "auto"})):
        with tc.connect(daemon.socket).activation_store(acts, host=host, **options) as store:
            for i in ids:
                store.append(i, make(i), info={"n": i})
    assert len(list((acts / "host_000").glob("*.safetensors"))) > 2
    return acts


def place_of(path, name):
    """(first byte, behind the last) of a tensor in its file."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(raw[8:8 + length])[name]["data_offsets"]
    return 8 + length + begin, 8 + length + end


def flip(path, offset):
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 16
    path.write_bytes(raw)


def segment_of(host, i):
    for segment in json.loads((host / "manifest.json").read_text())["segments"]:
        if i in segment["samples"]:
            return host / segment["file"]


def read(daemon, acts, **options):
    """({sample: layers}, the error that ended it) of a whole store."""
    got = {}
    try:
        for i, layers in tc.connect(daemon.socket).activation_store(acts).samples(**options):
            got[i] = layers
    except tc.TensorcastError as error:
        return got, error
    return got, None


@pytest.mark.parametrize("part", ["", "/host_000", "/host_000/segment_000002.safetensors"])
def test_loads_and_verify_compare_with_the_manifest(daemon, filled, part):
    whole = daemon.cli.json("load", f"disk:{filled}{part}")["verified"]
    assert (whole["status"], whole["by"], whole["reason"]) == ("verified", "manifest crc32c", "")
    told = daemon.cli.json("verify", f"disk:{filled}{part}")
    assert told["verified"]["status"] == "verified" and "sha256" in told["verified"]["by"]
    name = f"layer_9/sample_{json.loads((filled / 'host_000/manifest.json').read_text())['segments'][1]['samples'][0]:08}"
    one = daemon.cli.json("load", f"disk:{filled}{part}", "--tensor", name)["verified"]
    assert (one["status"], one["by"], one["bytes"]) == ("verified", "manifest crc32c", 150 * 70 * 4)
    cut = daemon.cli.json("load", f"disk:{filled}{part}", "--slice", f"{name}[0:9, :]")["verified"]
    assert cut["status"] == "unverified" and "loaded in part" in cut["reason"]


def test_samples_of_a_damaged_array_are_never_handed_out_and_its_neighbours_are(daemon, filled):
    victim = segment_of(filled / "host_000", 4)
    flip(victim, place_of(victim, "layer_1/sample_00000004")[1] - 1)
    got, error = read(daemon, filled, layers=[2, 9])
    assert error is None and sorted(got) == [*range(9)]
    got, error = read(daemon, filled)
    assert error.code.name == "DATA_LOSS" and victim.name in str(error) and "host_000" in str(error)
    assert all(same(layers, large(i)) for i, layers in got.items()) and 4 not in got
    for command in ("load", "verify"):
        failed = daemon.cli.run(command, f"disk:{filled}")
        assert failed.status == "DATA_LOSS" and f"host_000/{victim.name}" in failed.err, failed
    assert "layer_1/sample_00000004" in daemon.cli.run("verify", f"disk:{filled}").err
    exported = daemon.cli.run("export", f"disk:{filled / 'host_000'}", "--out", filled.parent / "out.safetensors")
    assert exported.status == "DATA_LOSS", exported


@pytest.mark.parametrize("what", [b'"layer_2/sample_00000004"', b'"F32"', b"[200,100]"])
def test_a_damaged_header_gives_no_other_samples(daemon, filled, what):
    victim = segment_of(filled / "host_000", 4)
    raw = bytearray(victim.read_bytes())
    begin, entry = raw.index(b'"layer_2/sample_00000004"'), raw.index(b'"layer_1/sample_00000004"')
    at = {b'"F32"': raw.index(b'"F32"', entry), b"[200,100]": raw.index(b"[200,100]", entry)}.get(what, begin)
    raw[at:at + len(what)] = {b'"F32"': b'"I32"', b"[200,100]": b"[100,200]"}.get(what, b'"layer_2/sample_00000044"')
    victim.write_bytes(raw)
    got, error = read(daemon, filled)
    assert error.code.name == "DATA_LOSS" and victim.name in str(error), error
    assert all(same(layers, large(i)) for i, layers in got.items())


def test_nothing_is_compared_where_the_operator_says_so(start, models, filled, daemon):
    victim = segment_of(filled / "host_000", 4)
    flip(victim, place_of(victim, "layer_1/sample_00000004")[0])
    daemon.stop()
    other = start(sources={"verify": "none", "disk": {"trusted_roots": [str(models)]}})
    got, error = read(other, filled)
    assert error is None and len(got) == 13


def test_a_store_of_before_arrays_had_sums_is_compared_file_by_file(daemon, filled):
    for manifest in filled.glob("host_*/manifest.json"):
        manifest.write_text(re.sub(r',"header_crc32c":"\w{8}","array_crc32c":"\w+"', "", manifest.read_text()))
        assert "array_crc32c" not in manifest.read_text()
    daemon.cli.ok("activations", "verify", filled)
    assert daemon.cli.json("load", f"disk:{filled}")["verified"]["by"] == "manifest crc32c"
    assert daemon.cli.json("load", f"disk:{filled}", "--tensor", "layer_9/sample_00000004")["verified"]["status"] == "unverified"
    victim = segment_of(filled / "host_000", 4)
    flip(victim, place_of(victim, "layer_1/sample_00000004")[0])
    for command in (("load",), ("verify",), ("activations", "verify")):
        failed = daemon.cli.run(*command, f"disk:{filled}")
        assert failed.status == "DATA_LOSS" and victim.name in failed.err


def test_a_manifest_of_something_else_is_none(daemon, filled):
    (filled / "host_005/manifest.json").write_text('{"format": "of mine", "segments": 7}')
    verified = daemon.cli.json("load", f"disk:{filled}")["verified"]
    assert verified["status"] == "partial" and "host_005" in verified["reason"]
    (filled / "host_005/manifest.json").unlink()
    assert daemon.cli.json("load", f"disk:{filled}/host_005")["verified"]["status"] == "unverified"


@pytest.mark.parametrize("text", ['{"format": "tensorcast-activations", "segments": [{"file": "segment_000001.safetensors", "bytes": 7}]}',
                                  '{"format": "tensorcast-activations", "segments": [{"file": "a", "bytes": 7}]}', "{"])
def test_a_manifest_that_disagrees_or_is_damaged_is_no_manifest_to_be_ignored(daemon, filled, text):
    (filled / "host_005/manifest.json").write_text(text)
    for command in ("load", "verify"):
        failed = daemon.cli.run(command, f"disk:{filled}/host_005")
        assert failed.status == "DATA_LOSS" and "manifest" in failed.err, failed
