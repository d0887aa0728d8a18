"""Requests in flight to stores are shared: servers that send slowly hold up no load from others."""
import json
import os
import subprocess

import pytest

from stage import MiB, soon
from stores_fixture import Stores

ANN, BOB = 71001, 71002
SLOW = {"drip": 25_000}  # bytes per second


@pytest.fixture
def server():
    """server(n_bytes, slow): a store of its own, and the URL of a tensor there. A slow one sends what a header needs, and drips the rest."""
    made = []

    def make(n_bytes=MiB, slow=False):
        stores = Stores()
        made.append(stores)
        head = json.dumps({"w": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}}).encode()
        stores.world.put("web", "x.safetensors", len(head).to_bytes(8, "little") + head + bytes(n_bytes), etag="v")
        if slow:
            stores.fault(SLOW, {"listener": "web", "range": "^bytes=[1-9]"}, times=0)
        stores.url_of_x = f"{stores.url('web')}/x.safetensors"
        return stores

    yield make
    for one in made:
        one.close()


def in_flight(stores):
    """Answers that drip."""
    return sum(bool(entry["faults"]) and not entry["sent"] for entry in stores.requests("web"))


@pytest.fixture
def in_background():
    started = []

    def make(daemon, url, **options):
        started.append(daemon.cli.spawn("load", url, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options))

    yield make
    for process in started:
        process.kill()
        process.wait()


def test_slow_servers_do_not_hold_up_a_load_from_another(start, server, in_background):
    daemon, good = start(sources={"http": {"request_size": "1MiB"}}), server()
    slow = [server(40 * MiB, slow=True) for _ in range(3)]
    for one in slow:
        in_background(daemon, one.url_of_x)
    assert soon(lambda: sum(map(in_flight, slow)) >= 50, 90), [in_flight(one) for one in slow]
    daemon.cli.ok("load", good.url_of_x, timeout=30)  # it had none of the 64 before


def test_a_slow_server_gives_the_only_slot_back_and_goes_on(start, server, in_background):
    daemon, good = start(sources={"http": {"max_connections": 1}}), server()
    slow = server(3 * MiB, slow=True)
    in_background(daemon, slow.url_of_x)
    assert soon(lambda: in_flight(slow) == 1)
    daemon.cli.ok("load", good.url_of_x, timeout=60)
    assert soon(lambda: in_flight(slow) == 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_load_that_gets_no_slot_is_told_who_has_it(start, server, in_background):
    daemon, good = start(server={"socket_mode": "0666"},
                         sources={"http": {"max_connections": 1, "progress_timeout": "500ms"}}), server()
    daemon.folder.chmod(0o755)
    slow = server(3 * MiB, slow=True)
    in_background(daemon, slow.url_of_x, user=ANN, group=ANN)
    assert soon(lambda: in_flight(slow) == 1)
    outcomes = []

    def is_refused():  # unless the other's turn is over just then
        outcomes.append(daemon.cli.run("load", f"{good.url_of_x}?{len(outcomes)}", user=BOB, group=BOB))
        return outcomes[-1].status == "DEADLINE_EXCEEDED"

    assert soon(is_refused) and f"uid {ANN} holds 1" in outcomes[-1].err, outcomes
