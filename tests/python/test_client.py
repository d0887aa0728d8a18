"""The client against a stand-in for the daemon: what is asked, what comes back, what errors become."""
import copy
import os
import pickle
import sys
import threading
import time
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

import tensorcast_client as tc
from fake_daemon import Refused
from tensorcast_client import client as client_module
from tensorcast_client.messages import OPEN_END

REF = "disk:/models/m"


def numbers(shape, dtype=np.uint32):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


@pytest.fixture
def tensors(fake):
    fake.put(REF, {"w": ("F32", numbers((6, 4))), "s": ("I64", np.array(7, np.uint64)), "b": ("U8", numbers((9,), np.uint8)),
                   "e": ("BF16", numbers((0, 3), np.uint16))})
    return {name: bits for name, (_, bits) in fake.artifacts[REF].items()}


def load(client, names, slices=None, **how):
    return client.artifact(REF).subset(names).view(slices).tensor_dict(framework="numpy", **how)


def test_names_and_description_come_from_one_resolve(fake, client, tensors):
    art = client.artifact(REF)
    assert art.tensor_names == ["w", "s", "b", "e"]
    assert art.describe() == {
        "artifact": REF, "identity": REF + "#1", "files": [{"name": "model.safetensors", "bytes": 113}], "total_bytes": 113, "layout": "plain",
        "metadata": {},
        "tensors": [{"name": "w", "dtype": "F32", "shape": [6, 4], "file": "model.safetensors", "bytes": 96},
                    {"name": "s", "dtype": "I64", "shape": [], "file": "model.safetensors", "bytes": 8},
                    {"name": "b", "dtype": "U8", "shape": [9], "file": "model.safetensors", "bytes": 9},
                    {"name": "e", "dtype": "BF16", "shape": [0, 3], "file": "model.safetensors", "bytes": 0}]}
    assert len(fake.asked("Resolve")) == 1


def test_a_second_handle_asks_only_whether_something_changed(fake, client, tensors):
    client.artifact(REF).tensor_names
    assert client.artifact(REF).tensor_names == list(tensors)
    assert [request.known_identity for request in fake.asked("Resolve")] == ["", REF + "#1"]
    fake.put(REF, {"new": ("U8", numbers((2,), np.uint8))})
    assert client.artifact(REF).tensor_names == ["new"]


@pytest.mark.parametrize("most_tensors, n_remembered", [(1000, 10), (5, 5), (0, 2)])
def test_the_last_artifacts_are_remembered_and_more_of_them_where_they_are_small(fake, client, monkeypatch, most_tensors, n_remembered):
    for name, value in {"_REMEMBERED_OF_ANY_SIZE": 2, "_REMEMBERED_ARTIFACTS": 10, "_REMEMBERED_TENSORS": most_tensors}.items():
        monkeypatch.setattr(client_module, name, value)
    for i in range(20):
        fake.put(f"disk:/{i}", {"x": ("U8", numbers((1,), np.uint8))})
        client.artifact(f"disk:/{i}").tensor_names
    forgotten = 19 - n_remembered
    for i in (forgotten + 1, forgotten):
        client.artifact(f"disk:/{i}").tensor_names
    assert [request.known_identity for request in fake.asked("Resolve")][-2:] == [f"disk:/{forgotten + 1}#1", ""]


def test_whole_tensors_by_name_need_one_call(fake, client, tensors):
    with load(client, ["b", "w"]) as got:
        assert list(got) == ["b", "w"] and got["w"].tobytes() == tensors["w"].tobytes()
    (request,) = fake.asked("Materialize")
    assert not fake.asked("Resolve") and list(request.load.view.names) == ["b", "w"]
    assert not request.load.view.n_slices


def test_everything_in_artifact_order_is_asked_for_without_a_list(fake, client, tensors):
    art = client.artifact(REF)
    assert repr(art) == f"<Artifact {REF}>" and repr(art.view({"w": slice(1)})) == f"<View of all tensors of {REF}, 1 sliced>"
    for view in (art.subset(art.tensor_names), art.view(), art.subset(art.tensor_names).view()):
        with view.tensor_dict(framework="numpy") as got:
            assert list(got) == list(tensors)
    with client.artifact(REF).tensor_dict(framework="numpy") as got:  # nothing known beforehand
        assert list(got) == list(tensors) and got["b"].tobytes() == tensors["b"].tobytes()
    assert all(request.load.view.whole and not request.load.view.names for request in fake.asked("Materialize"))
    art.subset(["s", "w", "b", "e"]).tensor_dict(framework="numpy")
    assert fake.asked("Materialize")[-1].load.view.names


@pytest.mark.parametrize("given,want", [
    ((0, slice(1, 3)), np.s_[1:3]), (slice(2, None), np.s_[2:]), ([(1, slice(-2, None))], np.s_[:, -2:]),
    ([(-1, slice(0, 1)), (0, slice(None, -4))], np.s_[:-4, 0:1]), ([(0, slice(4, 2))], np.s_[4:2]),
    ([(0, slice(-100, 100))], np.s_[-100:100]), ((0, slice(np.int64(1), np.int64(2), 1)), np.s_[1:2]),
    ([], np.s_[:]), ((0, slice(-10**30, 10**30)), np.s_[:])])
def test_slices_mean_what_numpy_says(client, tensors, given, want):
    with load(client, ["s", "w"], {"w": given}) as got:
        np.testing.assert_array_equal(got["w"].view(np.uint32), tensors["w"][want])
        assert got["s"] == 7


def test_slices_of_slices_apply_to_what_is_left(client, tensors):
    view = client.artifact(REF).subset(["w"]).view({"w": (0, slice(1, -1))})
    view = view.view({"w": [(0, slice(-2, None)), (1, slice(3))]}).view({"w": (1, slice(-1, None))})
    with view.tensor_dict(framework="numpy") as got:
        np.testing.assert_array_equal(got["w"].view(np.uint32), tensors["w"][1:-1][-2:, :3][:, -1:])


def test_a_view_knows_the_shapes_that_its_slices_leave(client, tensors):
    view = client.artifact(REF).view({"w": [(0, slice(1, -1)), (1, slice(-3, 100))]}).view({"w": (0, slice(2, None))})
    assert view.shapes() == {"w": (2, 3), "s": (), "b": (9,), "e": (0, 3)}
    with view.tensor_dict(framework="numpy") as got:
        assert {name: array.shape for name, array in got.items()} == view.shapes()


def test_a_part_of_a_view_keeps_its_slices(client, tensors):
    view = client.artifact(REF).view({"w": slice(2, 3), "b": slice(1)}).only(["b", "s"])
    assert view.tensor_names == ["b", "s"] and view.shapes() == {"b": (1,), "s": ()}
    with pytest.raises(KeyError, match="tensor nobody is not in"):
        client.artifact(REF).view({"nobody": slice(1)}).shapes()
    with pytest.raises(KeyError, match="tensor w is not in this view"):
        view.only(["s", "w"])


def test_slices_without_a_subset_are_of_all_tensors(client, tensors):
    with client.artifact(REF).view({"b": slice(0, 2)}).tensor_dict(framework="numpy") as got:
        assert list(got) == list(tensors) and got["b"].tolist() == [0, 1] and got["w"].shape == (6, 4)


def test_open_ends_go_open_over_the_wire(fake, client, tensors):
    load(client, ["b", "w"], {"w": (1, slice(None, None))})
    view = fake.asked("Materialize")[0].load.view
    assert (list(view.n_slices), list(view.starts), list(view.stops)) == ([0, 2], [0, 0], [OPEN_END, OPEN_END])


def test_slices_of_named_tensors_need_one_call(fake, client, tensors):
    with load(client, ["s", "w"], {"w": slice(1, 3)}) as got:
        np.testing.assert_array_equal(got["w"].view(np.uint32), tensors["w"][1:3])
    (request,) = fake.asked("Materialize")
    view = request.load.view
    assert not fake.asked("Resolve") and view.leading and (list(view.n_slices), list(view.starts)) == ([0, 1], [1])


@pytest.mark.parametrize("chain", [[{"w": (-1, slice(1))}], [{"w": (1 << 40, slice(1))}], [{"w": slice(1, 5)}, {"w": slice(1)}]], ids=str)
def test_what_needs_shapes_resolves_first(fake, client, tensors, chain):
    view = client.artifact(REF).subset(["w"])
    for slices in chain:
        view = view.view(slices)
    if chain == [{"w": (1 << 40, slice(1))}]:
        with pytest.raises(ValueError, match=r"no dimension 1099511627776 in its shape \[6, 4\]"):
            view.tensor_dict(framework="numpy")
    else:
        assert view.tensor_dict(framework="numpy")["w"].size
    assert fake.requests[0][0] == "Resolve"


def test_a_daemon_that_wants_every_dimension_gets_it(fake, client, tensors):
    fake.knows_leading = False
    with load(client, ["s", "w"], {"w": slice(1, 3)}) as got:
        np.testing.assert_array_equal(got["w"].view(np.uint32), tensors["w"][1:3])
    assert [list(request.load.view.n_slices) for request in fake.asked("Materialize")] == [[0, 1], [0, 2]]


@pytest.mark.parametrize("slices", [
    {"w": (0, slice(0, 4, 2))}, {"w": (2, slice(0, 1))}, {"w": (-3, slice(0, 1))}, {"s": (0, slice(0, 1))},
    {"w": [(0, slice(0, 1)), (0, slice(0, 1))]}, {"w": [(0, slice(0, 1)), (-2, slice(0, 1))]}, {"w": (0, slice("a"))},
    {"w": 3}, {"w": (0.5, slice(1))}, {"w": (0, 1)}, {"w": (0, slice(1.5))}, {"w": [slice(1)]}])
def test_a_bad_slice_is_a_value_error_that_names_the_tensor(client, tensors, slices):
    with pytest.raises(ValueError) as caught:
        load(client, ["w", "s"], slices)
    error = caught.value
    assert isinstance(error, tc.TensorcastError) and f"tensor {next(iter(slices))}" in str(error)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT and error.reason == "BAD_SLICE"


def test_a_slice_of_a_tensor_outside_the_view_is_a_key_error(client, tensors):
    for view in (lambda: client.artifact(REF).subset(["w"]), lambda: client.artifact(REF)):
        with pytest.raises(KeyError, match="nobody") as caught:
            view().view({"nobody": slice(1)}).tensor_dict(framework="numpy")
        assert caught.value.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("names", ["w", [], [1], b"w", [None]])
def test_a_subset_that_is_no_list_of_names_is_refused(client, names):
    with pytest.raises(ValueError) as caught:
        client.artifact(REF).subset(names)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_tensor_is_a_key_error_of_the_daemon(client, tensors):
    with pytest.raises(KeyError) as caught:
        load(client, ["nope"])
    assert str(caught.value) == f"NOT_FOUND: tensor nope is not in {REF}" and caught.value.reason == "TENSOR_NOT_FOUND"


@pytest.mark.parametrize("code,reason,kind", [
    ("NOT_FOUND", "NO_SUCH_FILE", FileNotFoundError), ("NOT_FOUND", "TENSOR_NOT_FOUND", KeyError),
    ("PERMISSION_DENIED", "OUTSIDE_TRUSTED_ROOTS", PermissionError), ("INVALID_ARGUMENT", "BAD_SLICE", ValueError),
    ("DEADLINE_EXCEEDED", "COLLECTIVE_UNAVAILABLE", TimeoutError),
    ("DATA_LOSS", "TRUNCATED", tc.TensorcastError),
    ("RESOURCE_EXHAUSTED", "BUDGET", tc.TensorcastError), ("UNIMPLEMENTED", "", tc.TensorcastError)])
def test_a_status_becomes_the_exception_that_fits(fake, client, tensors, code, reason, kind):
    fake.fail = Refused(grpc.StatusCode[code], "what and why", reason, file="x.safetensors")
    for attempt in (lambda: client.artifact(REF).tensor_names, lambda: load(client, ["w"])):
        with pytest.raises(kind) as caught:
            attempt()
        error = caught.value
        assert isinstance(error, tc.TensorcastError) and error.code is grpc.StatusCode[code]
        assert str(error) == f"{code}: what and why" and error.reason == (reason or code)
        assert error.metadata == ({"file": "x.safetensors"} if reason else {})
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.reason, again.metadata) == (type(error), str(error), error.reason, error.metadata)


def test_broken_details_leave_the_status_readable(fake, client, tensors, monkeypatch):
    monkeypatch.setattr("fake_daemon.status_details", lambda refused: b"\xff\xff\xff")
    fake.fail = Refused(grpc.StatusCode.DATA_LOSS, "broken", "X")
    with pytest.raises(tc.TensorcastError, match="broken") as caught:
        client.artifact(REF).tensor_names
    assert caught.value.reason == "DATA_LOSS"


def test_without_a_daemon_the_error_is_unavailable_and_names_the_socket(tmp_path):
    with pytest.raises(tc.TensorcastError) as caught:
        tc.connect(f"unix:{tmp_path}/none.sock", timeout=5).artifact(REF).tensor_names
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE and f"{tmp_path}/none.sock" in str(caught.value)


def test_arrays_are_read_only_and_aligned(client, tensors):
    with load(client, ["b", "w", "e"]) as got:
        for name, array in got.items():
            assert not array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
            with pytest.raises(ValueError):
                array.setflags(write=True)
            with pytest.raises(ValueError):
                array[...] = 0
        assert got["b"].ctypes.data % (2 << 20) == 0, "the mapping is not 2 MiB aligned"


def test_the_mapping_is_a_mapping(client, tensors):
    with load(client, ["b", "w"]) as got:
        assert list(got) == list(got.keys()) == ["b", "w"] and len(got) == 2
        assert "w" in got and "s" not in got and 3 not in got and got.get("s") is None
        assert got["w"] is got["w"] and got["w"] is dict(got)["w"] and got["w"] is list(got.values())[1]
        assert [name for name, _ in got.items()] == ["b", "w"]
        assert got.dtypes == {"b": "U8", "w": "F32"}
        with pytest.raises(KeyError) as caught:
            got["s"]
        assert isinstance(caught.value, tc.TensorcastError)
        with pytest.raises(TypeError):
            got["w"] = 1
        assert repr(got) == f"<Tensors of {REF}: 2 tensors, 105 B, F32, U8>"


def test_asking_one_by_one_keeps_identity_and_order(fake, client):
    fake.put(REF, {f"t{i}": ("U8", np.full(3, i, np.uint8)) for i in range(100)})
    with load(client, [f"t{i}" for i in range(100)]) as got:
        singles = {f"t{i}": got[f"t{i}"] for i in (50, 3, 99)}
        everything = dict(got)
        assert list(everything) == list(got) == [name for name, _ in got.items()]
        assert all(everything[name] is array for name, array in singles.items())
        assert all(array.tolist() == [i] * 3 for i, array in enumerate(got.values()))


def test_after_close_names_stay_and_arrays_are_refused(client, tensors):
    with load(client, ["b", "w"]) as got:
        kept = got["b"]
    assert list(got) == ["b", "w"] and got.diagnostics["bytes"]["view"] == 105 and kept.tolist() == list(range(9))
    for attempt in (lambda: got["w"], lambda: got.items(), lambda: dict(got)):
        with pytest.raises(ValueError, match="closed"):
            attempt()


def test_diagnostics_are_the_object_of_load_json(client, tensors):
    with load(client, ["b", "e"]) as got:
        told = got.diagnostics
    assert set(told) >= {"load_id", "artifact", "identity", "executor", "selection_reason", "candidates", "bytes",
                         "from_replica", "memory", "ms", "tensors"}
    assert set(told["bytes"]) >= {"view", "unique_source", "read", "copied", "residual"}
    assert told["bytes"]["peer"] == 7
    assert told["hosts"] == {"choice": "owner_peers", "reason": "", "alive": 3, "from": {"h1": 4, "h2": 3}, "hedged_bytes": 2}
    assert set(told["ms"]) == {"resolve", "plan", "execute", "total"} and told["ms"]["total"] == 1.5
    assert told["candidates"] == [{
        "executor": "generic_byte_range", "eligible": True, "reason": "always", "requested_bytes": 0,
        "unique_source_bytes": 0, "read_bytes": 0, "requests": 2, "peak_temporary_bytes": 0, "estimated_ms": 0.5}]
    assert told["tensors"] == [{"name": "b", "dtype": "U8", "shape": [9], "offset": 0, "bytes": 9},
                               {"name": "e", "dtype": "BF16", "shape": [0, 3], "offset": 64, "bytes": 0}]


def test_explain_plans_without_loading(fake, client, tensors):
    plan = client.artifact(REF).subset(["w"]).view({"w": slice(1, 3)}).explain()
    assert plan["bytes"]["view"] == 32 and plan["text"] == "a table" and plan["candidates"][0]["eligible"] is True
    assert not fake.asked("Materialize") and "tensors" not in plan


@pytest.mark.parametrize("name, short, number", [("auto", "auto", 0), ("generic_byte_range", "generic", 1), ("tensor_batched_local", "local", 2),
                                                 ("owner_file_collective", "collective", 3)])
def test_an_executor_has_the_name_that_reports_give_it_and_a_short_one(name, short, number):
    assert tc.Options(executor=name).policy()["executor"] == tc.Options(executor=short).policy()["executor"] == number
    with pytest.raises(ValueError, match="it is one of auto, generic_byte_range, tensor_batched_local, owner_file_collective$"):
        tc.Options(executor=name[:3])


def test_options_reach_the_wire(fake, client, tensors):
    options = tc.Options(executor="local", collective="disabled", group=tc.CollectiveLoadGroup("g", 1, 4),
                         source_locality="shared_source", source_sharing_domain="nfs")
    load(client, ["w"], options=options)
    sent = fake.asked("Materialize")[0].load
    assert (sent.policy.executor, sent.policy.collective) == (2, 2)
    assert (sent.topology.group.id, sent.topology.group.rank, sent.topology.group.world_size) == ("g", 1, 4)
    assert (sent.topology.source_locality, sent.topology.source_sharing_domain) == (2, "nfs")


def test_every_load_of_a_group_is_an_attempt_of_its_own(fake, client, tensors):
    options = tc.Options(group=tc.CollectiveLoadGroup("g", 1, 4))
    for _ in range(2):
        load(client, ["w"], options=options)
    first, second = (request.load.topology.group.attempt for request in fake.asked("Materialize"))
    assert first and second and first != second


@pytest.mark.parametrize("wrong", [{"executor": "fast"}, {"collective": 1}, {"source_locality": "x"}, {"deadline": "5"},
                                   {"deadline": float("nan")}, {"deadline": -1}, {"group": "g"}, {"group": ("g", 0, 2)},
                                   {"source_sharing_domain": 5}])
def test_a_wrong_option_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        tc.Options(**wrong)


@pytest.mark.parametrize("wrong", [(1, 0, 2), ("g", "0", 2), ("g", 0, 2.0), ("g", None, 2)])
def test_a_group_of_something_else_than_whole_numbers_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match="rank and world_size are whole numbers"):
        tc.CollectiveLoadGroup(*wrong)


@pytest.mark.parametrize("wrong, told", [(("a", 3, 2), "rank is 3, and with world_size=2 ranks go from 0 to 1$"), (("a", 2, 2), "rank is 2, "),
                                         (("a", -1, 2), "rank is -1, "), (("a", 0, 0), "world_size=0 there are no ranks"),
                                         (("", 0, 1), "id is empty$")])
def test_a_group_that_cannot_be_is_refused_at_once(wrong, told):
    with pytest.raises(ValueError, match=told):
        tc.CollectiveLoadGroup(*wrong)


@pytest.mark.parametrize("call", ["tensor_dict", "explain", "prewarm"])
def test_options_that_are_no_options_are_refused(client, call):
    with pytest.raises(ValueError, match="tensorcast_client.Options"):
        getattr(client.artifact(REF).view(), call)(options={"executor": "auto"})


def test_tensors_are_placed_by_their_files_unless_the_caller_wants_them_packed(fake, client, tensors):
    artifact = client.artifact(REF)
    for view in (artifact.view(), artifact.subset(["w"]), artifact.view(placement="packed"), artifact.view(placement="packed", align=8)):
        view.tensor_dict(framework="numpy").close()
    asked = [request.load for request in fake.asked("Materialize")]
    assert [(load.HasField("view"), load.view.placement, load.view.whole, load.view.align_bytes) for load in asked] == [
        (True, 1, True, 0), (True, 1, False, 0), (False, 0, False, 0), (True, 0, True, 8)]
    for wrong in ("", "SOURCE", 1):
        with pytest.raises(ValueError, match="placement"):
            artifact.view(placement=wrong)


def test_the_alignment_is_the_callers_choice(fake, client, tensors):
    view = client.artifact(REF).subset(["b", "w"]).view(align=1)
    with view.tensor_dict(framework="numpy") as got:
        assert got["w"].tobytes() == tensors["w"].tobytes() and got["w"].ctypes.data % 64 == 9
        assert [array.tobytes() for array in got.values()] == [tensors["b"].tobytes(), tensors["w"].tobytes()]
    with client.artifact(REF).view(align=4096).tensor_dict(framework="numpy") as got:
        assert got["b"].ctypes.data % 4096 == 0 and list(got) == list(tensors)
    for wrong in (0, 3, 4 << 20, "64"):
        with pytest.raises(ValueError, match="align"):
            view.view(align=wrong)


def test_other_devices_and_frameworks_are_refused_clearly(client, tensors):
    for wrong in ("mps", "cuda:x", "cuda:"):
        with pytest.raises(tc.TensorcastError, match=wrong) as caught:
            load(client, ["w"], device=wrong)
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(ValueError, match="jax"):
        client.artifact(REF).subset(["w"]).tensor_dict(framework="jax")


# --- the artifact changes between two calls ---

def test_a_changed_artifact_is_learnt_again(fake, client, tensors):
    art = client.artifact(REF)
    names = art.tensor_names
    fake.put(REF, {"extra": ("U8", numbers((2,), np.uint8)), **fake.artifacts[REF]})
    with art.subset(names).tensor_dict(framework="numpy") as got:  # was everything, no longer is
        assert list(got) == names and got["b"].tobytes() == tensors["b"].tobytes()
    fake.put(REF, {"w": ("F32", numbers((5,)))})
    with art.subset(["w"]).view({"w": slice(-2, None)}).tensor_dict(framework="numpy") as got:
        assert got["w"].view(np.uint32).tolist() == [3, 4]
    assert fake.wait_for_leases(0)


def test_a_tensor_that_came_later_can_be_sliced_by_an_old_handle(fake, client, tensors):
    art = client.artifact(REF)
    art.tensor_names
    fake.put(REF, {"late": ("U8", np.arange(5, dtype=np.uint8))})
    with art.view({"late": slice(-1, None)}).tensor_dict(framework="numpy") as got:
        assert got["late"].tolist() == [4] and list(got) == ["late"]
    resolves = len(fake.asked("Resolve"))
    with pytest.raises(KeyError):
        art.view({"never": slice(1)}).tensor_dict(framework="numpy")
    assert len(fake.asked("Resolve")) == resolves + 1


def test_names_alone_are_not_asked_for_twice_when_the_artifact_changed(fake, client, tensors):
    art = client.artifact(REF)
    art.tensor_names
    fake.put(REF, dict(fake.artifacts[REF]))
    art.subset(["b", "w"]).tensor_dict(framework="numpy")
    assert len(fake.asked("Materialize")) == 1 and len(fake.asked("Resolve")) == 1


def test_an_artifact_that_never_stands_still_is_aborted(fake, client, tensors):
    art = client.artifact(REF)
    art.tensor_names
    fake.mangle = lambda result: fake.put(REF, fake.artifacts[REF])
    real = fake.identity
    counter = iter(range(1000))
    fake.identity = lambda name: f"{real(name)}.{next(counter)}"
    with pytest.raises(tc.TensorcastError) as caught:
        art.view().tensor_dict(framework="numpy")
    assert caught.value.code is grpc.StatusCode.ABORTED


# --- deadlines, progress, threads ---

def test_a_passed_deadline_is_a_timeout_error(fake, client, tensors):
    fake.pause = threading.Event()
    started = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        load(client, ["w"], options=tc.Options(deadline=0.2))
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - started < 10
    with pytest.raises(TimeoutError):
        load(client, ["w"], options=tc.Options(deadline=0))
    fake.pause.set()


def test_handles_can_be_pickled_and_copied(fake, tensors):
    with tc.connect(fake.socket, timeout=5.0) as client:
        art = client.artifact(REF)
        assert art.tensor_names
        packed = pickle.dumps((art, art["w"], art.view({"w": slice(1, 2)})))
        copied = copy.deepcopy(art)
    art, lazy, view = pickle.loads(packed)
    np.testing.assert_array_equal(lazy[0].view(np.uint32), tensors["w"][0])
    assert view.shapes()["w"] == (1, *tensors["w"].shape[1:]) and art.tensor_names == copied.tensor_names


def test_a_store_that_does_not_answer_in_time_is_named(fake, tensors):
    fake.pause = threading.Event()
    with tc.connect(fake.socket, timeout=2) as hasty, pytest.raises(TimeoutError) as caught:
        hasty.artifact("gs://bucket/model?secret=1").tensor_names
    assert str(caught.value) == "DEADLINE_EXCEEDED: gs://bucket/model?... was not resolved within 2 s; waiting for the store"
    with tc.connect(fake.socket, timeout=0.1) as hasty, pytest.raises(TimeoutError, match=f"{REF} was not resolved within 0.1 s$"):
        hasty.artifact(REF).tensor_names
    fake.pause.set()


def test_a_passed_deadline_tells_how_far_the_load_was(fake, client, tensors):
    fake.progress = [8] * 10000
    with pytest.raises(TimeoutError, match=r"^DEADLINE_EXCEEDED: not done within the deadline of 3 s; read: \d+ B of [\d.]+ \w+$"):
        load(client, ["w"], options=tc.Options(deadline=3))
    fake.progress, fake.pause = [], threading.Event()
    with pytest.raises(TimeoutError, match="deadline of 0.2 s; when last heard of, the daemon had not begun to read"):
        load(client, ["w"], options=tc.Options(deadline=0.2))
    fake.pause.set()


def test_a_silent_daemon_is_a_timeout_error(fake, tensors):
    fake.pause = threading.Event()
    with pytest.raises(TimeoutError, match="no answer"):
        load(tc.connect(fake.socket, timeout=1), ["w"])
    fake.pause.set()


def test_the_timeout_does_not_bound_a_load_that_has_begun(fake, tensors):
    fake.progress = list(range(500))  # two seconds and a half
    with load(tc.connect(fake.socket, timeout=2), ["w"]) as got:
        assert got["w"].shape == (6, 4)


def test_progress_is_throttled_and_told_once_at_the_end(fake, client, tensors):
    fake.progress = list(range(60))
    calls, started = [], time.monotonic()
    load(client, ["w"], progress=lambda *call: calls.append(call))
    allowed = (time.monotonic() - started) / 0.1 + 2
    assert 2 <= len(calls) <= allowed and calls[0] == ("read", 0, 96) and calls[-1] == ("done", 96, 96)
    assert [call[0] for call in calls].count("done") == 1


@pytest.mark.parametrize("wrong", [5, "bar"])
def test_what_is_no_progress_function_is_refused_before_anything_is_asked(fake, client, tensors, wrong):
    with pytest.raises(ValueError, match="progress"):
        load(client, ["w"], progress=wrong)
    assert not fake.asked("Materialize")


@pytest.mark.parametrize("stage", ["read", "done"])
def test_an_exception_in_the_progress_function_ends_the_load(fake, client, tensors, stage):
    fake.progress = [0, 1]

    def tell(now, done, total):
        if now == stage:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        load(client, ["w"], progress=tell)
    assert fake.wait_for_leases(0)
    load(client, ["w"])


def test_threads_share_a_client(fake, client):
    fake.put(REF, {f"t{i}": ("I32", numbers((32, 16)) + np.uint32(i)) for i in range(8)})
    wrong = []

    def work(i):
        for k in range(5):
            with load(client, [f"t{i}"], {f"t{i}": slice(k, None)}) as got:
                if got[f"t{i}"].tobytes() != fake.artifacts[REF][f"t{i}"][1][k:].tobytes():
                    wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not wrong and not any(thread.is_alive() for thread in threads) and fake.wait_for_leases(0)


# --- where the daemon is ---

@pytest.mark.parametrize("prefix", ["", "unix:", "unix://"])
def test_an_address_is_a_path_with_or_without_a_scheme(fake, tensors, prefix):
    assert tc.connect(prefix + fake.socket).artifact(REF).tensor_names == list(tensors)


def test_a_relative_path_is_relative_to_where_it_was_said(fake, tensors, monkeypatch):
    monkeypatch.chdir(os.path.dirname(fake.socket))
    client = tc.connect("daemon.sock")
    monkeypatch.chdir("/")
    assert client.artifact(REF).tensor_names == list(tensors)


def test_the_argument_comes_before_the_environment_and_that_before_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # where no daemon is
    assert tc.connect().socket_path == tc.DEFAULT_SOCKET == "/run/tensorcast/daemon.sock"
    monkeypatch.setenv("TENSORCAST_SOCKET", "/env.sock")
    assert tc.connect().socket_path == "/env.sock" and tc.connect("/arg.sock").socket_path == "/arg.sock"


@pytest.mark.parametrize("address", ["dns://host:1", "/" + "x" * 107, "http://x"])
def test_an_address_that_cannot_be_is_refused(address):
    with pytest.raises(ValueError):
        tc.connect(address)
    assert tc.connect("/" + "x" * 106)


@pytest.mark.parametrize("reference", ["models/m", "", 3, None])
def test_what_is_no_reference_is_refused(client, reference):
    with pytest.raises(ValueError, match="an artifact is a path that begins with"):
        client.artifact(reference)


def test_a_closed_client_says_so(fake, client, tensors):
    client.close()
    client.close()
    with pytest.raises(tc.TensorcastError, match="closed"):
        client.artifact(REF).tensor_names


def test_importing_needs_no_torch_and_no_daemon(python):
    assert python("import sys, tensorcast_client as tc; tc.connect(); print('torch' in sys.modules, tc.__version__)") == \
        f"False {tc.__version__}"


# --- OpenTelemetry ---

def span(trace_id, span_id, flags=1):
    context = SimpleNamespace(trace_id=trace_id, span_id=span_id, trace_flags=flags, is_valid=bool(trace_id and span_id))
    return SimpleNamespace(get_span_context=lambda: context)


@pytest.mark.parametrize("current, told", [(span(0xab, 0xcd), f"00-{'0' * 30}ab-{'0' * 14}cd-01"),
                                           (span(1 << 127, 1 << 63, 3), f"00-8{'0' * 31}-8{'0' * 15}-03"),
                                           (span(1, 2, 0), f"00-{1:032x}-{2:016x}-00"), (span(0, 0), None), (None, None)])
def test_the_current_span_goes_with_each_call(fake, client, tensors, monkeypatch, current, told):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    if current:
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", SimpleNamespace(get_current_span=lambda: current))
    client.artifact(REF).tensor_names
    assert fake.metadata.get("traceparent") == told
