"""Reads a checkpoint with the names of the safetensors package, served by the daemon.

    python examples/safetensors_drop_in.py FILE

FILE is a .safetensors file or a reference of the daemon's. Without a daemon a file is read by the official package, which is said once.
"""
import sys

import safetensors.numpy
import tensorcast_client as tc
from tensorcast_client.safetensors import safe_open


def main():
    path = sys.argv[1]
    with safe_open(path, framework="numpy") as file:  # reads the header
        name = file.keys()[0]
        part = file.get_slice(name)
        print(f"{len(file.keys())} tensors; {name}: {part.get_dtype()} {part.get_shape()}")
        if part.get_shape():
            print(f"its first row: {part[:1].nbytes} bytes loaded")

    with tc.patch():  # the official names, as any program has imported them
        tensors = safetensors.numpy.load_file(path)
        print(f"all of it: {sum(tensor.nbytes for tensor in tensors.values())} bytes")


main()
