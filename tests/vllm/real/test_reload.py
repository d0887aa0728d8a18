"""New weights for models that serve: equal to a fresh start with the new checkpoint, or an error and the old weights."""
import checkpoints
import pytest

SIZES = (1, 2)
FAMILIES = {1: sorted([*checkpoints.FAMILIES, *checkpoints.RELOADED]),
            2: ["llama", "llama_gptq", "llama_int8", "llama_tied", "qwen3_moe"]}
DRAFTS = {1: {"eagle": "llama", "eagle3": "llama", "medusa": "llama", "mtp": "mimo"}, 2: {"eagle3": "llama"}}  # method: model
LAYERWISE, NOT_LAYERWISE = ("llama", "llama_tied"), ("llama_int8", "llama_fp8", "llama_awq", "llama_gptq", "qwen3_moe", "mamba2")
REFUSED = {"incomplete": "lacks tensors that .*llama has: model.layers.1.mlp.down_proj.weight",
           "nothing there": "no folder .*nowhere", "nothing in the store": "cannot load gs://models/nowhere",
           "llama_mqa": "has other shapes than .*self_attn.k_proj.weight",
           "qwen3_moe": "lacks tensors that .*llama has", "other configuration": "config.json differs from that of .*: rope_theta"}


def cases_of(size, models, new):
    def case(family, *steps, **more):
        return {"folder": str(models[family][0]), "options": {}, "reload": steps, **more}

    def there_and_back(family):
        return {"path": new[family]}, {"path": "", "spoil": True, "fresh": new[family]}, {"path": str(models[family][0])}

    paths = {name: {"path": new.get(name, "")} for name in REFUSED}
    paths["nothing there"]["path"], paths["nothing in the store"]["path"] = new["llama"] + "-nowhere", "gs://models/nowhere"
    cases = {f"reload {family}": case(family, *there_and_back(family)) for family in FAMILIES[size]}
    if size == 1:
        cases |= {f"layerwise {family}": case(family, *there_and_back(family), layerwise=True) for family in LAYERWISE + NOT_LAYERWISE}
    for method, family in DRAFTS[size].items():
        draft = family if method == "mtp" else method
        engine = {"speculative_config": {"model": str(models[draft][0]), "method": method, "num_speculative_tokens": 1}}
        there, again, back = there_and_back(draft)
        steps = there, {**again, "spoil": False}, paths["llama_mqa"], back  # what a draft lacks is the model's, and would stay spoiled
        cases[f"draft {method}"] = {"folder": str(models[family][0]), "options": {}, "engine": engine}
        cases[f"reload draft {method}"] = case(family, *steps, engine=engine)
        if method == "mtp":
            cases["lent"] = case(family, there, {"path": ""}, engine=engine, lends=True)
    cases["reload by reference"] = case("llama", {"path": "gs://models/new/llama", "fresh": new["llama"]})
    cases["reload copied"] = case("llama", *there_and_back("llama"), options={"adopt": "never"})
    refused = [step for name in REFUSED for step in (paths[name],)]
    cases["refused"] = case("llama", *refused, {"path": ""})
    cases["refused layerwise"] = case("llama", *refused, {"path": ""}, layerwise=True)
    return cases


def steps_of(reports, size, name):
    return [report["cases"][name]["steps"] for report in reports[size]]


@pytest.mark.parametrize("size, name", [*((size, f"reload {family}") for size in SIZES for family in FAMILIES[size]),
                                        *((1, f"layerwise {family}") for family in LAYERWISE)])
def test_a_reloaded_model_is_that_of_a_fresh_start(reports, name, size):
    for steps in steps_of(reports, size, name):
        for step in steps:
            assert "error" not in step, step
            assert step["differ"] == []
        assert steps[0]["changed"] > 20


@pytest.mark.parametrize("size, method", [(size, method) for size in SIZES for method in DRAFTS[size]])
def test_a_draft_of_its_own_kind_is_loaded_and_reloaded(reports, method, size):
    """What its layers compute, too, of which Medusa's output layers are packed and show no sign of it."""
    for report in reports[size]:
        assert report["cases"][f"draft {method}"]["differ"] == [] and report["cases"][f"draft {method}"]["boxes"]
        there, again, refused, back = report["cases"][f"reload draft {method}"]["steps"]
        assert [step["differ"] for step in (there, again, refused, back)] == [[]] * 4
        assert there["changed"] > 2 and not again["changed"] and "lacks tensors" in refused["error"] and back["changed"] > 2


def test_a_draft_does_not_change_what_its_model_has_lent_it(reports):
    ((there, again),) = steps_of(reports, 1, "lent")
    assert "VocabParallelEmbedding is that of " in there["error"] and "reload that model first" in there["error"] and there["differ"] == []
    assert again["differ"] == [] and "error" not in again


@pytest.mark.parametrize("family", NOT_LAYERWISE)
def test_a_model_is_not_given_to_a_reload_that_spoils_it(reports, family):
    """vLLM's own, on a CPU: it frees scales whose address kernels have, does not pack experts again, and leaves views behind."""
    ((first, _, last),) = steps_of(reports, 1, f"layerwise {family}")
    assert "cannot reload this model on a CPU" in first["error"] and first["differ"] == [] and "error" in last


@pytest.mark.parametrize("size", SIZES)
def test_a_reference_is_reloaded_from_like_a_folder(reports, size):
    for (step,) in steps_of(reports, size, "reload by reference"):
        assert step["differ"] == [] and step["changed"] > 20 and step["adopted"] > 0


@pytest.mark.parametrize("size", SIZES)
def test_what_is_adopted_is_adopted_anew_and_copied_parameters_are_copied(reports, size):
    for steps in steps_of(reports, size, "reload llama"):
        assert all(step["adopted"] for step in steps)
    for steps in steps_of(reports, size, "reload copied"):
        assert all(step["differ"] == [] and step["adopted"] == 0 for step in steps)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", ["refused", "refused layerwise"])
def test_a_reload_that_fails_leaves_the_old_weights(reports, how, size):
    for *refused, last in steps_of(reports, size, how):
        for (name, message), step in zip(REFUSED.items(), refused):
            assert step["differ"] == [] and step["path"], name
            pytest.raises(RuntimeError, _raise, step["error"]).match(message)
        assert last["differ"] == []


def _raise(text):
    raise RuntimeError(text)
