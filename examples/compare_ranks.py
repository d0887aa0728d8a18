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
COLUMNS = "rank  executor                  needed        read       time         rate  memory  checked"


def people(size):
    """As the command prints sizes: powers of 1024, three digits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1023.5 or unit == "TiB":
            return f"{size:.{0 if unit == 'B' or size >= 99.95 else 1 if size >= 9.995 else 2}f} {unit}"
        size /= 1024


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
    wrong, rows = 0, [COLUMNS]
    for rank, report in enumerate(reports):
        want = expected(checkpoint, rank, len(reports))
        got = {t["name"]: t["sha256"] for t in report["tensors"]}
        differ = [name for name in want.keys() | got.keys() if want.get(name) != got.get(name)]
        wrong += len(differ)
        size, ms = report["bytes"], report["ms"]["total"]
        rows.append(f"{rank:4}  {report['executor']:21} {people(size['view']):>10}  {people(size['read']):>10}  {ms:6.1f} ms "
                    f"{people(size['view'] * 1e3 / ms):>10}/s  {report['memory']:7} "
                    + (f"{len(want)} tensors equal" if not differ else f"{len(differ)} differ, such as {differ[0]}"))
    files = sum(f.stat().st_size for f in checkpoint.glob("*.safetensors"))
    needed, read = (sum(r["bytes"][key] for r in reports) for key in ("view", "read"))
    longest = max(r["ms"]["total"] for r in reports)
    print(f"{len(reports)} ranks got {people(needed)} in {longest:.0f} ms, {people(needed * 1e3 / longest)}/s; "
          f"{people(read)} were read of a checkpoint of {people(files)}\n")
    print(*rows, sep="\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
