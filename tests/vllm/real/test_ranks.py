"""Every parameter and buffer of every family, on one rank and on both of two, against vLLM's default loader; what was asked
for against a rule written by hand; and that the comparison would notice."""
import math
import re

import checkpoints
import pytest

FAMILIES = sorted(checkpoints.FAMILIES)
SIZES = (1, 2)
# checkpoints that are fused on disk may read a little between their parts
MAX_OVERREAD = {"phi3": 1.25}


def cases_of(size, models, folder):
    llama, nowhere = str(models["llama"][0]), str(folder / "nowhere.sock")
    more = {
        1: {"broken": {"folder": str(models["broken"][0]), "options": {}},
            "unavailable": {"folder": llama, "options": {"socket": nowhere}},
            "fallback": {"folder": llama, "options": {"socket": nowhere, "fallback": "if_unavailable"}}},
        2: {"copied": {"folder": llama, "options": {"adopt": "never"}},
            "verified": {"folder": llama, "options": {"verify": True}},
            "together": {"folder": llama, "options": {"collective_policy": "require_collective", "source_locality": "shared_source"}},
            "wrong": {"folder": llama, "options": {}, "wrong": "layers.1.self_attn.k_proj"},
            "wrong and verified": {"folder": llama, "options": {"verify": True}, "wrong": "layers.1.self_attn.k_proj"}},
    }
    return {**{family: {"folder": str(models[family][0]), "options": {}} for family in FAMILIES}, **more[size]}


def each(reports, size, case):
    return [report["cases"][case] for report in reports[size]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_every_parameter_is_that_of_the_default_loader(reports, family, size):
    for report in each(reports, size, family):
        assert report["differ"] == [] and report["compared"] > 30 and report["real"] == {}


def part(extent, rank, size):
    """(start, stop) of this rank's equal part."""
    return rank * extent // size, (rank + 1) * extent // size


def padded_rows(vocab, rank, size):
    """This rank's part of a vocabulary that is padded to a multiple of 64."""
    start, stop = part(-(-vocab // 64) * 64, rank, size)
    return start, min(stop, vocab)


def expected(name, shape, rank, size):
    """The boxes of a tensor that a rank needs: the rule of tensor parallelism, by name, as a person would write it."""
    whole = [(0, extent) for extent in shape]
    layer = name.split(".")[-2] if "weight" in name.split(".")[-1] else name
    by_column = layer in ("o_proj", "down_proj", "w2")
    if layer in ("lm_head", "embed_tokens"):
        return [[padded_rows(shape[0], rank, size), whole[1]]]
    if layer == "qkv_proj":
        heads, kv, head = checkpoints.HEADS, checkpoints.KV_HEADS, checkpoints.HEAD
        starts = (0, heads * head), (heads * head, (heads + kv) * head), ((heads + kv) * head, (heads + 2 * kv) * head)
        return [[shifted(start, part(stop - start, rank, size)), whole[1]] for start, stop in starts]
    if layer == "gate_up_proj":
        return [[shifted(start, part(shape[0] // 2, rank, size)), whole[1]] for start in (0, shape[0] // 2)]
    if layer in ("k_proj", "v_proj") and shape[0] == checkpoints.HEAD:  # one head, which every rank has
        return [whole]
    if layer in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3"):
        return [[part(shape[0], rank, size), *whole[1:]]]
    if by_column and name.endswith("weight"):
        return [[whole[0], part(shape[1], rank, size)]]
    return [whole]


def shifted(by, bounds):
    return by + bounds[0], by + bounds[1]


def exact_bytes(tensors, rank, size):
    return sum(tensor.element_size() * sum(math.prod(stop - start for start, stop in box)
                                           for box in expected(name, tensor.shape, rank, size))
               for name, tensor in tensors.items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_each_rank_asks_for_what_the_rule_says_and_hardly_more(reports, models, family, size):
    tensors = models[family][1]
    for rank, report in enumerate(each(reports, size, family)):
        assert {name for name, _ in report["boxes"]} == set(tensors)
        exact = exact_bytes(tensors, rank, size)
        assert exact <= report["bytes"] <= exact * MAX_OVERREAD.get(family, 1.02)
        if family not in MAX_OVERREAD:
            for name, box in report["boxes"]:
                assert [tuple(bounds) for bounds in zip(*box)] == [*expected(name, tensors[name].shape, rank, size)[0]], name


def test_a_wrong_slice_is_noticed_and_named(reports):
    first, second = each(reports, 2, "wrong")
    assert first["differ"] == [] and second["differ"] == ["model.layers.1.self_attn.qkv_proj.weight"]


def test_the_verify_option_notices_it_too(reports):
    first, second = each(reports, 2, "wrong and verified")
    assert first["differ"] == []
    assert "verify: 1 parameters differ" in second["errors"]["tensorcast"]
    assert "model.layers.1.self_attn.qkv_proj.weight" in second["errors"]["tensorcast"]
    assert [report["differ"] for report in each(reports, 2, "verified")] == [[], []]


def test_copied_parameters_are_the_same(reports):
    for report in each(reports, 2, "copied"):
        assert report["differ"] == [] and report["adopted_bytes"] == 0 and report["copied_bytes"] == report["bytes"]


def test_nearly_all_of_a_llama_is_adopted_without_a_copy(reports):
    for report in each(reports, 2, "llama"):
        assert report["adopted_bytes"] > 0.95 * report["bytes"]


def test_ranks_that_are_told_to_load_together_meet_in_the_daemon(reports):
    """The policy is an error where they do not."""
    assert [report["differ"] for report in each(reports, 2, "together")] == [[], []]
    for rank in (0, 1):
        assert re.search(rf"rank {rank} of 2: .*, a collective hint \(collective_policy is require_collective\)", reports["log"])


def test_a_missing_tensor_is_the_error_of_the_default_loader(reports):
    (report,) = each(reports, 1, "broken")
    assert report["errors"]["tensorcast"] == report["errors"]["safetensors"]
    assert "model.norm.weight" in report["errors"]["tensorcast"]


def test_without_a_daemon_the_error_says_where_it_was_looked_for(reports):
    (report,) = each(reports, 1, "unavailable")
    assert "no daemon answers on" in report["errors"]["tensorcast"] and "nowhere.sock" in report["errors"]["tensorcast"]


def test_without_a_daemon_the_default_loader_helps_if_asked_to(reports):
    (report,) = each(reports, 1, "fallback")
    assert report["differ"] == [] and "boxes" not in report
