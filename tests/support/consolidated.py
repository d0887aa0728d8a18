"""What a user of torch alone does with a trainer's shards before anything can load them: one file of whole tensors, then other names
and another order of rotary pairs. An oracle: nothing of tensorcast is in it."""
import json
import shutil

from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

NAMES = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head", "attention.wq": "self_attn.q_proj",
         "attention.wk": "self_attn.k_proj", "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj",
         "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj",
         "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def hugging_face_name(name):
    if not name.startswith("layers."):
        return NAMES[name.removesuffix(".weight")] + ".weight"
    _, layer, rest = name.removesuffix(".weight").split(".", 2)
    return f"model.layers.{layer}.{NAMES[rest]}.weight"


def halves(weight, heads):
    """Of each head first the real parts of its rotary pairs, then the imaginary ones."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()


def consolidate(shards, folder):
    """The shards of examples/save_shards.py as a checkpoint of Hugging Face in another folder."""
    names = {name for path in shards.glob("*.safetensors") for name in load_file(path)}
    (folder / "whole").mkdir()
    consolidate_safetensors_files(str(shards), str(folder / "whole"), dict.fromkeys(sorted(names), 1))
    config, tensors = json.loads((shards / "config.json").read_text()), {}
    (whole,) = (folder / "whole").glob("*.safetensors")
    for name, tensor in load_file(whole).items():
        heads = {"wq": config["num_attention_heads"], "wk": config["num_key_value_heads"]}.get(name.split(".")[-2])
        tensors[hugging_face_name(name)] = halves(tensor, heads) if heads else tensor
    shutil.rmtree(folder / "whole")
    shutil.copy(shards / "config.json", folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
