"""torch tensors from the client: types, silence about read-only memory, and models that take them."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
REF = "disk:/models/m"


@pytest.fixture
def tensors(fake):
    fake.put(REF, {"w": ("F32", np.arange(24, dtype=np.uint32).reshape(6, 4)), "b": ("BF16", np.arange(6, dtype=np.uint16)),
                   "s": ("I64", np.array(7, np.uint64)), "m": ("BOOL", np.array([0, 1], np.uint8))})
    return {name: bits for name, (_, bits) in fake.artifacts[REF].items()}


def test_types_shapes_and_bytes(client, tensors):
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
