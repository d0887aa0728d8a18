"""New weights for a model that was loaded and processed as an engine does, one checkpoint after the other, against a fresh start
with vLLM's default loader: every parameter and buffer, and what each linear layer computes, since a CPU keeps weights where no
parameter shows them."""
import bisect
import faulthandler
import math
from pathlib import Path
from unittest import mock

import ranks

FRESH = {}  # (folder, whether it is a draft) -> state

def compare_reloads(job, case):
    """A step of the case's "reload" is what is loaded next; "" is what is loaded already. The result has for each what differs from a
    fresh start there ("fresh" in the step: with that), or the error and what differs from before.

    A draft is given its new weights by the loader itself, as vLLM reloads none; {"lends": true} in the case: its embedding is that of
    the model, which the steps must not change.

    {"layerwise": true} in the case: as where the host is no place for two models. "spoil" in the step: parameters are
    overwritten first, as after sleep level 2, which keeps buffers."""
    from tensorcast_vllm import reload
    from vllm.config import set_current_vllm_config
    faulthandler.enable()  # again: torch takes it
    config = ranks.config_of(job, case, "tensorcast", case["options"])
    lender = _started(ranks.config_of(job, {**case, "engine": {}}, "tensorcast", case["options"])) if case.get("lends") else None
    model, steps = _started(config), []
    if lender:
        model.model.embed_tokens = lender.model.embed_tokens
    with set_current_vllm_config(config), mock.patch.object(reload, "_parts", **_parts(reload, case)):
        for step in case["reload"]:
            before, path = _state(model), config.model_config.model
            if step.get("spoil"):
                for parameter in model.parameters():
                    parameter.data.fill_(1)
            try:
                _reload(config, model, step["path"])
            except Exception as error:
                steps.append({"error": f"{type(error).__name__}: {error}", "differ": _differ(before, _state(model)),
                              "path": config.model_config.model == path})
                continue
            folder = step.get("fresh", step["path"]) or case["folder"]
            steps.append({"differ": _differ(_fresh(job, case, folder), _state(model)), "changed": len(_differ(before, _state(model))),
                          "adopted": _count_in_daemon(model)})
    return {"steps": steps}


def _reload(config, model, path):
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.v1.worker import gpu_model_runner
    if not config.speculative_config:
        gpu_model_runner.reload_weights(config, model, None, path or None, True)
        return
    draft = config.speculative_config.draft_model_config
    loaded = draft.model
    draft.model = path or loaded
    try:
        get_model_loader(config.load_config).load_weights(model, draft)
    except BaseException:
        draft.model = loaded
        raise


def _fresh(job, case, folder):
    """The state of a model that vLLM has started with by itself."""
    draft = case.get("engine", {}).get("speculative_config")
    key = (folder, bool(draft))
    if key not in FRESH:
        there = {"engine": {"speculative_config": {**draft, "model": folder}}} if draft else {"folder": folder}
        FRESH[key] = _state(_started(ranks.config_of(job, {**case, **there}, "safetensors", {})))
    return FRESH[key]


def _parts(reload, case):
    return {"return_value": None} if case.get("layerwise") else {"wraps": reload._parts}


def _started(config):
    """A model as an engine starts with it."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import process_weights_after_loading
    from vllm.utils.torch_utils import set_default_torch_dtype
    model = ranks.load(config)
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        process_weights_after_loading(model, config.model_config, torch.device("cpu"))
    return model


def _state(model):
    """{name: tensor} of parameters, buffers and what layers make of one input; not of those whose kernel vLLM has for other CPUs alone
    (that of AWQ and GPTQ needs AVX-512)."""
    import torch
    has_packed_kernel = hasattr(torch.ops._C, "cpu_gemm_wna16")
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    state = {name: tensor.detach().clone() for name, tensor in ranks.state_of(model)}
    for name, layer in model.named_modules():
        width = {True: getattr(layer, "input_size_per_partition", None), False: getattr(layer, "embedding_dim", None)}[isinstance(layer, LinearBase)]
        is_applied = not name.endswith(".conv1d") and (has_packed_kernel or not hasattr(layer, "qweight"))
        if isinstance(layer, (LinearBase, ParallelLMHead)) and width and is_applied:
            given = torch.randn(3, width, generator=torch.Generator().manual_seed(1)).bfloat16()
            state[f"{name}()"] = layer.quant_method.apply(layer, given, None)
    return state


def _differ(one, other):
    from tensorcast_vllm.checkpoint import bytes_equal
    return sorted(name for name in one.keys() | other.keys()
                  if name not in one or name not in other or not bytes_equal(one[name], other[name]))


def _daemon_memory():
    """[(begin, end)] of the daemon's memory in this process, in order."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "tensorcast" in line or "memfd:" in line]
    return [tuple(int(part, 16) for part in line.split()[0].split("-")) for line in lines]


def _count_in_daemon(model):
    """How many of a model's tensors are in the daemon's memory."""
    spans = _daemon_memory()

    def inside(at):
        index = bisect.bisect_right(spans, (at, math.inf))
        return index > 0 and at < spans[index - 1][1]

    return sum(inside(tensor.data_ptr()) for _, tensor in ranks.state_of(model))
