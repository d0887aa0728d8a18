"""One of two tensor-parallel ranks of transformers on gloo, loading a model in each of several ways: prints what it has, what it
needs, and what the daemon read for both ranks meanwhile. FOLDER-shards has the same tensors, of which nothing is resident yet.
usage: RANK=0 WORLD_SIZE=2 ... one_rank.py FOLDER WAY ..."""
import contextlib
import json
import os
import sys
import warnings

import models
import torch.distributed as dist
from transformers import AutoModelForCausalLM

import tensorcast_client as tc

warnings.simplefilter("ignore", FutureWarning)
folder = sys.argv[1]


def bytes_read():
    if dist.is_initialized():
        dist.barrier()
    return tc.connect().status()["totals"]["read_bytes"]


def load(way):
    if way == "reference":
        from tensorcast_client.transformers import from_pretrained
        return from_pretrained(AutoModelForCausalLM, f"disk:{folder}", tp_plan="auto")
    with tc.patch() if way == "patched" else contextlib.nullcontext():
        return AutoModelForCausalLM.from_pretrained(f"{folder}-shards" if way == "patched" else folder, tp_plan="auto")


for way in sys.argv[2:]:
    before = bytes_read()
    state = load(way).state_dict()
    read = bytes_read() - before
    local = {name: value.to_local() if hasattr(value, "to_local") else value for name, value in state.items()}
    need = sum(value.numel() * value.element_size() for value in local.values())
    print(json.dumps({"way": way, "rank": int(os.environ["RANK"]), "need": need, "read": read, "digest": models.digest(local),
                      "sharded": len(local) - sum(value is state[name] for name, value in local.items())}), flush=True)
