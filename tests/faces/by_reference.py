"""from_pretrained() of tensorcast_client.transformers: answers to several questions, one JSON object for each.
usage: by_reference.py MODELS"""
import contextlib
import io
import json
import runpy
import sys
from pathlib import Path

import models
import torch
import transformers
from tensorcast_client.transformers import from_pretrained
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, LlamaForCausalLM

import tensorcast_client as tc

folder = sys.argv[1]


def tell(question, **answer):
    print(json.dumps({"question": question, **answer}), flush=True)


for name in ("llama", "llama-shards"):
    model = from_pretrained(AutoModelForCausalLM, f"disk:{folder}/{name}", dtype="float32")
    tell(name, kind=type(model).__name__, digest=models.digest(model.state_dict()), leases=tc.connect().status()["leases"])
with torch.no_grad():
    model.lm_head.weight.zero_()  # private
model = from_pretrained(LlamaForCausalLM, f"{folder}/llama", dtype="float32", device_map="auto")
tell("again", kind=type(model).__name__, digest=models.digest(model.state_dict()))
model.save_pretrained(sys.argv[2])
tell("saved", digest=models.digest(tc.load_file(f"{folder}/llama")), again=models.digest(LlamaForCausalLM.from_pretrained(sys.argv[2]).state_dict()))
del model
model = from_pretrained(LlamaForCausalLM, tc.artifact(f"{folder}/llama"), dtype="bfloat16")
tell("bfloat16", digest=models.digest(model.state_dict()), leases=tc.connect().status()["leases"])
tell("without a head", kind=type(from_pretrained(AutoModel, f"{folder}/llama")).__name__)
tell("configuration", kind=type(from_pretrained(AutoConfig, f"{folder}/llama")).__name__)
said, arguments = io.StringIO(), sys.argv
sys.argv = ["load_transformers.py", f"{folder}/llama-shards", "--tokens", "3"]
with contextlib.redirect_stdout(said):
    runpy.run_path(str(Path(__file__).parents[2] / "examples/load_transformers.py"), run_name="__main__")
tell("example", said=said.getvalue().splitlines())
sys.argv = arguments
LlamaForCausalLM.from_pretrained(f"{folder}/llama", dtype="bfloat16").save_pretrained(f"{folder}/half", variant="fp16")
model = from_pretrained(AutoModelForCausalLM, f"{folder}/half", variant="fp16", dtype="bfloat16")
tell("variant", digest=models.digest(model.state_dict()))
try:
    from_pretrained(AutoModel, f"{folder}/llama", variant="fp16")
except ValueError as error:
    tell("no variant", error=str(error))
try:
    from_pretrained(AutoModel, f"{folder}/nobody")
except FileNotFoundError as error:
    tell("nobody", error=str(error))
tell("official", digest=models.digest(LlamaForCausalLM.from_pretrained(f"{folder}/llama").state_dict()), version=transformers.__version__)
