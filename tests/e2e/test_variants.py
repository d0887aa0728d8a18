"""Variants by the command, the wire and the daemon: identity, replicas, budgets, restarts, and where errors point."""
import json
import struct

import grpc
import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import digest, digests, write
from stage import ROOT, MiB, soon
from wire import Wire

ROPE = [{"permute_rope": {"tensors": ["q"], "heads": 2, "to": "halves"}}]


def recipe(folder, *steps, name="recipe.yaml"):
    path = folder / name
    path.write_text("version: 1\nsteps:\n" + "".join(f"  - {json.dumps(step)}\n" for step in steps))
    return path


@pytest.fixture
def q(models):
    array = np.arange(48, dtype=np.float32).reshape(12, 4)
    write(models / "m", {"q": array, "n": np.ones(3, np.float32)})
    return array


def halves(array, heads):
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def test_a_variant_has_an_identity_of_its_own_however_it_is_spelled(daemon, models, q, tmp_path):
    plain, rope = (daemon.cli.json("inspect", f"disk:{models}/m", *more)["identity"] for more in ([], ["--variant", recipe(tmp_path, *ROPE)]))
    (tmp_path / "other.yaml").write_text("{steps: [{permute_rope: {to: halves, heads: 2, tensors: [q]}}], version: 1}")
    assert plain != rope == daemon.cli.json("inspect", f"disk:{models}/m", "--variant", tmp_path / "other.yaml")["identity"]
    assert rope == daemon.cli.json("inspect", f"disk:{models}/m", "--variant", tmp_path / "other.yaml", "--standalone")["identity"]


def test_replicas_are_shared_by_meaning_and_told_apart(daemon, models, q, tmp_path):
    load = lambda *more: daemon.cli.json("load", f"disk:{models}/m", *more, "--tensor", "q", "--digest")  # noqa: E731
    first, again = (load("--variant", recipe(tmp_path, *ROPE)) for _ in range(2))
    assert (first["from_replica"], again["from_replica"]) == (False, True)
    assert digests(first) == digests(again) == {"q": digest(halves(q, 2))}
    assert digests(load()) == {"q": digest(q)}
    daemon.cli.ok("release", f"disk:{models}/m")
    assert not load("--variant", recipe(tmp_path, *ROPE))["from_replica"], "a release means every variant"


def test_the_recipe_of_the_manual_fits_a_model_of_experts_as_the_hub_has_it(daemon, models, tmp_path):
    rng = np.random.default_rng(1)
    arrays = {"model.norm.weight": rng.standard_normal(4).astype(np.float32), "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    for i in range(4):
        arrays[f"model.layers.{i}.self_attn.q_proj.weight"] = rng.standard_normal((12, 4)).astype(np.float32)
        arrays |= {f"model.layers.{i}.mlp.experts.{j}.up_proj.weight": rng.standard_normal((3, 4)).astype(np.float32) for j in range(6)}
    write(models / "m", arrays)
    (models / "m/config.json").write_text('{"num_attention_heads": 2}')
    text = (ROOT / "docs/variants.md").read_text()
    (tmp_path / "recipe.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0])
    report = daemon.cli.json("load", f"disk:{models}/m", "--variant", tmp_path / "recipe.yaml", "--slice", "layers.3.moe.w3[5:6, :, :]", "--digest")
    assert digests(report) == {"layers.3.moe.w3": digest(arrays["model.layers.3.mlp.experts.5.up_proj.weight"].astype(ml_dtypes.bfloat16))}
    names = daemon.cli.ok("inspect", f"disk:{models}/m", "--variant", tmp_path / "recipe.yaml", "--names").out.split()
    assert sorted(names) == sorted(["norm.weight", *(f"layers.{i}.{name}" for i in range(4) for name in ("attention.wq.weight", "moe.w3"))])


def test_the_wire_takes_a_recipe_or_its_steps_alone(daemon, models, q):
    with daemon.channel() as channel:
        check_wire(Wire(channel), f"disk:{models}/m")
    assert daemon.at_rest()


def check_wire(wire, reference):
    resolve = lambda variant: wire.call("Resolve", wire.message("ResolveRequest", artifact=reference, variant=variant))  # noqa: E731
    spelled = [json.dumps(ROPE), json.dumps({"version": 1, "steps": ROPE}), json.dumps({"steps": ROPE, "version": 1}, indent=3)]
    assert len({resolve(text.encode()).identity for text in spelled}) == 1
    for bad, words in [(b"{", "variant"), (b"[7]", "step 1"), (b"\0", "variant"), (b" " * (MiB + 1), "1048576"), (b'[{"drop": ["z"]}]', "step 1"),
                       (b'[{"cast": {"tensors": ["n"], "dtype": "F16"}}, {"reshape": {"tensors": ["q"], "shape": [5]}}]', "step 2")]:
        with pytest.raises(grpc.RpcError) as caught:
            resolve(bad)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and words in caught.value.details(), caught.value


def test_a_result_that_is_larger_than_the_budget_is_refused_before_anything_is_allocated(start, models, tmp_path):
    write(models / "m", {"x.w1": np.zeros((1024, 256), np.float32)})
    daemon = start(memory={"host_budget": "16MiB"})
    variant = recipe(tmp_path, {"replicate_experts": {"tensors": ["*"], "experts": 1 << 14, "inter_dim": 1024}})
    before = daemon.resident()
    daemon.reset_peak()
    outcome = daemon.cli.run("load", f"disk:{models}/m", "--variant", variant)
    assert outcome.status == "RESOURCE_EXHAUSTED", outcome
    assert daemon.resident("VmHWM") - before < 16 * MiB
    report = daemon.cli.json("load", f"disk:{models}/m", "--variant", variant, "--slice", "x.w1[16383:, :2, :]", "--digest")
    assert digests(report) == {"x.w1": digest(np.zeros((1, 2, 256), np.float32))}
    shuffled = recipe(tmp_path, {"replicate_experts": {"tensors": ["*"], "experts": 1 << 14, "inter_dim": 1024, "shuffle_seed": 1}})
    for command in ["load", "prewarm"]:  # it would be more than eight million runs, too
        assert daemon.cli.run(command, f"disk:{models}/m", "--variant", shuffled).status == "RESOURCE_EXHAUSTED"
    assert daemon.cli.run("explain", f"disk:{models}/m", "--variant", shuffled).status == "UNIMPLEMENTED"


def test_a_restarted_daemon_makes_the_same(daemon, models, q, tmp_path):
    wanted = {"q": digest(halves(q, 2)), "n": digest(np.ones(3, np.float32))}
    for _ in range(2):
        assert digests(daemon.cli.json("load", f"disk:{models}/m", "--variant", recipe(tmp_path, *ROPE), "--digest")) == wanted
        daemon.stop()
        daemon.start()


def test_a_changed_file_is_another_variant(daemon, models, q, tmp_path):
    variant = recipe(tmp_path, *ROPE)
    first = daemon.cli.json("load", f"disk:{models}/m", "--variant", variant, "--digest")
    write(models / "m", {"q": q + 1, "n": np.ones(3, np.float32)})
    second = daemon.cli.json("load", f"disk:{models}/m", "--variant", variant, "--digest")
    assert first["identity"] != second["identity"] and digests(second)["q"] == digest(halves(q + 1, 2))


def test_errors_point_at_the_line_with_and_without_a_daemon(daemon, models, q, tmp_path):
    variant = recipe(tmp_path, {"rename": {"n": "m"}}, {"reshape": {"tensors": ["q"], "shape": [5, -1]}})
    for command in ["inspect", "load", "explain", "prewarm"]:
        for more in [[], ["--standalone"]][:1 if command == "prewarm" else 2]:
            outcome = daemon.cli.run(command, f"disk:{models}/m", "--variant", variant, *more)
            assert outcome.status == "INVALID_ARGUMENT" and f"{variant}:4: step 2 (reshape): tensor q" in outcome.err, outcome
    outcome = daemon.cli.run("load", f"disk:{models}/m", "--variant", recipe(tmp_path, *ROPE), "--set", "unused=1")
    assert outcome.status == "INVALID_ARGUMENT" and "unused" in outcome.err
    assert daemon.cli.run("load", f"disk:{models}/m", "--set", "a=1").code == 2


def test_a_recipe_may_begin_with_a_byte_order_mark_and_has_at_most_512_steps(daemon, models, q, tmp_path):
    steps = "version: 1\nsteps:\n" + "- drop: [x]\n  optional: true\n" * 512
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + steps.encode())
    daemon.cli.ok("inspect", f"disk:{models}/m", "--variant", path)
    assert "q" in tc.connect(daemon.socket).artifact(f"disk:{models}/m").variant(path).tensor_names
    path.write_text(steps + "- drop: [x]\n")
    outcome = daemon.cli.run("inspect", f"disk:{models}/m", "--variant", path)
    assert outcome.status == "INVALID_ARGUMENT" and f"{path}: a recipe has at most 512 steps" in outcome.err, outcome


def test_elements_are_converted_eight_times_and_not_once_more(daemon, models, q, tmp_path):
    casts = [{"cast": {"tensors": ["q"], "dtype": dtype}} for dtype in ["BF16", "F32"] * 5]
    report = daemon.cli.json("load", f"disk:{models}/m", "--variant", recipe(tmp_path, *casts[:8]), "--tensor", "q", "--digest")
    assert digests(report) == {"q": digest(q)}
    outcome = daemon.cli.run("explain", f"disk:{models}/m", "--variant", recipe(tmp_path, *casts[:9]))
    assert outcome.status == "UNIMPLEMENTED" and "its elements are converted too often" in outcome.err


def write_quantized(path, n):
    """n weights of one element, each with a scale of its own."""
    entries = ",".join(f'"w{i}":{{"dtype":"F8_E4M3","shape":[1,1],"data_offsets":[{5 * i},{5 * i + 1}]}},'
                       f'"w{i}_s":{{"dtype":"F32","shape":[1,1],"data_offsets":[{5 * i + 1},{5 * i + 5}]}}' for i in range(n))
    header = f"{{{entries}}}".encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(5 * n))


@pytest.mark.parametrize("more", [0, 1])
def test_a_view_has_262143_conversions_and_not_one_more(start, models, tmp_path, more):
    daemon = start(memory={"metadata_budget": "2GiB"})
    write_quantized(models / "m.safetensors", (1 << 18) - 1 + more)
    variant = recipe(tmp_path, {"dequantize": {"tensors": ["w*"], "scale": "{tensor}_s", "block": [1, 1], "dtype": "F32"}})
    outcome = daemon.cli.run("explain", f"disk:{models}/m.safetensors", "--variant", variant)
    assert outcome.status == ("UNIMPLEMENTED" if more else None), outcome.err
    assert not more or "more than 262144 different conversions" in outcome.err


def test_a_tensor_is_unstacked_into_four_million_at_most(start, models, tmp_path):
    daemon = start(memory={"metadata_budget": "256MiB"})
    unstack = recipe(tmp_path, {"unstack": {"from": "w", "to": "w.{}", "dim": 0}})
    for more, told in [(0, "raise memory.metadata_budget"), (1, "4194305 are too many tensors")]:
        write(models / f"m{more}", {"w": np.zeros(((1 << 22) + more, 0), np.float32)})
        assert told in daemon.cli.run("explain", f"disk:{models}/m{more}", "--variant", unstack).err
    assert daemon.at_rest()


def test_an_index_document_of_a_variant_is_refused(daemon, models, q, tmp_path):
    outcome = daemon.cli.run("inspect", f"disk:{models}/m", "--variant", recipe(tmp_path, *ROPE), "--index", "canonical")
    assert outcome.status == "UNIMPLEMENTED"


def test_the_built_in_recipes_are_listed_for_people_and_programs(daemon):
    names = [variant["name"] for variant in daemon.cli.json("variants")["variants"]]
    assert names == ["hf-llama-to-torchtitan", "torchtitan-to-hf-llama", "moe-upcycle", "fp8-block-to-bf16"]
    assert all(name in daemon.cli.ok("variants").out for name in names)


@pytest.mark.parametrize("executor", ["generic", "local"])
def test_memory_of_one_variant_is_never_a_wrong_source_for_another(daemon, models, tmp_path, executor):
    """While one is held, the next one's blocks may be copied out of it: only where they are what the file has."""
    a = np.random.default_rng(1).standard_normal((2048, 1024)).astype(np.float32)
    write(models / "m", {"a": a, "b": np.random.default_rng(2).standard_normal((512, 1024)).astype(np.float32)})
    half = digest(a.astype(np.float16))
    variants = [([], digest(a)), ([{"cast": {"tensors": ["a"], "dtype": "F16"}}], half),
                ([{"transpose": {"tensors": ["a"], "dims": [1, 0]}}], digest(a.T.copy())),
                ([{"permute_rope": {"tensors": ["a"], "heads": 8, "to": "halves"}}], digest(halves(a, 8))), ([{"rename": {"b": "c"}}], digest(a)),
                ([{"slice": {"tensors": ["a"], "slices": [[7, 2000], [3, 1000]]}}], digest(a[7:2000, 3:1000].copy()))]
    paths = [recipe(tmp_path, *steps, name=f"{i}.yaml") if steps else None for i, (steps, _) in enumerate(variants)]
    holders = []
    for order in [range(len(variants)), reversed(range(len(variants)))]:
        for i in order:
            more = ["--variant", paths[i]] if paths[i] else []
            report = daemon.cli.json("load", f"disk:{models}/m", *more, "--digest", "--executor", executor)
            assert digests(report)["a"] == variants[i][1], i
            holders.append(daemon.cli.spawn("load", f"disk:{models}/m", *more, "--hold", "60"))
            assert soon(lambda: daemon.status()["leases"] == len(holders))  # noqa: B023
        for holder in holders:
            holder.kill()
            holder.communicate()
        holders.clear()
        daemon.cli.ok("release", "--all")
