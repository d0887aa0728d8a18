"""Tensors in the part files' own pages: strided views, many files, lifetimes, and a daemon that says wrong things."""
import gc
import os
import socket
import struct

import numpy as np
import pytest

import tensorcast_client as tc
from tensorcast_client import dtypes

REF = "disk:/models/m"
MAPPED = tc.Options(memory="mapped")
WIDTHS = {dtype.name: dtype.bits for dtype in dtypes.DTYPES}
FRAMEWORKS = ["numpy", "torch"]


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    if request.param == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    return request.param


def put(fake, tensors, n_files=1):
    names = list(tensors)
    fake.put(REF, tensors)
    fake.file_of = lambda name: names.index(name) % n_files


def bytes_of(made):
    if isinstance(made, np.ndarray):
        return np.ascontiguousarray(made).tobytes()
    import torch
    made = made.contiguous()
    return made.reshape(-1).view(torch.uint8).numpy().tobytes() if made.numel() else b""


def mappings(path):
    return [line for line in open("/proc/self/maps") if path in line]


@pytest.mark.parametrize("pad", [0, 1, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_random_slices_are_those_of_numpy(fake, client, framework, pad, seed):
    rng = np.random.default_rng(100 * seed + pad)
    tensors, slices = {}, {}
    for i in range(40):
        dtype = rng.choice([name for name, bits in WIDTHS.items() if bits >= 8 and name != "BOOL"])
        shape = tuple(rng.choice([0, 1, 2, 3, 5, 9], rng.integers(0, 5)))
        tensors[f"t{i}"] = (str(dtype), rng.integers(0, 256, (*shape, WIDTHS[dtype] // 8), np.uint8).view(f"V{WIDTHS[dtype] // 8}")[..., 0])
        slices[f"t{i}"] = [(d, slice(*sorted(rng.integers(0, extent + 1, 2).tolist()))) for d, extent in enumerate(shape) if rng.random() < .6]
    put(fake, tensors, 3)
    fake.pad = pad
    names = [str(name) for name in rng.permutation(list(tensors))]
    view = client.artifact(REF).subset(names).view({name: cuts for name, cuts in slices.items() if cuts})
    got, again = (view.tensor_dict(framework=framework, options=MAPPED) for _ in range(2))
    assert got.diagnostics["memory"] == "mapped"
    for name in names:
        cuts = dict(slices[name])
        want = tensors[name][1][tuple(cuts.get(d, slice(None)) for d in range(tensors[name][1].ndim))]
        single = again[name]  # the first sixteen are made one by one
        assert tuple(got[name].shape) == tuple(single.shape) == want.shape
        assert bytes_of(got[name]) == bytes_of(single) == want.tobytes()


def test_columns_keep_the_strides_of_the_file_and_rows_are_packed(fake, client):
    put(fake, {"w": ("U32", np.arange(3000, dtype=np.uint32).reshape(60, 50))})
    got = client.artifact(REF).view({"w": [(0, slice(7, 9)), (1, slice(10, 20))]}).tensor_dict(framework="numpy", options=MAPPED)
    assert got["w"].strides == (200, 4) and got["w"].tolist() == np.arange(3000).reshape(60, 50)[7:9, 10:20].tolist()
    (told,) = got.diagnostics["tensors"]
    assert (told["file"], told["offset"], told["strides"], told["bytes"]) == ("part-0", 5 + 4 * (7 * 50 + 10), [200, 4], 80)
    assert got.diagnostics["mapped"] == {"possible": True, "proof": "immutable_root", "reason": None}


def test_types_below_one_byte_are_packed_bytes(fake, client, framework):
    put(fake, {"q": ("F4", np.arange(12, dtype=np.uint8))})
    fake.mangle = lambda result: (result.layout.dims.__setitem__(0, 24), result.layout.strides.__setitem__(0, 0))
    got = client.artifact(REF).tensor_dict(framework=framework, options=MAPPED)
    assert bytes_of(got["q"]) == bytes(range(12)) and str(got["q"].dtype).endswith("uint8")


def test_what_is_aligned_is_not_copied(fake, client):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    put(fake, {"w": ("BF16", np.arange(64, dtype=np.uint16).reshape(8, 8)), "c": ("F32", np.arange(64, dtype=np.uint32).reshape(8, 8))})
    fake.pad = 8
    got = client.artifact(REF).view({"c": (1, slice(2, 5))}).tensor_dict(framework="torch", options=MAPPED)
    ((first, end),) = [[int(bound, 16) for bound in line.split()[0].split("-")] for line in mappings(f"{fake.folder}/part-0")]
    assert all(first <= tensor.data_ptr() < end for tensor in (got["w"], got["c"]))
    assert got["c"].stride() == (8, 1) and not got["c"].is_contiguous() and got["w"].dtype == torch.bfloat16


@pytest.mark.parametrize("writable", [None, True, False])
def test_torch_tensors_of_files_have_storages_of_their_own(fake, client, writable):
    pytest.importorskip("torch", reason="torch is not installed")
    put(fake, {"w": ("BF16", np.arange(64, dtype=np.uint16).reshape(8, 8)), "c": ("F32", np.arange(64, dtype=np.uint32).reshape(8, 8))})
    fake.pad = 8
    view = client.artifact(REF).view({"w": (0, slice(2, 5)), "c": (1, slice(2, 5))})
    got = view.tensor_dict(framework="torch", options=MAPPED, writable=writable)
    for name, n_bytes in (("w", 3 * 8 * 2), ("c", (7 * 8 + 3) * 4)):  # of columns from the first element to the last
        storage = got[name].untyped_storage()
        assert (storage.data_ptr(), storage.nbytes()) == (got[name].data_ptr(), n_bytes)


def test_arrays_can_not_be_written_and_are_not_by_setting_a_flag(fake, client):
    put(fake, {"w": ("U8", np.arange(64, dtype=np.uint8).reshape(8, 8))})
    got = client.artifact(REF).view({"w": (1, slice(2, 5))}).tensor_dict(framework="numpy", options=MAPPED)
    with pytest.raises(ValueError):
        got["w"].setflags(write=True)
    assert {line.split()[1] for line in mappings(f"{fake.folder}/part-0")} == {"r--s"}


def test_changes_to_writable_arrays_reach_neither_the_file_nor_another_load(fake, client, framework):
    put(fake, {"w": ("U8", np.arange(64, dtype=np.uint8).reshape(8, 8))})
    view = client.artifact(REF).view({"w": (1, slice(2, 5))})
    first, second = (view.tensor_dict(framework=framework, writable=True, options=MAPPED) for _ in range(2))
    first["w"][:] = 0
    assert bytes_of(second["w"]) == np.arange(64, dtype=np.uint8).reshape(8, 8)[:, 2:5].tobytes()
    with open(f"{fake.folder}/part-0", "rb") as file:
        assert file.read() == b"hhhhh" + bytes(range(64))


def test_writable_tensors_that_share_bytes_of_the_file_do_not_share_changes(fake, client, framework):
    put(fake, {"w": ("U8", np.arange(64, dtype=np.uint8)), "tied": ("U8", np.arange(64, dtype=np.uint8)), "x": ("U8", np.ones(9, np.uint8))})
    fake.mangle = lambda result: result.layout.offsets.__setitem__(1, result.layout.offsets[0])
    how = {"writable": True} if framework == "numpy" else {}  # torch's may be written to when nothing is said
    got = client.artifact(REF).tensor_dict(framework=framework, options=MAPPED, **how)
    got["w"][:] = 0
    assert bytes_of(got["tied"]) == bytes(range(64)) and bytes_of(dict(got)["x"]) == bytes([1] * 9)
    read_only = client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)
    assert read_only["w"].ctypes.data == read_only["tied"].ctypes.data


def test_a_view_without_bytes_needs_no_file(fake, client, framework):
    put(fake, {"e": ("BF16", np.empty((0, 3), np.uint16)), "f": ("I64", np.empty((2, 0), np.uint64))})
    with client.artifact(REF).tensor_dict(framework=framework, options=MAPPED) as got:
        assert tuple(got["e"].shape) == (0, 3) and tuple(got["f"].shape) == (2, 0) and fake.leases == 0
        assert got.diagnostics["memory"] == "mapped"


def test_many_files_take_one_mapping_each_and_few_descriptors_at_a_time(fake, client):
    put(fake, {f"t{i}": ("U8", np.full(7, i % 256, np.uint8)) for i in range(600)}, 300)
    fake.batch = 60
    before = len(os.listdir("/proc/self/fd"))
    got = client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)
    assert [int(array[3]) for array in got.values()] == [i % 256 for i in range(600)]
    assert len(mappings(f"{fake.folder}/part-")) == 300
    fake.wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)
    assert len(os.listdir("/proc/self/fd")) <= before + 4, "descriptors of the files stay open"


def test_one_array_of_one_file_holds_the_lease_and_only_its_own_file(fake):
    put(fake, {"a": ("U8", np.arange(9, dtype=np.uint8)), "b": ("U8", np.arange(9, dtype=np.uint8))}, 2)
    client = tc.connect(fake.socket)
    with client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED) as got:
        kept = got["b"][2:]
    del got
    client.close()
    gc.collect()
    assert fake.leases == 1 and not mappings(f"{fake.folder}/part-0") and len(mappings(f"{fake.folder}/part-1")) == 1
    fake.stop()
    assert kept.tolist() == list(range(2, 9))
    del kept
    assert not mappings(f"{fake.folder}/part-1") and fake.wait_for_leases(0)


def test_auto_takes_what_it_gets_and_copied_asks_for_memory(fake, client):
    put(fake, {"w": ("U8", np.arange(9, dtype=np.uint8))})
    for memory, told in (("auto", "mapped"), ("copied", "4k"), ("mapped", "mapped")):
        got = client.artifact(REF).tensor_dict(framework="numpy", options=tc.Options(memory=memory))
        assert got["w"].tolist() == list(range(9)) and got.diagnostics["memory"] == told
    assert client.artifact(REF).tensor_dict(framework="numpy").diagnostics["memory"] == "mapped"


@pytest.mark.parametrize("memory", ["borrowed", None, 1, "MAPPED"])
def test_another_kind_of_memory_is_a_value_error(memory):
    with pytest.raises(ValueError, match="memory is"):
        tc.Options(memory=memory)


@pytest.mark.parametrize("change", [
    lambda layout: layout.file_indexes.__setitem__(0, 1), lambda layout: layout.file_indexes.append(0),
    lambda layout: layout.strides.__setitem__(0, 1 << 63), lambda layout: layout.strides.__setitem__(0, 1 << 62),
    lambda layout: layout.strides.__setitem__(0, 9), lambda layout: layout.strides.append(1), lambda layout: layout.strides.pop(),
    lambda layout: layout.offsets.__setitem__(0, 6), lambda layout: layout.offsets.__setitem__(0, (1 << 64) - 3),
    lambda layout: layout.sizes.__setitem__(0, 63)], ids=range(10))
def test_a_layout_that_leaves_its_file_or_makes_no_sense_is_refused(fake, client, change):
    put(fake, {"w": ("U8", np.arange(64, dtype=np.uint8).reshape(8, 8))})
    client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED).close()
    fake.mangle = lambda result: change(result.layout)
    with pytest.raises(tc.TensorcastError) as caught:
        client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)
    assert caught.value.reason == "BAD_ANSWER"
    del caught
    assert fake.wait_for_leases(0)


def message(size=14, kind=4, n_fds=1):
    return struct.pack("<4sIQIIQ", b"TCHO", 1, size, kind, n_fds, 0)


@pytest.mark.parametrize("answer", [
    lambda peer, head, fds: socket.send_fds(peer, [message(kind=2)], fds),
    lambda peer, head, fds: socket.send_fds(peer, [message(size=13)], fds),
    lambda peer, head, fds: socket.send_fds(peer, [message(n_fds=2)], fds),
    lambda peer, head, fds: socket.send_fds(peer, [message(size=28, n_fds=2)], [*fds, *fds]),
    lambda peer, head, fds: peer.close()], ids=["memory", "another size", "too few", "too many", "closed"])
def test_a_hand_off_that_is_not_the_files_of_the_answer_is_refused(fake, client, answer):
    put(fake, {"a": ("U8", np.arange(9, dtype=np.uint8)), "b": ("U8", np.arange(9, dtype=np.uint8))}, 2)
    fake.batch, n_calls = 1, []
    fake.answer = lambda peer, head, fds: (n_calls.append(1), (answer if len(n_calls) == 2 else fake._send_some)(peer, head, fds))
    with pytest.raises(tc.TensorcastError):
        client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)
    gc.collect()
    assert not mappings(f"{fake.folder}/part-") and fake.wait_for_leases(0)


def test_a_file_that_is_shorter_than_announced_is_refused(fake, client):
    put(fake, {"a": ("U8", np.arange(9, dtype=np.uint8))})
    fake.answer = lambda peer, head, fds: (os.truncate(f"{fake.folder}/part-0", 13), fake._send_some(peer, head, fds))
    with pytest.raises(tc.TensorcastError, match="in a file of 13"):
        client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)


def test_memory_for_a_load_that_was_answered_with_files_and_the_reverse_are_refused(fake, client):
    put(fake, {"a": ("U8", np.arange(9, dtype=np.uint8))})
    fake.mangle = lambda result: setattr(result, "memory_bytes", 4096)
    with pytest.raises(tc.TensorcastError, match="1 files and 4096 bytes"):
        client.artifact(REF).tensor_dict(framework="numpy", options=MAPPED)
    fake.mangle = lambda result: result.layout.file_indexes.append(0)
    with pytest.raises(tc.TensorcastError):
        client.artifact(REF).tensor_dict(framework="numpy", options=tc.Options(memory="copied"))
