"""Samples that can be made anew, what has to lie in a host's folder, and a process that appends until it is killed."""
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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


# Goes on where the store says it is; says what is committed.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from activation_scene import sample
import tensorcast_client as tc
with tc.connect(sys.argv[2]).activation_store(sys.argv[3], host=3, segment_bytes="16KiB") as store:
    last = store.resume["last_sample"]
    print("resume", -1 if last is None else last, flush=True)
    for i in range(0 if last is None else last + 1, int(sys.argv[4])):
        store.append(i, sample(i))
        print("appended", i, flush=True)
        if i % 7 == 6:
            store.commit()
            print("committed", i, flush=True)
"""


def writer(socket, folder, count):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(Path(__file__).parent), str(socket), f"disk:{folder}", str(count)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process, first=""):
    """{"resume": n, "appended": n, "committed": n} of a writer that ends, -1 for none; and what it wrote to standard error."""
    out, err = process.communicate(timeout=60)
    last = {"resume": -1, "appended": -1, "committed": -1}
    for word, number in re.findall(r"^([a-z]+) (-?\d+)$", first + out, re.M):
        last[word] = int(number)
    return last, err
