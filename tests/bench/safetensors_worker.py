"""A program that reads a checkpoint by safetensors' own calls, for faces_bench.py: reads a tiny one, so that everything is imported,
says so, waits for a line, reads, looks at a byte of every page of what it got, and tells how long that took.
usage: safetensors_worker.py FOLDER load_file|slices|keys TINY_FOLDER

load_file: every file whole, as torch tensors. slices: by safe_open the second half of each tensor of two dimensions, as a rank of two
would. keys: names, shapes and metadata of every file, no tensor."""
import json
import sys
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

PAGE = 4096


def files(folder):
    return sorted(map(str, Path(folder).glob("*.safetensors")))


def load_files(folder):
    return [tensor for path in files(folder) for tensor in load_file(path).values()]


def load_slices(folder):
    tensors = []
    for path in files(folder):
        with safe_open(path, "pt") as handle:
            for name in handle.keys():
                part = handle.get_slice(name)
                shape = part.get_shape()
                tensors.append(part[shape[0] // 2:] if len(shape) == 2 else handle.get_tensor(name))
    return tensors


def look_up(folder):
    for path in files(folder):
        with safe_open(path, "pt") as handle:
            handle.metadata()
            for name in handle.keys():
                handle.get_slice(name).get_shape()
    return []


WAYS = {"load_file": load_files, "slices": load_slices, "keys": look_up}


def touched(tensors):
    """Bytes of which every page was looked at."""
    total = 0
    for tensor in tensors:
        data = tensor.contiguous().reshape(-1).view(torch.uint8)
        data[::PAGE].sum()
        total += data.numel()
    return total


def main():
    folder, way, tiny = sys.argv[1:4]
    touched(WAYS[way](tiny))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    tensors = WAYS[way](folder)
    returned = time.monotonic()
    n_bytes = touched(tensors)
    print(json.dumps({"returned_s": returned - began, "touched_s": time.monotonic() - began, "bytes": n_bytes}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
