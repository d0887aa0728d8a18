"""An artifact as safe_open shows a file: what is loaded together, what by parts, and what a replaced artifact does."""
import threading

import numpy as np
import pytest

import tensorcast_client as tc

torch = pytest.importorskip("torch", reason="torch is not installed")
from tensorcast_client import lazy_file  # noqa: E402
from tensorcast_client.lazy_file import LazyFile  # noqa: E402

REF = "disk:/models/m"


@pytest.fixture
def tensors(fake):
    fake.put(REF, {f"t{i}": ("F32", np.full((4, 8), i, np.uint32)) for i in range(10)})
    return {name: bits for name, (_, bits) in fake.artifacts[REF].items()}


def groups_asked(fake):
    return [list(request.load.view.names) for request in fake.asked("Materialize")]


def test_whole_tensors_are_loaded_with_their_neighbours_once(fake, client, tensors, monkeypatch):
    monkeypatch.setattr(lazy_file, "_GROUP_BYTES", 4 * 128)  # four tensors
    with LazyFile(client.artifact(REF)) as file:
        assert file.keys() == file.offset_keys() == list(tensors) and file.metadata() is None and not fake.asked("Materialize")
        lazy = file.get_slice("t5")
        assert (lazy.get_shape(), lazy.get_dtype()) == ([4, 8], "F32")
        got = {name: file.get_slice(name)[...] for name in reversed(tensors)}
        assert all(got[name].view(torch.int32).tolist() == bits.tolist() for name, bits in tensors.items())
        assert groups_asked(fake) == [["t8", "t9"], ["t4", "t5", "t6", "t7"], ["t0", "t1", "t2", "t3"]] and fake.leases == 3
    kept = got.pop("t4")
    got.clear()
    assert fake.wait_for_leases(1) and kept[0, 0].view(torch.int32) == 4


def test_there_are_at_most_so_many_groups(fake, client, tensors, monkeypatch):
    monkeypatch.setattr(lazy_file, "_GROUP_BYTES", 1)
    monkeypatch.setattr(lazy_file, "_MOST_GROUPS", 2)
    file = LazyFile(client.artifact(REF))
    assert [file.get_tensor(name).shape for name in tensors] == [(4, 8)] * 10 and len(fake.asked("Materialize")) == 2


def test_a_part_costs_its_own_bytes_and_a_small_one_holds_no_lease(fake, client, tensors):
    file = LazyFile(client.artifact(REF))
    part = file.get_slice("t3")[1:3, 2:4]
    assert part.view(torch.int32).tolist() == [[3, 3], [3, 3]] and groups_asked(fake) == [["t3"]]
    assert list(fake.asked("Materialize")[0].load.view.stops) == [3, 4] and fake.wait_for_leases(0)
    by_parts = LazyFile(client.artifact(REF), by_parts=True)
    assert by_parts.get_slice("t4")[...].shape == (4, 8) and groups_asked(fake)[-1] == ["t4"]


def test_threads_that_want_one_group_wait_for_one_load(fake, client, tensors):
    file, got = LazyFile(client.artifact(REF)), []
    threads = [threading.Thread(target=lambda name=name: got.append(file.get_tensor(name))) for name in tensors]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(got) == 10 and len(fake.asked("Materialize")) == 1


@pytest.mark.parametrize("look", [lambda file: file.get_tensor("t9"), lambda file: file.get_slice("t9")[:2]])
def test_a_replaced_artifact_is_an_error_and_never_a_mixture(fake, client, tensors, monkeypatch, look):
    monkeypatch.setattr(lazy_file, "_GROUP_BYTES", 1)
    file = LazyFile(client.artifact(REF))
    first = file.get_tensor("t0")
    slices = file.get_slice("t9")
    fake.put(REF, {f"t{i}": ("F32", np.zeros((4, 8), np.uint32)) for i in range(10)})
    with pytest.raises(tc.TensorcastError) as caught:
        look(file)
    assert caught.value.reason == "SOURCE_CHANGED" and first.shape == (4, 8) and slices.shape == (4, 8)


def test_a_lazy_tensor_is_of_one_version(fake, client, tensors):
    art = client.artifact(REF)
    lazy = art["t1"]
    assert lazy[0, 0].view(np.uint32) == 1
    fake.put(REF, {"t1": ("F32", np.full((2, 8), 7, np.uint32))})
    with pytest.raises(tc.TensorcastError, match="replaced") as caught:
        lazy[0, 0]
    assert caught.value.reason == "SOURCE_CHANGED" and art["t1"].shape == (2, 8) and art["t1"][0, 0].view(np.uint32) == 7
