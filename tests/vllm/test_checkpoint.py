"""How the loader asks for the pieces of a plan: progress, a checkpoint that changes, devices; against a stand-in for the client."""
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcast_client as tc  # noqa: E402
from grpc import StatusCode  # noqa: E402
from tensorcast_client import errors  # noqa: E402
from tensorcast_vllm import checkpoint as module  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint, unavailable  # noqa: E402
from tensorcast_vllm.regions import Box  # noqa: E402

PLAN = SimpleNamespace(requests=[{"w": Box((0,), (4,))}, {"w": Box((8,), (9,))}], slices=lambda request: {})
GPU = torch.device("cuda:0")


class Artifact:
    """Also its own views. `events`: (seconds since the start, stage, done, total) of each load."""

    reference = "disk:/m"

    def __init__(self, clock, events=(), identity="one", refuse=None):
        self.clock, self.events, self.identity, self.refuse, self.asked, self.held = clock, events, identity, refuse, [], 3

    def subset(self, names):
        return self

    view = subset

    def describe(self):
        return {"identity": "one", "tensors": [{"name": "w", "dtype": "F32", "shape": [9]}]}

    def tensor_dict(self, progress, **how):
        self.asked.append(how)
        if self.refuse and how["device"].type != "cpu":
            raise errors.make(self.refuse, "no such luck")
        start = self.clock.now
        for after, *event in self.events:
            self.clock.now = start + after
            progress(*event)
        return SimpleNamespace(diagnostics={"identity": self.identity}, close=lambda: None)

    def release(self):
        self.held -= 1
        return {"leased_replicas": self.held}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0, slept=0)
    monkeypatch.setattr(module, "time", SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "slept", clock.slept + 1)))
    return clock


def checkpoint_of(artifact, said):
    checkpoint = Checkpoint(artifact, lambda request: tc.Options(), said.append)
    checkpoint.sources()
    return checkpoint


def test_progress_is_told_each_second_and_for_each_request(clock):
    events = [(at / 10, "read", at * 10**8, 4 * 10**9) for at in range(1, 26)]
    said = []
    checkpoint_of(Artifact(clock, events), said).load(PLAN, True)
    assert said == [f"request {request} of 2: read, {seconds}.00 of 4.00 GB after {seconds} s, 1000.0 MB/s, {4 - seconds} s left"
                    for request in (1, 2) for seconds in (1, 2)]


def test_nothing_is_told_of_a_load_without_bytes(clock):
    said = []
    checkpoint_of(Artifact(clock, [(5.0, "queued", 0, 0)]), said).load(PLAN, True)
    assert said == []


def test_a_checkpoint_that_changes_in_between_is_an_error(clock):
    with pytest.raises(RuntimeError, match="was changed while it was loaded"):
        checkpoint_of(Artifact(clock, identity="two"), []).load(PLAN, True)


def test_pieces_in_host_memory_may_be_written_to_and_those_on_a_gpu_may_not(clock):
    artifact = Artifact(clock)
    checkpoint = checkpoint_of(artifact, [])
    checkpoint.load_near(PLAN, torch.device("cpu"), True, None)
    checkpoint.load_near(PLAN, GPU, True, None)
    assert [(how["device"].type, how["writable"]) for how in artifact.asked] == [("cpu", True)] * 2 + [("cuda", False)] * 2


@pytest.mark.parametrize("code", [StatusCode.FAILED_PRECONDITION, StatusCode.NOT_FOUND, StatusCode.RESOURCE_EXHAUSTED,
                                  StatusCode.UNIMPLEMENTED])
def test_a_device_that_cannot_be_loaded_into_is_warned_of_and_done_without(clock, code):
    artifact, said = Artifact(clock, refuse=code), []
    checkpoint_of(artifact, []).load_near(PLAN, GPU, True, said.append)
    assert [how["device"].type for how in artifact.asked] == ["cuda", "cpu", "cpu"] and "no such luck" in said[0]


@pytest.mark.parametrize("code", [StatusCode.DATA_LOSS, StatusCode.UNAVAILABLE])
def test_other_errors_of_a_device_load_are_errors(clock, code):
    with pytest.raises(tc.TensorcastError) as caught:
        checkpoint_of(Artifact(clock, refuse=code), []).load_near(PLAN, GPU, True, None)
    assert unavailable(caught.value) == (code is StatusCode.UNAVAILABLE)


def test_what_is_given_back_is_asked_for_until_the_daemon_sees_it_free(clock):
    artifact = Artifact(clock)
    checkpoint_of(artifact, []).free([])
    assert artifact.held == 0 and clock.slept == 2
