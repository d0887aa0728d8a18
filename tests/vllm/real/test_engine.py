"""Greedy tokens of a whole engine, through our loader and through vLLM's default one."""
import os
import re

import pytest

ALL = [("llama", 2), ("llama", 1), ("llama_tied", 2), ("llama_mqa", 2), ("qwen3_moe", 2), ("mixtral", 1), ("llama_int8", 2),
       ("llama_fp8", 1), ("phi3", 2)]


@pytest.mark.parametrize("family, size", ALL if os.environ.get("TENSORCAST_VLLM_ALL") else ALL[:1])
def test_an_engine_says_the_same_with_either_loader(family, size, models, python):
    job = {"folder": str(models[family][0]), "size": size}
    (ours,), log = python("engine.py", {**job, "load_format": "tensorcast", "options": {}})
    (theirs,), _ = python("engine.py", {**job, "load_format": "safetensors", "options": {}})
    assert ours == theirs and all(len(tokens) == 16 for tokens in ours["tokens"])
    for rank in range(size):
        assert re.search(rf"tensorcast rank {rank} of {size}: needed [0-9.]+ GB, read", log), log[-4000:]
