"""Loads into GPU memory that the client owns: the real daemon, plugin and Python client on the fake CUDA. tests/gpu/region.c does
the same with the C client; test_gpu.py runs it."""
import json
import signal

import grpc
import pytest

from fake_gpu import UUIDS, arrays, digest, environment, needs_plugin, python, see_gpus, spawn_python  # noqa: F401
from stage import MiB, soon
from wire import Wire, code_of

pytestmark = needs_plugin

# An array of the fake's memory, which is this process's own: by cudaMalloc, or by cuMemCreate for descriptors.
CLIENT = """
import ctypes, gc, glob, json, os, struct, sys
import tensorcast_client as tc
MiB = 1 << 20
fake = os.environ["LD_LIBRARY_PATH"].split(":")[0]
driver = ctypes.CDLL(fake + "/libcuda.so.1")
runtime = ctypes.CDLL(next(path for path in glob.glob(fake + "/libcudart.so.*") if not path.endswith(".map")))
address, size, U64 = ctypes.c_uint64(), 16 * MiB, ctypes.c_uint64
def good(code):
    assert code == 0, code
good(runtime.cudaSetDevice(0))
if sys.argv[2] == "cudaMalloc":
    good(runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)))
else:
    handle, properties = U64(), struct.pack("<iiiiQ8x", 1, 1, 1, 0, 0)
    good(driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), properties, U64(0)))
    good(driver.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), U64(0), U64(0)))
    good(driver.cuMemMap(address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, U64(0)))
    good(driver.cuMemSetAccess(address, ctypes.c_size_t(size), struct.pack("<iii", 1, 0, 3), ctypes.c_size_t(1)))
ctypes.memset(address.value, 0xA5, size)
class Array:
    def __init__(self, offset, count, **other):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (address.value + offset, False),
                                         "strides": None, "version": 3, **other}
def content():
    return ctypes.string_at(address.value, size)
def fill(array, names=None, device="cuda:0", **how):
    artifact = tc.connect().artifact(sys.argv[1])
    view = artifact.subset(names) if names else artifact
    return view.tensor_dict(device=device, framework="dlpack", into=array, **how)
"""


@pytest.fixture
def gpus(start):
    def make(**fake):
        return start(running=False).start(environment=environment(**fake))

    return make


def spawn(script, daemon, models, kind="cudaMalloc"):
    return spawn_python(CLIENT + script, daemon.socket, f"disk:{models}/m", kind)


def client(script, daemon, models, kind="cudaMalloc"):
    return json.loads(python(CLIENT + script, daemon.socket, f"disk:{models}/m", kind).splitlines()[-1])


def untouched(daemon):
    status = daemon.status()
    return (status["loads"], status["replicas"], status["leases"]) == ([], [], 0) and status["devices"][0]["used_bytes"] == 0


@pytest.mark.parametrize("kind", ["cudaMalloc", "cuMemCreate"])
def test_a_clients_array_is_filled_and_nothing_around_it(gpus, models, arrays, kind):
    daemon = gpus()
    got = client("""
from hashlib import sha256
for _ in range(2):
    tensors = fill(Array(MiB + 256, 8 * MiB), ["b", "odd"])
    places = {name: tensors[name].data_ptr - address.value for name in tensors}
    sizes = {t["name"]: t["bytes"] for t in tensors.diagnostics["tensors"]}
    sums = {name: sha256(content()[places[name]:][:sizes[name]]).hexdigest() for name in tensors}
end = max(places[name] + sizes[name] for name in tensors)
around = content()[:MiB + 256] + content()[end:]
print(json.dumps([places["b"], sums, around == bytes([0xA5]) * len(around), tensors.diagnostics["device"]]))
""", daemon, models, kind)
    assert got == [MiB + 256, {name: digest(arrays[name]) for name in ("b", "odd")}, True, UUIDS[0]]
    assert soon(lambda: untouched(daemon))


def test_an_offer_that_cannot_be_right_is_refused_and_harms_no_client(gpus, models, arrays):
    daemon = gpus()
    codes = client("""
def code(*arguments, **how):
    try:
        fill(*arguments, **how)
    except tc.TensorcastError as error:
        return error.reason
print(json.dumps([code(Array(0, MiB)), code(Array(15 * MiB, 2 * MiB)), code(Array(0, 8 * MiB), device="cuda:1"),
                  code(Array(0, 8 * MiB), device="cpu"), code(object()), code(Array(0, 8 * MiB, strides=(2,))),
                  content() == bytes([0xA5]) * size]))
""", daemon, models)
    assert codes == ["REGION_TOO_SMALL", "NOT_DEVICE_MEMORY", "NOT_DEVICE_MEMORY", "BAD_OPTION", "BAD_OPTION", "BAD_OPTION",
                     True]
    assert soon(lambda: untouched(daemon)) and daemon.status()["devices"][0]["state"] == "in_service"


def test_a_token_that_was_never_given_is_not_found(gpus, models, arrays):
    daemon = gpus()
    with daemon.channel() as channel:
        wire = Wire(channel)
        for token in (b"x" * 32, b"x", b"x" * 33):
            load = wire.load_request(f"disk:{models}/m")
            load.device, load.region = "cuda:0", token
            with pytest.raises(grpc.RpcError) as refused:
                list(wire.call("Materialize", wire.message("MaterializeRequest", load=load)))
            assert code_of(refused.value) == grpc.StatusCode.ABORTED


def test_after_an_error_the_client_is_told_that_the_content_is_undefined(gpus, models, arrays):
    daemon = gpus(fail="stream:3:719:sticky")
    code, message = client("""
try:
    fill(Array(0, 8 * MiB))
except tc.TensorcastError as error:
    print(json.dumps([error.code.name, str(error)]))
""", daemon, models)
    assert code == "FAILED_PRECONDITION" and "out of service" in message and "content of the client's memory is undefined" in message
    assert soon(lambda: untouched(daemon))


def test_a_load_that_is_given_up_returns_the_memory_first(gpus, models, arrays):
    daemon = gpus(delay_us=20000)
    left = client("""
def stop(stage, done, total):
    raise KeyError("enough")
try:
    fill(Array(0, 8 * MiB), progress=stop)
except KeyError:
    before = content()
    import time; time.sleep(0.5)  # gives a copy the chance to be late
    print(json.dumps(before == content()))
""", daemon, models)
    assert left is True
    assert soon(lambda: untouched(daemon))


def test_no_other_client_shares_a_clients_memory(gpus, models, arrays):
    daemon = gpus(delay_us=200000)  # long enough to be seen on a busy machine
    see_gpus(daemon.cli)
    filling = spawn("""
at = fill(Array(0, 8 * MiB))["a"].data_ptr - address.value
input()
ctypes.memset(address.value, 0xA5, size)
fill(Array(0, 8 * MiB))  # although there is a replica by now
print(content()[at:at + 8].hex())
""", daemon, models)
    assert soon(lambda: daemon.status()["loads"] != [])
    beside = daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:0", "--digest")
    assert (beside["joined"], beside["from_replica"]) == (False, False)
    assert {t["name"]: t["sha256"] for t in beside["tensors"]} == {name: digest(array) for name, array in arrays.items()}
    assert soon(lambda: daemon.status()["loads"] == [])
    again = daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:0")
    assert again["from_replica"] and len(daemon.status()["replicas"]) == 1  # its own
    out, _ = filling.communicate("\n", timeout=120)
    assert out.strip() == arrays["a"].tobytes()[:8].hex()


@pytest.mark.parametrize("kind", ["cudaMalloc", "cuMemCreate"])
def test_a_client_that_dies_takes_its_load_with_it(gpus, models, arrays, kind):
    daemon = gpus(delay_us=200000)  # long enough to be seen on a busy machine
    dying = spawn("fill(Array(0, 8 * MiB))", daemon, models, kind)
    assert soon(lambda: daemon.status()["loads"] != [])
    dying.send_signal(signal.SIGKILL)
    dying.wait(60)
    assert soon(lambda: untouched(daemon))
    assert daemon.status()["devices"][0]["state"] == "in_service"
    see_gpus(daemon.cli)
    daemon.cli.ok("load", f"disk:{models}/m", "--device", "cuda:0")
