"""Greedy tokens of a whole engine, through our loader and through vLLM's default one."""
import os
import re

import pytest

FOLDER, REFERENCE = "from a folder", "by reference"  # where our loader is told to find the model
ALL = [("llama", 2, FOLDER), ("llama", 1, REFERENCE), ("llama_tied", 2, FOLDER), ("llama_mqa", 2, FOLDER), ("qwen3_moe", 2, FOLDER),
       ("mixtral", 1, FOLDER), ("llama_int8", 2, FOLDER), ("llama_fp8", 1, FOLDER), ("phi3", 2, FOLDER)]


@pytest.mark.parametrize("family, size, where", ALL if os.environ.get("TENSORCAST_VLLM_ALL") else ALL[:1])
def test_an_engine_says_the_same_with_either_loader(family, size, where, models, python):
    job = {"folder": str(models[family][0]), "size": size, "options": {}}
    model = f"gs://models/{family}" if where == REFERENCE else job["folder"]
    (ours,), log = python("engine.py", {**job, "folder": model, "load_format": "tensorcast"})
    (theirs,), _ = python("engine.py", {**job, "load_format": "safetensors"})
    assert ours == theirs and all(len(tokens) == 16 for tokens in ours["tokens"])
    for rank in range(size):
        assert re.search(rf"tensorcast rank {rank} of {size}: needed [0-9.]+ GB, read", log), log[-4000:]
