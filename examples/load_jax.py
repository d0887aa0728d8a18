#!/usr/bin/env python3
"""Loads a checkpoint into jax, split over all devices, and shows where each part went.

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python examples/load_jax.py disk:/models/llama [SOCKET]
"""
import sys

import numpy as np

import tensorcast_client as tc
from tensorcast_client.jax import load


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    with tc.connect(*sys.argv[2:]) as client:
        artifact = client.artifact(sys.argv[1])
        params = load(artifact)  # shardings by the best-effort rule
        for name, array in params.items():
            parts = len({str(shard.index) for shard in array.addressable_shards})
            print(f"{name}: {array.dtype}{list(array.shape)} in {parts} part(s) on {len(array.sharding.device_set)} device(s)")
        name, array = next(iter(params.items()))
        with artifact.subset([name]).tensor_dict(framework="numpy") as tensors:
            same = np.asarray(array).tobytes() == tensors[name].tobytes()
        print(f"{name} is {'the same' if same else 'NOT THE SAME'} as without jax")
        sys.exit(not same)


if __name__ == "__main__":
    main()
