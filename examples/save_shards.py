#!/usr/bin/env python3
"""Leaves a checkpoint as a trainer does: four ranks, FSDP2 and tensor parallelism, the shards of torch.distributed.checkpoint.

    examples/save_shards.py /models/tuned
    vllm serve /models/tuned --load-format tensorcast --skip-tokenizer-init \\
        --model-loader-extra-config '{"variant": "torchtitan-to-hf-llama"}'

The model is a small Llama as torchtitan has it: its own names, the rotary pairs of each head interleaved. Its weights are random;
what a training loop would do between the lines that shard it and those that save it is left out. Every rank writes one file with
its own parts, and rank 0 a config.json. Nothing has to be converted or consolidated before tensorcast loads it.
"""
import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, LAYERS, VOCAB = 256, 8, 2, 32, 512, 2, 512
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": MIDDLE,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "num_hidden_layers": LAYERS,
          "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}


def linear(columns, rows):
    return nn.Linear(columns, rows, bias=False)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.ModuleDict({"wq": linear(HIDDEN, HEADS * HEAD), "wk": linear(HIDDEN, KV_HEADS * HEAD),
                                        "wv": linear(HIDDEN, KV_HEADS * HEAD), "wo": linear(HEADS * HEAD, HIDDEN)})
        self.feed_forward = nn.ModuleDict({"w1": linear(HIDDEN, MIDDLE), "w2": linear(MIDDLE, HIDDEN), "w3": linear(HIDDEN, MIDDLE)})
        self.attention_norm, self.ffn_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleDict({str(layer): Layer() for layer in range(LAYERS)})
        self.norm, self.output = nn.RMSNorm(HIDDEN), linear(HIDDEN, VOCAB)


def sharded(mesh):
    """The model of one rank: split by tensor parallelism first, then by FSDP."""
    torch.manual_seed(1)  # the same weights on every rank, of which each keeps its part
    model = Llama().to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 16)
    plan = {"tok_embeddings": RowwiseParallel(), "output": ColwiseParallel()}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        plan.update({at + f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")})
        plan.update({at + f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")})
        plan.update({at + "attention.wo": RowwiseParallel(), at + "feed_forward.w2": RowwiseParallel()})
    parallelize_module(model, mesh["tp"], plan)
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh["fsdp"])
    return fully_shard(model, mesh=mesh["fsdp"])


def run(rank, ranks, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/.meeting", world_size=ranks, rank=rank)
    model = sharded(init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("fsdp", "tp")))
    # ... training ...
    dcp.save(model.state_dict(), storage_writer=HuggingFaceStorageWriter(path=str(folder), save_distributed=True))
    if rank == 0:
        (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="is made; what lies in it stays")
    parser.add_argument("--ranks", type=int, default=4, help="an even number")
    args = parser.parse_args()
    if args.ranks < 2 or args.ranks % 2:
        sys.exit(f"{sys.argv[0]}: --ranks is an even number, not {args.ranks}")
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    mp.start_processes(run, (args.ranks, folder), args.ranks, start_method="fork")  # torch is imported once
    (folder / ".meeting").unlink(missing_ok=True)
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:10} {file.name}")


if __name__ == "__main__":
    main()
