"""Folders with a past, and what transformers makes of each, by path and by reference: one JSON object for each.
usage: folders.py MODELS"""
import json
import shutil
import sys
from pathlib import Path

import models
import torch
from safetensors.torch import load_file, save_file
from tensorcast_client.transformers import from_pretrained
from transformers import AutoModelForCausalLM, LlamaForCausalLM

root = Path(sys.argv[1]) / "with-a-past"
SHARDS = "120KB"


def llama(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(models.llama_config(hidden=32, layers=2, vocab=128))


def add_file(folder, seed, name="model.safetensors"):
    llama(seed).save_pretrained(root / "aside")
    (root / "aside/model.safetensors").rename(folder / name)
    shutil.rmtree(root / "aside")


def file_beside_shards(folder):
    llama(1).save_pretrained(folder, max_shard_size=SHARDS)
    add_file(folder, 2)


def index_of_files_that_are_gone(folder):
    file_beside_shards(folder)
    for path in folder.glob("model-*"):
        path.unlink()


def index_of_files_that_are_partly_gone(folder):
    file_beside_shards(folder)
    max(folder.glob("model-*")).unlink()


def half_in_shards_beside_whole(folder):
    llama(1).save_pretrained(folder)
    llama(2).bfloat16().save_pretrained(folder, variant="bf16", max_shard_size=SHARDS)


def half_beside_shards(folder):
    llama(1).save_pretrained(folder, max_shard_size=SHARDS)
    llama(2).save_pretrained(root / "aside", variant="bf16")
    (root / "aside/model.bf16.safetensors").rename(folder / "model.bf16.safetensors")
    shutil.rmtree(root / "aside")


def norm_in_every_shard(folder):
    llama(1).save_pretrained(folder, max_shard_size=SHARDS)
    for at, path in enumerate(sorted(folder.glob("model-*"))):
        save_file({**load_file(path), "model.norm.weight": torch.full((32,), float(at)), f"stray.{at}": torch.ones(2)}, path, {"format": "pt"})


def shards_in_a_folder_below(folder):
    llama(1).save_pretrained(folder, max_shard_size=SHARDS)
    (folder / "part").mkdir()
    moved = sorted(folder.glob("model-*"))[1]
    moved.rename(folder / "part" / moved.name)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"] = {name: f"part/{file}" if file == moved.name else file for name, file in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def weights_that_the_configuration_names(folder):
    llama(1).save_pretrained(folder)
    add_file(folder, 2, "other.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": "other.safetensors"}))


def adapter_in_a_folder_of_shards(folder):
    base = llama(1)
    models.with_adapter(base).save_pretrained(folder)
    llama(1).save_pretrained(folder, max_shard_size=SHARDS)


CASES = {"file beside shards": (file_beside_shards, {}), "index of files that are gone": (index_of_files_that_are_gone, {}),
         "index of files that are partly gone": (index_of_files_that_are_partly_gone, {}),
         "half in shards": (half_in_shards_beside_whole, {"variant": "bf16"}), "whole beside half in shards": (half_in_shards_beside_whole, {}),
         "half beside shards": (half_beside_shards, {"variant": "bf16"}), "shards beside half": (half_beside_shards, {}),
         "norm in every shard": (norm_in_every_shard, {}), "shards in a folder below": (shards_in_a_folder_below, {}),
         "weights that the configuration names": (weights_that_the_configuration_names, {}),
         "adapter in a folder of shards": (adapter_in_a_folder_of_shards, {})}
for case, (make, options) in CASES.items():
    folder = root / case.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(folder)
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o644)
    want = AutoModelForCausalLM.from_pretrained(folder, **options).state_dict()
    got = from_pretrained(AutoModelForCausalLM, folder, **options).state_dict()
    print(json.dumps({"question": case, "want": models.digest(want), "got": models.digest(got)}), flush=True)
folder = root / "pickled"
llama(1).save_pretrained(folder, variant="fp16")  # which no program reads that does not ask for it
torch.save(llama(2).state_dict(), folder / "pytorch_model.bin")
try:
    from_pretrained(AutoModelForCausalLM, folder)
except ValueError as error:
    print(json.dumps({"question": "pickled", "error": str(error)}), flush=True)
