"""Targets in GPU memory of the client: several allocations, strides and constants, alone and in groups, on the fake CUDA."""
import json

import numpy as np
import pytest

from fake_gpu import ALLOCATE, arrays, environment, needs_nccl, needs_plugin, spawn_python  # noqa: F401
from stage import soon

pytestmark = needs_plugin

CLIENT = ALLOCATE + """
rank = int(sys.argv[2])
assert runtime.cudaSetDevice(rank) == 0
def into(targets, names, slices=None, fills=None, cover=None, **how):
    view = tc.connect().artifact(sys.argv[1]).subset(names).view(slices=slices or {})
    return view.load_into({n: OnGpu(t) for n, t in targets.items()}, fills=fills, cover={n: OnGpu(t) for n, t in (cover or {}).items()} or None,
                          **how)
first, second = allocation(8 * MiB), allocation(8 * MiB)
wide = first[4096:4096 + 302 * 5003].reshape(302, 5003)
tall = second[1 << 20:(1 << 20) + 64 * 40 * 4].view("f4").reshape(64, 40)
"""
FILL = """
report = into({"a": wide[:300, 3:], "b": tall[:, :33], "edge": wide[:300, :3], "below": wide[300:], "pad": tall[:, 33:]}, ["a", "b"],
              fills={"edge": 7, "below": 0, "pad": -1.5}, cover={"wide": wide, "tall": tall}, **HOW)
np.save(sys.argv[3], np.asarray(wide)), np.save(sys.argv[4], np.asarray(tall))
outside = np.concatenate([first[:4096], first[4096 + wide.nbytes:], second[:MiB], second[MiB + tall.nbytes:]])
print(json.dumps([report, bool((outside == 0xA5).all())]))
"""


@pytest.fixture
def gpus(start):
    def make(transport="loopback", **fake):
        strategy = {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": 0}
        daemon = start(running=False, engine={"collective_transport": transport, "materialization_strategy": strategy})
        return daemon.start(environment=environment(**fake))

    return make


def fill(daemon, models, folder, rank=0, how="{}"):
    return spawn_python(CLIENT + f"HOW = {how}" + FILL, daemon.socket, f"disk:{models}/m", rank, folder / f"wide{rank}.npy",
                        folder / f"tall{rank}.npy")


def check(client, arrays, folder, rank=0):
    out, told = client.communicate(timeout=120)
    assert client.returncode == 0, told
    report, is_clean = json.loads(out.strip().splitlines()[-1])
    wide, tall = np.load(folder / f"wide{rank}.npy"), np.load(folder / f"tall{rank}.npy")
    np.testing.assert_array_equal(wide[:300, 3:], arrays["a"])
    np.testing.assert_array_equal(tall[:, :33], arrays["b"])
    assert (wide[:300, :3] == 7).all() and not wide[300:].any() and (tall[:, 33:] == -1.5).all() and is_clean
    assert report["bytes"]["target"] == wide.nbytes + tall.nbytes
    return report


def untouched(daemon):
    status = daemon.status()
    return (status["loads"], status["replicas"], status["leases"]) == ([], [], 0) and status["devices"][0]["used_bytes"] == 0


def test_strided_targets_in_two_allocations_and_constants_around_them(gpus, models, arrays, tmp_path):
    daemon = gpus()
    report = check(fill(daemon, models, tmp_path), arrays, tmp_path)
    assert daemon.logged("execution_commit") and report["bytes"]["residual"] == 0 and soon(lambda: untouched(daemon))


@needs_nccl
@pytest.mark.parametrize("transport", ["loopback", "nccl"])
def test_ranks_fill_their_own_gpus(gpus, models, arrays, tmp_path, transport):
    daemon = gpus(transport, devices=2)
    how = ("dict(options=tc.Options(group=tc.CollectiveLoadGroup('g', rank, 2), source_locality='shared_source', "
           "collective='required', deadline=60))")
    clients = [fill(daemon, models, tmp_path, rank, how) for rank in range(2)]
    reports = [check(client, arrays, tmp_path, rank) for rank, client in enumerate(clients)]
    assert all(report["executor"] == "owner_file_collective" for report in reports) and soon(lambda: untouched(daemon))
    assert daemon.logged(f"transport={transport}")


@needs_nccl
def test_ranks_that_lose_nccl_fill_their_memory_by_themselves(gpus, models, arrays, tmp_path):
    daemon = gpus("nccl", devices=2, nccl_fail="ncclGroupEnd:2:2")
    how = "dict(options=tc.Options(group=tc.CollectiveLoadGroup('g', rank, 2), source_locality='shared_source', deadline=60))"
    clients = [fill(daemon, models, tmp_path, rank, how) for rank in range(2)]
    for rank, client in enumerate(clients):
        check(client, arrays, tmp_path, rank)
    assert daemon.logged("transport_failed:nccl") and soon(lambda: untouched(daemon))
