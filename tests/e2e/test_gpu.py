"""Loads into GPU memory: the daemon with its real plugin, clients with their real import, all on the fake CUDA. What a GPU does
is not tested here, nor how fast it is: see docs/gpu.md."""
import json
import os
import signal
import subprocess
import sys

import pytest

from fake_gpu import (ALL_UUIDS, FAKE_NCCL, PLUGIN, UUIDS, arrays, digest, environment, needs_nccl,  # noqa: F401
                      needs_plugin, python, see_gpus)
from stage import BUILD, ROOT, MiB, SANITIZED, soon

pytestmark = needs_plugin


@pytest.fixture
def gpus(start):
    """Starts a daemon with fake GPUs; its command line has them, too."""

    def make(fake=None, **settings):
        fake = fake or {}
        daemon = start(running=False, **settings).start(environment=environment(**fake))
        see_gpus(daemon.cli, devices=fake.get("devices", 2))
        return daemon

    return make


def digests(report):
    return {tensor["name"]: tensor["sha256"] for tensor in report["tensors"]}


def test_every_byte_arrives_in_gpu_memory(gpus, models, arrays):
    daemon = gpus()
    report = daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:1", "--digest", "--slice", "a[5:, 100:4000]",
                             "--tensor", "b", "--tensor", "odd")
    assert digests(report) == {"a": digest(arrays["a"][5:, 100:4000]), "b": digest(arrays["b"]), "odd": digest(arrays["odd"])}
    assert (report["device"], report["memory"]) == (UUIDS[1], "device")
    status = daemon.status()
    assert [d["device"] for d in status["devices"]] == UUIDS and {d["state"] for d in status["devices"]} == {"in_service"}
    assert [r["device"] for r in status["replicas"]] == [UUIDS[1]]
    assert status["devices"][1]["used_bytes"] == status["replicas"][0]["bytes"] and status["memory"]["used_bytes"] == 0


def test_a_replica_is_found_again_under_every_name_of_its_device(gpus, models, arrays):
    daemon = gpus()
    first = daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:0")
    again = daemon.cli.json("load", f"disk:{models}/m", "--device", UUIDS[0])
    other = daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:1")
    host = daemon.cli.json("load", f"disk:{models}/m")
    assert [r["from_replica"] for r in (first, again, other, host)] == [False, True, False, False]
    assert "device" not in host
    daemon.cli.ok("release", "--all")
    assert daemon.status()["replicas"] == []


def test_the_lease_lasts_as_long_as_the_client(gpus, models, arrays):
    daemon = gpus()
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--device", "cuda", "--hold", "60", "--quiet")
    assert soon(lambda: daemon.status()["leases"] == 1)
    holder.send_signal(signal.SIGKILL)
    holder.wait(60)
    assert soon(daemon.at_rest)


def test_the_budget_of_a_device_is_its_own(gpus, models, arrays):
    daemon = gpus(devices={"memory_budget": "6MiB"})
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--tensor", "odd", "--device", "cuda:0", "--hold", "60", "--quiet")
    assert soon(lambda: daemon.status()["leases"] == 1)
    refused = daemon.cli.run("load", f"disk:{models}/m", "--device", "cuda:0")
    assert refused.status == "RESOURCE_EXHAUSTED" and "devices.memory_budget" in refused.err
    assert daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:1")["device"] == UUIDS[1]
    holder.kill()
    holder.wait(60)


def test_memory_that_others_have_taken_is_told(gpus, models, arrays):
    daemon = gpus(fake={"memory": 2 * MiB}, devices={"memory_budget": "1GiB"})
    refused = daemon.cli.run("load", f"disk:{models}/m", "--device", "cuda:0")
    assert refused.status == "RESOURCE_EXHAUSTED" and "bytes free of 2097152" in refused.err
    assert daemon.cli.json("load", f"disk:{models}/m", "--digest")["memory"] != "device"
    assert daemon.status()["devices"][0]["state"] == "in_service"


def test_a_broken_device_goes_out_of_service_and_the_daemon_stays(gpus, models, arrays):
    daemon = gpus(fake={"fail": "stream:2:719:sticky"})
    failed = daemon.cli.run("load", f"disk:{models}/m", "--device", "cuda:0")
    assert failed.status == "FAILED_PRECONDITION" and "out of service" in failed.err
    status = daemon.status()
    assert [d["state"] for d in status["devices"]] == ["out_of_service", "in_service"]
    assert status["devices"][0]["problem"] and status["replicas"] == [] and status["devices"][0]["used_bytes"] == 0
    assert "cuda:0" in daemon.cli.ok("status").out
    for device in ("cuda:0", UUIDS[0]):
        assert daemon.cli.run("load", f"disk:{models}/m", "--device", device).status == "FAILED_PRECONDITION"
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--device", "cuda:1", "--digest"))["b"] == digest(arrays["b"])
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest"))["a"] == digest(arrays["a"])
    assert soon(lambda: daemon.log().count("device_out_of_service") == 1)


def test_a_device_that_does_not_exist_is_refused(gpus, models, arrays):
    daemon = gpus()
    assert daemon.cli.run("prewarm", f"disk:{models}/m", "--device", "cuda:7").status == "NOT_FOUND"
    assert daemon.cli.run("prewarm", f"disk:{models}/m", "--device", "mps").status == "UNIMPLEMENTED"
    assert daemon.cli.run("load", f"disk:{models}/m", "--device", "cuda:7").status == "FAILED_PRECONDITION"
    assert daemon.cli.run("prewarm", f"disk:{models}/m", "--device", "x" * 64).status == "INVALID_ARGUMENT"


def test_without_a_gpu_the_answer_says_what_was_looked_for(start, models, arrays):
    daemon = start(devices={"plugin_folder": str(models)})
    refused = daemon.cli.run("prewarm", f"disk:{models}/m", "--device", "cuda:0")
    assert refused.status == "FAILED_PRECONDITION" and f"{models}/tensorcast-cuda.so" in refused.err
    assert soon(lambda: daemon.log().count("event=no_devices") == 1) and daemon.status()["devices_problem"]
    client = daemon.cli.run("load", f"disk:{models}/m", "--device", "cuda:0")
    assert client.status == "FAILED_PRECONDITION" and "libcuda.so.1" in client.err


def test_the_fake_does_nothing_unless_it_is_told_to(start, models, arrays):
    daemon = start(running=False).start(environment={**environment(), "TENSORCAST_TEST_FAKE_CUDA": "0"})
    assert daemon.status()["devices"] == [] and daemon.logged("FAKE CUDA")
    assert PLUGIN.name in daemon.status()["devices_problem"]


def test_ranks_of_a_group_load_into_their_devices_and_read_once(gpus, models, arrays):
    strategy = {"enable_owner_file_collective": True, "owner_file_collective_shared_fs_only": False,
                "owner_file_collective_min_dedup_saving_bytes": "0"}
    daemon = gpus(engine={"materialization_strategy": strategy})
    ranks = [daemon.cli.spawn("load", f"disk:{models}/m", "--device", f"cuda:{rank}", "--group", "g", "--rank", rank,
                              "--world-size", 2, "--source-locality", "shared_source", "--json", "--digest") for rank in range(2)]
    reports = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert [report["device"] for report in reports] == UUIDS
    assert {report["executor"] for report in reports} == {"owner_file_collective"}, reports[0]["selection_reason"]
    size = sum(array.nbytes for array in arrays.values())
    for report in reports:
        assert digests(report) == {name: digest(array) for name, array in arrays.items()}
        assert report["collective"]["collective_unique_source_bytes"] == size


def nccl_gpus(gpus, transport="nccl", budget="auto", **fake):
    strategy = {"enable_owner_file_collective": True, "owner_file_collective_shared_fs_only": False,
                "owner_file_collective_min_dedup_saving_bytes": "0", "owner_file_collective_batch_bytes": "2MiB",
                "owner_file_collective_max_owner_skew_ratio": 10}
    return gpus(fake=fake, engine={"collective_transport": transport, "materialization_strategy": strategy},
                devices={"memory_budget": budget})


def start_parts(daemon, models, world, group="g", policy=("--collective", "required")):
    """Rank r of a group gets its rows of `a`, and all of the rest, on GPU r."""
    rows = 300 // world
    return [daemon.cli.spawn("load", f"disk:{models}/m", "--device", f"cuda:{rank}", "--group", group, "--rank", rank,
                             "--world-size", world, "--source-locality", "shared_source", "--slice",
                             f"a[{rank * rows}:{(rank + 1) * rows}, :]", "--tensor", "b", "--tensor", "odd", "--json", "--digest",
                             *policy) for rank in range(world)]


def load_parts(*arguments, **options):
    return [(rank.communicate(timeout=100), rank.returncode) for rank in start_parts(*arguments, **options)]


def expect_parts(results, arrays, world):
    rows, reports = 300 // world, []
    for rank, ((out, err), code) in enumerate(results):
        assert code == 0, err
        reports.append(json.loads(out))
        assert digests(reports[-1]) == {"a": digest(arrays["a"][rank * rows:(rank + 1) * rows]), "b": digest(arrays["b"]),
                                        "odd": digest(arrays["odd"])}
    assert [report["device"] for report in reports] == ALL_UUIDS[:world]
    return reports


@needs_nccl
@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_on_gpus_of_their_own_exchange_over_nccl(gpus, models, arrays, world):
    daemon = nccl_gpus(gpus, devices=world)
    for round in range(2): # no communicator is kept from one load to the next
        reports = expect_parts(load_parts(daemon, models, world, f"g{round}"), arrays, world)
        assert {report["executor"] for report in reports} == {"owner_file_collective"}, reports[0]["selection_reason"]
        for report in reports:
            assert report["collective"]["collective_unique_source_bytes"] == sum(array.nbytes for array in arrays.values())
            assert report["collective"]["collective_peer_transfer_bytes"] >= arrays["odd"].nbytes * (world - 1)
        daemon.cli.ok("release", "--all")
    assert soon(lambda: daemon.log().count("FAKE NCCL: no communicator is left") == 2) and daemon.logged("transport=nccl", "event=load_done")
    log = daemon.log()
    assert log.index("FAKE NCCL: no communicator is left") < log.index("event=load_done"), "a rank was published before"


@needs_nccl
def test_an_error_between_gpus_fails_the_group_and_the_next_one_loads(gpus, models, arrays):
    daemon = nccl_gpus(gpus, nccl_fail="async:10:6")
    for (out, err), code in load_parts(daemon, models, 2):
        assert code != 0 and "NCCL" in err
    assert soon(lambda: daemon.log().count("FAKE NCCL: no communicator is left") == 1) and daemon.status()["replicas"] == []
    assert soon(lambda: [device["used_bytes"] for device in daemon.status()["devices"]] == [0, 0])
    expect_parts(load_parts(daemon, models, 2), arrays, 2)
    assert [device["state"] for device in daemon.status()["devices"]] == ["in_service", "in_service"]


@needs_nccl
@pytest.mark.parametrize("fail", ["async:10:6", "ncclGroupEnd:2:2"])
def test_ranks_that_may_go_without_the_group_load_alone_after_an_error_between_gpus(gpus, models, arrays, fail):
    daemon = nccl_gpus(gpus, nccl_fail=fail)
    reports = expect_parts(load_parts(daemon, models, 2, policy=("--executor", "collective")), arrays, 2)
    assert all("transport_failed:nccl:NCCL_ERROR" in report["selection_reason"] for report in reports)
    assert soon(lambda: daemon.log().count("FAKE NCCL: no communicator is left") == 1)
    assert soon(lambda: all(device["used_bytes"] < 64 * MiB for device in daemon.status()["devices"]))


@needs_nccl
def test_a_transfer_that_hangs_ends_when_its_clients_are_gone(gpus, models, arrays):
    daemon = nccl_gpus(gpus, nccl_fail="kernel:1:0")
    ranks = start_parts(daemon, models, 2)
    assert soon(lambda: "a transfer that never ends has begun" in daemon.log())
    assert soon(lambda: all(device["used_bytes"] > 64 * MiB for device in daemon.status()["devices"])), "staging is charged, too"
    for rank in ranks:
        rank.kill()
        rank.wait(60)
    assert soon(lambda: "no communicator is left" in daemon.log()) and soon(daemon.at_rest)
    expect_parts(load_parts(daemon, models, 2), arrays, 2)
    assert {device["state"] for device in daemon.status()["devices"]} == {"in_service"}
    assert soon(lambda: all(device["used_bytes"] < 64 * MiB for device in daemon.status()["devices"]))


@needs_nccl
def test_a_gpu_whose_budget_has_no_room_to_stage_is_not_used_for_it(gpus, models, arrays):
    daemon = nccl_gpus(gpus, budget="64MiB")
    for (out, err), code in load_parts(daemon, models, 2):
        assert code != 0 and "FAILED_PRECONDITION" in err and "transport_device_budget_exceeded:nccl" in err
    reports = expect_parts(load_parts(daemon, models, 2, policy=("--executor", "collective")), arrays, 2)
    assert all("transport_device_budget_exceeded:nccl" in report["selection_reason"] for report in reports)
    assert "FAKE NCCL: no communicator is left" not in daemon.log(), "nor was anything tried"


@needs_nccl
def test_ranks_go_without_the_group_when_nccl_does_not_start(gpus, models, arrays):
    daemon = nccl_gpus(gpus, nccl_fail="ncclGetUniqueId:1:2")
    reports = expect_parts(load_parts(daemon, models, 2, policy=("--executor", "collective")), arrays, 2)
    assert "owner_file_collective" not in {report["executor"] for report in reports}
    assert all("transport_failed:nccl:NCCL_ERROR" in report["selection_reason"] for report in reports)


@needs_nccl
@pytest.mark.parametrize("fails", [None, "ncclGetUniqueId:1:2"])
def test_a_group_that_may_choose_uses_loopback_when_nccl_does_not_start(start, models, arrays, fails):
    strategy = {"enable_owner_file_collective": True, "owner_file_collective_shared_fs_only": False,
                "owner_file_collective_min_dedup_saving_bytes": "0", "owner_file_collective_max_owner_skew_ratio": 10}
    daemon = start(running=False, engine={"materialization_strategy": strategy})
    daemon.state.mkdir(exist_ok=True)  # a source so quick that the links to the host are what limits
    quick = {"request_ps": 10000, "bytes_per_s": 900 * 10**9, "samples": 9}
    known = {"device": os.stat(models).st_dev, "fresh_bytes_per_s": 900 * 10**9, "cached": quick, "uncached": quick}
    (daemon.state / "calibration.json").write_text(json.dumps({"version": 1, "devices": [known]}))
    daemon.start(environment=environment(devices=4, **({"nccl_fail": fails} if fails else {})))
    see_gpus(daemon.cli, devices=4)
    reports = expect_parts(load_parts(daemon, models, 4), arrays, 4)
    assert {report["collective"]["transport"] for report in reports} == {"loopback" if fails else "nccl"}
    assert soon(lambda: daemon.log().count("event=transport_failed") == (1 if fails else 0))


@needs_nccl
def test_without_nccl_there_are_gpus_and_a_reason(start, models, arrays):
    strategy = {"enable_owner_file_collective": True, "owner_file_collective_shared_fs_only": False}
    daemon = start(running=False, engine={"collective_transport": "nccl", "materialization_strategy": strategy})
    daemon.start(environment={**environment(), "TENSORCAST_TEST_FAKE_NCCL": "0"})
    see_gpus(daemon.cli)
    assert daemon.logged("event=no_transport", "libnccl.so.2", "event=collective_transport_unavailable")
    assert daemon.log().count("event=no_transport") == 1
    reports = expect_parts(load_parts(daemon, models, 2, policy=("--executor", "collective")), arrays, 2)
    assert all("transport_unavailable:nccl" in report["selection_reason"] for report in reports)


@needs_nccl
def test_two_ranks_on_one_gpu_are_refused_by_nccl_with_a_reason(gpus, models, arrays):
    daemon = nccl_gpus(gpus)
    two_on_one = [daemon.cli.spawn("load", f"disk:{models}/m", "--device", "cuda:0", "--tensor", name, "--group", "h", "--rank", rank,
                                   "--world-size", 2, "--source-locality", "shared_source", "--executor", "collective", "--json", "--digest")
                  for rank, name in enumerate(("a", "b"))]
    for rank in two_on_one:
        report = json.loads(rank.communicate(timeout=120)[0])
        assert "transport_needs_a_gpu_per_rank:nccl" in report["selection_reason"]


READ_BACK = """
import ctypes, hashlib, json, sys
import tensorcast_client as tc
driver = ctypes.CDLL("libcuda.so.1")
def read(tensor, size):
    kept, context = ctypes.create_string_buffer(size), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), tensor.__dlpack_device__()[1]) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuMemcpyDtoH_v2(kept, ctypes.c_uint64(tensor.data_ptr), ctypes.c_size_t(size)) == 0
    return kept.raw
"""


def test_python_gets_dlpack_tensors_that_hold_the_lease(gpus, models, arrays):
    daemon = gpus()
    out = python(READ_BACK + """
from tensorcast_client import dlpack
client = tc.connect()
with client.artifact(sys.argv[1]).subset(["b", "odd"]).tensor_dict(device="cuda:1", framework="dlpack") as tensors:
    kept = tensors["b"]
    sizes = {t["name"]: t["bytes"] for t in tensors.diagnostics["tensors"]}
    got = {name: hashlib.sha256(read(tensors[name], sizes[name])).hexdigest() for name in tensors}
    device = tensors.diagnostics["device"]
del tensors
capsule = kept.__dlpack__()
managed = dlpack.Managed.from_address(ctypes.pythonapi.PyCapsule_GetPointer and dlpack._pointer_of(id(capsule), b"dltensor"))
tensor = managed.tensor
struct = [tensor.device.type, tensor.device.number, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes,
          tensor.shape[:tensor.rank], tensor.strides[:tensor.rank], tensor.data == kept.data_ptr, tensor.byte_offset]
del kept
import gc; gc.collect()
leases = [int(input())] if False else []
from tensorcast_client import messages
import subprocess
def count():
    return json.loads(subprocess.run([sys.argv[2], "status", "--json"], capture_output=True, text=True).stdout)["leases"]
held = count()
del capsule, managed, tensor; gc.collect()
print(json.dumps([got, device, struct, held, count()]))
""", daemon.socket, f"disk:{models}/m", daemon.cli.spawn("--version").args[0])
    got, device, struct, held, after = json.loads(out.splitlines()[-1])
    assert got == {name: digest(arrays[name]) for name in ("b", "odd")} and device == UUIDS[1]
    assert struct == [2, 1, 2, 32, 1, [64, 33], [33, 1], True, 0]
    assert held == 1
    assert after == 0 or soon(daemon.at_rest)


def test_torch_takes_what_dlpack_offers_and_keeps_it_alive(gpus, models, arrays):
    pytest.importorskip("torch")
    if SANITIZED:
        pytest.skip("torch does not run beside a sanitized fake")
    # this torch has no GPU, so the fake's memory is announced as the host memory it is; the rest is the real path
    daemon = gpus()
    out = python("""
import gc, hashlib, json, sys
import tensorcast_client as tc
from tensorcast_client import cuda
cuda.DeviceMemory.__dlpack_device__ = lambda self: (1, 0)
tensors = tc.connect().artifact(sys.argv[1]).tensor_dict(device="cuda:0", framework="torch")
kept = tensors["b"]
tensors.close(); del tensors; gc.collect()
print(hashlib.sha256(kept.numpy().tobytes()).hexdigest(), list(kept.shape), kept.dtype)
""", daemon.socket, f"disk:{models}/m")
    assert out.splitlines()[-1] == f"{digest(arrays['b'])} [64, 33] torch.float32"


def test_python_says_what_it_looked_for(gpus, models, arrays, start):
    daemon = gpus()
    script = """
import sys
import tensorcast_client as tc
try:
    tc.connect().artifact(sys.argv[1]).tensor_dict(device=sys.argv[2], framework=sys.argv[3])
except tc.TensorcastError as error:
    print(error.code.name, error)
"""
    assert "cuda:9 is none of the 2" in python(script, daemon.socket, f"disk:{models}/m", "cuda:9", "dlpack")
    assert 'on a GPU "torch" or "dlpack"' in python(script, daemon.socket, f"disk:{models}/m", "cuda:0", "numpy")
    assert python(script, daemon.socket, f"disk:{models}/m", "mps", "dlpack").startswith("UNIMPLEMENTED")


@pytest.mark.skipif(SANITIZED, reason="the script builds its own, plain programs")
def test_the_script_for_real_gpus_runs_to_its_end(tmp_path):
    done = subprocess.run(["bash", ROOT / "tests/gpu/run.sh", BUILD], text=True, capture_output=True, timeout=300,
                          env={**os.environ, **environment(), "OUT": str(tmp_path), "SIZE_MIB": "16", "RATES_MIB": "64", "PYTHON": sys.executable,
                               "SCENE_PARENT": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    states = dict(line.split()[:2] for line in done.stdout.splitlines() if line.startswith("T"))
    assert list(states) == [f"T{i}" for i in range(1, 13)]
    with_nccl = ("T6", "T7") if FAKE_NCCL.exists() else ()
    assert {states[test] for test in ("T1", "T2", "T3", "T4", "T5", *with_nccl, "T10")} == {"simulated"}
    assert {states[test] for test in ("T9", "T11", "T12")} == {"skipped"}  # this torch sees no GPU
    assert "this is the fake CUDA" in done.stdout
