"""A writer, its daemon, or both at once, killed at every step from an append to the deletion of its segment. Samples of one store go on all
the time, so each crash meets what the ones before it have left.

ACTIVATION_STEPS is how often (`make long`)."""
import os
import random
import signal
import time

import pytest

from activation_scene import same, stored
from activation_steps import STEPS, UPLOAD_STEPS, Stops, Writer, has_writer, is_settled, is_stopped, sample
from stage import soon
from test_activation_uploads import bucket, entries, manifest, readable, uploads, writing  # noqa: F401

ROUNDS = int(os.environ.get("ACTIVATION_STEPS", "1"))
VICTIMS = ["writer", "daemon"]


@pytest.fixture
def stops(tmp_path):
    return Stops(tmp_path)


def kill_at(daemon, stops, acts, step, victim, n_before, **options):
    """What the writer was told until then, when `victim` has died at the step; with a daemon that only stops, both die at once."""
    stops.at(step, signal.SIGKILL if victim == "daemon" and n_before % 2 else signal.SIGSTOP, n_before)
    writer, end = Writer(daemon.socket, f"disk:{acts}", **options), time.monotonic() + 60
    while not stops.reached() and time.monotonic() < end and writer.read(0.01):
        pass
    assert stops.reached(), (step, writer.kill())
    assert soon(lambda: is_stopped(daemon))
    told = writer.kill()
    if victim == "writer":
        daemon.process.send_signal(signal.SIGCONT)
    else:
        daemon.kill()
        daemon.start(environment=stops.environment)
    return told


@pytest.mark.parametrize("victim", VICTIMS)
def test_who_dies_at_any_step_loses_nothing_committed_and_doubles_nothing(start, models, stops, victim):
    dice, acts, committed = random.Random(os.urandom(8)), models / "acts", -1
    daemon = start(running=False, activations={"roots": [str(models)]}).start(environment=stops.environment)
    for name, step in [*STEPS.items()] * ROUNDS:
        told = kill_at(daemon, stops, acts, step, victim, dice.randrange(4))
        assert told["resume"] in (None, committed), (name, told, committed)
        folder = acts / "host_003"
        assert soon(lambda folder=folder: is_settled(folder) and not has_writer(daemon, acts)), (name, daemon.log()[-1500:])
        there = stored(folder) if (folder / "manifest.json").exists() else {}
        assert sorted(there) == list(range(len(there))), name
        assert max(committed, told["committed"]) < len(there) <= max(told["appended"], committed) + 2, (name, told, committed, len(there))
        committed = len(there) - 1
    assert all(same(there[i], sample(i)) for i in there)


def whole(fake, acts):
    """How many samples there are, which are all from the first one on, each once, here or in the bucket; -1: not yet."""
    there = readable(fake, acts) if (acts / "host_003/manifest.json").exists() else []
    return -1 if there is None or there != list(range(len(there))) else len(there)


def count(fake, acts, least, most):
    """The same, once it is one from `least` to `most`; files go from here meanwhile, so it may be none when asked again."""
    found = []
    assert soon(lambda: found.append(whole(fake, acts)) or least <= found[-1] <= most), (least, most, found[-1])
    return found[-1]


@pytest.mark.parametrize("victim", VICTIMS)
def test_who_dies_at_any_step_of_an_upload_leaves_every_sample_here_or_there_once(writing, fake, models, stops, victim):
    dice, acts, committed = random.Random(os.urandom(8)), models / "acts", -1
    daemon = writing()
    daemon.stop()
    daemon.start(environment=stops.environment)
    for name, step in [*UPLOAD_STEPS.items()] * ROUNDS:
        # what is there goes when nothing waits any more
        told = kill_at(daemon, stops, acts, step, victim, dice.randrange(2), most=30, upload="gs://b/acts", keep_local=False)
        assert told["resume"] in (None, committed), (name, told, committed)
        least, most = max(committed, told["committed"]) + 1, max(told["appended"], committed) + 2
        assert soon(lambda: is_settled(acts / "host_003") and not has_writer(daemon, acts)), (name, daemon.log()[-1500:])
        committed = count(fake, acts, least, most) - 1
    assert soon(lambda: uploads(daemon, acts)["pending"] == 0 and not list((acts / "host_003").glob("*.safetensors"))), uploads(daemon, acts)
    assert whole(fake, acts) == committed + 1
    assert soon(lambda: entries(bucket(fake)["acts/host_003/manifest.json"]) == manifest(acts))
