"""From a trainer's shards to tokens: an engine that loads examples/save_shards.py's DCP shards by a recipe says what one says that
loads the files that torch consolidates of them, renamed and permuted by torch."""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from consolidated import consolidate  # noqa: E402


def write_adapter(folder, config):
    """A LoRA adapter that makes a difference."""
    hidden, generator = config["hidden_size"], torch.Generator().manual_seed(7)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn((8, hidden), generator=generator) / hidden ** 0.5
        tensors[f"{name}.lora_B.weight"] = torch.randn((hidden, 8), generator=generator)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj"],
                                                            "base_model_name_or_path": "tuned", "bias": "none"}))
    return folder


def test_an_engine_says_the_same_from_shards_as_after_consolidation(folder, models, python, warm):
    """With a LoRA adapter by reference, too, which is there after the model has slept and was loaded anew."""
    shards, plain = folder / "models/tuned", folder / "models/consolidated"
    status, _, said = warm.run(ROOT / "examples/save_shards.py", [str(shards)], {}, 300)
    assert status == 0, said
    assert len(list(shards.glob("shard-*.safetensors"))) == 4
    plain.mkdir()
    consolidate(shards, plain)
    options = {"variant": "torchtitan-to-hf-llama"}
    adapter = write_adapter(folder / "models/adapters/tuned", json.loads((plain / "config.json").read_text()))
    lora = {"TENSORCAST_LORA": f"disk:{folder}/models/adapters", "TENSORCAST_LORA_FOLDER": str(folder / "adapters")}
    slept = [["sleep", {"level": 1}], ["wake_up", {}], ["sleep", {"level": 2}], ["wake_up", {}], ["reload_weights", {}]]
    (ours,), log = python("engine.py", {"folder": str(shards), "size": 1, "load_format": "tensorcast", "options": options,
                                        "adapter": "tuned", "resolved": True, "then": slept}, anew=True, **lora)
    (theirs,), _ = python("engine.py", {"folder": str(plain), "size": 1, "load_format": "safetensors", "options": {}, "adapter": str(adapter)})
    tokens, (adapted,) = theirs["tokens"], theirs["adapted"]
    assert ours["tokens"] == [tokens] * 6 and ours["adapted"] == [adapted] * 6 and adapted != tokens and ours["errors"] == [None] * 5
    assert all(len(answer) == 16 for answer in tokens) and len({tuple(answer) for answer in tokens}) == 2 and "(rank 0 of 1): " in log
