"""Ranks of a tensor-parallel group by the usual names: whole heads, blocks with their scales, by every face."""
import json

import ml_dtypes
import numpy as np
import pytest

from checkpoints import digest, digests, read_back, write
from stage import soon

HEADS, KV_HEADS, DIM = 10, 5, 3
K, Q, V = (f"model.layers.1.self_attn.{p}_proj.weight" for p in "kqv")


@pytest.fixture
def attention(models):
    arrays = {Q: np.arange(HEADS * DIM * 4, dtype=np.float32).reshape(-1, 4), K: np.arange(KV_HEADS * DIM * 4, dtype=np.float32).reshape(-1, 4),
              V.replace("weight", "bias"): np.arange(KV_HEADS * DIM, dtype=np.float32)}
    write(models / "m", arrays)
    (models / "m/config.json").write_text(json.dumps({"text_config": {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}}))
    return arrays


def of_rank(arrays, rank):
    """On ten ranks."""
    kv = slice(rank // 2 * DIM, rank // 2 * DIM + DIM)
    return {Q: arrays[Q][rank * DIM:(rank + 1) * DIM], **{name: array[kv] for name, array in arrays.items() if name != Q}}


@pytest.mark.parametrize("where", [[], ["--standalone"]], ids=["daemon", "standalone"])
@pytest.mark.parametrize("what", ["m", "m/model.safetensors"])
def test_ranks_that_outnumber_heads_share_them(daemon, models, attention, where, what):
    for rank in (0, 1, 2, 9):
        told = daemon.cli.json("load", f"disk:{models}/{what}", "--tp-size", "10", "--tp-rank", rank, "--digest", *where)
        assert digests(told) == {name: digest(part) for name, part in of_rank(attention, rank).items()}


def test_an_export_of_one_rank_has_its_heads(daemon, models, attention, tmp_path):
    daemon.cli.ok("export", f"disk:{models}/m", "--tp-size", "10", "--tp-rank", "7", "--out", tmp_path / "o")
    got = read_back(tmp_path / "o/model.safetensors")
    assert {name: digest(array) for name, array in got.items()} == {name: digest(part) for name, part in of_rank(attention, 7).items()}


def test_a_variants_heads_are_those_of_its_source(daemon, models, attention, tmp_path):
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - rename: {'model.layers.*': 'l.*'}\n")
    told = daemon.cli.json("load", f"disk:{models}/m", "--variant", tmp_path / "r.yaml", "--dtype", "half", "--tp-size", "10", "--tp-rank", "3",
                           "--digest")
    assert digests(told) == {name.replace("model.layers.", "l."): digest(part.astype(np.float16)) for name, part in of_rank(attention, 3).items()}


def test_the_configuration_prewarms_what_the_ranks_load(start, models, attention):
    daemon = start(prewarm=[{"artifact": f"disk:{models}/m", "tp_size": 10}, {"artifact": f"disk:{models}/m", "tp_size": 4, "tp_rank": 0}])
    assert soon(lambda: sorted(row["state"] for row in daemon.cli.json("status")["prewarms"]) == ["done"] * 10 + ["failed"])
    assert daemon.cli.json("load", f"disk:{models}/m", "--tp-size", "10", "--tp-rank", "3")["from_replica"]
    failed = next(row for row in daemon.cli.json("status")["prewarms"] if row["state"] == "failed")
    assert "heads cannot be dealt out whole to 4 ranks" in failed["message"]


def test_a_file_is_prewarmed_with_the_heads_of_the_config_beside_it(start, models, attention):
    file = f"disk:{models}/m/model.safetensors"
    daemon = start(prewarm=[{"artifact": file, "tp_size": 10, "tp_rank": 5}])
    assert soon(lambda: [row["state"] for row in daemon.cli.json("status")["prewarms"]] == ["done"])
    assert daemon.cli.json("load", file, "--tp-size", "10", "--tp-rank", "5")["from_replica"]


def test_a_broken_config_is_refused_and_a_rule_does_without_it(daemon, models, attention):
    (models / "m/config.json").write_text('{"num_attention_heads": ')
    refused = daemon.cli.run("load", f"disk:{models}/m", "--tp-size", "5", "--tp-rank", "0")
    assert refused.status == "INVALID_ARGUMENT" and "config.json" in refused.err, refused
    told = daemon.cli.json("load", f"disk:{models}/m", "--tp-size", "5", "--tp-rank", "1", "--tp-rule", "*k_proj*=0", "--tensor", K, "--digest")
    assert digests(told) == {K: digest(attention[K][DIM:2 * DIM])}


def test_scales_go_with_the_blocks_of_a_rank(daemon, models):
    weight = np.arange(192 * 64).reshape(192, 64).astype(ml_dtypes.float8_e4m3fn)
    scale = np.arange(12, dtype=np.float32).reshape(6, 2)
    write(models / "f", {"a.up_proj.weight": weight, "a.up_proj.weight_scale_inv": scale})
    told = daemon.cli.json("load", f"disk:{models}/f", "--tp-size", "3", "--tp-rank", "1", "--digest")
    assert digests(told) == {"a.up_proj.weight": digest(weight[64:128]), "a.up_proj.weight_scale_inv": digest(scale[2:4])}
    refused = daemon.cli.run("load", f"disk:{models}/f", "--tp-size", "4", "--tp-rank", "1")
    assert refused.status == "INVALID_ARGUMENT" and "block of 32" in refused.err and "--tp-rule" in refused.err, refused


def test_several_matrices_in_one_tensor_are_refused_unless_a_rule_says_how(daemon, models):
    array = np.arange(48, dtype=np.float32).reshape(12, 4)
    write(models / "n", {"h.0.attn.query_key_value.weight": array})
    load = ["load", f"disk:{models}/n", "--tp-size", "2", "--tp-rank", "1", "--digest", "--json"]
    refused = daemon.cli.run(*load)
    assert refused.status == "INVALID_ARGUMENT" and "query_key_value" in refused.err and "--tp-rule" in refused.err, refused
    told = daemon.cli.json(*load[:-1], "--tp-rule", "*=replicate")
    assert digests(told) == {"h.0.attn.query_key_value.weight": digest(array)}
