"""`tensorcast plan --compat`: the extents of the original loader, against a few lines of Python that read the headers."""
import json
import os

import numpy as np
import pytest

import checkpoints

SIZES = [[300, 4000, 100, 100, 0, 700], [50000], [200, 200, 200, 30000, 200]]


@pytest.fixture
def model(models):
    checkpoints.write(models / "m", *[{f"layer.{p}.{i}": np.zeros(size, np.uint8) for i, size in enumerate(part)}
                                      for p, part in enumerate(SIZES)])
    return models / "m"


def storage_order(folder):
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = {k: v["data_offsets"] for k, v in json.loads(data[8:8 + length]).items() if k != "__metadata__"}
        for name, (start, end) in sorted(header.items(), key=lambda item: item[1]):
            yield path.name, name, 8 + length + start, 8 + length + end


def pack(folder, chunk_bytes):
    extents = []
    for file, name, start, end in storage_order(folder):
        last = extents[-1] if extents else None
        if not last or last["file"] != file or end - last["byte_start"] > chunk_bytes:
            extents.append({"file": file, "byte_start": start, "tensors": []})
            last = extents[-1]
        last["tensors"].append({"name": name, "offset": start - last["byte_start"], "bytes": end - start})
        last["byte_end"] = end
    return extents


def without(extents, *keys):
    return [{k: v for k, v in extent.items() if k not in keys} for extent in extents]


@pytest.mark.parametrize("chunk_bytes", [1, 700, 4400, 4401, 10**6])
def test_extents_are_packed_in_storage_order(alone, model, chunk_bytes):
    plan = alone.json("plan", f"disk:{model}", "--compat", "--standalone", "--chunk-bytes", str(chunk_bytes), "--world-size", "3")
    assert without(plan["extents"], "index", "owner") == pack(model, chunk_bytes)
    assert [(e["index"], e["owner"]) for e in plan["extents"]] == [(i, i % 3) for i in range(len(plan["extents"]))]
    assert plan["chunk_bytes"] == chunk_bytes and plan["world_size"] == 3


def test_the_daemon_tells_the_same_and_the_environment_chooses(alone, daemon, model):
    there = daemon.cli.json("plan", f"disk:{model}", "--compat")
    assert there == alone.json("plan", f"disk:{model}", "--compat", "--standalone")
    assert there["chunk_bytes"] == 2 * 2**30 and len(there["extents"]) == 3 and "owner" not in there["extents"][0]
    small = alone.json("plan", f"disk:{model}", "--compat", "--standalone", env={**os.environ, "LEVANTER_FSSPEC_CHUNK_BYTES": "4400"})
    assert without(small["extents"], "index") == pack(model, 4400)
    chosen = alone.json("plan", f"disk:{model}", "--compat", "--standalone", "--chunk-bytes", "1GB",
                        env={**os.environ, "LEVANTER_FSSPEC_CHUNK_BYTES": "4400"})
    assert chosen["chunk_bytes"] == 2**30
    text = alone.run("plan", f"disk:{model}", "--compat", "--standalone", "--world-size", "2").out
    assert "12 tensors in 3 extents of up to" in text and "owner" in text


def test_wrong_usage_is_refused(alone, model):
    plan = ["plan", f"disk:{model}", "--standalone"]
    for more, message in [([], "needs --compat"), (["--compat", "--chunk-bytes", "0"], "above 0"),
                          (["--compat", "--chunk-bytes", "many"], "above 0"), (["--compat", "--world-size", "0"], "at least 1")]:
        result = alone.run(*plan, *more)
        assert result.code == 2 and message in result.err
    bad = alone.run(*plan, "--compat", env={**os.environ, "LEVANTER_FSSPEC_CHUNK_BYTES": "-5"})
    assert bad.failed and "LEVANTER_FSSPEC_CHUNK_BYTES" in bad.err
