"""Greedy tokens of a whole engine, through our loader and through vLLM's default one."""
import os
import re

import pytest

FOLDER, REFERENCE = "from a folder", "by reference"  # where our loader is told to find the model
ALL = [("llama", 2, FOLDER), ("llama", 1, REFERENCE), ("llama_tied", 2, FOLDER), ("llama_mqa", 2, FOLDER), ("qwen3_moe", 2, FOLDER),
       ("mixtral", 1, FOLDER), ("llama_int8", 2, FOLDER), ("llama_fp8", 1, FOLDER), ("phi3", 2, FOLDER)]
SPOILED = ("llama_int8", "llama_fp8", "qwen3_moe", "mixtral", "llama_tied")  # by vLLM's own reload, on a CPU


@pytest.mark.parametrize("family, size, where", ALL if os.environ.get("TENSORCAST_VLLM_ALL") else ALL[:1])
def test_an_engine_says_the_same_with_either_loader(family, size, where, models, new_models, python):
    """Then with new weights, after a reload that fails, after sleep and wake, and with the old weights again."""
    job = {"folder": str(models[family][0]), "size": size, "options": {}}
    model = f"gs://models/{family}" if where == REFERENCE else job["folder"]
    there, back = [["reload_weights", {"weights_path": path}] for path in (new_models[family], model)]
    sleeps = [[name, keywords] for level in (1, 2) for name, keywords in (("sleep", {"level": level}), ("wake_up", {}))]
    ours_then = [["reload_weights", {"weights_path": f"gs://models/new/{family}"}], ["reload_weights", {"weights_path": "gs://models/nowhere"}],
                 *sleeps, ["reload_weights", {}], back]
    (ours,), log = python("engine.py", {**job, "folder": model, "load_format": "tensorcast", "then": ours_then})
    (theirs,), _ = python("engine.py", {**job, "load_format": "safetensors", "then": [there] if family not in SPOILED else []})
    old, new, *same, last = ours["tokens"]
    assert last == old == theirs["tokens"][0] and all(len(tokens) == 16 for tokens in old) and new != old
    assert all(tokens == new for tokens in same) and theirs["tokens"][1:] == [new] * len(theirs["errors"])
    failed, *others = [error for error in ours["errors"] + theirs["errors"] if error]
    assert all("cannot load gs://models/nowhere" in error for error in (failed, *others))
    assert len(others) < size  # vLLM gives the second rank's answer to the next call
    for rank in range(size):
        assert re.search(rf"tensorcast: [0-9.]+ [kKM]i?B in [0-9.]+ s \(rank {rank} of {size}\): read ", log), log[-4000:]
