"""tc.export: the command's options as keywords, its progress, its errors. The bytes are compared in tests/e2e/test_export.py."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from grpc import StatusCode
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import tensorcast_client as tc

COMMAND = Path(__file__).resolve().parents[2] / os.environ.get("TENSORCAST_BUILD", "build") / "tensorcast"

@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORCAST_BIN", str(COMMAND))
    (tmp_path / "m").mkdir()
    save_file({"w": np.arange(48, dtype=np.float32).reshape(8, 6), "n": np.arange(3)}, tmp_path / "m/model.safetensors")
    return f"disk:{tmp_path}/m"


def test_options_are_flags_and_lists_repeat(model, tmp_path):
    report = tc.export(model, tmp_path / "out", format="topology", world_size=2, tp_rule=["w=1", "*=replicate"], force=False, rank=None)
    assert report["format"] == "topology" and report["tensors"] == 2
    document = json.loads((tmp_path / "out/topology.json").read_text())
    assert [c["shape"] for c in document["tensors"]["w"]["chunks"]] == [[8, 3]] * 2
    tc.export(f"disk:{tmp_path}/out", str(tmp_path / "one"), force=True)
    assert np.array_equal(load_file(tmp_path / "one/model.safetensors")["w"], np.arange(48, dtype=np.float32).reshape(8, 6))


@pytest.mark.parametrize("value", [1, True, False, None, [], {}], ids=repr)
def test_an_option_that_there_is_not_is_a_type_error_whatever_its_value(model, tmp_path, value):
    with pytest.raises(TypeError, match="unexpected keyword argument 'forse'"):
        tc.export(model, tmp_path / "out", forse=value)
    assert not (tmp_path / "out").exists()


def test_a_mesh_may_be_a_dict_and_names_any_iterable(model, tmp_path):
    tc.export(model, tmp_path / "out", mesh={"a": 2, "b": 3}, mesh_rank=5, spec={"w": "a,b", "*": "-"}, tensor={"w": 1}.keys())
    assert load_file(tmp_path / "out/model.safetensors")["w"].tolist() == np.arange(48, dtype=np.float32).reshape(8, 6)[4:, 4:].tolist()
    assert list(load_file(tmp_path / "out/model.safetensors")) == ["w"]


@pytest.mark.parametrize("none", [{"tensor": []}, {"slice": ()}, {"tensor": set(), "slice": []}], ids=str)
def test_no_names_are_not_all_tensors(model, tmp_path, none):
    with pytest.raises(ValueError, match="no tensor"):
        tc.export(model, tmp_path / "out", **none)
    assert not (tmp_path / "out").exists()


def test_a_slice_is_a_name_where_no_tensor_is(model, tmp_path):
    assert tc.export(model, tmp_path / "out", tensor=[], slice="w[0:2, :]")["tensors"] == 1


def test_every_option_of_the_command_is_one_of_python():
    told = subprocess.run([COMMAND, "export", "--help"], capture_output=True, text=True, check=True).stdout
    words = {word.replace("-", "_") for word in re.findall(r"^  --([a-z-]+)", told, re.M)}
    assert words - {"help", "json", "out", "progress", "socket", "version"} == sys.modules["tensorcast_client.export"]._OPTIONS


def test_settings_of_a_recipe_are_a_dictionary(model, tmp_path):
    (tmp_path / "v.yaml").write_text("version: 1\nsteps: [{reshape: {tensors: [w], shape: ['${rows}', -1]}}]\n")
    tc.export(model, tmp_path / "out", variant=tmp_path / "v.yaml", set={"rows": 4})
    assert load_file(tmp_path / "out/model.safetensors")["w"].shape == (4, 12)


def test_a_recipe_a_mapping_and_a_view_are_files_or_dicts(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expected.json").write_text(json.dumps({"v": {"dtype": "F32", "shape": [8, 6]}, "n": {"dtype": "I64", "shape": [3]}}))
    recipe = {"version": 1, "steps": [{"rename": {"w": "${new}"}}, {"expect": "expected.json"}]}
    tc.export(model, "out", variant=recipe, set={"new": "v"}, mapping={"weight_map": {"v": "a.safetensors", "n": "b.safetensors"}})
    assert load_file("out/a.safetensors")["v"].shape == (8, 6) and list(load_file("out/b.safetensors")) == ["n"]
    tc.export(model, "part", view={"tensors": [{"name": "w", "slices": [[0, 2], [0, None]]}]})
    assert load_file("part/model.safetensors")["w"].shape == (2, 6)
    tc.export(model, "flat", variant={"version": 1, "steps": [{"reshape": {"tensors": ["w"], "shape": [np.int64(-1)]}}]})
    assert load_file("flat/model.safetensors")["w"].ndim == 1
    with pytest.raises(ValueError, match="step 1"):
        tc.export(model, "no", variant={"version": 1, "steps": [{"cast": {"tensors": ["w"], "dtype": "I8"}}]})
    with pytest.raises(ValueError, match="variant is no JSON"):
        tc.export(model, "no", variant={"version": 1, "steps": [{"drop": {1, 2}}]})


def test_progress_true_shows_a_bar(model, tmp_path, capfd):
    tc.export(model, tmp_path / "out", progress=True)
    assert "export" in capfd.readouterr().err


def test_progress_is_told_on_the_callers_thread_and_ends_with_everything(model, tmp_path):
    calls = []
    tc.export(model, tmp_path / "out", progress=lambda *args: calls.append(args))
    assert calls[-1] == ("export", 216, 216)


def test_what_a_callback_raises_ends_the_export(model, tmp_path):
    def stop(*args):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        tc.export(model, tmp_path / "out", progress=stop)
    assert tc.export(model, tmp_path / "other")["tensors"] == 2


def test_errors_are_those_of_the_client(model, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(tc.TensorcastError) as caught:
        tc.export(model, tmp_path / "full")
    assert caught.value.code is StatusCode.FAILED_PRECONDITION and "full is not empty" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        tc.export(f"disk:{tmp_path}/nothing", tmp_path / "out")
    with pytest.raises(ValueError, match="--mesh-rank"):
        tc.export(model, tmp_path / "out", mesh="x=2", spec="*=x")
    for reason, options in [("DOES_NOT_DIVIDE", {"format": "topology", "world_size": 4, "tp_rule": "w=1"}),
                            ("NO_SUCH_DIMENSION", {"format": "dcp", "world_size": 2, "tp_rule": "w=2"}),
                            ("DOES_NOT_DIVIDE", {"mesh": "x=5", "mesh_rank": 0, "spec": "w=x"}),
                            ("DOES_NOT_DIVIDE", {"tp_size": 5, "tp_rank": 0, "tp_rule": "w=0"}),
                            ("BAD_MAPPING", {"mapping": {"weight_map": {"n": "a.safetensors"}}}),
                            ("DUPLICATE_TENSOR", {"view": {"tensors": [{"name": "w"}, {"name": "w"}]}})]:
        with pytest.raises(ValueError) as caught:
            tc.export(model, tmp_path / "out", **options)
        assert (caught.value.reason, caught.value.metadata) == (reason, {"tensor": "w"}), caught.value
    assert not (tmp_path / "out").exists()


def test_a_command_that_is_nowhere_is_said(model, tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORCAST_BIN")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(tc.TensorcastError, match="TENSORCAST_BIN"):
        tc.export(model, tmp_path / "out")


def test_an_artifact_is_exported_as_its_recipes_make_it(model, tmp_path):
    art = tc.connect("unused").artifact(model)
    assert tc.export(art, tmp_path / "plain")["tensors"] == 2
    renamed = art.variant({"version": 1, "steps": [{"rename": {"w": "v"}}]})
    changed = renamed.variant({"version": 1, "steps": [{"cast": {"tensors": ["v"], "dtype": "BF16"}}]})
    assert tc.export(changed, tmp_path / "out")["tensors"] == 2
    with safe_open(tmp_path / "out/model.safetensors", "np") as file:
        assert sorted(file.keys()) == ["n", "v"] and file.get_slice("v").get_dtype() == "BF16"
    with pytest.raises(ValueError, match="has a recipe already"):
        tc.export(changed, tmp_path / "other", variant={"steps": []})
