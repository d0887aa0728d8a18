"""One daemon after another at the same passed sockets: clients notice nothing, whatever they are doing."""
import concurrent.futures
import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import stat
import threading

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob, digest, digests, write
from group_scene import Load, arrays, expected, group, joined, slices, strategy  # noqa: F401
from stage import MiB, free_port, soon
from store_scene import place, settings
from test_folder import shm  # noqa: F401
from test_log import lines

START = 'export LISTEN_PID=$$; exec "$0" "$@"'


class Upgrades:
    """Daemons of one configuration at the two sockets that this process holds, as a service manager does."""

    def __init__(self, start, **tree):
        self._start, self.daemons = start, []
        self.first = start(running=False, **tree)
        self.passed = [self._listen(self.first.socket, socket.SOCK_STREAM), self._listen(self.first.handoff, socket.SOCK_SEQPACKET)]

    @staticmethod
    def _listen(path, kind):
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)
        fd = fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD, 100)
        listener.close()
        return fd

    def start(self):
        """The next one, once it is ready. It has the first one's sockets, state and configuration, and a log of its own."""
        daemon = self._start(running=False) if self.daemons else self.first
        daemon.configure(self.first.tree)
        daemon.socket, daemon.handoff, daemon.state, daemon.cli = self.first.socket, self.first.handoff, self.first.state, self.first.cli
        for fd in self.passed:
            os.set_blocking(fd, True)  # as systemd does, under the daemons that have it
        places = " ".join(f"{3 + i}<&{fd}" for i, fd in enumerate(self.passed))
        daemon.start(wait=False, pass_fds=self.passed, environment={"LISTEN_FDS": str(len(self.passed))},
                     through=["bash", "-c", f"{START} {places}"])
        assert soon(lambda: lines(daemon, "ready"), 60), daemon.log()
        self.daemons.append(daemon)
        return daemon

    def close(self):
        for fd in self.passed:
            os.close(fd)


@pytest.fixture
def upgrades(start):
    made = []

    def make(**tree):
        made.append(Upgrades(start, **tree))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Crowd:
    """Threads that do something over and over until they are stopped; what went wrong is in `errors`."""

    def __init__(self):
        self.errors, self.counts, self._stop, self._threads = [], {}, threading.Event(), []

    def add(self, name, act):
        def run():
            while not self._stop.is_set():
                try:
                    act()
                except Exception as error:  # noqa: BLE001  whatever it is, the test tells
                    self.errors.append(f"{name}: {error!r}")
                    return
                self.counts[name] += 1
        self.counts[name] = 0
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def moves_on(self, n=3):
        """Everybody succeeds n times more."""
        wanted = {name: count + n for name, count in self.counts.items()}
        return soon(lambda: self.errors or all(self.counts[name] >= count for name, count in wanted.items()), 120)

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def loader(connect, models, names):
    """Loads one model after the other and looks at every byte."""
    state = {"client": None, "n": 0}

    def act():
        name = names[state["n"] % len(names)]
        state["n"] += 1
        state["client"] = connect(state["client"])
        with state["client"].artifact(f"disk:{models}/{name}").tensor_dict() as tensors:
            assert digest(tensors["w"]) == WEIGHTS[name]
    return act


MODELS = {f"m{i}": blob(i, 6 * MiB) for i in range(4)}
WEIGHTS = {name: digest(value) for name, value in MODELS.items()}


def test_no_load_is_lost_while_daemons_follow_each_other(upgrades, models):
    for name, value in MODELS.items():
        write(models / name, {"w": value})
    line = upgrades(memory={"host_budget": "1GiB", "replica_idle_ttl": "10ms"})
    daemon, names, crowd = line.start(), list(MODELS), Crowd()
    kept = tc.connect(daemon.socket)
    crowd.add("kept client", loader(lambda before: kept, models, names))
    crowd.add("another", loader(lambda before: kept, models, names[::-1]))
    crowd.add("new client each time", loader(lambda before: tc.connect(daemon.socket), models, names))

    def command():
        assert digests(daemon.cli.json("load", f"disk:{models}/m1", "--digest")) == {"w": WEIGHTS["m1"]}
    crowd.add("command", command)
    for _ in range(4):
        assert crowd.moves_on(), crowd.counts
        successor = line.start()
        assert lines(successor, "state_dir_in_use") and not lines(successor, "load_done"), "it waits for its turn"
        assert crowd.moves_on(), crowd.counts
        assert daemon.stop(60) == 0, daemon.log()
        assert soon(lambda: lines(successor, "socket_taken_over") and lines(successor, "state_dir_taken_over")), successor.log()
        assert not lines(daemon, "request_failed") and not lines(daemon, "load_failed"), daemon.log()
        daemon = successor
    assert crowd.moves_on(), crowd.counts
    crowd.stop()
    assert not crowd.errors, crowd.errors
    assert soon(lambda: all(lines(each, "load_done") for each in line.daemons))


@pytest.fixture
def held(upgrades, fake, models):
    """(line of daemons, the first one, a client whose load of a store is held up by it, function that lets it go on)."""
    value, go, arrived = blob(9, 3 * MiB), threading.Event(), threading.Event()
    placed = place(fake, "http", {"w": value})

    def hold():
        arrived.set()
        go.wait(120)
    placed.fault({"call": hold}, times=0)
    line = upgrades(sources={"disk": {"trusted_roots": [str(models)]}, **settings(fake, http={
        "allow_plain": True, "first_byte_timeout": "5m", "stall_timeout": "5m", "progress_timeout": "5m"})},
        server={"shutdown_grace": "2m", "metrics_address": f"127.0.0.1:{free_port()}"}, activations={"roots": [str(models)]})
    daemon = line.start()
    client = daemon.cli.spawn("load", placed.reference, "--digest", "--json")
    assert arrived.wait(60), daemon.log()
    yield line, daemon, (client, {"w": digest(value)}), go.set
    go.set()
    client.kill()
    client.communicate()


def test_a_running_load_ends_where_it_began_and_new_requests_go_to_the_new_daemon(held, models):
    line, old, (client, wanted), let_go = held
    write(models / "m", {"w": blob(1, MiB)})
    with tc.connect(old.socket) as kept:
        tensors = kept.artifact(f"disk:{models}/m").tensor_dict()
        assert kept.status()["pid"] == old.process.pid
        new = line.start()
        old.process.send_signal(signal.SIGTERM)
        assert soon(lambda: lines(new, "socket_taken_over")), new.log()
        assert kept.status()["pid"] == new.process.pid == new.status()["pid"], "also over the connection that there was"
        assert old.process.poll() is None, "it still has a load"
        assert digests(new.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(1, MiB))}
        let_go()
        out, err = client.communicate(timeout=60)
        assert client.returncode == 0, err
        assert digests(json.loads(out)) == wanted
        assert old.process.wait(60) == 0 and not lines(old, "load_failed"), old.log()
        assert digest(tensors["w"]) == digest(blob(1, MiB)), "memory outlives the daemon that lent it"
        tensors.close()


def test_every_daemon_has_a_hand_off_socket_of_its_own(held):
    line, old, _, _ = held
    assert old.status()["handoff_socket"] == str(old.handoff)
    new = line.start()
    old.process.send_signal(signal.SIGTERM)
    assert soon(lambda: lines(new, "socket_taken_over")), new.log()
    own = new.status()["handoff_socket"]
    assert own == f"{old.handoff}.2" and stat.S_IMODE(os.stat(own).st_mode) == 0o666, "as open as the one that was passed"
    old.kill()
    third = line.start()
    new.kill()
    assert soon(lambda: third.status()["pid"] == third.process.pid)
    assert third.status()["handoff_socket"] == str(old.handoff), "which is free again"


def test_what_there_is_one_of_goes_over_when_the_old_daemon_has_ended(held, models, shm):
    line, old, _, let_go = held
    write(models / "m", {"w": blob(1, MiB)})
    port = int(old.tree["server"]["metrics_address"].rsplit(":", 1)[1])
    new = line.start()
    old.process.send_signal(signal.SIGTERM)
    assert soon(lambda: lines(new, "socket_taken_over")), new.log()
    assert ready(port) == 503, "the old one's, which drains"

    def write_samples():
        with tc.connect(new.socket).activation_store(f"disk:{models}/acts", host=0) as store:
            store.append(1, {0: np.arange(3, dtype=np.int32)})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(write_samples), pool.submit(new.cli.json, "folder", f"disk:{models}/m", shm / "x")]
        assert soon(lambda: new.status()["connections"] >= 3), new.status()
        assert not any(each.done() for each in waiting) and not (shm / "x").exists()
        let_go()
        assert old.process.wait(60) == 0, old.log()
        for each in waiting:
            each.result(60)
    assert new.logged("event=state_dir_taken_over", "event=activations_opened") and not lines(old, "activations_opened")
    assert new.status()["folders"][0]["path"] == str(shm / "x") and ready(port) == 200
    assert new.status()["metrics_address"] == f"127.0.0.1:{port}"


def ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        return connection.getresponse().status


def test_ranks_of_a_group_meet_although_the_daemon_is_told_to_stop_between_them(upgrades, models, arrays):
    line = upgrades(**strategy(), server={"shutdown_grace": "4m"})
    old = line.start()
    ranks = [Load(old, models, *slices(0), *group(0, world=2))]
    assert joined(old, 1), old.log()
    new = line.start()
    old.process.send_signal(signal.SIGTERM)
    assert soon(lambda: lines(old, "draining")), old.log()
    ranks.append(Load(old, models, *slices(1), *group(1, world=2)))
    for rank, load in enumerate(ranks):
        assert digests(load.report_ok()) == expected(arrays, rank)
    assert old.process.wait(120) == 0 and len(lines(old, "load_done")) == 2 and not lines(new, "load_done"), old.log()


def test_a_daemon_that_waits_takes_over_from_one_that_is_killed(upgrades, models):
    line = upgrades()
    old, new = line.start(), line.start()
    old.kill()
    assert new.status()["pid"] == new.process.pid
    assert soon(lambda: lines(new, "state_dir_taken_over"))


def test_a_port_that_is_still_taken_is_waited_for(upgrades, models):
    """A daemon that hangs in the kernel gives up its state first and its ports when it can end."""
    write(models / "m", {"w": blob(1, MiB)})
    line = upgrades(server={"metrics_address": f"127.0.0.1:{free_port()}"})
    old = line.start()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        line.first.tree["server"]["metrics_address"] = f"127.0.0.1:{port}"
        new = line.start()
        old.kill()
        assert soon(lambda: lines(new, "port_in_use")), new.log()
        new.cli.ok("load", f"disk:{models}/m")
        assert new.status()["metrics_address"] == "" and len(lines(new, "port_in_use")) == 1
    assert soon(lambda: new.status()["metrics_address"] == f"127.0.0.1:{port}"), new.log()
    assert ready(port) == 200 and not lines(new, "takeover_failed")
