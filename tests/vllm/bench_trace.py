"""How long the loader takes to trace and plan a Llama of 70B on one rank of eight, in a real vLLM. Prints one JSON object.

Parameters are on the meta device, for want of memory; the tracing does not look at them. The first time in a process is what
a worker sees, the second time how much of it was a first time's cost. "kept" is what a plan in a file would cost instead: its
JSON read and parsed, without the checks that it still fits.     usage: python bench_trace.py [LAYERS]
"""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "real"))
from conftest import VLLM  # noqa: E402

SIZE, RANK = 8, 3
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
          "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
          "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}


def shapes(layers):
    hidden, inner, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], 1024
    layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden),
             "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    vocab = {"model.embed_tokens": (CONFIG["vocab_size"], hidden), "lm_head": (CONFIG["vocab_size"], hidden), "model.norm": (hidden,)}
    vocab.update({f"model.layers.{at}.{name}": shape for at in range(layers) for name, shape in layer.items()})
    return {f"{name}.weight": shape for name, shape in vocab.items()}


def model_of_one_rank(layers):
    """A model as rank RANK of SIZE has it; there are no other ranks."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import get_tp_group, init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.utils.torch_utils import set_default_torch_dtype
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
        config = EngineArgs(model=folder, load_format="dummy", enforce_eager=True, skip_tokenizer_init=True).create_engine_config()
        with set_current_vllm_config(config):
            init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
            initialize_model_parallel(1, 1)
            get_tp_group().world_size, get_tp_group().rank_in_group = SIZE, RANK
            with set_default_torch_dtype(torch.bfloat16), torch.device("meta"):
                return get_model_loader(config.load_config).create_model(vllm_config=config, model_config=config.model_config)


def main():
    os.environ.update(VLLM, VLLM_LOGGING_LEVEL="ERROR", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 80
    model = model_of_one_rank(layers)
    import torch
    from tensorcast_vllm.attempts import Feed, attempt
    from tensorcast_vllm.plan import Plan
    from tensorcast_vllm.trace import Source
    sources = sorted(Source(name, shape, torch.bfloat16) for name, shape in shapes(layers).items())
    report = {"tensors": len(sources)}
    for which in ("first", "again"):
        start = time.perf_counter()
        plan = Plan(attempt(model, Feed(sources, {}, None)), sources)
        report[f"{which}_ms"] = round(1e3 * (time.perf_counter() - start), 1)
    steps = [[step.source.base, step.source.view, step.region, str(step.dtype)] for steps in plan.steps.values() for step in steps]
    text = json.dumps([steps, plan.requests])
    start = time.perf_counter()
    json.loads(text)
    report.update(kept_ms=round(1e3 * (time.perf_counter() - start), 1), steps=len(steps), gigabytes=round(plan.bytes / 1e9, 2),
                  requests=len(plan.requests))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
