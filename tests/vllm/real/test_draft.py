"""Speculative decoding in a whole engine: a draft model that is loaded, and reloaded, by our loader."""


def test_a_draft_is_loaded_and_reloaded(models, new_models, python):
    """By how often the model agrees with it: always at first, hardly when only the model got new weights, always when both did."""
    job = {"folder": str(models["llama"][0]), "new": new_models["llama"], "load_format": "tensorcast"}
    (ours,), _ = python("draft.py", job, VLLM_ALLOW_INSECURE_SERIALIZATION="1")
    start, stale, reloaded = ours["accepted"]
    assert start > 0.8 and stale < 0.3 and reloaded > 0.8, ours
    first, new, still = ours["tokens"]
    assert new == still and new != first
