"""Prewarming: several at once, detached, pinned, and out of the configuration; what is pinned stays, and is paid for."""
import json
import signal
import threading

import numpy as np
import pytest

from checkpoints import blob, write
from stage import MiB, soon

KIB = 1024


def make(models, *names, size=64 * KIB):
    for seed, name in enumerate(names):
        write(models / name, {"w": blob(seed, size)})
    return [f"disk:{models}/{name}" for name in names]


def rows(daemon):
    return {r["artifact"]: r for r in daemon.cli.json("status")["replicas"]}


def told(daemon):
    return {p["artifact"]: p for p in daemon.cli.json("status")["prewarms"]}


def test_all_artifacts_are_tried_and_the_first_failure_is_the_commands(daemon, models):
    one, two = make(models, "one", "two")
    outcome = daemon.cli.run("prewarm", one, f"disk:{models}/none", "disk:/etc", two)
    assert outcome.code == 1 and "NOT_FOUND" in outcome.err and "PERMISSION_DENIED" in outcome.err, outcome
    assert outcome.err.strip().splitlines()[-1].startswith("tensorcast: NOT_FOUND: "), outcome.err
    assert {one, two} <= set(rows(daemon))
    both = daemon.cli.json("prewarm", one, two)["prewarmed"]
    assert [report["artifact"] for report in both] == [one, two] and all(report["from_replica"] for report in both)
    assert daemon.cli.run("prewarm", one, f"disk:{models}/none", "--json").out.count("from_replica") == 0


def test_release_and_unpin_know_a_reference_however_it_ends_and_refuse_what_is_none(daemon, models):
    (one,) = make(models, "one")
    daemon.cli.ok("prewarm", f"{one}/", "--pin")
    daemon.cli.ok("unpin", f"{one}//")
    assert daemon.cli.json("release", f"{one}/")["released_replicas"] == 1 and one not in rows(daemon)
    for wrong, status in [("nosuch:/x", "UNIMPLEMENTED"), ("disk:", "INVALID_ARGUMENT")]:
        for command in ("release", "unpin"):
            outcome = daemon.cli.run(command, wrong)
            assert (outcome.code, outcome.status) == (1, status), outcome


def test_pinned_memory_is_kept_from_everything_but_unpin(start, models):
    daemon = start(memory={"host_budget": "4MiB", "replica_idle_ttl": "0"})
    kept, large = make(models, "kept", "large", size=3 * MiB)
    assert "unpin" in daemon.cli.ok("prewarm", kept, "--pin").out
    assert rows(daemon)[kept]["pinned"] is True and daemon.cli.json("status")["users"][0]["held_bytes"] >= 3 * MiB
    assert daemon.cli.json("load", kept)["from_replica"] is True
    refused = daemon.cli.run("load", large)
    assert refused.status == "RESOURCE_EXHAUSTED" and "pinned" in refused.err and "unpin" in refused.err, refused
    released = daemon.cli.json("release", "--all")
    assert released["released_replicas"] == 0 and released["pinned_replicas"] == 1 and kept in rows(daemon)
    assert "pinned" in daemon.cli.ok("release", kept).out
    assert daemon.cli.json("unpin", kept)["unpinned_replicas"] == 1
    assert soon(lambda: rows(daemon) == {}) and daemon.cli.ok("load", large)
    for wrong in (kept, f"disk:{models}/none"):
        assert daemon.cli.run("unpin", wrong).status == "NOT_FOUND"
    assert daemon.cli.json("unpin", "--all")["unpinned_replicas"] == 0
    assert daemon.cli.run("unpin").code == daemon.cli.run("unpin", "--all", kept).code == 2


def test_a_changed_source_ends_its_pin(daemon, models):
    (kept,) = make(models, "changes")
    daemon.cli.ok("prewarm", kept, "--pin")
    new = write(models / "changes", {"w": blob(9, 96 * KIB)})
    report = daemon.cli.json("load", kept, "--digest")
    assert report["from_replica"] is False and report["bytes"]["view"] == new["w"].nbytes
    assert soon(lambda: [r["pinned"] for r in daemon.cli.json("status")["replicas"] if r["artifact"] == kept] == [False])


@pytest.fixture
def stuck(fake):
    """A file that a server does not have, and what lets it say so: before, it never answers."""
    gate = threading.Event()
    fake.fault({"call": lambda: gate.wait(600)}, {"listener": "web"}, times=0)
    yield f"{fake.url('web')}/m.safetensors", gate
    gate.set()


def test_a_detached_prewarm_is_told_by_status(start, models, stuck):
    daemon = start()
    url, gate = stuck
    (here,) = make(models, "here")
    assert daemon.cli.json("prewarm", here, "--detach", "--pin") == {"artifact": here, "detached": True, "pin": True}
    assert soon(lambda: told(daemon)[here]["state"] == "done") and rows(daemon)[here]["pinned"]
    daemon.cli.ok("prewarm", url, "--detach", "--pin")
    assert told(daemon)[url]["state"] == "running" and told(daemon)[url]["pin"] is True
    daemon.cli.ok("unpin", url)  # what is on its way will not be pinned
    assert told(daemon)[url]["pin"] is False
    gate.set()
    assert soon(lambda: told(daemon)[url]["state"] == "failed"), told(daemon)
    assert "NOT_FOUND" in told(daemon)[url]["message"] and daemon.logged("prewarm_failed")


def test_a_user_runs_64_detached_prewarms_and_not_one_more(start, stuck):
    daemon = start()
    url, _ = stuck
    daemon.cli.ok("prewarm", *[f"{url}?{i}" for i in range(64)], "--detach")
    refused = daemon.cli.run("prewarm", url, "--detach")
    assert refused.status == "RESOURCE_EXHAUSTED" and "64" in refused.err, refused
    daemon.process.send_signal(signal.SIGTERM)  # no client waits for them: they end with the daemon
    assert daemon.process.wait(60) == 0


def test_the_configuration_keeps_its_list_warm(start, models):
    one, two, split = make(models, "one", "two", "split")
    write(models / "split", {"m.q_proj.weight": np.arange(64, dtype=np.float32).reshape(8, 8), "m.norm.weight": np.zeros(8, np.float32)})
    listed = [{"artifact": f"{models}/one", "pin": True}, {"artifact": f"disk:{models}/none", "pin": True},
              {"artifact": split, "tp_size": 4, "tp_rank": 1, "pin": True}, {"artifact": split, "tensors": ["nothing*"]}]
    daemon = start(prewarm=listed)
    assert soon(lambda: [p["state"] for p in daemon.cli.json("status")["prewarms"]].count("failed") == 2
                and {a for a, r in rows(daemon).items() if r["pinned"]} == {one, split}), daemon.cli.json("status")
    assert daemon.cli.json("load", split, "--tp-size", "4", "--tp-rank", "1")["from_replica"] is True
    assert daemon.logged("none", "nothing*")
    daemon.cli.ok("prewarm", one, "--pin")  # a client asks for it as well
    daemon.tree["prewarm"] = [{"artifact": two, "pin": True}, {"artifact": split, "tp_size": 2}]
    daemon.configure(daemon.tree)
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: {a for a, r in rows(daemon).items() if r["pinned"]} == {one, two})
    assert soon(lambda: all(daemon.cli.json("load", split, "--tp-size", "2", "--tp-rank", rank)["from_replica"] for rank in "01"))
    daemon.cli.ok("unpin", one)
    assert not rows(daemon)[one]["pinned"]


def test_python_pins_and_unpins(start, models):
    tc = pytest.importorskip("tensorcast_client")
    daemon = start()
    (here,) = make(models, "here")
    with tc.connect(str(daemon.socket)) as client:
        art = client.artifact(here)
        assert art.prewarm(pin=True)["artifact"] == here
        assert [r["pinned"] for r in client.status()["replicas"]] == [True]
        assert art.prewarm(detach=True) == {}
        assert art.unpin()["unpinned_replicas"] == 1
        with pytest.raises(tc.TensorcastError, match="not pinned"):
            client.unpin(here)
        assert client.status()["totals"]["loads"] >= 1 and json.dumps(client.status())
