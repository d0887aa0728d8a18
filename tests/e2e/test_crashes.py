"""kill -9 at random moments, of clients and of the daemon: no other client notices, nothing is left behind."""
import random
import time

import pytest

from checkpoints import blob, digest, digests, write
from stage import MiB, SANITIZED, soon

ROUNDS = 8 if SANITIZED else 20


@pytest.fixture
def parts(models):
    return write(models / "m", *({f"p{i}": blob(i, 24 * MiB)} for i in range(4)))


@pytest.fixture
def chance(request):
    seed = random.randrange(1 << 32)
    print("seed", seed)  # shown when the test fails
    return random.Random(seed)


def test_a_client_killed_at_any_moment_leaves_no_load_no_lease_and_no_descriptor(daemon, models, parts, chance):
    daemon.cli.ok("load", f"disk:{models}/m", "--tensor", "p0")
    daemon.cli.ok("release", "--all")
    idle = daemon.descriptors()
    for _ in range(ROUNDS):
        client = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "60")
        time.sleep(chance.uniform(0, 0.25))
        client.kill()
        client.communicate()
        if chance.random() < 0.5:
            daemon.cli.run("release", "--all")
    assert soon(daemon.at_rest), daemon.status()

    def released():  # a load that was being sealed when its client died becomes a replica without a lease
        daemon.cli.ok("release", "--all")
        return daemon.descriptors() <= idle + 1
    assert soon(released), "descriptors are left open"
    report = daemon.cli.json("load", f"disk:{models}/m", "--digest")
    assert digests(report) == {name: digest(value) for name, value in parts.items()}


def test_a_killed_client_does_not_hurt_the_others_that_wait_for_the_same_load(daemon, models, parts, chance):
    for _ in range(ROUNDS // 2):
        daemon.cli.ok("release", "--all")
        clients = [daemon.cli.spawn("load", f"disk:{models}/m", "--digest", "--json") for _ in range(4)]
        time.sleep(chance.uniform(0, 0.1))
        clients[0].kill()
        for client in clients[1:]:
            out, err = client.communicate(timeout=120)
            assert client.returncode == 0, err
        clients[0].communicate()
    assert soon(daemon.at_rest), daemon.status()


def test_a_daemon_killed_at_any_moment_starts_again_and_its_clients_end_with_an_error(start, models, parts, chance):
    daemon = start()
    for _ in range(ROUNDS // 2):
        clients = [daemon.cli.spawn("load", f"disk:{models}/m", "--digest", "--json") for _ in range(2)]
        time.sleep(chance.uniform(0, 0.2))
        daemon.kill()
        for client in clients:
            out, err = client.communicate(timeout=120)
            assert client.returncode == 0 or (client.returncode == 3 and "UNAVAILABLE" in err), err
        daemon.start()
    report = daemon.cli.json("load", f"disk:{models}/m", "--digest")
    assert digests(report) == {name: digest(value) for name, value in parts.items()}


def test_what_a_client_holds_survives_the_daemon(start, models, parts, tmp_path):
    daemon = start()
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "5", "--out", tmp_path / "out", "--digest", "--json")
    assert soon(lambda: daemon.status()["leases"] == 1)
    daemon.kill()
    out, err = holder.communicate(timeout=120)
    assert holder.returncode == 0, err
