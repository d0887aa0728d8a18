"""How the loader asks for the pieces of a plan: progress, a checkpoint that changes, targets; against a stand-in for the client."""
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcast_client as tc  # noqa: E402
from grpc import StatusCode  # noqa: E402
from tensorcast_client import errors  # noqa: E402
from tensorcast_client.words import size_of
from tensorcast_vllm import checkpoint as module  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint, unavailable  # noqa: E402
from tensorcast_vllm.regions import Box  # noqa: E402

PLAN = SimpleNamespace(requests=[{"w": Box((0,), (4,))}, {"w": Box((8,), (9,))}], slices=lambda request: {}, slices_of=lambda boxes: {})


class Artifact:
    """Also its own views. `events`: (seconds since the start, stage, done, total) of each load."""

    reference = "disk:/m"

    def __init__(self, clock, events=(), identity="one", refuse=None, reason=""):
        self.clock, self.events, self.identity, self.refuse, self.reason = clock, events, identity, refuse, reason
        self.asked, self.targets = [], []

    def subset(self, names, placement=None):
        return self

    def view(self, slices, placement=None):
        return self

    def describe(self):
        return {"identity": "one", "tensors": [{"name": "w", "dtype": "F32", "shape": [9]}]}

    def tensor_dict(self, progress, **how):
        self.asked.append(how)
        return SimpleNamespace(diagnostics=self._load(progress), close=lambda: None)

    def load_into(self, targets, progress, options):
        self.targets.append(targets)
        if self.refuse:
            raise errors.make(self.refuse, "no such luck", self.reason)
        return self._load(progress)

    def _load(self, progress):
        start = self.clock.now
        for after, *event in self.events:
            self.clock.now = start + after
            progress(*event)
        return {"identity": self.identity}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def checkpoint_of(artifact, said):
    checkpoint = Checkpoint(artifact, lambda request: tc.Options(), said.append)
    checkpoint.sources()
    return checkpoint


def test_progress_is_told_each_second_and_for_each_request(clock):
    events = [(at / 10, "read", at * 10**8, 4 * 10**9) for at in range(1, 26)]
    said = []
    checkpoint_of(Artifact(clock, events), said).load(PLAN, True)
    assert said == [f"request {request} of 2: read, {size_of(at * 10**9)} of {size_of(4 * 10**9)} after {at} s, {size_of(10**9)}/s, {4 - at} s left"
                    for request in (1, 2) for at in (1, 2)]


def test_nothing_is_told_of_a_load_without_bytes(clock):
    said = []
    checkpoint_of(Artifact(clock, [(5.0, "queued", 0, 0)]), said).load(PLAN, True)
    assert said == []


def test_a_checkpoint_that_changes_in_between_is_an_error(clock):
    with pytest.raises(RuntimeError, match="was changed while it was loaded"):
        checkpoint_of(Artifact(clock, identity="two"), []).load(PLAN, True)


ASKED = [({"w": Box((0,), (4,))}, {"w": torch.zeros(4)}), ({"w": Box((8,), (9,))}, {"w": torch.zeros(1)})]


def test_pieces_are_loaded_packed_and_may_be_written_to_where_they_are_to_be_adopted(clock):
    artifact = Artifact(clock)
    checkpoint_of(artifact, []).load(PLAN, True)
    checkpoint_of(artifact, []).load(PLAN, False)
    assert [how["writable"] for how in artifact.asked] == [True] * 2 + [False] * 2


def test_each_request_is_one_load_into_its_targets(clock):
    artifact, numbers = Artifact(clock, [(2.0, "read", 1, 2)]), []
    checkpoint = Checkpoint(artifact, lambda request: numbers.append(request) or tc.Options(), lambda text: None)
    checkpoint.sources()
    assert len(checkpoint.load_into(PLAN, ASKED, None)) == 2 and artifact.targets == [targets for _, targets in ASKED]
    checkpoint.load(PLAN, True)
    assert numbers == [0, 1, 2, 3], "ranks that load together do so in their first request alone"


@pytest.mark.parametrize("code, reason", [(StatusCode.FAILED_PRECONDITION, "CUDA_FAILED"), (StatusCode.NOT_FOUND, "DEVICE_NOT_FOUND"),
                                          (StatusCode.RESOURCE_EXHAUSTED, ""), (StatusCode.UNIMPLEMENTED, ""),
                                          (StatusCode.INVALID_ARGUMENT, "NOT_DEVICE_MEMORY"), (StatusCode.INVALID_ARGUMENT, "REGION_REFUSED")])
def test_memory_that_the_daemon_cannot_write_to_is_warned_of_and_left(clock, code, reason):
    artifact, said = Artifact(clock, refuse=code, reason=reason), []
    assert checkpoint_of(artifact, []).load_into(PLAN, ASKED, said.append) is None
    assert "no such luck" in said[0] and len(said) == 1


@pytest.mark.parametrize("code, reason", [(StatusCode.DATA_LOSS, ""), (StatusCode.UNAVAILABLE, ""), (StatusCode.INVALID_ARGUMENT, "TARGET_OVERLAP"),
                                          (StatusCode.INTERNAL, "REGION_IN_USE")])
def test_other_errors_of_a_load_into_targets_are_errors(clock, code, reason):
    with pytest.raises(tc.TensorcastError) as caught:
        checkpoint_of(Artifact(clock, refuse=code, reason=reason), []).load_into(PLAN, ASKED, None)
    assert unavailable(caught.value) == (code is StatusCode.UNAVAILABLE)


def test_a_checkpoint_that_changes_while_it_is_written_to_parameters_is_an_error(clock):
    with pytest.raises(RuntimeError, match="was changed while it was loaded"):
        checkpoint_of(Artifact(clock, identity="two"), []).load_into(PLAN, ASKED, None)


def test_no_request_has_the_number_of_one_that_was_refused(clock):
    """Ranks that load together do so in request 0, and a second one of that number would join the same group again."""
    artifact, numbers = Artifact(clock, refuse=StatusCode.UNIMPLEMENTED), []
    checkpoint = Checkpoint(artifact, lambda request: numbers.append(request) or tc.Options(), lambda text: None)
    checkpoint.sources()
    assert checkpoint.load_into(PLAN, ASKED, lambda text: None) is None
    checkpoint.load(PLAN, True)
    assert numbers == [0, 1, 2]
