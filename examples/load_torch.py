#!/usr/bin/env python3
"""Loads one tensor-parallel rank's share of a checkpoint as torch tensors, without a copy.

    examples/load_torch.py disk:/models/llama --tp-size 4 --tp-rank 1

Column-parallel layers are split on dimension 0, row-parallel ones on dimension 1, everything else is whole on each rank.
What a rank does not need is not read.
"""
import argparse
import sys

import torch

import tensorcast_client as tc

SPLIT_ON = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 0, "up_proj": 0, "o_proj": 1, "down_proj": 1,
            "embed_tokens": 0, "lm_head": 0}


def share(described, rank, size):
    """{name: (dimension, slice)} of one rank."""
    slices = {}
    for tensor in described["tensors"]:
        layer = tensor["name"].split(".")[-2:][0]
        dim = SPLIT_ON.get(layer)
        if dim is None or dim >= len(tensor["shape"]):
            continue
        width, rest = divmod(tensor["shape"][dim], size)
        if rest:
            sys.exit(f"{tensor['name']}: dimension {dim} of {tensor['shape']} does not divide by {size}")
        slices[tensor["name"]] = (dim, slice(rank * width, (rank + 1) * width))
    return slices


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", help="such as disk:/models/llama")
    parser.add_argument("--socket", help="the daemon's socket (else $TENSORCAST_SOCKET, else the default)")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--tp-rank", type=int, default=0)
    args = parser.parse_args()

    artifact = tc.connect(args.socket).artifact(args.artifact)
    view = artifact.view(slices=share(artifact.describe(), args.tp_rank, args.tp_size))
    options = tc.Options(group=tc.CollectiveLoadGroup("example", args.tp_rank, args.tp_size)) if args.tp_size > 1 else None

    def progress(stage, done, total):
        print(f"\r{stage:8} {done / 2**20:10.1f} of {total / 2**20:.1f} MiB", end="", file=sys.stderr)

    tensors = view.tensor_dict(device="cpu", framework="torch", progress=progress, options=options)
    print(file=sys.stderr)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    finite = sum(bool(torch.isfinite(tensor.float()).all()) for tensor in tensors.values() if tensor.is_floating_point())
    print(f"rank {args.tp_rank} of {args.tp_size}: {len(tensors)} tensors, {total} bytes, {finite} of them all finite, "
          f"by {tensors.diagnostics['executor']}")
    # model.load_state_dict(dict(tensors), assign=True) would use this memory as it is; without assign it copies


if __name__ == "__main__":
    try:
        main()
    except tc.TensorcastError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
