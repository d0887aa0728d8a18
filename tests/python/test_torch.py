"""torch tensors from the client: types, silence about read-only memory, storages, and models that take them."""
import copy
import io
import pickle
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
REF = "disk:/models/m"


@pytest.fixture
def tensors(fake):
    fake.put(REF, {"w": ("F32", np.arange(24, dtype=np.uint32).reshape(6, 4)), "b": ("BF16", np.arange(6, dtype=np.uint16)),
                   "s": ("I64", np.array(7, np.uint64)), "m": ("BOOL", np.array([0, 1], np.uint8))})
    return {name: bits for name, (_, bits) in fake.artifacts[REF].items()}


def test_torch_tensors_keep_types_shapes_and_bytes(client, tensors):
    with client.artifact(REF).tensor_dict(framework="torch") as got:
        assert {name: (t.dtype, tuple(t.shape)) for name, t in got.items()} == {
            "w": (torch.float32, (6, 4)), "b": (torch.bfloat16, (6,)), "s": (torch.int64, ()), "m": (torch.bool, (2,))}
        assert got["w"].view(torch.int32).numpy().tobytes() == tensors["w"].tobytes()
        assert got["s"].item() == 7 and got["m"].tolist() == [False, True]


def test_torch_is_the_default_where_it_is_installed(client, tensors):
    with client.artifact(REF).subset(["s"]).tensor_dict() as got:
        assert isinstance(got["s"], torch.Tensor)


def test_read_only_memory_prints_no_warning(python, tensors):  # the fixture turns warnings of users into errors
    assert python("""
import sys, tensorcast_client as tc
t = tc.connect().artifact(sys.argv[1]).tensor_dict(framework="torch", device="cpu")
print(len(dict(t)))""", REF) == "4"


def test_a_tensor_holds_the_lease(fake, client, tensors):
    with client.artifact(REF).tensor_dict(framework="torch") as got:
        row = got["w"][2]
    assert fake.leases == 1 and row.view(torch.int32).tolist() == [8, 9, 10, 11]
    del row
    assert fake.wait_for_leases(0)


def test_a_model_takes_the_tensors_by_copy_and_by_reference(client, fake):
    fake.put(REF, {"weight": ("F32", np.arange(8, dtype=np.uint32).reshape(2, 4)), "bias": ("F32", np.zeros(2, np.uint32))})
    for assign in (False, True):
        model = torch.nn.Linear(4, 2)
        with client.artifact(REF).tensor_dict(framework="torch") as got:
            model.load_state_dict(dict(got), assign=assign)
        assert model.weight.view(torch.int32).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        model(torch.ones(1, 4)).sum().backward()
        assert model.weight.grad.shape == (2, 4)


def test_an_unaligned_tensor_is_copied(client, tensors):
    with client.artifact(REF).subset(["m", "w"]).view(align=1).tensor_dict(framework="torch") as got:
        assert got["w"].view(torch.int32).numpy().tobytes() == tensors["w"].tobytes()


def test_writable_tensors_can_be_changed_in_place(client, tensors):
    for how in ({"writable": True}, {}):
        writable = client.artifact(REF).tensor_dict(framework="torch", **how)["s"]
        writable.add_(1)
        assert writable == client.artifact(REF).tensor_dict(framework="torch")["s"] + 1


def is_own(tensor):
    """Whether its storage is its bytes and no others."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() == tensor.data_ptr() and storage.nbytes() == tensor.numel() * tensor.element_size()


def faces():
    """{name: what makes a state dict of a client's artifact}"""
    from tensorcast_client.torch import StateDict, load_state_dict

    def of_module(artifact):
        module = torch.nn.Module()
        for name, like in artifact.tensor_dict(framework="torch").items():
            module.register_buffer(name, torch.empty_like(like))
        load_state_dict(module, artifact, assign=True)
        return module.state_dict()

    return {"tensor_dict": lambda artifact: dict(artifact.tensor_dict(framework="torch")), "one by one": lambda artifact: _one_by_one(artifact),
            "StateDict": lambda artifact: dict(StateDict(artifact)), "load_state_dict": of_module,
            "LazyTensor.load": lambda artifact: {name: lazy.load(framework="torch") for name, lazy in artifact.items()}}


def _one_by_one(artifact):
    tensors = artifact.tensor_dict(framework="torch")
    return {name: tensors[name] for name in tensors}


@pytest.mark.parametrize("face", faces())
def test_every_tensor_has_a_storage_of_its_own_in_the_memory_of_the_load(client, tensors, face):
    state = faces()[face](client.artifact(REF))
    assert {name: tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in state.items()} == {
        name: bits.tobytes() for name, bits in tensors.items()}
    assert all(is_own(tensor) for tensor in state.values())


def test_a_copy_a_pickle_and_a_saved_file_have_the_bytes_of_one_tensor(client, fake):
    fake.put(REF, {"large": ("F32", np.zeros((256, 256), np.uint32)), "small": ("F16", np.arange(5, dtype=np.uint16))})
    small, file = client.artifact(REF).tensor_dict(framework="torch")["small"], io.BytesIO()
    torch.save(small, file)
    assert copy.deepcopy(small).untyped_storage().nbytes() == 10 and len(file.getvalue()) < 10_000
    assert torch.load(io.BytesIO(file.getvalue())).equal(small) and len(pickle.dumps(small)) < 10_000


def test_tensors_of_several_types_are_saved_together(client, tensors):
    file, state = io.BytesIO(), dict(client.artifact(REF).tensor_dict(framework="torch"))
    torch.save(state, file)
    got = torch.load(io.BytesIO(file.getvalue()))
    assert all(tensor.equal(state[name]) for name, tensor in got.items())


def test_what_is_written_to_one_tensor_is_in_no_other(client, fake):
    fake.put(REF, {str(i): ("U8", np.full(3, i, np.uint8)) for i in range(40)})
    state = client.artifact(REF).tensor_dict(framework="torch")
    state["7"].fill_(200)
    assert [name for name, tensor in state.items() if tensor.tolist() != [int(name)] * 3] == ["7"]


def test_many_tensors_take_one_mapping_and_little_time(client, fake):
    fake.put(REF, {f"layer.{i}.w": ("F32", np.full((2, 3), i, np.uint32)) for i in range(5000)})
    artifact = client.artifact(REF)
    dict(artifact.tensor_dict(framework="torch"))
    maps, best = len(open("/proc/self/maps").readlines()), 1e9
    for _ in range(5):
        tensors, start = artifact.tensor_dict(framework="torch"), time.thread_time()
        state = dict(tensors)
        best = min(best, time.thread_time() - start)
    assert best < .5 and len(open("/proc/self/maps").readlines()) - maps < 20
    assert all(tensor.view(torch.int32)[0, 0] == i and is_own(tensor) for i, tensor in enumerate(state.values()))
