"""Targets on the wire: strided places in several memfds, constants and covers, alone and in groups; what is refused leaves
memory as it was."""
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from checkpoints import write
from host_regions import Region, materialize, offer, wire
from stage import MiB, soon
from wire import code_of

DTYPES = {np.dtype(np.uint8): "U8", np.dtype(np.uint16): "U16", np.dtype(np.uint32): "U32"}
GROUPS = {"engine": {"materialization_strategy": {"enable_owner_file_collective": True,
                                                  "owner_file_collective_min_dedup_saving_bytes": 0}}}


def place(region, array):
    """Region, offset and strides of an array that lies in a region."""
    offset = array.__array_interface__["data"][0] - region.bytes.__array_interface__["data"][0]
    return offset, array.strides


class Request:
    """Columns, one array after the other: tensors, then fills, then covers."""

    def __init__(self, spoken, artifact, names):
        self.load, self.regions, self.targets = spoken.load_request(artifact, names), [], None
        self.targets = self.load.targets
        self.dtypes = spoken.pool.FindEnumTypeByName("tensorcast.daemon.v1.DType").values_by_name

    def add(self, region, array):
        if region not in self.regions:
            self.regions.append(region)
        offset, strides = place(region, array)
        name = next(n for n in self.dtypes if n.split("DTYPE_")[-1] == DTYPES[array.dtype])
        self.targets.dtypes.append(self.dtypes[name].number)
        self.targets.ranks.append(array.ndim)
        self.targets.dims.extend(array.shape)
        self.targets.strides.extend(strides)
        self.targets.offsets.append(offset)
        self.targets.region_indexes.append(self.regions.index(region))

    def fill(self, name, region, array, value):
        self.targets.fill_names.append(name)
        self.targets.fill_values.append(np.array(value, array.dtype).tobytes())
        self.add(region, array)

    def cover(self, name, region, array):
        self.targets.cover_names.append(name)
        self.add(region, array)

    def send(self, spoken, daemon):
        peers = []
        for region in self.regions:
            token, peer = offer(daemon, region.fd)
            self.targets.regions.append(token)
            peers.append(peer)
        try:
            return materialize(spoken, self.load)
        finally:
            for peer in peers:  # nothing of the daemon touches any of it any more
                assert peer.recv(1) == b""


@pytest.fixture
def model(models):
    rng = np.random.default_rng(7)
    return write(models / "m", {"q": rng.integers(0, 1 << 16, (8, 6), np.uint16)}, {"k": rng.integers(0, 1 << 16, (4, 6), np.uint16)})


def fused(daemon, models, model, regions):
    """q and k one below the other in a padded array of one region, and a constant beside them in another."""
    with wire(daemon) as spoken:
        request = Request(spoken, f"disk:{models}/m", ["q", "k"])
        whole = regions[0].array(np.uint16, (12, 10), 32)
        request.add(regions[0], whole[:8, :6])
        request.add(regions[0], whole[8:, 5::-1])
        request.fill("right", regions[0], whole[:, 6:], 513)
        request.fill("apart", regions[1], regions[1].array(np.uint32, (5,), 4), 0)
        request.cover("all", regions[0], whole)
        result = request.send(spoken, daemon)
    want = np.full((12, 10), 513, np.uint16)
    want[:8, :6], want[8:, 5::-1] = model["q"], model["k"]
    np.testing.assert_array_equal(whole, want)
    assert (regions[0].bytes[:32] == 0xEE).all() and (regions[0].bytes[32 + whole.nbytes:] == 0xEE).all()
    assert not regions[1].bytes[4:24].any() and (regions[1].bytes[24:] == 0xEE).all()
    return result, whole.nbytes + 20


def test_pieces_and_constants_make_one_padded_parameter(start, models, model):
    daemon = start()
    result, nbytes = fused(daemon, models, model, [Region(4096), Region(100)])
    report = result.report
    assert report.target_bytes == report.into.committed_bytes == nbytes and report.view_bytes == 144
    assert report.residual_bytes == report.into.fallback_bytes == 0 and report.into.direct_write_supported
    assert report.into.dominant_executor == report.executor and len(report.candidates) == 3
    assert soon(lambda: "materialize_mapped_into_target" in daemon.log()), daemon.log()
    (line,) = [line for line in daemon.log().splitlines() if "materialize_mapped_into_target" in line]
    assert f"committed_bytes={nbytes}" in line and "execution_commit" in line
    status = daemon.status()
    assert (status["loads"], status["replicas"], status["leases"], status["memory"]["used_bytes"]) == ([], [], 0, 0)


def test_ranks_of_a_group_fill_targets_of_their_own_and_one_has_none(start, models, model):
    daemon = start(**GROUPS)
    regions = [[Region(4096), Region(100)] for _ in range(2)]

    def rank(r):
        with wire(daemon) as spoken:
            request = Request(spoken, f"disk:{models}/m", ["q", "k"])
            group = request.load.topology.group
            group.id, group.rank, group.world_size = "g", r, 3
            request.load.topology.source_locality, request.load.policy.collective = 2, 1
            if r == 2:
                request.load.ClearField("targets")
                return materialize(spoken, request.load)
            whole = regions[r][0].array(np.uint16, (12, 10), 32)
            request.add(regions[r][0], whole[:8, r:6 + r])
            request.add(regions[r][0], whole[8:, 4 - r:10 - r])
            result = request.send(spoken, daemon)
        np.testing.assert_array_equal(whole[:8, r:6 + r], model["q"])
        np.testing.assert_array_equal(whole[8:, 4 - r:10 - r], model["k"])
        return result

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(rank, range(3)))
    assert all(result.report.executor == "owner_file_collective" for result in results)
    assert [result.report.into.collective_handled for result in results] == [True, True, False]
    assert [len(result.handoff_token) for result in results] == [0, 0, 32]


def overlapping(request, region, _):
    request.add(region, region.array(np.uint16, (8, 6), 0))
    request.add(region, region.array(np.uint16, (4, 6), 94))


def through_two_offers(request, region, twin):
    request.add(region, region.array(np.uint16, (8, 6), 0))
    request.add(twin, twin.array(np.uint16, (4, 6), 94))


def outside(request, region, _):
    request.add(region, region.array(np.uint16, (8, 6), 0))
    request.add(region, region.array(np.uint16, (4, 6), 4096 - 48))
    request.targets.offsets[1] += 2


def gap(request, region, _):
    overlapping(request, region, _)
    request.targets.offsets[1] = 108
    request.cover("both", region, region.array(np.uint16, (13, 6), 0))


def too_few(request, region, _):
    request.add(region, region.array(np.uint16, (8, 6), 0))


REFUSED = {overlapping: ("q", "k"), through_two_offers: ("q", "k"), outside: ("k",), gap: ("both", "8:9"), too_few: ("k",)}


@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: wrong.__name__)
def test_what_cannot_be_is_refused_before_the_first_byte(start, models, model, wrong):
    daemon = start()
    region = Region(4096)
    twin = Region.__new__(Region)
    twin.__dict__.update(region.__dict__)
    with wire(daemon) as spoken:
        request = Request(spoken, f"disk:{models}/m", ["q", "k"])
        wrong(request, region, twin)
        with pytest.raises(grpc.RpcError) as caught:
            request.send(spoken, daemon)
    assert code_of(caught.value) == grpc.StatusCode.INVALID_ARGUMENT
    assert all(word in caught.value.details() for word in REFUSED[wrong]), caught.value.details()
    assert "undefined" not in caught.value.details() and (region.bytes == 0xEE).all()
    assert soon(lambda: daemon.status()["leases"] == 0)


def test_loads_side_by_side_never_take_bytes_from_a_clients_memory(start, models):
    """One client scribbles over its memory while its load and others of the same tensor go on."""
    daemon = start(memory={"host_budget": "1GiB", "replica_idle_ttl": "0s"})
    bits = np.random.default_rng(3).integers(0, 1 << 32, (6 * MiB,), np.uint32)
    write(models / "m", {"w": bits})
    region, stop = Region(bits.nbytes + 64), threading.Event()
    own = region.array(np.uint32, bits.shape, 64)

    def scribble():
        while not stop.is_set():
            own[::512] = 0xDEADBEEF

    def into():
        with wire(daemon) as spoken:
            request = Request(spoken, f"disk:{models}/m", ["w"])
            request.add(region, own)
            request.send(spoken, daemon)

    def packed(_):
        memory = Region(bits.nbytes, fill=0)
        with wire(daemon) as spoken:
            request = spoken.load_request(f"disk:{models}/m", ["w"])
            request.region, peer = offer(daemon, memory.fd)
            materialize(spoken, request)
        assert peer.recv(1) == b""
        np.testing.assert_array_equal(memory.array(np.uint32, bits.shape), bits)

    scribbler = threading.Thread(target=scribble)
    scribbler.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(3):
                done = [pool.submit(into)] + [pool.submit(packed, i) for i in range(3)]
                [future.result() for future in done]
    finally:
        stop.set()
        scribbler.join()
