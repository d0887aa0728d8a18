#!/usr/bin/env python3
"""Prints what four (or more) tensor-parallel loads cost and checks their bytes against the `safetensors` package.

    compare_ranks.py CHECKPOINT REPORT...

Each REPORT is the output of `tensorcast load --tp-size N --tp-rank R --digest --json`, in rank order. What a rank must
hold is worked out here from the names alone: the usual split of a Llama layer, everything else whole. Exit 1 on any
difference.
"""
import hashlib
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import safe_open

np.float8_e4m3fn = ml_dtypes.float8_e4m3fn  # safetensors looks its NumPy types up there

SPLIT_ON = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 0, "up_proj": 0, "embed_tokens": 0, "lm_head": 0,
            "o_proj": 1, "down_proj": 1}
COLUMNS = "rank  executor              needed MB    read MB   time ms    GB/s  memory   checked"


def split(shape, dimension, rank, ranks):
    step = shape[dimension] // ranks
    return tuple(slice(rank * step, (rank + 1) * step) if d == dimension else slice(None) for d in range(len(shape)))


def expected(checkpoint, rank, ranks):
    """{name: sha256} of what this rank must hold, read by safetensors."""
    digests = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():
                dimension = next((d for part, d in SPLIT_ON.items() if f"{part}.weight" in name), None)
                if dimension is None:
                    value = file.get_tensor(name)
                else:
                    part = file.get_slice(name)
                    value = part[split(part.get_shape(), dimension, rank, ranks)]
                digests[name] = hashlib.sha256(np.ascontiguousarray(value).view(np.uint8) if value.nbytes else b"").hexdigest()
    return digests


def main():
    checkpoint, reports = Path(sys.argv[1]), [json.loads(Path(p).read_text()) for p in sys.argv[2:]]
    wrong = 0
    print(COLUMNS)
    for rank, report in enumerate(reports):
        want = expected(checkpoint, rank, len(reports))
        got = {t["name"]: t["sha256"] for t in report["tensors"]}
        differ = [name for name in want.keys() | got.keys() if want.get(name) != got.get(name)]
        wrong += len(differ)
        size, ms = report["bytes"], report["ms"]["total"]
        print(f"{rank:4}  {report['executor']:20} {size['view'] / 1e6:10.1f} {size['read'] / 1e6:10.1f} {ms:9.1f} "
              f"{size['view'] / 1e6 / ms:7.2f}  {report['memory']:7}  "
              + (f"{len(want)} tensors equal" if not differ else f"{len(differ)} differ, such as {differ[0]}"))
    files = sum(f.stat().st_size for f in checkpoint.glob("*.safetensors"))
    needed, read = (sum(r["bytes"][key] for r in reports) / 1e6 for key in ("view", "read"))
    longest = max(r["ms"]["total"] for r in reports)
    print(f"together {needed:.1f} MB needed, {read:.1f} MB read of {files / 1e6:.1f} MB in the checkpoint: {needed / longest:.2f} GB/s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
