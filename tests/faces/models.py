"""Tiny random models, saved by their own libraries, and digests of what has to be loaded."""
import hashlib
from pathlib import Path

import torch


def digest(state):
    """One number for a state dict: names, types, shapes and bytes."""
    total = hashlib.sha256()
    for name, value in sorted(state.items()):
        tensor = value.detach().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def llama_config(hidden=512, layers=2, vocab=4096):
    from transformers import LlamaConfig
    return LlamaConfig(hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4,
                       vocab_size=vocab, tie_word_embeddings=False)


def net():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))


def unet():
    from diffusers import UNet2DModel
    return UNet2DModel(sample_size=8, block_out_channels=(32, 64), layers_per_block=1, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8)


def with_adapter(llama):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(llama, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))


class Models:
    def __init__(self, folder):
        self.folder, self.digests = folder, {}

    def bytes_of(self, name):
        return sum(path.stat().st_size for path in (self.folder / name).glob("*.safetensors"))


def write(folder):
    """Models below `folder`: llama, llama-shards, adapter (of llama), unet, net."""
    from transformers import LlamaForCausalLM
    torch.manual_seed(0)
    folder = Path(folder)
    models, llama = Models(folder), LlamaForCausalLM(llama_config())
    llama.save_pretrained(folder / "llama")
    llama.save_pretrained(folder / "llama-shards", max_shard_size="12MB")
    models.digests["llama"] = models.digests["llama-shards"] = digest(llama.state_dict())
    models.digests["llama in bfloat16"] = digest({name: value.bfloat16() for name, value in llama.state_dict().items()})
    image = unet()
    image.save_pretrained(folder / "unet")
    models.digests["unet"] = digest(image.state_dict())
    plain = net()
    from safetensors.torch import save_model
    (folder / "net").mkdir()
    save_model(plain, folder / "net/model.safetensors")
    models.digests["net"] = digest(plain.state_dict())
    adapted = with_adapter(llama)
    adapted.save_pretrained(folder / "adapter")
    models.digests["adapter"] = digest(adapted.state_dict())
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o644)
    return models
