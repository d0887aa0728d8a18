"""Run by e2e/test_sharing.py once on each host, as the processes of one jax program: loads what its devices have, by the best-effort rule
and by rows, and prints what came of which part as JSON."""
import hashlib
import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import tensorcast_client as tc
from tensorcast_client.jax import load
from two_processes import coordinator


def shards(arrays):
    """[name, shape, [[start, stop], ...], digest] of each block here."""
    return [[name, array.shape, [part.indices(extent)[:2] for part, extent in zip(shard.index, array.shape)],
             hashlib.sha256(np.asarray(shard.data).tobytes()).hexdigest()]
            for name, array in arrays.items() for shard in array.addressable_shards]


def main():
    file, n, rank, reference, *by_rows = sys.argv[1:]
    jax.distributed.initialize(coordinator(file, int(rank)), int(n), int(rank))
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), P("rows"))
    told, tensor_dict = [], tc.View.tensor_dict

    def watched(view, *arguments, **how):
        told.append(tensor_dict(view, *arguments, **how))
        return told[-1]

    tc.View.tensor_dict = watched
    with tc.connect() as client:
        whole = client.artifact(reference)
        best = load(whole.subset([name for name in whole.view().shapes() if name not in by_rows]))
        arrays = {**best, **load(whole.subset(by_rows), rows)}
    reports = [{key: one.diagnostics[key] for key in ("bytes", "hosts")} for one in told]
    print(json.dumps({"shards": shards(arrays), "reports": reports}), flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
