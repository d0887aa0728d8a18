"""A program that loads a Llama by transformers, for faces_bench.py: loads a tiny one, so that everything is imported, says so, waits
for a line, loads, looks at a byte of every page of every parameter, and tells how long that took.
usage: faces_worker.py FOLDER path|reference TINY_FOLDER"""
import json
import os
import sys
import time
import warnings

import torch
from transformers import AutoModelForCausalLM, logging

logging.set_verbosity_error()
warnings.simplefilter("ignore")
PAGE = 4096


def load(folder, way):
    how = {"tp_plan": "auto"} if "WORLD_SIZE" in os.environ else {}
    if way == "reference":
        from tensorcast_client.transformers import from_pretrained
        return from_pretrained(AutoModelForCausalLM, f"disk:{folder}", dtype="bfloat16", **how)
    return AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16", **how)


def touched(model):
    """Bytes of which every page was looked at."""
    total = 0
    for parameter in model.parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        data = local.detach().contiguous().reshape(-1).view(torch.uint8)
        data[::PAGE].sum()
        total += data.numel()
    return total


folder, way, tiny = sys.argv[1:4]
touched(load(tiny, way))
if "WORLD_SIZE" in os.environ:
    torch.distributed.barrier()
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
model = load(folder, way)
returned = time.monotonic()
n_bytes = touched(model)
print(json.dumps({"returned_s": returned - began, "touched_s": time.monotonic() - began, "bytes": n_bytes}), flush=True)
sys.stdin.readline()  # the other rank may still want its part
