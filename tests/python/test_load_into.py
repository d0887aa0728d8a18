"""Loads into memory of the caller, against the stand-in for the daemon: what is refused here, and what is sent."""
import fcntl
import gc
import os
import resource
import sys
import threading

import grpc
import ml_dtypes
import numpy as np
import pytest

import tensorcast_client as tc
from fake_daemon import Refused
from tensorcast_client import dtypes, fills, host_region

REF = "disk:/models/m"


@pytest.fixture
def made(fake):
    tensors = {"a": ("U32", np.arange(24, dtype=np.uint32).reshape(6, 4)), "b": ("BF16", np.arange(9, dtype=np.uint16)),
               "s": ("I64", np.array(7, np.uint64)), "e": ("U8", np.zeros((3, 0), np.uint8))}
    fake.put(REF, tensors)
    return {name: bits for name, (_, bits) in tensors.items()}


def sent(fake):
    return fake.asked("Materialize")[-1].load.targets


# --- regions ------------------------------------------------------------------------------------------------------

def memfd(size=4096, seals=fcntl.F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_a_region_begins_as_zeros_and_arrays_over_it_share_its_memory():
    region = tc.HostRegion(5000)
    assert len(region) == region.bytes == 5000 and not region.array(np.uint8, 5000).any()
    region.array("<u4", (3,), 1001)[:] = 7
    assert region.array(np.uint8, 12, 1001).tobytes() == np.full(3, 7, "<u4").tobytes()
    assert region.array(ml_dtypes.bfloat16, (), 4998).shape == () and region.array(np.uint8, (0, 7), 5000).shape == (0, 7)


def test_a_region_of_a_memfd_is_that_memory_and_keeps_a_descriptor_of_its_own():
    fd = memfd()
    array = tc.HostRegion(fd=fd).array(np.uint8, (8,), 100)
    os.pwrite(fd, b"12345678", 100)
    os.close(fd)
    assert array.tobytes() == b"12345678"


@pytest.mark.parametrize("make, why", [
    (lambda: os.open(os.devnull, os.O_RDWR), "no memfd"), (lambda: os.open(__file__, os.O_RDONLY), "no memfd|shrink"),
    (lambda: memfd(seals=0), "could shrink"), (lambda: memfd(size=0), "0 bytes"),
    (lambda: memfd(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), "against writing"),
    (lambda: memfd(seals=fcntl.F_SEAL_SHRINK | 16), "against writing"), (lambda: os.open(f"/proc/self/fd/{memfd()}", os.O_RDONLY), "reading and")],
    ids=["device", "file", "shrinks", "empty", "sealed", "future", "read-only"])
def test_a_descriptor_that_cannot_be_a_region_is_refused_and_none_is_lost(make, why):
    fd, before = make(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=why) as caught:
        tc.HostRegion(fd=fd)
    assert caught.value.reason == "BAD_REGION" and len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


@pytest.mark.parametrize("how", [{"bytes": 0}, {"bytes": -1}, {"bytes": 1 << 62}, {"bytes": 1.5}, {"bytes": "1"}, {}, {"fd": 1 << 20}, {"fd": -1},
                                 {"fd": "x"}, {"bytes": 1, "fd": 1}])
def test_a_region_that_cannot_be_is_a_value_error(how):
    with pytest.raises(ValueError):
        tc.HostRegion(**how)


@pytest.mark.parametrize("dtype, shape, offset", [
    ("u1", 4097, 0), ("u1", 1, 4096), ("u1", (64, 64), 1), ("u1", (2**62, 8), 0), ("u1", 4, -4), ("u1", (-1,), 0), ("u1", (-2, -3), 0),
    ("u1", 1.5, 0), ("u1", 4, 1.5), ("O", 1, 0), ("nothing", 1, 0), ("u8", 512, 8), ("u1", "4", 0)])
def test_an_array_stays_inside_of_its_region(dtype, shape, offset):
    with pytest.raises(ValueError):
        tc.HostRegion(4096).array(dtype, shape, offset)


def count_regions():
    """Descriptors of regions; others come and go with the connections of earlier tests."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("memfd:tensorcast-region" in os.readlink(link) for link in links if os.path.lexists(link))


def test_the_last_array_gives_the_memory_and_the_descriptor_back():
    gc.collect()
    before = count_regions()
    array = tc.HostRegion(1 << 20).array(np.uint8, 10)[3:]
    gc.collect()
    assert count_regions() == before + 1 and len(host_region._mapped) >= 1
    array[:] = 1
    del array
    gc.collect()
    assert count_regions() == before


def test_torch_tensors_lie_in_regions_whatever_their_type():
    torch = pytest.importorskip("torch")
    region = tc.HostRegion(4096)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool, torch.int64, torch.complex64):
        tensor = region.tensor(dtype, (3, 5), 64)
        assert tensor.dtype == dtype and tuple(tensor.shape) == (3, 5) and tensor.is_contiguous()
        assert tensor.data_ptr() == region.array(np.uint8, 1, 64).ctypes.data
    assert tuple(region.tensor(torch.float32, (0, 3), 4096).shape) == (0, 3) and region.tensor(torch.float32, ()).shape == ()
    for wrong in [(torch.float32, 1025, 0), (torch.float32, 1, 4093), (np.float32, 1, 0), (torch.uint8, -1, 0)]:
        with pytest.raises(ValueError):
            region.tensor(*wrong)
    kept = region.tensor(torch.uint8, (4,), 0)
    del region, tensor
    gc.collect()
    assert kept.fill_(5).tolist() == [5] * 4


# --- targets ------------------------------------------------------------------------------------------------------

def test_everything_lands_where_it_was_told_to(fake, client, made):
    small, large, calls = tc.HostRegion(4096), tc.HostRegion(3 << 20), []
    targets = {"e": np.empty((3, 0), np.uint8), "a": small.array(np.uint32, (6, 8), 12)[:, ::-2],
               "b": large.array(ml_dtypes.bfloat16, (9, 2), 3)[:, 1], "s": small.array(np.int64, (), 1001),
               "f": large.array(np.float32, (3, 3), 2 << 20)[1]}
    report = client.artifact(REF).load_into(targets, fills={"f": 1.5}, cover={"all.f": targets["f"]}, progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(targets["a"], made["a"])
    np.testing.assert_array_equal(targets["b"].view(np.uint16), made["b"])
    assert targets["s"] == 7 and targets["f"].tolist() == [1.5] * 3
    assert report["bytes"]["target"] == 96 + 18 + 8 + 12 and calls[-1] == ("done", 134, 134)
    assert report["into"]["committed_bytes"] == 134 and report["into"]["dominant_executor"]
    places = {tensor["name"]: (tensor["region"], tensor["offset"], tensor["bytes"]) for tensor in report["tensors"]}
    assert list(places) == ["a", "b", "s", "e"] and places["b"] == (1, 5, 18) and places["a"] == (0, 12 + 28, 96)
    assert list(sent(fake).cover_names) == ["all.f"] and list(sent(fake).fill_names) == ["f"] and len(sent(fake).regions) == 2


def test_a_view_is_loaded_in_its_order_and_slices(fake, client, made):
    memory = tc.HostRegion(4096)
    target = memory.array(np.uint32, (2, 4), 0)
    view = client.artifact(REF).subset(["s", "a"]).view({"a": slice(2, 4)})
    report = view.load_into({"a": target, "s": memory.array(np.int64, (), 64)})
    np.testing.assert_array_equal(target, made["a"][2:4])
    assert [tensor["name"] for tensor in report["tensors"]] == ["s", "a"] and not fake.regions


def test_targets_without_elements_need_no_region(fake, client, made):
    gc.collect()
    before = set(host_region._mapped)
    report = client.artifact(REF).subset(["e"]).load_into({"e": np.empty((3, 0), np.uint8)}, cover={"c": np.empty((0, 2), np.float32)})
    assert report["bytes"]["target"] == 0 and len(sent(fake).regions) == 1 and not fake.regions
    assert set(host_region._mapped) == before


def test_many_regions_and_shared_regions_are_offered_once_each(fake, client):
    fake.put(REF, {f"t{i}": ("U8", np.full(3, i, np.uint8)) for i in range(200)})
    regions = [tc.HostRegion(64) for _ in range(40)]
    targets = {f"t{i}": regions[i % 40].array(np.uint8, 3, 3 * (i // 40)) for i in range(200)}
    client.artifact(REF).load_into(targets)
    assert len(sent(fake).regions) == 40 and all((targets[f"t{i}"] == i).all() for i in range(200))


def of_region(dtype=np.uint32, shape=(6, 4)):
    return tc.HostRegion(4096).array(dtype, shape)


def read_only(array):
    array.flags.writeable = False
    return array


class Alien:
    """A CUDA array that cannot be written to."""

    __cuda_array_interface__ = {"shape": (6, 4), "typestr": "<u4", "data": (1 << 40, True), "version": 3}


@pytest.mark.parametrize("target, why", [
    (lambda: np.zeros((6, 4), np.uint32), "no memory that the daemon can fill"), (lambda: read_only(of_region()), "read-only"),
    (lambda: [[0] * 4] * 6, "it is list"), (lambda: None, "NoneType"), (lambda: of_region(">u4"), "byte order"),
    (lambda: of_region("M8[s]"), "datetime64"),
    (lambda: of_region(np.dtype([("x", "u4")])), "no tensor of a checkpoint"), (lambda: np.uint32(3), "uint32"), (Alien, "read-only"),
    (lambda: np.ndarray((6, 4), np.uint32, np.zeros(400, np.uint8), 4), "no memory that")])
def test_what_cannot_be_a_target_is_refused_by_name_before_anything_is_sent(fake, client, made, target, why):
    with pytest.raises(ValueError, match=why) as caught:
        client.artifact(REF).subset(["a"]).load_into({"a": target()})
    assert "target a" in str(caught.value) and caught.value.reason and not fake.asked("Materialize") and not fake.regions


def test_torch_tensors_without_plain_memory_are_refused(fake, client, made):
    torch = pytest.importorskip("torch")
    tensor = tc.HostRegion(4096).tensor(torch.complex64, (6, 4))
    nested, lazy = torch.nested.nested_tensor([torch.zeros(4)] * 6), torch.nn.LazyLinear(6).weight
    for wrong, why in [(torch.empty(6, 4, device="meta"), "on meta"), (torch.eye(4).to_sparse(), "sparse"), (tensor.conj(), "conjugated"),
                       (torch.zeros(6, 4), "no memory"), (nested, "nested"), (lazy, "no memory")]:
        with pytest.raises(tc.TensorcastError, match=f"target a.*{why}"):
            client.artifact(REF).subset(["a"]).load_into({"a": wrong})
    assert not fake.asked("Materialize")


@pytest.mark.parametrize("targets, how, named", [
    (["a"], {}, "b"), (["a", "b", "x"], {}, "x"), (["a", "b"], {"fills": {"x": 0}}, "x"), (["a", "b"], {"fills": {"a": 0}}, "a"),
    (["a", "b", "x"], {"fills": {"x": 2**32}}, "x"), (["a", "b", "x"], {"fills": {"x": "0"}}, "x")])
def test_every_tensor_has_one_target_and_every_target_something_to_be_written(fake, client, made, targets, how, named):
    memory = tc.HostRegion(4096)
    given = {name: memory.array(np.uint32 if name != "b" else ml_dtypes.bfloat16, made[name].shape if name in made else 3) for name in targets}
    with pytest.raises(ValueError, match=rf"\b{named}\b") as caught:
        client.artifact(REF).subset(["a", "b"]).load_into(given, **how)
    assert caught.value.metadata == {"tensor": named} and not fake.asked("Materialize")


@pytest.mark.parametrize("how", [{"targets": [1]}, {"targets": {}, "fills": 3}, {"targets": {}, "cover": "x"}, {"targets": {5: 1}, "fills": {5: 1}}])
def test_what_is_no_dict_of_names_is_refused(client, made, how):
    with pytest.raises(ValueError):
        client.artifact(REF).load_into(**how)


def test_half_a_surrogate_pair_is_no_name(fake, client, made):
    memory, half = of_region(np.uint32, (7, 4)), "\ud800"
    for how in ({"cover": {half: memory[:6]}}, {"fills": {half: 1}}):
        with pytest.raises(tc.TensorcastError, match="a string of characters"):
            client.artifact(REF).subset(["a"]).load_into({"a": memory[:6], **({half: memory[6:]} if "fills" in how else {})}, **how)
    assert not fake.asked("Materialize")


def test_cover_needs_no_right_to_write(fake, client, made):
    target = of_region()
    client.artifact(REF).subset(["a"]).load_into({"a": target}, cover={"all": read_only(target[:])})
    assert list(sent(fake).cover_names) == ["all"]


def test_after_an_answer_that_never_came_the_content_is_said_to_be_undefined(fake, client, made):
    fake.pause = threading.Event()
    view, target = client.artifact(REF).subset(["a"]), of_region()
    with pytest.raises(TimeoutError, match="undefined"):
        view.load_into({"a": target}, options=tc.Options(deadline=.2))
    fake.pause.set()


@pytest.mark.parametrize("code,reason", [("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"), ("UNAVAILABLE", "DAEMON_STOPPING")])
def test_after_the_daemon_has_cut_a_load_off_the_content_is_said_to_be_undefined(fake, client, made, code, reason):
    view, target = client.artifact(REF).subset(["a"]), of_region()
    fake.fail = Refused(getattr(grpc.StatusCode, code), "words of the daemon", reason)
    with pytest.raises(tc.TensorcastError, match="undefined"):
        view.load_into({"a": target}, options=tc.Options(deadline=60))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions take no notes")
def test_what_progress_raises_comes_with_a_note_that_the_content_is_undefined(fake, client, made):
    fake.progress = [8]
    view, target = client.artifact(REF).subset(["a"]), of_region()
    with pytest.raises(ZeroDivisionError) as caught:
        view.load_into({"a": target}, progress=lambda stage, *_: 1 // (stage != "read"))
    assert caught.value.__notes__ == ["the content of the targets is undefined"]


def test_after_an_answer_that_makes_no_sense_or_a_source_that_keeps_changing_the_content_is_said_to_be_undefined(fake, client, made):
    artifact = client.artifact(REF)
    view, target = artifact.view({"a": (0, slice(1, None))}).only(["a"]), of_region(shape=(5, 4))
    fake.mangle = lambda result: setattr(result, "memory_bytes", 1)
    with pytest.raises(tc.TensorcastError, match="no sense.*undefined"):
        view.load_into({"a": target})
    fake.mangle = lambda result: setattr(result.report, "identity", "another")
    with pytest.raises(tc.TensorcastError, match="keeps changing; .*undefined"):
        view.load_into({"a": target})


def test_a_process_with_many_descriptors_open_can_lend_memory(fake, client, made):
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(limit, 4096), most), most))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        target = of_region()
        client.artifact(REF).subset(["a"]).load_into({"a": target})
        assert (target == made["a"]).all()
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_what_the_daemon_refuses_is_told_in_its_own_words(fake, client, made):
    fake.fail = Refused(grpc.StatusCode.INVALID_ARGUMENT, "targets a and b overlap", "TARGETS_OVERLAP")
    with pytest.raises(ValueError) as caught:
        client.artifact(REF).subset(["a"]).load_into({"a": of_region()})
    assert str(caught.value) == "INVALID_ARGUMENT: targets a and b overlap" and caught.value.reason == "TARGETS_OVERLAP"


def test_autograd_is_told_that_a_tensor_was_written_to(fake, client, made):
    torch = pytest.importorskip("torch")
    fake.put(REF, {"w": ("F32", np.zeros(4, np.uint32))})
    tensor = tc.HostRegion(4096).tensor(torch.float32, 4).requires_grad_()
    product = tensor * tensor
    client.artifact(REF).load_into({"w": tensor})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


# --- fills --------------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype, value, want", [
    ("U8", 255, b"\xff"), ("I8", -128, b"\x80"), ("I8", 2.0, b"\2"), ("U64", 2**64 - 1, b"\xff" * 8), ("BOOL", True, b"\1"), ("BOOL", 0, b"\0"),
    ("F32", -1.5, np.float32(-1.5).tobytes()), ("F32", -0.0, b"\0\0\0\x80"), ("F16", INF, b"\0\x7c"), ("F16", 1e-10, b"\0\0"),
    ("BF16", .1, b"\xcd\x3d"), ("F8_E4M3", 448, b"\x7e"), ("F8_E8M0", 2, b"\x80"), ("C64", 1 + 2j, np.complex64(1 + 2j).tobytes()),
    ("F32", np.float64(3), np.float32(3).tobytes()), ("I16", np.array(5), b"\5\0"), ("BF16", ml_dtypes.bfloat16(2), b"\0\x40")])
def test_a_fill_is_one_element_of_the_targets_type(dtype, value, want):
    assert fills.element("f", value, dtypes.NAMES.index(dtype)) == want


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "C64"])
def test_nan_stays_nan_where_there_is_one(dtype):
    number = dtypes.NAMES.index(dtype)
    value = np.frombuffer(fills.element("f", NAN, number), dtypes.of_numpy(number))[0]
    assert value != value


@pytest.mark.parametrize("dtype, value", [
    ("U8", 256), ("U8", -1), ("U8", NAN), ("I64", INF), ("I32", 1.5), ("U64", 2**64), ("BOOL", 2), ("BOOL", -1), ("F16", 1e5), ("F32", 1e39),
    ("F64", 10**400), ("F8_E4M3", 480), ("F8_E4M3", INF), ("F8_E8M0", 0), ("F8_E8M0", -2), ("F32", 1j), ("F32", "1"), ("U8", b"1"), ("F32", None),
    ("F32", [1]), ("I8", np.array([1])), ("C64", 1e39)])
def test_a_fill_that_the_type_cannot_hold_is_refused(dtype, value):
    with pytest.raises(ValueError, match=f"fill f: {dtype} cannot hold") as caught:
        fills.element("f", value, dtypes.NAMES.index(dtype))
    assert caught.value.reason == "BAD_FILL" and caught.value.metadata == {"tensor": "f"}
