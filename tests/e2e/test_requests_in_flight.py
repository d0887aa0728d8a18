"""How many requests a store is asked at once: a store that sends each answer slowly is only fast together."""
import itertools
import threading

import pytest

import checkpoints
from stage import MiB

WAYS = {"export": (("export",), 20), "export with memory": (("export", "--memory", "2GiB"), 8), "fetch": (("fetch", "--all", "--standalone"), 20)}
HEDGE_AFTER_S = 1.5


class Together:
    """Requests that wait until `wanted` of them are here, or 20 seconds have passed."""

    def __init__(self, wanted):
        self.wanted, self.now, self.most, self.changed = wanted, 0, 0, threading.Condition()

    def wait(self):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.wanted, 20)
            self.now -= 1


@pytest.mark.parametrize("how, wanted", WAYS.values(), ids=WAYS)
def test_many_requests_are_in_flight_from_a_store_and_no_byte_is_asked_for_twice(alone, fake, tmp_path, how, wanted):
    tensors = {f"t{i:02}": checkpoints.blob(i, 4 * MiB) for i in range(40)}
    checkpoints.write(tmp_path / "m", tensors)
    fake.world.preload("web", "m", tmp_path / "m")
    together = Together(wanted)
    fake.fault({"call": together.wait}, {"listener": "web", "range": "^bytes=[1-9]"}, times=0)
    command, *options = how
    alone.ok(command, f"{fake.url('web')}/m", *(["--out"] if command == "export" else []), tmp_path / "out", *options)
    assert together.most >= wanted
    asked = sorted((entry["range"], entry["time"]) for entry in fake.requests("web") if "bytes=0-" not in str(entry["range"]))
    again = [late - first for (one, first), (other, late) in itertools.pairwise(asked) if one == other]
    assert all(wait_s >= HEDGE_AFTER_S for wait_s in again), "no byte is asked for twice, unless it is late"
    assert sum(entry["sent"] for entry in fake.requests("web")) < 161 * MiB + 1 + len(again) * 16 * MiB
    made = checkpoints.read_back(tmp_path / "out/model.safetensors")
    assert all((made[name] == value).all() for name, value in tensors.items())
