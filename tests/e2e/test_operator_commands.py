"""`health`, `top` and `size`, and what systemd is told: against a daemon that serves, drains, hangs or is not there."""
import os
import pwd
import re
import signal
import socket

import numpy as np
import pytest

from checkpoints import blob, write
from group_scene import arrays, group, strategy  # noqa: F401
from stage import MiB, soon
from store_scene import place
from test_status import on_terminal


@pytest.fixture
def draining(start, models, arrays):  # noqa: F811
    """A daemon that was told to stop while a load waits."""
    daemon = start(**strategy(), server={"shutdown_grace": "60s"})
    rank = daemon.cli.spawn("load", f"disk:{models}/m", *group(0))  # waits for the others
    assert daemon.logged("event=load_waiting")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.logged("event=draining")
    yield daemon
    rank.kill()
    rank.communicate()
    assert daemon.process.wait(60) == 0


def test_health_is_an_exit_status_and_a_word(daemon):
    assert daemon.cli.ok("health").out == daemon.cli.ok("health", "--ready").out == "ready\n"
    assert daemon.cli.ok("health", "--quiet").out == "" and daemon.cli.json("health") == {"live": True, "ready": True}


def test_a_daemon_that_drains_lives_and_is_not_ready(draining):
    assert draining.cli.ok("health").out == "live, and draining\n" and draining.cli.json("health") == {"live": True, "ready": False}
    refused = draining.cli.run("health", "--ready", "--json")
    assert refused.code == 1 and refused.report["error"]["reason"] == "SHUTTING_DOWN" and str(draining.socket) in refused.err
    assert draining.status()["state"] == "draining", "status is answered to the end"
    assert draining.cli.run("load", "disk:/nowhere").status == "UNAVAILABLE"


def test_a_daemon_that_hangs_or_is_not_there_is_not_healthy(daemon, alone):
    refused = alone.run("health")
    assert refused.code == 1 and "tc8-no-daemon-here.sock" in refused.err
    daemon.process.send_signal(signal.SIGSTOP)
    late = daemon.cli.run("health", "--timeout", "1s")
    without = daemon.cli.run("health")  # 5 s
    daemon.process.send_signal(signal.SIGCONT)
    assert late.code == without.code == 1 and late.status == without.status == "DEADLINE_EXCEEDED"
    assert soon(lambda: daemon.cli.run("health").code == 0)


def test_top_shows_what_a_load_waits_for(fake, store_daemon):
    placed = place(fake, "http", {"w": blob(1, 3 * MiB)})
    daemon = store_daemon()
    placed.fault({"delay": 60}, times=0, match={"covers": 2_000_000})
    assert "no load is running" in daemon.cli.ok("top").out
    load = daemon.cli.spawn("load", placed.reference)
    shown = rf"MiB .* store +{load.pid} +{re.escape(placed.reference)}\n +waiting for http"
    assert soon(lambda: re.search(shown, daemon.cli.ok("top").out)), daemon.cli.ok("top").out
    row = daemon.cli.json("top")["loads"][0]
    assert row["waited_for"] == "store" and "to answer" in row["waiting_for"]
    assert (row["uid"], row["pid"]) == (os.getuid(), load.pid)
    assert f"{row['load_id']}  pid {load.pid} ({pwd.getpwuid(os.getuid()).pw_name})  {placed.reference}" in daemon.cli.ok("status").out
    load.kill()
    load.communicate()


def test_top_on_a_terminal_is_redrawn_until_it_is_interrupted(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("load", f"{models}/m")
    code, shown = on_terminal(daemon, 80, "top", "--watch", "0.1", until="\x1b[J", times=3)
    assert code == 130 and shown.count("\x1b[2J") == 1 and shown.count("\x1b[H") >= 3
    assert all(len(re.sub(r"\x1b\[\d?[HJK]", "", line)) <= 80 for line in shown.splitlines())
    assert "\x1b" not in daemon.cli.ok("top").out


def notes(above):
    """What came to NOTIFY_SOCKET so far, datagram by datagram."""
    while True:
        try:
            above.got.append(above.recv(4096).decode())
        except BlockingIOError:
            return above.got


@pytest.fixture
def above(tmp_path):
    class Above(socket.socket):
        pass
    with Above(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        made.got = []
        yield made


def test_systemd_sees_loads_and_memory_and_reloads(start, models, above, arrays):  # noqa: F811
    daemon = start(running=False, **strategy()).start(environment={"NOTIFY_SOCKET": above.getsockname()})
    assert soon(lambda: "STATUS=0 loads, 0 B of 1.00 GiB in use" in notes(above)), above.got
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "60")
    assert soon(lambda: any(re.match(r"STATUS=0 loads, [\d.]+ [KM]iB of", note) for note in notes(above))), above.got
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: notes(above).count("READY=1") == 2)
    reloading = [note for note in above.got if note.startswith("RELOADING=1\nMONOTONIC_USEC=")]
    assert len(reloading) == 1 and above.got.index(reloading[0]) < len(above.got) - 1 - above.got[::-1].index("READY=1")
    n = len(notes(above))
    assert not soon(lambda: len(notes(above)) > n, 2.5), "the same is not said again"
    holder.kill()
    holder.communicate()
    assert daemon.stop() == 0 and "STOPPING=1" in notes(above)


def test_size_is_enough_and_not_much_more(start, alone, models):
    """Of layouts with padding: many small tensors, large ones at odd offsets, a split that replicates some."""
    rng = np.random.default_rng(1)
    small = {f"s{i:03}": rng.integers(0, 255, 1 + i * 37, np.uint8) for i in range(300)}
    large = {f"model.layers.{i}.self_attn.q_proj.weight": rng.integers(0, 255, (64 + 2 * i, 4096), np.uint8) for i in range(12)}
    odd = {f"o{i}": rng.integers(0, 255, 70000 + 2 * i + 1, np.uint8) for i in range(30)}
    write(models / "m", small, large, odd)
    whole = alone.json("size", f"{models}/m", "--engines", "3")
    split = alone.json("size", f"disk:{models}/m", "--tp-size", "2")
    assert whole["models"] == [{"artifact": f"{models}/m", "views": 1, "bytes": whole["views_bytes"]}]
    assert split["models"][0]["views"] == 2 and whole["clients_bytes"] == 3 * whole["views_bytes"]
    for told, ranks in ((whole, [()]), (split, [("--tp-size", 2, "--tp-rank", rank) for rank in range(2)])):
        daemon = start(memory={"host_budget": told["host_budget_bytes"]})
        for rank in ranks:
            daemon.cli.ok("load", f"{models}/m", *rank)
        used = daemon.status()["memory"]["used_bytes"]
        assert used <= told["views_bytes"] <= used + used // 50 + 4 * MiB * len(ranks), (used, told)


def test_size_in_words_adds_up_and_refuses_nonsense(alone, models):
    write(models / "m", {"w": blob(1, MiB)})
    words = alone.ok("size", f"{models}/m", f"{models}/m/model.safetensors").out
    assert re.search(r"^views +2.01 MiB", words, re.M) and re.search(r"^memory.host_budget: 3MiB$", words, re.M), words
    assert max(map(len, words.splitlines())) <= 100
    for wrong in (["--tp-size", "0"], ["--tp-size", "4097"], ["--engines", "0"], ["--tp-rank", "0"]):
        assert alone.run("size", f"{models}/m", *wrong).code == 2, wrong
    write(models / "odd", {"model.layers.0.self_attn.q_proj.weight": np.zeros((65, 8), np.uint8)})
    refused = alone.run("size", f"{models}/odd", "--tp-size", "2")
    assert refused.status == "INVALID_ARGUMENT" and "--tp-rule" in refused.err
    ruled = alone.json("size", f"{models}/odd", "--tp-size", "2", "--tp-rule", "*=replicate")
    assert ruled["models"][0]["views"] == 1, "ranks that want the same share it"
