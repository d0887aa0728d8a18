"""Other ways to cut a model up than tensor parallelism: stages, experts, draft models, and a model whose tensors are not in the
folder that vLLM gets. Every rank's parameters against vLLM's default loader, and that it asked for its own tensors only."""
import json
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture(scope="session")
def experts(models, python, folder):
    together = {"enable_expert_parallel": True}
    return one_job(python, folder, "experts", {family: case(models, family, engine=together)
                                               for family in ("qwen3_moe", "mixtral")}, size=2)


@pytest.mark.parametrize("family, count", [("qwen3_moe", checkpoints.EXPERTS), ("mixtral", 4)])
def test_each_rank_asks_for_its_own_experts_only(experts, models, family, count):
    for rank, reports in enumerate(experts):
        assert_same(reports[family])
        asked = {int(number) for name in names_of(reports[family]) for number in re.findall(r"experts\.(\d+)\.", name)}
        assert asked == set(range(rank * count // 2, (rank + 1) * count // 2))


def test_a_draft_model_is_loaded_like_any_other(models, python, folder):
    draft = {"model": str(models["llama_mqa"][0]), "num_speculative_tokens": 2, "method": "draft_model"}
    for rank in one_job(python, folder, "draft", {"draft": case(models, "llama", engine={"speculative_config": draft})}, size=1):
        assert_same(rank["draft"])
        assert names_of(rank["draft"]) == set(models["llama_mqa"][1])


@pytest.fixture(scope="session")
def elsewhere(models, python, folder, socket):
    """The folder that `tensorcast-vllm` makes of a model: without any tensor."""
    done = subprocess.run([sys.executable, "-m", "tensorcast_vllm", f"disk:{models['llama'][0]}", "--socket", socket, "--cache",
                           folder / "cache"], text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_model_is_loaded_by_reference(models, python, folder, elsewhere):
    cases = {"reference": case(models, "llama", ours=elsewhere),
             "verified": case(models, "llama", ours=elsewhere, options={"verify": True})}
    for rank in one_job(python, folder, "reference", cases, size=2):
        assert_same(rank["reference"]), assert_same(rank["verified"])


def test_models_are_loaded_from_a_store(models, python, folder):
    """One whose configuration and tensors disagree, which vLLM can only see in the folder if it has all that it looks at."""
    cases = {family: case(models, family, ours=f"gs://models/{family}") for family in ("llama_contradictory", "llama_tied")}
    for rank in one_job(python, folder, "store", cases, size=2):
        for report in rank.values():
            assert_same(report)


def test_a_configuration_of_another_version_is_refused(models, python, folder, elsewhere):
    stale = folder / "stale"
    stale.mkdir()
    for name in ("config.json", "tensorcast.json"):
        (stale / name).write_bytes((Path(elsewhere) / name).read_bytes())
    note = json.loads((stale / "tensorcast.json").read_text())
    (stale / "tensorcast.json").write_text(json.dumps({**note, "identity": "0" * 64}))
    (rank,) = one_job(python, folder, "stale", {"stale": case(models, "llama", ours=str(stale))}, size=1)
    assert "was changed since its configuration was fetched" in rank["stale"]["errors"]["tensorcast"]
