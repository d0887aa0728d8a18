"""Samples that can be made anew, and what has to lie in a host's folder."""
import hashlib
import json
import re

import numpy as np
import numpy.ma  # noqa: F401  now: numpy does it late, and a test that acts for another user may not read its files then
import numpy.random  # noqa: F401
from safetensors.numpy import load_file

LAYERS = (4, 7)


def sample(i):
    """{layer: array}; lengths differ."""
    return {layer: np.random.default_rng([i, layer]).standard_normal((2 + i % 4, 24), np.float32) for layer in LAYERS}


def stored(folder):
    """{sample: {layer: array}} of one host, after its manifest was found to be true."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("tensorcast-activations", 1)
    assert sorted(s["file"] for s in manifest["segments"]) == sorted(p.name for p in folder.iterdir() if p.suffix == ".safetensors")
    found = {}
    for segment in manifest["segments"]:
        raw = (folder / segment["file"]).read_bytes()
        assert (segment["bytes"], segment["sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
        inside = {}
        for name, array in load_file(folder / segment["file"]).items():
            layer, i = map(int, re.fullmatch(r"layer_(\d+)/sample_(\d{8})", name).groups())
            inside.setdefault(i, {})[layer] = array
        assert sorted(inside) == sorted(segment["samples"]) and not set(inside) & set(found), segment["file"]
        found.update(inside)
    return found


def same(got, want):
    return set(got) == set(want) and all(got[k].dtype == want[k].dtype and got[k].shape == want[k].shape and
                                         got[k].tobytes() == want[k].tobytes() for k in want)


def holds(folder, ids, make=sample):
    found = stored(folder)
    assert sorted(found) == sorted(ids), (sorted(set(ids) - set(found)), sorted(set(found) - set(ids)))
    assert all(same(found[i], make(i)) for i in ids)
