#!/usr/bin/env python3
"""Loads tensors of a checkpoint as NumPy arrays, without a copy, and says how it was done.

    examples/load_tensors.py disk:/models/llama
    examples/load_tensors.py disk:/models/llama --tensor lm_head.weight --rows 0:128
"""
import argparse
import sys

import tensorcast_client as tc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="such as disk:/models/llama")
    parser.add_argument("--socket", help="the daemon's socket (else $TENSORCAST_SOCKET, else the default)")
    parser.add_argument("--tensor", action="append", help="a tensor to load; may be repeated (else all)")
    parser.add_argument("--rows", help="START:STOP of the first dimension of each --tensor")
    args = parser.parse_args()

    artifact = tc.connect(args.socket).artifact(args.artifact)
    view = artifact.subset(args.tensor or artifact.tensor_names)
    if args.rows:
        start, stop = (int(bound) if bound else None for bound in args.rows.split(":"))
        view = view.view(slices={name: (0, slice(start, stop)) for name in view.tensor_names})

    with view.tensor_dict(framework="numpy") as tensors:
        for name, array in tensors.items():
            print(f"{name}  {tensors.dtypes[name]}  {list(array.shape)}  {array.nbytes} bytes")
        told = tensors.diagnostics
    print(f"{len(tensors)} tensors, {told['bytes']['view']} bytes by {told['executor']} in {told['ms']['total']:.1f} ms; "
          f"read {told['bytes']['read']}, memory {told['memory']}, {'from a replica' if told['from_replica'] else 'fresh'}")


if __name__ == "__main__":
    try:
        main()
    except tc.TensorcastError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
