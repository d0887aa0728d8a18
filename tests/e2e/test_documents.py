"""What stands beside tensors that were made anew is true of them: exports, folders, and what the clients get of a variant."""
import json

import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import dtypes

from checkpoints import write

PLAIN = {"model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_size": 96}
FP8 = {**PLAIN, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


@pytest.fixture
def fp8(models):
    weight = np.arange(96 * 40).reshape(96, 40).astype(ml_dtypes.float8_e4m3fn)
    write(models / "q", {"l.weight": weight, "l.weight_scale_inv": np.full((1, 1), 2, np.float32), "n": np.ones(3, ml_dtypes.bfloat16)})
    (models / "q/config.json").write_text(json.dumps(FP8))
    (models / "q/hf_quant_config.json").write_text("{}")
    (models / "q/tokenizer.json").write_text("[]")
    return f"disk:{models}/q"


@pytest.fixture
def full(models):
    write(models / "f", {"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float32), "i": np.ones(2, np.int64)})
    (models / "f/config.json").write_text('{"dtype": "float32",\n "text_config": {"dtype": "float32"} }')
    return f"disk:{models}/f"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def config(folder):
    return json.loads((folder / "config.json").read_text())


def exported(daemon, reference, out, *more):
    return daemon.cli.ok("export", reference, "--out", out, *more)


def test_an_export_that_made_everything_plain_says_so(daemon, fp8, tmp_path):
    done = exported(daemon, fp8, tmp_path / "o", "--variant", "fp8-block-to-bf16")
    assert config(tmp_path / "o") == PLAIN and names(tmp_path / "o") == ["config.json", "model.safetensors", "tokenizer.json"]
    assert "quantization_config" in done.err


def test_a_client_that_asks_for_the_documents_of_a_variant_gets_those(daemon, fp8, tmp_path):
    with tc.connect(f"unix:{daemon.socket}") as client:
        art = client.artifact(fp8)
        art.fetch_sidecars(tmp_path / "stored")
        assert config(tmp_path / "stored") == FP8 and "hf_quant_config.json" in names(tmp_path / "stored")
        made = art.variant("fp8-block-to-bf16")
        fetched = made.fetch_sidecars(tmp_path / "made")
        assert config(tmp_path / "made") == PLAIN and names(tmp_path / "made") == ["config.json", "tokenizer.json"]
        assert fetched == made.sidecars() and {file.name: file.bytes for file in fetched}["config.json"] == len(json.dumps(PLAIN))
        single = made.variant(dtypes.cast_recipe("float16")).fetch_sidecars(tmp_path / "half", ["config.json"])
        assert config(tmp_path / "half") == {**PLAIN, "torch_dtype": "float16"} and len(single) == 1
        renamed = art.variant({"version": 1, "steps": [{"rename": {"n": "m"}}]}).fetch_sidecars(tmp_path / "renamed")
        assert (tmp_path / "renamed/config.json").read_text() == json.dumps(FP8) and len(renamed) == 3


def test_a_recipe_that_does_not_fit_is_refused_for_documents_as_for_tensors(daemon, fp8, tmp_path):
    with tc.connect(f"unix:{daemon.socket}") as client, pytest.raises(tc.InvalidRequestError, match="nobody"):
        client.artifact(fp8).variant({"version": 1, "steps": [{"drop": ["nobody"]}]}).fetch_sidecars(tmp_path)


def test_a_cast_of_everything_is_written_into_every_part_of_the_configuration(daemon, full, tmp_path):
    exported(daemon, full, tmp_path / "o", "--dtype", "half")
    assert (tmp_path / "o/config.json").read_text() == '{"dtype": "float16",\n "text_config": {"dtype": "float16"} }'
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - cast: {tensors: ['*'], dtype: bfloat16}\n")
    exported(daemon, full, tmp_path / "v", "--variant", tmp_path / "r.yaml")
    assert config(tmp_path / "v") == {"dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}}
    for command in ("fuse", "reshard"):
        daemon.cli.ok(command, full, "--dtype", "float64", "-o", tmp_path / command, *(["-t", 2] if command == "reshard" else []))
        assert config(tmp_path / command)["dtype"] == "float64"


def test_a_configuration_that_was_wrong_before_is_right_after_a_cast(daemon, models, tmp_path):
    write(models / "b", {"a": np.ones(3, ml_dtypes.bfloat16)})
    (models / "b/config.json").write_text('{"dtype": "float32"}')
    exported(daemon, f"disk:{models}/b", tmp_path / "o", "--dtype", "bf16")
    assert config(tmp_path / "o") == {"dtype": "bfloat16"}


def test_a_cast_of_a_part_is_told_and_changes_nothing(daemon, full, models, tmp_path):
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - cast: {tensors: [a], dtype: F16}\n")
    done = exported(daemon, full, tmp_path / "o", "--variant", tmp_path / "r.yaml")
    assert (tmp_path / "o/config.json").read_bytes() == (models / "f/config.json").read_bytes()
    assert "config.json still says F32, and 1 of 2 floating-point tensors are F16" in done.err


def test_a_model_that_stays_quantized_keeps_what_it_says(daemon, fp8, models, tmp_path):
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - cast: {tensors: [n], dtype: F32}\n")
    exported(daemon, fp8, tmp_path / "o", "--variant", tmp_path / "r.yaml")
    assert config(tmp_path / "o")["quantization_config"] == FP8["quantization_config"] and "hf_quant_config.json" in names(tmp_path / "o")


def test_no_index_comes_along_and_what_is_only_called_so_does(daemon, full, models, tmp_path):
    for name in ("model.safetensors.index.fp16.json", "other.index.x.json"):
        (models / "f" / name).write_text(json.dumps({"metadata": {}, "weight_map": {"a": "model.safetensors"}}))
    (models / "f/search.index.v2.json").write_text('{"words": {}}')
    exported(daemon, full, tmp_path / "o")
    assert names(tmp_path / "o") == ["config.json", "model.safetensors", "search.index.v2.json"]
