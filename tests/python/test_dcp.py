"""torch.distributed.checkpoint with TensorcastReader, and DTensors: in one process against a stand-in for the daemon, and on
meshes of 2 and 4 gloo ranks against the real one."""
import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorcast_client as tc

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcast_client.dcp  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from conftest import ROOT  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from tensorcast_client.dcp import TensorcastReader  # noqa: E402
from test_with_daemon import TENSORCAST, TENSORCASTD, daemon  # noqa: E402, F401

REF = "disk:/models/m"


@pytest.fixture
def pair(fake):
    weight, bias = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(6, dtype=np.float32)
    fake.put(REF, {"weight": ("F32", weight), "bias": ("F32", bias), "other": ("F32", bias), "none": ("F32", np.zeros((0, 2), np.float32))})
    return weight, bias


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_plan_is_one_request_for_what_it_needs(fake, client, pair):
    state = {"model": {"weight": torch.zeros(6, 4), "bias": torch.zeros(6, dtype=torch.float64)}, "none": torch.zeros(0, 2)}
    fake.put(REF, {f"model.{name}" if name in ("weight", "bias") else name: value for name, value in fake.artifacts[REF].items()})
    before = len(fake.asked("Materialize"))
    dcp.load(state, storage_reader=TensorcastReader(REF, client=client))
    assert np.array_equal(state["model"]["weight"], pair[0]) and np.array_equal(state["model"]["bias"], pair[1])
    asked = fake.asked("Materialize")[before:]
    assert len(asked) == 1 and sorted(asked[0].load.view.names) == ["model.bias", "model.weight"]


@pytest.fixture
def many(fake, monkeypatch):
    """Eight tensors of 32 bytes, of which two are a load."""
    monkeypatch.setattr(tensorcast_client.dcp, "_BATCH_BYTES", 64)
    values = {f"w{i}": np.arange(i, i + 8, dtype=np.float32) for i in range(8)}
    fake.put(REF, {name: ("F32", value) for name, value in values.items()})
    return values


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_large_plan_is_several_requests_in_the_order_of_the_files(fake, client, many):
    state = {name: torch.zeros(8) for name in reversed(many)}
    dcp.load(state, storage_reader=TensorcastReader(REF, client=client))
    assert all(np.array_equal(state[name], value) for name, value in many.items())
    asked = sorted(list(request.load.view.names) for request in fake.asked("Materialize"))
    assert asked == [["w0", "w1"], ["w2", "w3"], ["w4", "w5"], ["w6", "w7"]]
    told = []
    dcp.load(state, storage_reader=TensorcastReader(REF, client=client, progress=lambda *step: told.append(step)))
    assert len(fake.asked("Materialize")) == 5 and [step[0] for step in told].count("done") == 1


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_large_plan_is_of_one_version_or_an_error(fake, client, many, monkeypatch):
    state, fill = {name: torch.zeros(8) for name in many}, tensorcast_client.dcp._Item.fill

    def replace_it(item, loaded, planner):
        if item.name == "w0":
            fake.put(REF, {name: ("F32", value + 100) for name, value in many.items()})
        fill(item, loaded, planner)

    monkeypatch.setattr(tensorcast_client.dcp._Item, "fill", replace_it)
    with pytest.raises(dcp.api.CheckpointException, match="was replaced while it was loaded; load it again"):
        dcp.load(state, storage_reader=TensorcastReader(REF, client=client))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_large_plan_has_one_deadline(fake, client, many):
    state = {name: torch.zeros(8) for name in many}
    with pytest.raises(dcp.api.CheckpointException, match="not done within the deadline"):
        dcp.load(state, storage_reader=TensorcastReader(REF, client=client, options=tc.Options(deadline=0)))
    dcp.load(state, storage_reader=TensorcastReader(REF, client=client, options=tc.Options(deadline=30)))
    assert all(np.array_equal(state[name], value) for name, value in many.items())


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_errors_of_planner_and_daemon_reach_the_caller(fake, client, pair):
    for state, word in ({"weigth": torch.zeros(6, 4)}, "Missing key in checkpoint state_dict: weigth"), \
            ({"weight": torch.zeros(4, 6)}, "Size mismatch .* for weight"):
        before = len(fake.asked("Materialize"))
        with pytest.raises(dcp.api.CheckpointException, match=word):
            dcp.load(state, storage_reader=TensorcastReader(REF, client=client))
        assert len(fake.asked("Materialize")) == before
    with pytest.raises(dcp.api.CheckpointException, match="disk:/models/nowhere"):
        dcp.load({"weight": torch.zeros(6, 4)}, storage_reader=TensorcastReader("disk:/models/nowhere", client=client))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_checkpoint_can_be_a_path_a_handle_or_a_view(fake, client, pair, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", fake.socket)
    artifact = client.artifact(REF)
    for source in ("/models/m", REF, artifact, artifact.view(), artifact.subset(["weight"])):
        state = {"weight": torch.zeros(6, 4)}
        dcp.load(state, storage_reader=TensorcastReader(source))
        assert np.array_equal(state["weight"], pair[0])
    state = {"weight": torch.zeros(2, 4)}
    dcp.load(state, storage_reader=TensorcastReader(artifact.view({"weight": (0, slice(2, 4))})))
    assert np.array_equal(state["weight"], pair[0][2:4])
    state = {"weight": torch.zeros(6, 4)}
    dcp.load(state, checkpoint_id="/models/m", storage_reader=TensorcastReader("disk:/models/other", client=client))
    assert np.array_equal(state["weight"], pair[0])
    with pytest.raises(ValueError, match="the variant of its artifact"):
        TensorcastReader(artifact.view(), variant={"version": 1, "steps": []}).read_metadata()
    with pytest.raises(ValueError, match="the recipe of a variant"):
        TensorcastReader(artifact, set={"k": 1})


@pytest.mark.skipif(not TENSORCASTD.exists(), reason=f"{TENSORCASTD} is not built")
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_rank_that_saved_nothing_has_no_shard(daemon):  # noqa: F811
    socket, models = daemon
    (models / "lonely").mkdir()
    weight = torch.arange(6.)
    save_file({"w": weight}, models / "lonely/shard-00002-model-00001-of-00001.safetensors",
              metadata={"DCP_SHARDING_INFO": '{"w": {"saved_offsets": [0]}}', "DCP_VERSION": "1.0", "format": "pt"})
    with tc.connect(socket) as client:
        state = {"w": torch.zeros(6)}
        with pytest.raises(dcp.api.CheckpointException, match="shard-00001 is missing"):
            dcp.load(state, storage_reader=TensorcastReader(models / "lonely", client=client))
        dcp.load(state, storage_reader=TensorcastReader(models / "lonely", client=client, options=tc.Options(allow_missing_shards=True)))
        assert torch.equal(state["w"], weight)


@pytest.mark.skipif(not TENSORCASTD.exists(), reason=f"{TENSORCASTD} is not built")
def test_meshes_of_two_and_four_ranks_load_what_the_others_have_saved(daemon):  # noqa: F811
    socket, models = daemon
    folder = models / "meshes"
    folder.mkdir()
    command = [sys.executable, ROOT / "tests/python/ranks.py", folder, socket, "4", "2"]
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True) as ranks:
        try:
            code = ranks.wait(240)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ranks.pid, signal.SIGKILL)
    assert code == 0, "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("log-*")))


@pytest.mark.skipif(not TENSORCASTD.exists(), reason=f"{TENSORCASTD} is not built")
def test_the_examples_shards_are_by_a_recipe_what_torch_makes_of_them(daemon):  # noqa: F811
    sys.path.insert(0, str(ROOT / "tests/support"))
    from consolidated import consolidate
    socket, models = daemon
    shards, plain, out = models / "tuned", models / "consolidated", models / "out.safetensors"
    subprocess.run([sys.executable, ROOT / "examples/save_shards.py", shards], check=True, timeout=300)
    plain.mkdir()
    consolidate(shards, plain)
    subprocess.run([TENSORCAST, "--socket", socket, "load", f"disk:{shards}", "--variant", "torchtitan-to-hf-llama", "--out", out, "--quiet"],
                   check=True, timeout=60)
    want, got = load_file(plain / "model.safetensors"), load_file(out)
    assert want.keys() == got.keys() and len(want) == 21
    for name, tensor in want.items():
        assert torch.equal(got[name].view(torch.int16), tensor.view(torch.int16)), name


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.skipif(not TENSORCASTD.exists(), reason=f"{TENSORCASTD} is not built")
def test_a_state_dict_is_filled_by_a_recipe(daemon):  # noqa: F811
    socket, models = daemon
    (models / "recipe").mkdir()
    weight, bias = torch.arange(24.).reshape(6, 4), torch.arange(6.)
    save_file({"a.weight": weight, "b.weight": weight + 100, "bias": bias}, models / "recipe/model.safetensors")
    recipe = {"version": 1, "steps": [{"concat": {"from": ["a.weight", "b.weight"], "to": "w", "dim": 0}}]}
    recipe["steps"] += [{"cast": {"tensors": ["*"], "dtype": "BF16"}}, {"rename": {"bias": "c"}}]
    with tc.connect(socket) as client:
        for reader in (TensorcastReader(models / "recipe", variant=recipe, client=client),
                       TensorcastReader(client.artifact(f"disk:{models}/recipe").variant(recipe))):
            state = {"w": torch.zeros(12, 4, dtype=torch.bfloat16), "c": torch.zeros(6)}
            dcp.load(state, storage_reader=reader)
            assert torch.equal(state["w"], torch.cat([weight, weight + 100]).bfloat16()) and torch.equal(state["c"], bias)
        with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: bias"):
            dcp.load({"bias": torch.zeros(6)}, storage_reader=TensorcastReader(models / "recipe", variant=recipe, client=client))
