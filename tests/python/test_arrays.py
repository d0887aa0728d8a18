"""Every element type and shape as NumPy arrays and torch tensors, one by one and all at once."""
import random
from pathlib import Path

import numpy as np
import pytest

from tensorcast_client import cuda, dtypes, errors, messages
from tensorcast_client.arrays import NumpyArrays
from tensorcast_client.layout import MAX_RANK, MIN_STACK, Layout

WIDTHS = {dtype.name: dtype.bits for dtype in dtypes.DTYPES}
WHOLE_BYTES = [name for name, bits in WIDTHS.items() if bits >= 8]
REF = "disk:/models/m"


@pytest.fixture(autouse=True, params=["as ever", "cut from tables"])
def always_tables(request, monkeypatch):
    """Few tensors are made one by one: here also as if they were many."""
    if request.param == "cut from tables":
        monkeypatch.setattr("tensorcast_client.arrays._MANY", 0)


class OnDevice(cuda.DeviceMemory):
    """Memory as of a GPU that this process can read."""

    def __init__(self, memory):
        super().__init__(None, memory.ctypes.data, len(memory), [], memory)

    def __dlpack_device__(self):
        return 1, 0


def maker(framework):
    if framework == "numpy":
        return NumpyArrays
    pytest.importorskip("torch", reason="torch is not installed")
    from tensorcast_client.torch_tensors import TorchTensors
    return TorchTensors if framework == "torch" else lambda memory, layout: TorchTensors(OnDevice(memory), layout)


def bytes_of(made):
    if isinstance(made, np.ndarray):
        assert made.flags.c_contiguous
        return made.tobytes()
    import torch
    assert made.is_contiguous()
    return made.reshape(-1).view(torch.uint8).numpy().tobytes() if made.numel() else b""


class Memory:
    """Tensors laid out as the daemon would, over a buffer of random bytes."""

    def __init__(self, tensors, align=64, shuffle=None):
        columns = {"dtypes": [], "ranks": [], "dims": [], "offsets": [], "sizes": []}
        end, order = 0, list(range(len(tensors)))
        if shuffle:
            shuffle.shuffle(order)
        offsets = {}
        for index in order:
            dtype, shape = tensors[index]
            offsets[index] = -(-end // align) * align
            end = offsets[index] + int(np.prod(shape, dtype=int)) * WIDTHS[dtype] // 8
        for index, (dtype, shape) in enumerate(tensors):
            columns["dtypes"].append(dtypes.NAMES.index(dtype))
            columns["ranks"].append(len(shape))
            columns["dims"] += shape
            columns["offsets"].append(offsets[index])
            columns["sizes"].append(int(np.prod(shape, dtype=int)) * WIDTHS[dtype] // 8)
        self.tensors, self.columns = tensors, columns
        self.bytes = np.random.default_rng(1).integers(0, 2, -(-end // 4096) * 4096, np.uint8)  # 0 and 1: good for BOOL
        self.layout = make_layout(columns, len(tensors), len(self.bytes))

    def want(self, index):
        at = self.columns["offsets"][index]
        return self.bytes[at:at + self.columns["sizes"][index]].tobytes()

    def check(self, make):
        made = make(self.bytes, self.layout)
        together, single = made.all(), [made.one(index) for index in range(len(self.tensors))]
        some = np.arange(0, len(self.tensors), 2)
        assert [(bytes_of(tensor), tensor.shape) for tensor in made.all(some)] == [(bytes_of(t), t.shape) for t in single[::2]]
        for index, (dtype, shape) in enumerate(self.tensors):
            for tensor in (together[index], single[index]):
                if WIDTHS[dtype] >= 8:
                    assert tuple(tensor.shape) == tuple(shape), (index, dtype, shape)
                assert bytes_of(tensor) == self.want(index), (index, dtype, shape)
            assert together[index].dtype == single[index].dtype


def make_layout(columns, n_tensors, memory_bytes):
    return Layout(messages.Layout.decode(messages.Layout.encode(**columns)), n_tensors, memory_bytes)


@pytest.mark.parametrize("framework", ["numpy", "torch", "torch by DLPack"])
@pytest.mark.parametrize("align", [64, 1, 4096])
def test_random_layouts_come_out_right(framework, align):
    rng = random.Random(align)
    for case in range(40):
        shapes = [[rng.choice([0, 1, 2, 3, 7]) for _ in range(rng.randrange(5))] for _ in range(rng.randrange(1, 5))]
        kinds = rng.sample(WHOLE_BYTES, rng.randrange(1, 4))
        tensors = []
        for _ in range(rng.randrange(1, 80)):
            shape = list(rng.choice(shapes))
            if shape and rng.random() < .5:
                shape[0] = rng.randrange(1, 9)
            tensors.append((rng.choice(kinds), shape))
        Memory(tensors, align, rng if case % 3 == 0 else None).check(maker(framework))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("n", [MIN_STACK - 1, MIN_STACK, MIN_STACK + 1, 300])
@pytest.mark.parametrize("shape", [[], [1], [5], [3, 16], [2, 2, 8], [3, 5]])
def test_many_alike_are_cut_from_one_table(framework, n, shape):
    memory = Memory([("BF16", [i % 4 + 1, *shape[1:]] if shape else []) for i in range(n)])
    stacks, rest = memory.layout.stacks(np.arange(len(memory.layout)))
    assert sum(len(stack.which) for stack in stacks) + len(rest) == n
    assert bool(stacks) == (n >= MIN_STACK) or shape == [3, 5]
    memory.check(maker(framework))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_mixed_neighbours_of_the_same_kind_are_still_tables(framework):
    memory = Memory([kind for i in range(50) for kind in [("BF16", [64, 32]), ("F32", []), ("F8_E4M3", [32, 64]), ("F32", [1])]])
    stacks, rest = memory.layout.stacks(np.arange(len(memory.layout)))
    assert len(stacks) == 4 and not len(rest)
    memory.check(maker(framework))


@pytest.mark.parametrize("framework", ["numpy", "torch", "torch by DLPack"])
@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_types_below_one_byte_are_packed_bytes(framework, dtype):
    memory = Memory([(dtype, [3, 8]), ("U8", [5])])
    for tensor in (maker(framework)(memory.bytes, memory.layout).one(0), maker(framework)(memory.bytes, memory.layout).all()[0]):
        assert str(tensor.dtype).endswith("uint8") and tuple(tensor.shape) == (24 * WIDTHS[dtype] // 8,)
        assert bytes_of(tensor) == memory.want(0)


@pytest.mark.parametrize("dtype", WHOLE_BYTES)
def test_numpy_and_torch_agree_on_the_width_of_every_type(dtype):
    number = dtypes.NAMES.index(dtype)
    assert dtypes.of_numpy(number).itemsize * 8 == WIDTHS[dtype]
    pytest.importorskip("torch", reason="torch is not installed")
    assert dtypes.of_torch(number).itemsize * 8 == WIDTHS[dtype]


def test_without_ml_dtypes_small_floats_are_their_bits_and_a_warning_says_so_once(python, fake):
    fake.put(REF, {"norm": ("BF16", np.full(3, 0x3f80, np.uint16)), "q": ("F8_E4M3", np.array([3], np.uint8)),
                   "w": ("F32", np.zeros(2, np.uint32))})
    assert python("""
import sys, warnings; sys.modules["ml_dtypes"] = None
import tensorcast_client as tc
t = tc.connect().artifact(sys.argv[1]).tensor_dict(framework="numpy")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(t["norm"].dtype, t["norm"].tolist(), t["norm"].dtype, t["q"].dtype, t["w"].dtype, t.dtypes["norm"])
for warning in caught:
    print(warning.category.__name__, str(warning.message).split(":")[0])""", REF).splitlines() == [
        "uint16 [16256, 16256, 16256] uint16 uint8 float32 BF16", "UserWarning BF16 tensors come as uint16, their bits and not their values",
        "UserWarning F8_E4M3 tensors come as uint8, their bits and not their values"]


def test_a_type_that_torch_lacks_is_refused(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.delattr(torch, "float8_e8m0fnu")
    dtypes.of_torch.cache_clear()
    with pytest.raises(errors.TensorcastError, match="F8_E8M0, for which torch .* has no type"):
        dtypes.of_torch(dtypes.NAMES.index("F8_E8M0"))


def test_the_wheel_depends_on_ml_dtypes():
    project = (Path(dtypes.__file__).parents[1] / "pyproject.toml").read_text()
    assert '"ml_dtypes' in project[project.index("\ndependencies"):].splitlines()[1]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_view_without_bytes_needs_no_memory(fake, client, framework):
    maker(framework)
    fake.put(REF, {"e": ("BF16", np.empty((0, 3), np.uint16)), "f": ("I64", np.empty((2, 0), np.uint64))})
    with client.artifact(REF).tensor_dict(framework=framework) as got:
        assert tuple(got["e"].shape) == (0, 3) and tuple(got["f"].shape) == (2, 0) and fake.leases == 0


GOOD = {"dtypes": [5], "ranks": [2], "dims": [2, 3], "offsets": [64], "sizes": [6]}


@pytest.mark.parametrize("change", [
    {"dtypes": [0]}, {"dtypes": [23]}, {"dtypes": [5, 5]}, {"dtypes": []}, {"ranks": [1]}, {"ranks": [3]},
    {"ranks": [1 << 63]}, {"dims": [2, 4]}, {"dims": [1 << 63, 3]}, {"dims": [1 << 40, 1 << 40]}, {"offsets": [123]},
    {"offsets": [(1 << 64) - 3]}, {"sizes": [7]}, {"sizes": [(1 << 64) - 1]}, {"sizes": [6, 6]},
    {"ranks": [MAX_RANK + 1], "dims": [1] * MAX_RANK + [6]}],
    ids=str)
def test_a_layout_that_leaves_the_memory_or_makes_no_sense_is_refused(change):
    assert make_layout(GOOD, 1, 128).sizes.tolist() == [6]
    with pytest.raises(errors.TensorcastError) as caught:
        make_layout({**GOOD, **change}, 1, 128)
    assert caught.value.reason == "BAD_ANSWER"


def test_a_layout_may_fill_the_memory_to_the_last_byte():
    assert make_layout({**GOOD, "offsets": [122]}, 1, 128).offsets.tolist() == [122]
    assert make_layout({**GOOD, "ranks": [MAX_RANK], "dims": [1] * (MAX_RANK - 1) + [6]}, 1, 128).shapes[0][-1] == 6


def test_an_empty_tensor_may_have_huge_dimensions():
    layout = make_layout({**GOOD, "ranks": [3], "dims": [0, 1 << 61, 1 << 61], "sizes": [0]}, 1, 128)
    assert layout.elements.tolist() == [0]
