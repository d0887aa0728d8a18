"""transformers takes a StateDict, and its parameters are the daemon's memory wherever nothing is merged."""
import checkpoints
import pytest


@pytest.mark.parametrize("family, merged", [("llama", 0), ("qwen3_moe", 2 * (checkpoints.LAYERS - 1))])
def test_a_model_is_the_same_and_shares_memory(family, merged, models, python):
    (report,), _ = python("state_dict.py", {"folder": str(models[family][0])})
    assert report["differ"] == [] and report["missing"] == [] and report["compared"] > 25
    assert report["shared"] >= report["compared"] - merged
