"""From a trainer's shards to tokens: an engine that loads examples/save_shards.py's DCP shards by a recipe says what one says that
loads the files that torch consolidates of them, renamed and permuted by torch."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from consolidated import consolidate  # noqa: E402


def test_an_engine_says_the_same_from_shards_as_after_consolidation(folder, models, python):
    shards, plain = folder / "models/tuned", folder / "models/consolidated"
    subprocess.run([sys.executable, ROOT / "examples/save_shards.py", shards], check=True, timeout=300)
    assert len(list(shards.glob("shard-*.safetensors"))) == 4
    plain.mkdir()
    consolidate(shards, plain)
    options = {"variant": "torchtitan-to-hf-llama"}
    (ours,), log = python("engine.py", {"folder": str(shards), "size": 1, "load_format": "tensorcast", "options": options})
    (theirs,), _ = python("engine.py", {"folder": str(plain), "size": 1, "load_format": "safetensors", "options": {}})
    assert ours == theirs and all(len(tokens) == 16 for tokens in ours["tokens"])
    assert len({tuple(tokens) for tokens in ours["tokens"]}) == 2 and "tensorcast rank 0 of 1: needed" in log
