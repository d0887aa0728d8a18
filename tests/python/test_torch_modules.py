"""load_state_dict and StateDict: modules get what they have, and nothing is loaded before it is needed."""
import collections
import copy
import pickle
import threading
from concurrent import futures

import numpy as np
import pytest
import tensorcast_client as tc

torch = pytest.importorskip("torch", reason="torch is not installed")

from tensorcast_client.torch import StateDict, load_state_dict  # noqa: E402

REF = "disk:/models/m"


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = (torch.nn.Parameter(torch.zeros(shape)) for shape in ((6, 4), (6,)))


@pytest.fixture
def pair(fake):
    weight, bias = np.arange(24, dtype=np.float32).reshape(6, 4), np.arange(6, dtype=np.float32)
    fake.put(REF, {"weight": ("F32", weight), "bias": ("F32", bias), "other": ("F32", bias)})
    return torch.from_numpy(weight), torch.from_numpy(bias)


def test_a_module_is_loaded_with_what_it_has(fake, client, pair):
    module = Pair()
    assert load_state_dict(module, client.artifact(REF), strict=False).unexpected_keys == ["other"]
    assert torch.equal(module.weight, pair[0]) and torch.equal(module.bias, pair[1])
    assert fake.wait_for_leases(0), "what was copied is given back"


def test_a_strict_load_complains_about_what_the_module_has_not(client, pair):
    with pytest.raises(RuntimeError, match='Unexpected key.*"other"'):
        load_state_dict(Pair(), client.artifact(REF))


def test_a_module_that_nothing_fits_loads_nothing(fake, client, pair):
    result = load_state_dict(torch.nn.PReLU(), client.artifact(REF).subset(["other"]), strict=False)
    assert result.missing_keys == ["weight"] and result.unexpected_keys == ["other"]
    before = len(fake.asked("Materialize"))
    fake.put("disk:/models/n", {"other": ("F32", np.zeros(2, np.float32))})
    assert load_state_dict(torch.nn.PReLU(), client.artifact("disk:/models/n"), strict=False).missing_keys == ["weight"]
    assert len(fake.asked("Materialize")) == before


def test_assigned_parameters_are_the_daemons_memory_and_can_be_trained(fake, client, pair):
    module = Pair()
    load_state_dict(module, client.artifact(REF).subset(["weight", "bias"]), assign=True)
    assert fake.leases == 1 and torch.equal(module.weight, pair[0])
    with torch.no_grad():
        module.weight.mul_(2)
    again = client.artifact(REF).tensor_dict(framework="torch")
    assert torch.equal(module.weight, pair[0] * 2) and torch.equal(again["weight"], pair[0])


def test_a_slice_of_a_rank_fits_a_smaller_module(client, pair):
    module = torch.nn.Linear(4, 3)
    load_state_dict(module, client.artifact(REF).subset(["weight", "bias"]).view(
        {"weight": slice(3, 6), "bias": slice(3, 6)}))
    assert torch.equal(module.weight, pair[0][3:]) and torch.equal(module.bias, pair[1][3:])


def test_a_state_dict_loads_at_the_first_look_at_a_value(fake, client, pair):
    state = StateDict(client.artifact(REF))
    assert list(state) == ["weight", "bias", "other"] and "bias" in state and len(state) == 3
    assert not fake.asked("Materialize")
    assert torch.equal(state["bias"], pair[1]) and state.get("nobody") is None and state.pop("weight") is not None
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {"bias": (6,), "other": (6,)}
    assert len(fake.asked("Materialize")) == 1


def test_what_was_set_or_deleted_before_the_load_stays_so(client, pair):
    state = StateDict(client.artifact(REF))
    state["bias"] = 5
    del state["other"]
    assert state.copy().keys() == {"weight", "bias"} and state["bias"] == 5 and torch.equal(state["weight"], pair[0])


def test_a_state_dict_that_could_not_be_loaded_tries_again(fake, client, pair):
    state = StateDict(client.artifact(REF))
    fake.mangle = lambda result: result.layout.sizes.__setitem__(0, 5)
    with pytest.raises(tc.TensorcastError):
        state["bias"]
    fake.mangle = lambda result: None
    assert torch.equal(state["bias"], pair[1])


@pytest.mark.parametrize("merge", [dict, lambda state: {**state}, lambda state: state | {}, lambda state: {} | state,
                                   lambda state: {"x": 1} | state, lambda state: dict(state, x=1), copy.copy, copy.deepcopy,
                                   lambda state: pickle.loads(pickle.dumps(state)), collections.OrderedDict,
                                   lambda state: (lambda **tensors: tensors)(**state), dict.copy,
                                   lambda state: collections.ChainMap({}, state)],
                         ids=["dict", "stars", "or", "ror", "ror_more", "dict_more", "copy", "deepcopy", "pickle", "ordered",
                              "keywords", "dict_copy", "chain"])
def test_every_way_to_copy_a_state_dict_gives_tensors(client, pair, merge):
    got = merge(StateDict(client.artifact(REF)))
    assert torch.equal(got["weight"], pair[0]) and torch.equal(got["bias"], pair[1]) and torch.equal(got["other"], pair[1])


def test_a_dict_updated_with_a_state_dict_holds_tensors(client, pair):
    plain, inplace = {}, {}
    plain.update(StateDict(client.artifact(REF)))
    inplace |= StateDict(client.artifact(REF))
    assert torch.equal(plain["weight"], pair[0]) and torch.equal(inplace["bias"], pair[1])


def test_a_state_dict_is_compared_by_its_tensors(fake, client):
    fake.put(REF, {"one": ("F32", np.ones(1, np.float32))})
    new = lambda: StateDict(client.artifact(REF))  # noqa: E731
    same, other = {"one": torch.ones(1)}, {"one": torch.zeros(1)}
    assert new() == same and same == new() and new() == new() and new() != other and other != new() and new() != {}


def test_printing_a_state_dict_loads_nothing_and_shows_no_placeholder(fake, client, pair):
    state = StateDict(client.artifact(REF))
    assert repr(state) == str(state) == f"<StateDict of {REF}: 3 tensors, not loaded>" and not fake.asked("Materialize")
    state["bias"]
    assert repr(state) == f"<StateDict of {REF}: 3 tensors, loaded>"


def test_threads_that_look_at_the_same_time_share_one_load(fake, client, pair):
    fake.pause = threading.Event()
    state = StateDict(client.artifact(REF).subset(["weight", "bias"]))
    with futures.ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(lambda: state["weight"]) for _ in range(4)]
        assert fake.wait_until(lambda: fake.asked("Materialize"))
        fake.pause.set()
        assert all(torch.equal(look.result(30), pair[0]) for look in looks)
    assert len(fake.asked("Materialize")) == 1


def test_a_look_from_the_progress_callback_is_refused(fake, client, pair):
    fake.progress = [1]
    state = StateDict(client.artifact(REF), progress=lambda *_: state["bias"])
    with pytest.raises(RuntimeError, match="being loaded"):
        state["bias"]


def test_references_are_taken_where_artifacts_are(fake, pair, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", fake.socket)
    module = Pair()
    load_state_dict(module, REF, strict=False)
    assert torch.equal(module.weight, pair[0]) and torch.equal(StateDict(REF)["weight"], pair[0])


@pytest.mark.parametrize("wrong", [{"weight": torch.zeros(6, 4)}, 3, None])
def test_what_is_no_source_is_refused_and_a_dict_sent_to_torch(wrong):
    for take in (StateDict, lambda source: load_state_dict(Pair(), source)):
        with pytest.raises(ValueError, match=f"takes an artifact, a view or a reference such as a path, not a {type(wrong).__name__}") as told:
            take(wrong)
        assert ("module.load_state_dict() itself" in str(told.value)) == isinstance(wrong, dict)
