"""Arrays on their way into shared memory: every kind, any strides, cut into pieces, narrowed only where nothing is lost."""
import types

import ml_dtypes
import numpy as np
import pytest

from tensorcast_client import activation_arrays as arrays
from tensorcast_client import activation_writer, activations, dtypes, errors


def copied(array, limit=1 << 20):
    (plane,) = arrays.planes_of(1, {3: array}, False)
    memory = np.zeros(plane.bytes + 8, np.uint8)
    filled = 0
    for piece, size in arrays.pieces(plane.source, limit, plane.bytes):
        while size > limit:
            head, piece = arrays.cut(piece, limit)
            arrays.copy_into(memory, filled, head, head.nbytes)
            filled, size = filled + head.nbytes, size - head.nbytes
        arrays.copy_into(memory, filled, piece, size)
        filled += size
    assert filled == plane.bytes and not memory[filled:].any()
    return memory[:filled].tobytes()


@pytest.mark.parametrize("limit", [8, 24, 104, 1 << 20])
@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.uint16, ml_dtypes.bfloat16, np.float32, np.complex64, np.float64])
def test_elements_arrive_in_c_order_whatever_the_strides(kind, limit):
    base = (np.arange(5 * 6 * 7) % 120).astype(kind).reshape(5, 6, 7)
    for array in (base, base.T, base[::2, ::-1], base[:, 3], base[1, 2, 3], base[:0], np.broadcast_to(base[0], (3, 6, 7))):
        assert copied(array, limit) == np.ascontiguousarray(array).tobytes()


def test_other_byte_orders_are_stored_as_this_machines():
    assert copied(np.arange(7, dtype=">f4")) == np.arange(7, dtype="<f4").tobytes()


def test_widest_elements_come_first_so_that_all_are_aligned():
    planes = arrays.planes_of(1, {1: np.zeros(3, np.uint8), 2: np.zeros(3, np.float64), 3: np.zeros(3, np.float16)}, False)
    assert [plane.layer for plane in planes] == [2, 3, 1]


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_floats_are_narrowed_only_where_every_lower_half_is_zero(shape):
    wide = np.random.default_rng(1).integers(0, 1 << 16, shape, np.uint32) << np.uint32(16)
    array = np.asarray(wide, np.uint32).view(np.float32)
    (plane,) = arrays.planes_of(1, {1: array}, True)
    assert plane.is_narrowed and dtypes.NAMES[plane.number] == "BF16" and plane.shape == shape
    memory = np.zeros(plane.bytes, np.uint8)
    arrays.copy_into(memory, 0, plane.source, plane.bytes)
    assert (memory.view(np.uint16) == (np.ravel(wide) >> 16)).all()
    bits = np.array(wide)
    bits[(0,) * bits.ndim] |= 1
    assert not arrays.planes_of(1, {1: bits.view(np.float32)}, True)[0].is_narrowed


def test_a_strided_array_is_narrowed_as_it_reads():
    array = np.arange(24, dtype=np.float32).reshape(4, 6).T[::2]
    (plane,) = arrays.planes_of(1, {1: array}, True)
    assert plane.is_narrowed
    assert (np.asarray(plane.source).astype(np.uint32) << 16).view(np.float32).tolist() == array.tolist()


def test_numbers_at_their_limits_are_taken_and_beyond_refused():
    assert arrays.sample_number(99_999_999) == 99_999_999 and arrays.sample_number(np.int32(0)) == 0
    for wrong in (-1, 100_000_000, 10**30, 1.5, "1", None, True, np.bool_(0)):
        with pytest.raises(errors.InvalidRequestError):
            arrays.sample_number(wrong)
    assert arrays.planes_of(1, {(1 << 32) - 1: np.zeros(1)}, False)[0].layer == (1 << 32) - 1
    for wrong in ({1 << 32: np.zeros(1)}, {-1: np.zeros(1)}, {True: np.zeros(1)}, {"a": np.zeros(1)}, {}, {1: [1.0]}, {1: np.array(["a"])},
                  [np.zeros(1)]):
        with pytest.raises(errors.InvalidRequestError):
            arrays.planes_of(1, wrong, False)


@pytest.mark.parametrize("host", [-1, 100_000, "3", 1.0, True])
def test_a_host_has_a_number_from_0_to_99999(host):
    with pytest.raises(errors.InvalidRequestError, match="99999"):
        activations.ActivationStore(None, "disk:/acts", host, "1GiB", None, None, True)


@pytest.mark.parametrize("size, want", [(5, 5), (np.int64(4096), 4096), ("4KiB", 4096), ("1.5 MiB", 3 << 19), ("2GB", 2 << 30), ("7", 7)])
def test_sizes_are_written_as_in_the_configuration(size, want):
    assert activations._bytes_of(size) == want


@pytest.mark.parametrize("size", ["", "GiB", "-1", 0, -5, True, None, 1e6, "1PiB", "1 2"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(errors.InvalidRequestError, match="size"):
        activations._bytes_of(size)


def test_what_has_no_elements_to_copy_is_refused_with_sample_and_layer():
    torch = pytest.importorskip("torch")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for array in (torch.eye(3).to_sparse(), torch.ones(3, device="meta"), nested, np.ma.masked_array([1.0, 2.0], [0, 1]), [1.0]):
        with pytest.raises(errors.InvalidRequestError, match="sample 7, layer 3"):
            arrays.planes_of(7, {3: array}, False)


def test_layers_to_read_are_whole_numbers_or_refused():
    assert arrays.layer_numbers(None) is None and arrays.layer_numbers(iter([])) == set()
    assert arrays.layer_numbers(np.array([10, 15])) == {10, 15} == arrays.layer_numbers({10: 1, 15: 2})
    for wrong in (10, "10", b"10", ["10"], [1.7], [True], [-1], [1 << 32], [None]):
        with pytest.raises(errors.InvalidRequestError, match=r"\[10, 15\]"):
            arrays.layer_numbers(wrong)


def test_any_mapping_is_a_sample_and_its_info():
    (plane,) = arrays.planes_of(1, types.MappingProxyType({3: np.ones(2, np.int8)}), False)
    assert plane.layer == 3 and activation_writer._text_of(1, types.MappingProxyType({"a": 1})) == '{"a": 1}'
