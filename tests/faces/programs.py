"""Loads models as programs do that have never heard of us, and prints for each what it has and what the daemon read for it.
usage: [python -m tensorcast_client run] programs.py MODELS"""
import json
import sys

import models
import safetensors.torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from diffusers import UNet2DModel
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaForCausalLM

import tensorcast_client as tc

folder = sys.argv[1]


def bytes_read():
    return tc.connect().status()["totals"]["read_bytes"]


def by_accelerate():
    with init_empty_weights():
        model = LlamaForCausalLM(models.llama_config())
    return load_checkpoint_and_dispatch(model, f"{folder}/llama-shards", device_map={"": "cpu"})


QUESTIONS = {
    "llama": lambda: AutoModelForCausalLM.from_pretrained(f"{folder}/llama"),
    "llama-shards": lambda: AutoModelForCausalLM.from_pretrained(f"{folder}/llama-shards", device_map="auto"),
    "llama in bfloat16": lambda: LlamaForCausalLM.from_pretrained(f"{folder}/llama", dtype="bfloat16", device_map={"": "cpu"}),
    "adapter": lambda: PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(f"{folder}/llama"), f"{folder}/adapter"),
    "unet": lambda: UNet2DModel.from_pretrained(f"{folder}/unet"),
    "accelerate": by_accelerate,
    "net": lambda: safetensors.torch.load_file(f"{folder}/net/model.safetensors"),
}
for question, load in QUESTIONS.items():
    before = bytes_read()
    model = load()
    state = model.state_dict() if hasattr(model, "state_dict") else model
    print(json.dumps({"question": question, "digest": models.digest(state), "read": bytes_read() - before}), flush=True)
