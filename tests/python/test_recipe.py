"""Variants: what of a recipe is done here, what goes to the daemon, and where its complaints point."""
import json

import grpc
import numpy as np
import pytest

import tensorcast_client as tc
from tensorcast_client import dtypes
from fake_daemon import Refused

REF = "disk:/models/m"
CONFIG = {"num_attention_heads": 4, "rope": {"theta": 1}, "name": "llama", "scale": 0.5, "tied": True, "nothing": None}


@pytest.fixture
def art(fake, client):
    fake.put(REF, {"w": ("F32", np.arange(24, dtype=np.uint32).reshape(6, 4))})
    content = json.dumps(CONFIG).encode()
    fake.sidecars = [("list", {"config.json": len(content)}), ("chunk", 0, 0, content)]
    return client.artifact(REF)


def write(folder, text, name="recipe.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def sent(variant):
    return json.loads(variant.variant_json())


def steps_of(variant):
    assert sent(variant)["version"] == 1
    return sent(variant)["steps"]


def refused(call, *words):
    with pytest.raises(tc.InvalidRequestError) as caught:
        call()
    assert all(str(word) in str(caught.value) for word in words), caught.value
    return caught.value


def test_every_request_about_a_variant_carries_its_recipe_and_none_without_one_does(fake, art):
    variant = art.variant({"version": 1, "steps": [{"rename": {"a": "b"}}]})
    for source in (art, variant):
        source.describe()
        source.subset(["w"]).explain()
        source.tensor_dict(framework="numpy").close()
    asked = [request if name == "Resolve" else request.load for name, request in fake.requests]
    assert [bool(request.variant) for request in asked] == [False] * 3 + [True] * 3
    assert {request.variant for request in asked[3:]} == {b'{"version":1,"steps":[{"rename":{"a":"b"}}]}'}


def test_an_artifact_and_its_variants_are_remembered_apart(fake, client, art):
    recipe = {"version": 1, "steps": []}
    for source in (art, art.variant(recipe), client.artifact(REF).variant(recipe), client.artifact(REF).variant({**recipe, "steps": [1]})):
        source.describe()
    assert [request.known_identity for request in fake.asked("Resolve")] == ["", "", REF + "#1", ""]


def test_a_variant_of_a_variant_has_the_steps_of_both(art):
    both = art.variant({"version": 1, "steps": [{"a": "${k}"}]}, set={"k": 1}).variant({"version": 1, "steps": [{"b": "${k}"}]}, set={"k": 2})
    assert steps_of(both) == [{"a": 1}, {"b": 2}]
    assert sent(art.variant({"version": 1, "steps": []}).variant({"version": 2, "steps": []}))["version"] == 2
    assert "version" not in sent(art.variant({"steps": []}).variant({"version": 1, "steps": []}))


def test_a_variable_is_what_the_caller_says_or_else_the_configuration(art):
    recipe = {"version": 1, "steps": [{"heads": "${num_attention_heads}", "x": ["a ${name} b ${num_attention_heads}", "${scale}", "${tied}",
                                                                               "${nothing:-8}"], "k.${name}": 1}]}
    assert steps_of(art.variant(recipe)) == [{"heads": 4, "x": ["a llama b 4", 0.5, True, 8], "k.llama": 1}]
    assert steps_of(art.variant(recipe, set={"num_attention_heads": "8", "name": "${tied}"})) == [
        {"heads": 8, "x": ["a ${tied} b 8", 0.5, True, 8], "k.${tied}": 1}]


def test_a_variable_may_have_a_default_and_without_one_has_to_be_known(art):
    step = {"a": "${x:-3}", "b": "${x:-null}", "c": "${x:-y z}", "d": "${x:-1234567890123456789}"}
    assert steps_of(art.variant({"version": 1, "steps": [step]})) == [{"a": 3, "b": None, "c": "y z", "d": 1234567890123456789}]
    refused(art.variant({"version": 1, "steps": [{}, {"a": "${nothing}"}]}).variant_json, "step 2", "${nothing}", "config.json")
    refused(art.variant({"version": 1, "steps": [{"a": "${rope:-1}"}]}).variant_json, "step 1", "${rope}", "a mapping", "config.json")
    assert steps_of(art.variant({"version": 1, "steps": [{"a": "${x}", "b": "l.${x}.${y:-08}"}]}, set={"x": "007"})) == [{"a": 7, "b": "l.007.08"}]
    counted = art.variant({"version": 1, "steps": [{"a": np.int64(2), "b": "${x}", "c": "l.${x}"}]}, set={"x": np.uint8(3)})
    assert steps_of(counted) == [{"a": 2, "b": 3, "c": "l.3"}]


def test_a_value_that_the_recipe_has_no_use_for_is_refused(art):
    known = {"experts": 4, "inter_dim": 2}
    error = refused(art.variant("moe-upcycle", set={**known, "shufle_seed": 42}).variant_json, "moe-upcycle", "${shufle_seed}")
    assert error.reason == "UNKNOWN_SETTING"
    of_both = art.variant({"version": 1, "steps": []}, set={"k": 1}).variant({"version": 1, "steps": [{"a": "${k}"}]}, set={"k": 1})
    refused(of_both.variant_json, "${k}")


def test_the_configuration_is_asked_for_only_when_it_is_needed(fake, art):
    art.variant({"version": 1, "steps": [{"a": "${x}"}]}, set={"x": 1}).variant_json()
    assert not fake.asked("FetchSidecars")


def test_an_artifact_without_a_configuration_has_no_values(fake, art):
    fake.sidecars, fake.fail = [], Refused(grpc.StatusCode.NOT_FOUND, "there is none", "NO_SUCH_SIDECAR")
    refused(art.variant({"version": 1, "steps": [{"a": "${x}"}]}).variant_json, "${x}")


def test_yaml_means_what_its_core_schema_says(art, tmp_path):
    path = write(tmp_path, "version: 1\nsteps:\n- {a: yes, b: 'no', c: 0x10, d: 1e3, e: ~, f: True, g: '12', h: -7, i: 2001-01-01}\n"
                 "- {a: !!str 5, b: [1, {c: d}], 1: x}\n")
    assert steps_of(art.variant(path)) == [
        {"a": "yes", "b": "no", "c": 16, "d": 1000.0, "e": None, "f": True, "g": "12", "h": -7, "i": "2001-01-01"},
        {"a": "5", "b": [1, {"c": "d"}], "1": "x"}]


def test_an_alias_stands_for_the_value_that_had_its_anchor_last(art, tmp_path):
    path = write(tmp_path, "version: 1\nsteps:\n- {a: &x one, b: *x, c: &x 2, d: [*x, &y yes, *y]}\n- {&k key: *x, f: *k}\n")
    with_key = {"key": 2, "f": "key"}
    assert steps_of(art.variant(path))[0] == {"a": "one", "b": "one", "c": 2, "d": [2, "yes", "yes"]}
    assert steps_of(art.variant(path))[1] == with_key


def test_a_variable_has_a_key_as_on_the_command_line(art, tmp_path):
    path = write(tmp_path, "version: 1\nsteps:\n- drop: ['${a b}', '${}', '${a', '${a.b-c_1:-d e}']\n")
    assert steps_of(art.variant(path, set={})) == [{"drop": ["${a b}", "${}", "${a", "d e"]}]


def test_json_is_read_too(art, tmp_path):
    path = write(tmp_path, json.dumps({"version": 1, "steps": [{"drop": ["x"]}]}, indent=2), "recipe.json")
    assert steps_of(art.variant(str(path))) == [{"drop": ["x"]}]


@pytest.mark.parametrize("text, line, complaint", [
    ("version: 1\nsteps: []\n---\nversion: 1\n", 3, "a second document"),
    ("version: 1\nsteps:\n- drop: &x [a]\n- drop: *x\n", 4, "alias"),
    ("version: 1\nsteps:\n- drop: [&x a]\n- drop: &x [a]\n- drop: [*x]\n", 5, "alias"),
    ("version: 1\nversion: 1\n", 2, "occurs twice"),
    ("version: 1\nsteps:\n- drop: !!python/object:os.system [a]\n", 3, "tag"),
    ("version: 1\nsteps:\n- drop: !!int x\n", 3, "tag"),
    ("version: 1\nsteps:\n- drop: [a, -.inf]\n", 3, "-.inf"),
    ("version: 1\nsteps:\n- drop:\n  - .nan\n", 4, ".nan"),
    ("version: 1\nsteps:\n- drop: [a\n", 4, ""),
    ("version: 1\nsteps: " + "[" * 64 + "]" * 64 + "\n", 2, "nested"),
    ("version: 1\n? [a]\n: b\n", 2, "key"),
])
def test_yaml_that_no_recipe_needs_is_refused_with_its_line(art, tmp_path, text, line, complaint):
    path = write(tmp_path, text)
    refused(lambda: art.variant(path), f"{path}:{line}: ", complaint)


def test_nesting_up_to_the_limit_is_taken(art, tmp_path):
    path = write(tmp_path, "version: 1\nsteps: " + "[" * 63 + "]" * 63 + "\n")
    assert steps_of(art.variant(path))


def test_what_is_no_recipe_is_refused(art, tmp_path):
    refused(lambda: art.variant("no-such-recipe"), "no-such-recipe", "fp8-block-to-bf16")
    refused(lambda: art.variant(7), "7")
    refused(lambda: art.variant({}, set=["a=b"]), "set")
    (tmp_path / "latin").write_bytes(b"version: \xff")
    refused(lambda: art.variant(tmp_path / "latin"), "UTF-8")
    refused(art.variant({"version": 1, "steps": [{"a": object()}]}).variant_json, "JSON")
    refused(art.variant({"version": 1, "steps": [{"a": float("nan")}]}).variant_json, "JSON")


def test_types_may_be_objects_of_numpy_and_others(art):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for given, name in [(np.float16, "F16"), (np.dtype("f8"), "F64"), (ml_dtypes.bfloat16, "BF16"), (np.dtype(ml_dtypes.float8_e5m2), "F8_E5M2")]:
        assert steps_of(art.variant({"version": 1, "steps": [{"cast": {"tensors": ["w"], "dtype": given}}]}))[0]["cast"]["dtype"] == name


def test_names_of_types_are_read_as_the_daemon_reads_them():
    for given, name in [("float64", "F64"), ("np.float16", "F16"), ("torch.BFloat16", "BF16"), ("fp8_e5m2", "F8_E5M2"), ("Half", "F16"),
                        ("i2", "I16"), ("F4", "F4"), (np.int8, "I8"), (np.dtype("f8"), "F64")]:
        assert dtypes.read_name(given) == name
    for given in ("", "torch.", "fp8", "f4", "f8", "i8", "u8", "int", None, 16, np.zeros(2), np.dtype("V3")):
        refused(lambda given=given: dtypes.read_name(given), "F8_E5M2FNUZ", repr(given))
    refused(lambda: dtypes.read_name("torch.flaot64"), "did you mean F64?")


def test_a_mebibyte_of_json_is_sent_and_one_byte_more_is_not(art):
    rest = len(json.dumps({"version": 1, "steps": [{"a": ""}]}, separators=(",", ":")))
    assert len(art.variant({"version": 1, "steps": [{"a": "x" * ((1 << 20) - rest)}]}).variant_json()) == 1 << 20
    refused(art.variant({"version": 1, "steps": [{"a": "x" * ((1 << 20) - rest + 1)}]}).variant_json, "1048577", "1048576")


def test_what_is_expected_may_be_a_file_beside_the_recipe(art, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/shapes.json").write_text('{"w": {"shape": [6, 4], "dtype": "F32"}}')
    path = write(tmp_path, "version: 1\nsteps:\n- {expect: deep/shapes.json, allow_extra: true}\n")
    assert steps_of(art.variant(path)) == [{"expect": {"w": {"shape": [6, 4], "dtype": "F32"}}, "allow_extra": True}]
    (tmp_path / "deep/shapes.json").write_text('{"w": 1, "w": 2}')
    refused(art.variant(path).variant_json, f"{path}:3: step 1 (expect)", "shapes.json", "twice")
    (tmp_path / "deep/shapes.json").unlink()
    refused(art.variant(path).variant_json, "shapes.json", "No such file")


def test_a_complaint_about_a_step_gets_its_line(fake, art, tmp_path):
    path = write(tmp_path, "version: 1\n# about it\nsteps:\n- drop: [x]\n\n- cast:\n    dtype: F4\n")
    variant = art.variant({"version": 1, "steps": [{"drop": ["y"]}]}).variant(path)
    for step, want in [("1", "INVALID_ARGUMENT: no"), ("2", f"INVALID_ARGUMENT: {path}:4: no"), ("3", f"INVALID_ARGUMENT: {path}:6: no"),
                       ("4", "INVALID_ARGUMENT: no"), ("x", "INVALID_ARGUMENT: no"), ("0", "INVALID_ARGUMENT: no")]:
        fake.fail = Refused(grpc.StatusCode.INVALID_ARGUMENT, "no", "BAD_RECIPE", step=step)
        for call in (lambda: variant.tensor_names, variant.subset(["w"]).explain, variant.tensor_dict,
                     variant.view({"w": (0, slice(1, 2))}).tensor_dict):
            with pytest.raises(tc.InvalidRequestError) as caught:
                call()
            assert str(caught.value) == want and caught.value.reason == "BAD_RECIPE" and caught.value.metadata == {"step": step}


def test_built_in_recipes_are_known_by_name(art):
    assert [list(step)[0] for step in steps_of(art.variant("hf-llama-to-torchtitan", set={"num_key_value_heads": 2}))][:2] == ["drop", "only"]
    assert steps_of(art.variant("moe-upcycle", set={"experts": 4, "inter_dim": 2}))[0]["replicate_experts"]["shuffle_seed"] is None


def test_a_handle_shows_what_it_was_made_by(art, tmp_path):
    assert repr(art.variant("moe-upcycle").variant(write(tmp_path, "version: 1"))) == (
        f"<Artifact disk:/models/m, moe-upcycle, {tmp_path}/recipe.yaml>")
