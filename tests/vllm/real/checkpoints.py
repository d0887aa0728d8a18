"""Tiny checkpoints of several families, as their authors would publish them: config.json, part files, an index.

Everything is random from a fixed seed. The names and shapes are those of the published models; vLLM reads nothing else.
"""
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, LAYERS, VOCAB, EXPERTS = 256, 8, 2, 32, 512, 3, 512, 8
BF16 = torch.bfloat16


def _weight(generator, *shape, dtype=BF16):
    return (torch.randn(shape, generator=generator) / math.sqrt(shape[-1])).to(dtype)


def _attention(kv_heads):
    return {"q_proj": (HEADS * HEAD, HIDDEN), "k_proj": (kv_heads * HEAD, HIDDEN), "v_proj": (kv_heads * HEAD, HIDDEN),
            "o_proj": (HIDDEN, HEADS * HEAD)}


_MLP = {"gate_proj": (MIDDLE, HIDDEN), "up_proj": (MIDDLE, HIDDEN), "down_proj": (HIDDEN, MIDDLE)}


class _Model:
    """Collects the tensors of one checkpoint."""

    def __init__(self, vocab=VOCAB):
        self.vocab, self.tensors = vocab, {}
        self.generator = torch.Generator().manual_seed(1)

    def put(self, name, *shape):
        self.tensors[name] = _weight(self.generator, *shape)

    def norm(self, name, size=HIDDEN):
        self.tensors[name] = (1 + torch.randn(size, generator=self.generator) / 10).to(BF16)

    def frame(self, tied=False):
        self.put("model.embed_tokens.weight", self.vocab, HIDDEN)
        self.norm("model.norm.weight")
        if not tied:
            self.put("lm_head.weight", self.vocab, HIDDEN)

    def layer_norms(self, layer):
        self.norm(f"model.layers.{layer}.input_layernorm.weight")
        self.norm(f"model.layers.{layer}.post_attention_layernorm.weight")


def _config(architecture, model_type, **more):
    return {"architectures": [architecture], "model_type": model_type, "hidden_size": HIDDEN, "intermediate_size": MIDDLE,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "num_hidden_layers": LAYERS,
            "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
            "tie_word_embeddings": False, **more}


def _llama(kv_heads=KV_HEADS, vocab=VOCAB, tied=False):
    model = _Model(vocab)
    model.frame(tied)
    for layer in range(LAYERS):
        model.layer_norms(layer)
        for name, shape in _attention(kv_heads).items():
            model.put(f"model.layers.{layer}.self_attn.{name}.weight", *shape)
        for name, shape in _MLP.items():
            model.put(f"model.layers.{layer}.mlp.{name}.weight", *shape)
    return _config("LlamaForCausalLM", "llama", num_key_value_heads=kv_heads, vocab_size=vocab,
                   tie_word_embeddings=tied), model.tensors


def _contradictory():
    """Says that its output layer is the embedding, and has another one all the same; vLLM believes the tensors."""
    config, tensors = _llama()
    return {**config, "tie_word_embeddings": True}, tensors


def _quantized(dtype, kind, form):
    """A Llama whose linear layers but the last are 8 bits wide, with one scale per row."""
    config, tensors = _llama()
    for name in [name for name in tensors if "_proj." in name]:
        scale = tensors[name].float().abs().amax(dim=1, keepdim=True) / (torch.finfo(dtype).max if kind == "float" else 127)
        scaled = tensors[name].float() / scale
        tensors[name] = (scaled if kind == "float" else scaled.round()).to(dtype)
        tensors[name + "_scale"] = scale
    group = {"targets": ["Linear"],
             "weights": {"num_bits": 8, "type": kind, "strategy": "channel", "symmetric": True, "dynamic": False},
             "input_activations": {"num_bits": 8, "type": kind, "strategy": "token", "symmetric": True, "dynamic": True}}
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
                                     "quantization_status": "compressed", "config_groups": {"group_0": group}}
    return config, tensors


def _packed(method, **settings):
    """A Llama whose linear layers but the last are 4 bits wide, eight values in an int32: along the input for GPTQ, the output for AWQ."""
    config, tensors = _llama()
    generator, group = torch.Generator().manual_seed(2), 32
    for name in [name for name in tensors if "_proj." in name]:
        (rows, columns), stem = tensors.pop(name).shape, name.removesuffix(".weight")

        def integers(*shape):
            return torch.randint(-2**31, 2**31, shape, generator=generator, dtype=torch.int32)

        tensors[f"{stem}.qweight"] = integers(columns // 8, rows) if method == "gptq" else integers(columns, rows // 8)
        tensors[f"{stem}.qzeros"] = integers(columns // group, rows // 8)
        tensors[f"{stem}.scales"] = (torch.rand(columns // group, rows, generator=generator) / 100 + 0.001).to(BF16)
        if method == "gptq":
            tensors[f"{stem}.g_idx"] = torch.arange(columns, dtype=torch.int32) // group
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": group, **settings}
    return config, tensors


def _eagle():
    """A draft of one layer that continues the hidden states of "llama", whose embedding and output layer it takes."""
    model = _Model()
    _one_layer(model, "layers.0")
    del model.tensors["layers.0.input_layernorm.weight"]
    model.put("fc.weight", HIDDEN, 2 * HIDDEN)
    return _config("LlamaForCausalLM", "llama", num_hidden_layers=1), model.tensors


def _eagle3():
    """One that is given hidden states of three layers, and has an output layer of its own, of the half of all tokens."""
    model = _Model()
    _one_layer(model, "midlayer", hidden=2 * HIDDEN)
    model.norm("midlayer.hidden_norm.weight")
    model.put("fc.weight", HIDDEN, 3 * HIDDEN)
    model.norm("norm.weight")
    model.put("lm_head.weight", VOCAB // 2, HIDDEN)
    model.tensors["d2t"] = torch.arange(VOCAB // 2)  # token n is 2 n
    model.tensors["t2d"] = torch.arange(VOCAB) % 2 == 0
    return _config("LlamaForCausalLM", "llama", num_hidden_layers=1, draft_vocab_size=VOCAB // 2), model.tensors


def _medusa():
    """Three heads that guess the next tokens. One with a map of few tokens vLLM 0.32 refuses."""
    model = _Model()
    for head in range(3):
        model.put(f"blocks.{head}.layers.0.weight", HIDDEN, HIDDEN)
        model.put(f"lm_heads.{head}.weight", VOCAB, HIDDEN)
    return {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN, "vocab_size": VOCAB, "num_heads": 3,
            "num_hidden_layers": 1, "torch_dtype": "bfloat16"}, model.tensors


def _mimo():
    """A model with the layer that guesses its next but one token in the same files (MTP)."""
    config, tensors = _llama()
    model = _Model()
    model.tensors = tensors
    for layer in range(LAYERS):
        for name in ("q_proj", "k_proj", "v_proj"):
            model.norm(f"model.layers.{layer}.self_attn.{name}.bias", tensors[f"model.layers.{layer}.self_attn.{name}.weight"].shape[0])
    _one_layer(model, "model.mtp_layers.0")
    for name in ("q_proj", "k_proj", "v_proj"):
        model.norm(f"model.mtp_layers.0.self_attn.{name}.bias", tensors[f"model.mtp_layers.0.self_attn.{name}.weight"].shape[0])
    model.put("model.mtp_layers.0.input_proj.weight", HIDDEN, 2 * HIDDEN)
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        model.norm(f"model.mtp_layers.0.{name}.weight")
    return {**config, "architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}, model.tensors


def _one_layer(model, prefix, hidden=HIDDEN):
    for name in ("input_layernorm", "post_attention_layernorm"):
        model.norm(f"{prefix}.{name}.weight")
    for name, (rows, columns) in _attention(KV_HEADS).items():
        model.put(f"{prefix}.self_attn.{name}.weight", rows, columns if name == "o_proj" else hidden)
    for name, shape in _MLP.items():
        model.put(f"{prefix}.mlp.{name}.weight", *shape)


def _qwen3_moe():
    model = _Model()
    model.frame()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        model.layer_norms(layer)
        for name, shape in _attention(KV_HEADS).items():
            model.put(f"{prefix}.self_attn.{name}.weight", *shape)
        model.norm(f"{prefix}.self_attn.q_norm.weight", HEAD)
        model.norm(f"{prefix}.self_attn.k_norm.weight", HEAD)
        experts = [""] if layer == 0 else [f"experts.{expert}." for expert in range(EXPERTS)]
        for expert in experts:
            for name, shape in _MLP.items():
                model.put(f"{prefix}.mlp.{expert}{name}.weight", *shape)
        if layer:
            model.put(f"{prefix}.mlp.gate.weight", EXPERTS, HIDDEN)
    return _config("Qwen3MoeForCausalLM", "qwen3_moe", num_experts=EXPERTS, num_experts_per_tok=2, mlp_only_layers=[0],
                   moe_intermediate_size=MIDDLE, decoder_sparse_step=1, norm_topk_prob=True), model.tensors


def _mixtral():
    model = _Model()
    model.frame()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        model.layer_norms(layer)
        for name, shape in _attention(KV_HEADS).items():
            model.put(f"{prefix}.self_attn.{name}.weight", *shape)
        model.put(f"{prefix}.block_sparse_moe.gate.weight", 4, HIDDEN)
        for expert in range(4):
            for name, shape in (("w1", (MIDDLE, HIDDEN)), ("w2", (HIDDEN, MIDDLE)), ("w3", (MIDDLE, HIDDEN))):
                model.put(f"{prefix}.block_sparse_moe.experts.{expert}.{name}.weight", *shape)
    return _config("MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2), model.tensors


def _phi3():
    """Query, key and value in one tensor on disk, gate and up in another."""
    model = _Model()
    model.frame()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        model.layer_norms(layer)
        model.put(f"{prefix}.self_attn.qkv_proj.weight", (HEADS + 2 * KV_HEADS) * HEAD, HIDDEN)
        model.put(f"{prefix}.self_attn.o_proj.weight", HIDDEN, HEADS * HEAD)
        model.put(f"{prefix}.mlp.gate_up_proj.weight", 2 * MIDDLE, HIDDEN)
        model.put(f"{prefix}.mlp.down_proj.weight", HIDDEN, MIDDLE)
    return _config("Phi3ForCausalLM", "phi3", pad_token_id=0, sliding_window=None,
                   original_max_position_embeddings=256), model.tensors


def _mamba2():
    """A state space model, whose convolutions' weights are a buffer in another shape, too."""
    model = _Model()
    wide, groups, state = 2 * HIDDEN, 1, 16
    channels = wide + 2 * groups * state
    for layer in range(LAYERS):
        prefix = f"backbone.layers.{layer}"
        model.norm(f"{prefix}.norm.weight")
        model.put(f"{prefix}.mixer.in_proj.weight", wide + channels + HEADS, HIDDEN)
        model.put(f"{prefix}.mixer.out_proj.weight", HIDDEN, wide)
        model.put(f"{prefix}.mixer.conv1d.weight", channels, 1, 4)
        model.norm(f"{prefix}.mixer.conv1d.bias", channels)
        model.norm(f"{prefix}.mixer.norm.weight", wide)
        for name in ("A_log", "D", "dt_bias"):
            model.norm(f"{prefix}.mixer.{name}", HEADS)
    model.put("backbone.embeddings.weight", VOCAB, HIDDEN)
    model.norm("backbone.norm_f.weight")
    model.put("lm_head.weight", VOCAB, HIDDEN)
    config = {"num_heads": HEADS, "head_dim": wide // HEADS, "state_size": state, "n_groups": groups, "conv_kernel": 4, "expand": 2,
              "use_conv_bias": True, "use_bias": False, "layer_norm_epsilon": 1e-5, "pad_token_id": 0}
    return _config("Mamba2ForCausalLM", "mamba2", **config), model.tensors


FAMILIES = {
    "llama": _llama,
    "llama_mqa": lambda: _llama(kv_heads=1),
    "llama_tied": lambda: _llama(vocab=499, tied=True),
    "llama_contradictory": _contradictory,
    "llama_int8": lambda: _quantized(torch.int8, "int", "int-quantized"),
    "llama_fp8": lambda: _quantized(torch.float8_e4m3fn, "float", "float-quantized"),
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "phi3": _phi3,
}


RELOADED = {  # beside those, in the tests of reloads
    "mamba2": _mamba2,
    "llama_gptq": lambda: _packed("gptq", desc_act=False, sym=True),
    "llama_awq": lambda: _packed("awq", zero_point=True, version="gemm"),
}
DRAFTS = {"eagle": _eagle, "eagle3": _eagle3, "medusa": _medusa, "mimo": _mimo}  # the last is a model with one
ALL = {**FAMILIES, **RELOADED, **DRAFTS}


def write(folder, family, without=(), parts=3, of=lambda name, tensor: tensor, **settings):
    """Writes one checkpoint; returns its folder and the tensors. of(name, tensor): what a tensor becomes. settings: of config.json."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    config, tensors = ALL[family]()
    config.update(settings)
    tensors = {name: of(name, tensor).contiguous() for name, tensor in tensors.items() if name not in without}
    (folder / "config.json").write_text(json.dumps(config))
    names, index = list(tensors), {}
    for part in range(parts):
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        chosen = names[part::parts]
        save_file({name: tensors[name] for name in chosen}, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(chosen, file))
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder, tensors
