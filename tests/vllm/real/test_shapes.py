"""Other ways to cut a model up than tensor parallelism: stages, experts, draft models, and a model whose tensors are not in the
folder that vLLM gets. Every rank's parameters against vLLM's default loader, and that it asked for its own tensors only."""
import re

import checkpoints
import pytest


def one_job(python, folder, name, cases, **job):
    """[{case: report} of each rank]"""
    reports, _ = python("ranks.py", {"rendezvous": str(folder / f"rendezvous-{name}"), "cases": cases, **job})
    for report in reports:
        assert "error" not in report, report["error"]
    return [report["cases"] for report in reports]


def case(models, family, **more):
    return {"folder": str(models[family][0]), "options": {}, **more}


def names_of(report):
    return {name for name, _ in report["boxes"]}


def assert_same(report):
    assert report["differ"] == [] and report["compared"] > 10 and report["real"] == {}


def layers_of(names):
    return {int(number) for name in names for number in re.findall(r"layers\.(\d+)\.", name)}


# tensors outside the layers that both stages ask for: vLLM's mixtral has all of them on every stage, and a tied embedding is
# the last stage's output layer, too
SHARED = {"llama": set(), "llama_tied": {"model.embed_tokens.weight"},
          "mixtral": {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}}


@pytest.fixture(scope="session")
def stages(models, python, folder):
    return one_job(python, folder, "stages", {family: case(models, family) for family in SHARED},
                   size=1, pipeline=2)


@pytest.mark.parametrize("family", SHARED)
def test_each_stage_asks_for_its_own_layers_only(stages, models, family):
    first, last = (rank[family] for rank in stages)
    assert_same(first), assert_same(last)
    assert layers_of(names_of(first)) | layers_of(names_of(last)) == set(range(checkpoints.LAYERS))
    assert not layers_of(names_of(first)) & layers_of(names_of(last))
    assert "model.norm.weight" in names_of(last)
    assert names_of(first) & names_of(last) == SHARED[family]
    assert names_of(first) | names_of(last) == set(models[family][1])


EXPERTS, IN_STORE = ("qwen3_moe", "mixtral"), ("llama_contradictory", "llama_tied")


def cases_of(size, models, elsewhere, stale):
    if size == 1:
        draft = {"model": str(models["llama_mqa"][0]), "num_speculative_tokens": 2, "method": "draft_model"}
        return {"draft": case(models, "llama", engine={"speculative_config": draft}), "stale": case(models, "llama", ours=str(stale))}
    return {"reference": case(models, "llama", ours=elsewhere),
            "reference verified": case(models, "llama", ours=elsewhere, options={"verify": True}),
            **{f"store {family}": case(models, family, ours=f"gs://models/{family}") for family in IN_STORE},
            **{f"experts {family}": case(models, family, engine={"enable_expert_parallel": True}) for family in EXPERTS}}


@pytest.fixture(scope="session")
def alone(reports):
    """What a rank alone reports."""
    return reports[1][0]["cases"]


@pytest.fixture(scope="session")
def pair(reports):
    """What each of two ranks reports."""
    return [report["cases"] for report in reports[2]]


@pytest.mark.parametrize("family, count", [("qwen3_moe", checkpoints.EXPERTS), ("mixtral", 4)])
def test_each_rank_asks_for_its_own_experts_only(pair, family, count):
    for rank, reports in enumerate(pair):
        report = reports[f"experts {family}"]
        assert_same(report)
        asked = {int(number) for name in names_of(report) for number in re.findall(r"experts\.(\d+)\.", name)}
        assert asked == set(range(rank * count // 2, (rank + 1) * count // 2))


def test_a_draft_model_is_loaded_like_any_other(alone, models):
    assert_same(alone["draft"])
    assert names_of(alone["draft"]) == set(models["llama_mqa"][1])


def test_a_model_is_loaded_by_reference(pair):
    for rank in pair:
        assert_same(rank["reference"]), assert_same(rank["reference verified"])


@pytest.mark.parametrize("family", IN_STORE)
def test_models_are_loaded_from_a_store(pair, family):
    """One whose configuration and tensors disagree, which vLLM can only see in the folder if it has all that it looks at."""
    for rank in pair:
        assert_same(rank[f"store {family}"])


def test_a_configuration_of_another_version_is_refused(alone):
    assert "was changed since its configuration was fetched" in alone["stale"]["errors"]["tensorcast"]
