#!/usr/bin/env python3
"""Loads tensors into one parameter that this program owns: stacked by rows, as query, key and value are fused, and with rows of
padding below, as vocabularies are. Then it loads them again over the old values, as a model that is running gets new weights.

    examples/load_into.py disk:/models/llama l.q_proj.weight l.k_proj.weight l.v_proj.weight --pad 64

pip install ./client/python; docs/into.md explains it.
"""
import argparse
import sys
import time

import numpy as np
import tensorcast_client as tc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact")
    parser.add_argument("names", nargs="+", metavar="TENSOR", help="of one dtype and as many columns")
    parser.add_argument("--pad", type=int, default=0, help="rows of zeros below them")
    parser.add_argument("--socket", help="of the daemon; $TENSORCAST_SOCKET is asked otherwise")
    arguments = parser.parse_args()
    artifact = tc.connect(arguments.socket).artifact(arguments.artifact)
    view = artifact.subset(arguments.names)
    with view.tensor_dict(framework="numpy") as tensors:  # only to know what they are, and to compare at the end
        wanted = dict(tensors)
    first = wanted[arguments.names[0]]
    rows = sum(len(tensor) for tensor in wanted.values()) + arguments.pad

    # Memory that the daemon can write to. An array there is an array like any other, and so are its parts.
    region = tc.HostRegion(rows * first[0].nbytes)
    fused = region.array(first.dtype, (rows, *first.shape[1:]))
    targets, row = {}, 0
    for name, tensor in wanted.items():
        targets[name] = fused[row:row + len(tensor)]
        row += len(tensor)
    fills = {"padding": 0} if arguments.pad else {}
    if fills:
        targets["padding"] = fused[row:]

    for what in ("first", "again"):
        start = time.perf_counter()
        report = view.load_into(targets, fills=fills, cover={"fused": fused})
        print(f"{what}: {report['bytes']['target'] / 2**20:.1f} MiB into {list(fused.shape)} of {fused.dtype} in "
              f"{1e3 * (time.perf_counter() - start):.1f} ms, {report['executor']}")
    assert all(targets[name].tobytes() == tensor.tobytes() for name, tensor in wanted.items())
    assert not arguments.pad or not np.asarray(targets["padding"]).view(np.uint8).any()
    print("every byte is where it belongs")


if __name__ == "__main__":
    try:
        main()
    except tc.TensorcastError as error:
        sys.exit(f"load_into: {error}")
