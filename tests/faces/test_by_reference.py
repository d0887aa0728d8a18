"""Models by reference: what transformers makes of them is what it makes of the files."""
import pytest


@pytest.fixture(scope="module")
def answers(models, start, folder):
    return {answer.pop("question"): answer for answer in start("by_reference.py", models.folder, folder / "saved")()}


@pytest.mark.parametrize("name", ["llama", "llama-shards"])
def test_a_model_is_the_same_by_reference(answers, models, name):
    assert answers[name]["kind"] == "LlamaForCausalLM" and answers[name]["digest"] == models.digests[name] and answers[name]["leases"] <= 4


def test_changes_stay_in_the_process_and_a_model_can_be_saved(answers, models):
    assert {answers[name]["digest"] for name in ("again", "saved", "official")} == {answers["saved"]["again"], models.digests["llama"]}


def test_a_model_is_cast_and_then_holds_nothing_of_the_daemon(answers, models):
    assert answers["bfloat16"]["digest"] == models.digests["llama in bfloat16"] and answers["bfloat16"]["leases"] == 0


def test_auto_classes_find_their_class(answers):
    assert answers["without a head"]["kind"] == "LlamaModel" and answers["configuration"]["kind"] == "LlamaConfig"
    assert "nobody" in answers["nobody"]["error"]


def test_a_variant_is_loaded_where_the_folder_has_one_and_refused_elsewhere(answers, models):
    assert answers["variant"]["digest"] == models.digests["llama in bfloat16"]
    assert "has no model.fp16.safetensors and no model.safetensors.index.fp16.json" in answers["no variant"]["error"]


def test_the_example_says_something(answers):
    first, second = answers["example"]["said"]
    assert first == "LlamaForCausalLM, 12061184 parameters, torch.float32" and second.startswith("[1, 2, 3, ")
