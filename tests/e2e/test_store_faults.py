"""Servers and networks that misbehave while a daemon loads from them: cases 1 to 26, 35, 41, 46 to 51 and 60 of the list of
faults of object stores. A load is delivered whole or fails with the named error; the daemon lives and holds nothing.

Cases 27 to 45 are in test_store_contents.py and test_store_credentials.py, proxies, names and TLS in test_store_network.py, 59
in test_faults.py. Cases 52 to 58 are about uploads: test_activation_uploads.py, and tests/stores against real servers.
"""
import json
import os
import resource
import signal
import subprocess
import time

import pytest

from checkpoints import blob
from stage import MiB, soon
from store_scene import SCHEMES, SIZE, load, noise, one, place

NO_PROGRESS = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
SLOW_DOWN = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
TIMED_OUT = "<Error><Code>RequestTimeout</Code><Message>Your socket connection was not read from in time.</Message></Error>"


def bounds(entry):
    first, last = entry["range"].removeprefix("bytes=").split("-")
    return int(first), int(last)


def refused(outcome, *codes):
    """The load failed with one of these codes and one line about it."""
    return outcome.failed and outcome.status in codes


# --- a plain load of each store, and answers that ask for patience: 1 to 5 ---


def test_every_store_delivers_the_same_tensors(fake, store_daemon, scheme):
    placed = place(fake, scheme, {"w": noise(1), "empty": blob(1, 0)}, {"v": blob(2, MiB)})
    daemon = store_daemon()
    assert placed.is_delivered(load(daemon, placed))
    assert soon(daemon.at_rest)
    assert placed.is_delivered(load(daemon, placed, "--standalone", env=standalone(fake, daemon)))


def standalone(fake, daemon):
    """The environment that leads the command line itself to the fake."""
    return {**daemon.cli.environment, "STORAGE_EMULATOR_HOST": fake.url("gcs"), "AWS_ENDPOINT_URL": fake.url("s3"),
            "AWS_REGION": "us-east-1", "HF_ENDPOINT": fake.url("hub")}


@pytest.mark.parametrize("status, body", [(429, ""), (503, ""), (503, SLOW_DOWN)])
def test_retry_after_is_waited_for(fake, store_daemon, status, body):
    placed = one(fake, "s3" if body else "http")
    placed.fault({"status": status, "headers": {"Retry-After": "1"}, "body": body}, nth=3)
    assert placed.is_delivered(load(store_daemon(), placed))
    turned_away = next(entry for entry in placed.reads() if entry["status"] == status)
    again = [entry for entry in placed.reads() if entry["n"] > turned_away["n"] and bounds(entry)[0] == bounds(turned_away)[0]]
    assert len(again) == 1 and again[0]["time"] - turned_away["time"] >= 1.0


OTHER_RANGES = {"whole object": {"whole": True}, "other start": {"content_range": {"start": 1}}, "other end": {"content_range": {"end": -1}},
        "no content-range": {"content_range": None}, "nonsense": {"content_range": "bytes all of it"}}
IN_THE_MIDDLE = {"match": {"covers": 2_500_000}}
# What one more try makes good: the stores, what goes wrong, and in which requests.
PASSING = {
    **{f"status {status}": (SCHEMES, {"status": status}, {"nth": 2, "times": 2}) for status in (500, 502, 504, 408)},
    "400 RequestTimeout": (["s3"], {"status": 400, "body": TIMED_OUT}, {"nth": 2}),
    "closed before the answer": (SCHEMES, {"close": "before"}, {"nth": 2, "times": 2}),
    "reset before the answer": (SCHEMES, {"reset": True}, {"nth": 2, "times": 2}),
    "longer than asked for": (["http"], {"longer": 1000}, {"nth": 2}),
    "bytes behind the answer": (["http"], {"extra": 100}, {"times": 3}),
    "not HTTP": (["http"], {"garbage": "SSH-2.0-OpenSSH\r\n"}, {"nth": 2}),
    **{how: (SCHEMES, do, IN_THE_MIDDLE) for how, do in OTHER_RANGES.items()}}


@pytest.mark.parametrize("half", [0, 1])  # the daemon gives one server so many tries and no more
def test_what_one_more_try_makes_good_is_not_seen(fake, store_daemon, scheme, half):
    daemon, placed = store_daemon(), one(fake, scheme)
    for what, (schemes, do, where) in list(PASSING.items())[half::2]:
        if scheme in schemes:
            rule = placed.fault(do, **where)
            assert placed.is_delivered(load(daemon, placed)) and rule.acted == where.get("times", 1), what
            daemon.cli.ok("release", "--all")
            fake.faults.clear()


def test_an_endless_503_ends_at_the_limit_and_says_so(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    placed.fault({"status": 503, "headers": {"x-amz-request-id": "ID17"}}, times=0, match={"range": "bytes=[1-9]"})
    daemon = store_daemon(http={"max_tries": 3})
    outcome = load(daemon, placed)
    assert refused(outcome, "UNAVAILABLE") and "503" in outcome.err and "model.safetensors" in outcome.err, outcome
    assert soon(daemon.at_rest)
    fake.faults.clear()
    assert placed.is_delivered(load(daemon, placed))


# --- connections that break: 9 to 14, 16 ---


def test_a_kept_connection_that_was_closed_costs_no_try(fake, store_daemon):
    placed = one(fake, "http")
    rule = placed.fault({"close": "before"}, match={"reused": True}, times=0)
    assert placed.is_delivered(load(store_daemon(http={"max_tries": 1}), placed)) and rule.acted > 0


BROKEN = {"truncated": {"truncate": 300_000}, "reset": {"truncate": 300_000, "reset": True},
          "chunked": {"truncate": 300_000, "chunked": True}, "no length": {"truncate": 300_000, "no_length": True},
          "short": {"short": 300_000}}


@pytest.mark.parametrize("how", BROKEN)
def test_only_the_remainder_of_a_broken_answer_is_asked_again(fake, store_daemon, scheme, how):
    placed = one(fake, scheme)
    rule = placed.fault(BROKEN[how], match={"covers": 2_500_000})
    assert placed.is_delivered(load(store_daemon(), placed)) and rule.acted == 1
    broken = next(entry for entry in placed.reads() if entry["faults"])
    rest = [entry for entry in placed.reads() if entry["n"] > broken["n"] and bounds(entry)[1] == bounds(broken)[1]]
    assert len(rest) == 1
    missing = bounds(rest[0])[0] - bounds(broken)[0]
    assert 0 <= missing <= 300_000 if how == "reset" else missing == 300_000  # a reset may overtake bytes
    assert placed.scheme != "s3" or rest[0]["headers"]["if-match"] == broken["headers"]["if-match"]


def test_nothing_but_nonsense_instead_of_http_is_a_named_error(fake, store_daemon):
    placed = one(fake, "http")
    placed.fault({"garbage": "SSH-2.0-OpenSSH\r\n"}, times=0)
    outcome = load(store_daemon(http={"max_tries": 2}), placed)
    assert refused(outcome, "UNAVAILABLE", "INTERNAL") and "127.0.0.1" in outcome.err, outcome


# --- slowness: 17 to 20, 46 ---


def test_a_slow_first_byte_is_asked_a_second_time_and_the_faster_answer_wins(fake, store_daemon):
    placed = one(fake, "http")
    rule = placed.fault({"delay": 3600}, match={"covers": 2_500_000})
    daemon = store_daemon(http={"hedge_after": "200ms", "hedge_percent": 100, "first_byte_timeout": "1m", "progress_timeout": "2m"})
    assert placed.is_delivered(load(daemon, placed)) and rule.acted == 1
    assert len([entry for entry in placed.reads() if bounds(entry)[0] <= 2_500_000 <= bounds(entry)[1]]) == 2


def test_an_answer_that_stops_is_given_up_and_the_rest_asked_on_another_connection(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    rule = placed.fault({"stall": {"after": 300_000}}, match={"covers": 2_500_000})
    assert placed.is_delivered(load(store_daemon(), placed)) and rule.acted == 1
    stalled = next(entry for entry in placed.reads() if entry["faults"])
    rest = [entry for entry in placed.reads() if entry["n"] > stalled["n"] and bounds(entry)[1] == bounds(stalled)[1]]
    assert len(rest) == 1 and rest[0]["connection"] != stalled["connection"]
    assert bounds(rest[0])[0] == bounds(stalled)[0] + 300_000


@pytest.mark.plain  # ten seconds below the floor are real seconds
def test_a_trickle_counts_as_stopped(fake, store_daemon):
    placed = one(fake, "http")
    rule = placed.fault({"drip": 2000}, match={"covers": 2_500_000})
    assert placed.is_delivered(load(store_daemon(), placed)) and rule.acted == 1


def test_a_peer_that_never_answers_ends_in_an_error_not_in_a_hang(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    placed.fault({"delay": 3600}, times=0)
    daemon = store_daemon(http={"first_byte_timeout": "300ms", "progress_timeout": "2s", "max_tries": 3})
    outcome = load(daemon, placed)
    assert refused(outcome, *NO_PROGRESS) and "model.safetensors" in outcome.err, outcome
    assert soon(daemon.at_rest)


def test_one_slow_server_does_not_hold_up_loads_from_others(fake, store_daemon):
    slow, fast = one(fake, "http"), one(fake, "s3", seed=2)
    slow.fault({"delay": 3600}, match={"range": "bytes=[1-9]"}, times=0)
    daemon = store_daemon(http={"first_byte_timeout": "1h", "progress_timeout": "1h"})
    waiting = daemon.cli.spawn("load", slow.reference)
    assert soon(lambda: slow.reads())
    assert fast.is_delivered(load(daemon, fast))
    assert waiting.poll() is None
    waiting.kill()
    waiting.communicate()
    assert soon(daemon.at_rest), daemon.status()


# --- answers that are not what was asked for: 21 to 26, 35, 38, 41 ---


@pytest.mark.parametrize("how", OTHER_RANGES)
def test_a_server_that_always_answers_for_another_range_is_an_error(fake, store_daemon, how):
    placed = one(fake, "http")
    placed.fault(OTHER_RANGES[how], match={"range": "bytes=[1-9]"}, times=0)
    outcome = load(store_daemon(http={"max_tries": 3}), placed)
    named = "range" in outcome.err.lower() or "asked for bytes" in outcome.err
    assert outcome.failed and named and "model.safetensors" in outcome.err, outcome


@pytest.mark.parametrize("change", [{"content_range": {"total": 1}}, {"content_range": {"total": -1}}])
def test_another_total_means_that_the_object_changed(fake, store_daemon, scheme, change):
    placed = one(fake, scheme)
    placed.fault(change, match={"covers": 2_500_000}, times=0)
    outcome = load(store_daemon(), placed)
    assert refused(outcome, "FAILED_PRECONDITION") and "model.safetensors" in outcome.err, outcome


def test_an_object_that_shrinks_under_a_load_is_an_error(fake, store_daemon):
    fake.web.etag, fake.web.last_modified, fake.web.preconditions = "none", False, False
    placed = one(fake, "http")
    placed.fault({"replace": {"listener": "web", "path": placed.prefix + "model.safetensors", "random": 2_000_000}},
                 match={"covers": 2_500_000})
    outcome = load(store_daemon(), placed)
    assert refused(outcome, "FAILED_PRECONDITION") and "model.safetensors" in outcome.err, outcome


def test_redirects_that_never_end_are_an_error(fake, store_daemon):
    placed = one(fake, "http")
    rule = fake.fault({"redirect": "self"}, {"listener": "web", "path": "models/m"}, times=0)
    outcome = load(store_daemon(), placed)
    assert outcome.failed and "redirect" in outcome.err.lower() and rule.acted <= 40, outcome


def test_an_endless_header_is_a_protocol_error_not_a_lack_of_memory(fake, store_daemon):
    placed = one(fake, "http")
    placed.fault({"huge_header": 2 * MiB}, match={"covers": 2_500_000}, times=0)
    outcome = load(store_daemon(http={"max_tries": 2}), placed)
    assert outcome.failed and outcome.status != "RESOURCE_EXHAUSTED" and "header" in outcome.err.lower(), outcome
    assert "memory" not in outcome.err.lower()


# --- connections that are counted: 47, 48 ---


def test_a_server_that_takes_two_connections_is_enough(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    fake.limit(placed.data_listener, max_connections=2, delay_s=0.02)
    assert placed.is_delivered(load(store_daemon(), placed))


def test_connections_that_end_after_each_second_request_are_not_noticed(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    fake.limit(placed.data_listener, requests_per_connection=2)
    assert placed.is_delivered(load(store_daemon(http={"max_tries": 1}), placed))


# --- who goes away, and what runs out: 50, 51, 60 ---


@pytest.fixture
def held_up(fake, store_daemon):
    """A daemon with a load that waits for a store on four connections at least; (daemon, placed, the client's process)."""
    placed = one(fake, "http")
    placed.fault({"stall": {"after": 1000}}, match={"range": "bytes=[1-9]"}, times=0)
    daemon = store_daemon(http={"stall_timeout": "1h", "first_byte_timeout": "1h", "progress_timeout": "1h"},
                          server={"shutdown_grace": "500ms"})
    client = daemon.cli.spawn("load", placed.reference)
    assert soon(lambda: len([entry for entry in placed.reads() if entry["faults"]]) > 3)
    yield daemon, placed, client
    client.kill()
    client.communicate()


def test_a_client_that_dies_ends_its_requests(fake, held_up):
    daemon, placed, client = held_up
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert soon(daemon.at_rest), daemon.status()
    assert soon(lambda: fake.listeners["web"].n_connections <= 2)  # idle ones, whose answers came
    fake.faults.clear()
    assert placed.is_delivered(load(daemon, placed))


def test_retries_are_logged_once_for_each_server(fake, store_daemon):
    placed = one(fake, "http")
    placed.fault({"status": 503}, times=4)
    daemon = store_daemon()
    assert placed.is_delivered(load(daemon, placed))
    assert daemon.logged("event=load_done")  # the line behind
    retries = [line for line in daemon.log().splitlines() if " event=store_retrying " in line]
    assert len(retries) == 1 and " level=warn " in retries[0], retries
    assert f" uid={os.getuid()} " in retries[0] and " try=1 of=8 " in retries[0] and "503" in retries[0], retries


def test_a_daemon_that_is_told_to_stop_tells_its_clients(fake, held_up):
    daemon, _, client = held_up
    daemon.process.send_signal(signal.SIGTERM)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 3 and "UNAVAILABLE" in err, err
    assert "the daemon is stopping; the load did not end within server.shutdown_grace 0.5 s" in err
    assert daemon.process.wait(60) == 0, daemon.log()
    assert "event=drain_incomplete loads=1 bytes_left=" in daemon.log() and "reason=DAEMON_STOPPING" in daemon.log()
    assert "CLIENT_LEFT" not in daemon.log()


def test_running_out_of_descriptors_fails_that_load_only(fake, store_daemon):
    placed = one(fake, "http")
    daemon = store_daemon()
    daemon.cli.ok("status")
    used = daemon.descriptors()
    subprocess.run(["prlimit", f"--pid={daemon.process.pid}", f"--nofile={used + 2}:"], check=True)
    outcome = load(daemon, placed, timeout=100)
    assert outcome.code == 0 or outcome.status in {"RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"}, outcome
    subprocess.run(["prlimit", f"--pid={daemon.process.pid}", f"--nofile={resource.getrlimit(resource.RLIMIT_NOFILE)[0]}:"], check=True)
    assert soon(lambda: load(daemon, placed).code == 0)
    assert placed.is_delivered(load(daemon, placed))


def test_a_load_larger_than_the_budget_is_refused_before_a_byte_is_asked(fake, store_daemon):
    placed = one(fake, "http")
    daemon = store_daemon(memory={"host_budget": "2MiB"})
    outcome = load(daemon, placed)
    assert refused(outcome, "RESOURCE_EXHAUSTED"), outcome
    assert sum(entry["sent"] for entry in placed.reads()) < SIZE


def test_many_faults_at_once_still_deliver_every_byte(fake, store_daemon, scheme):
    placed = place(fake, scheme, {f"a{i}": noise(10 + i, MiB + i) for i in range(3)}, {f"b{i}": noise(20 + i, MiB + i) for i in range(3)})
    match = {"listener": placed.data_listener, "method": "GET", "range": "bytes="}
    for every, do in ((5, {"status": 503}), (7, {"reset": True}), (6, {"truncate": 70_000}), (9, {"short": 1000}),
                      (11, {"content_range": None})):
        fake.fault(do, match, every=every, times=3, nth=2)
    started = time.monotonic()
    assert placed.is_delivered(load(store_daemon(http={"max_tries": 20}), placed)), time.monotonic() - started


def told(client):
    """The objects of --progress json, as they come."""
    for line in client.stderr:
        if line.startswith("{"):
            yield json.loads(line)


@pytest.mark.parametrize("standalone_too", [False, True])
def test_what_a_load_waits_for_before_it_can_read_is_told(fake, store_daemon, standalone_too):
    placed = one(fake, "http")
    fake.fault({"status": 503, "headers": {"Retry-After": "4"}}, {"listener": "web"}, times=1)
    daemon = store_daemon()
    how = {"env": standalone(fake, daemon)} if standalone_too else {}
    client = daemon.cli.spawn("load", placed.reference, "--progress", "json", *["--standalone"][:standalone_too], **how)
    steps = list(told(client))
    client.communicate(timeout=60)
    waits = [step["waiting_for"] for step in steps if "waiting_for" in step]
    assert client.returncode == 0 and waits, steps
    assert waits[0].startswith(fake.url("web") + ": the server answered 503") and "try 2 of 8 in " in waits[0], waits
    done = [step["done_bytes"] for step in steps]
    assert done == sorted(done) and steps[-1]["done_bytes"] == steps[-1]["total_bytes"] == SIZE


def test_commands_without_a_stream_of_progress_say_what_they_wait_for_and_status_does(fake, store_daemon):
    placed = one(fake, "http")
    fake.fault({"status": 503, "headers": {"Retry-After": "15"}}, {"listener": "web"}, times=100)
    daemon = store_daemon()
    commands = {"Resolve": ["inspect"], "Explain": ["explain"], "Prewarm": ["prewarm"], "FetchSidecars": ["fetch", "--tensors"]}
    clients = {method: daemon.cli.spawn(*command, placed.reference, "--progress", "json") for method, command in commands.items()}
    for method, client in clients.items():
        step = next(told(client))
        assert step["waiting_for"].startswith(fake.url("web") + ": the server answered 503") and step["total_bytes"] == 0, (method, step)
    rows = {row["method"]: row for row in daemon.status()["requests"]}
    assert set(rows) == set(commands) and all("503" in row["waiting_for"] and row["artifact"] == placed.reference for row in rows.values()), rows
    assert "waiting for " + fake.url("web") in daemon.cli.run("status").out
    late = daemon.cli.run("inspect", placed.reference, "--timeout", "5s")
    assert late.code == 124 and f"; waiting for {fake.url('web')}: the server answered 503" in late.err, late
    for client in clients.values():
        client.kill()
        client.communicate()
    assert soon(lambda: not daemon.status()["requests"])


def test_a_read_that_gets_no_byte_says_of_whom_and_the_log_says_it_once(fake, held_up):
    daemon, placed, _ = held_up
    client = daemon.cli.spawn("load", placed.reference, "--progress", "json", "--group", "g", "--rank", "0", "--world-size", "1")
    waits = (step["waiting_for"] for step in told(client) if "waiting_for" in step)
    assert next(waits) in {f"more bytes from {fake.url('web')}", f"{fake.url('web')} to answer"}
    assert soon(lambda: "event=load_waiting" in daemon.log())
    assert any((row["rank"], row["world_size"]) == (0, 1) for row in daemon.status()["loads"]) and "rank 0 of 1" in daemon.cli.run("status").out
    client.kill()
    client.communicate()
    lines = [line for line in daemon.log().splitlines() if "event=load_waiting" in line]
    assert len({line.split("load_id=")[1][:16] for line in lines}) == len(lines) and "stage=read waiting_for=" in lines[0], lines


def test_what_a_cancelled_load_has_read_is_counted(fake, store_daemon):
    placed = one(fake, "gs")
    fake.fault({"drip": 100_000}, match={"covers": 3 * MiB})
    daemon = store_daemon(http={"stall_timeout": "30s"})
    leaving = daemon.cli.spawn("load", placed.reference, "--quiet")
    assert soon(lambda: daemon.status().get("totals", {}).get("read_bytes", 0) >= MiB), "what a running load has read is not told"
    leaving.send_signal(signal.SIGINT)
    assert leaving.wait(60) == 130 and soon(daemon.at_rest)
    totals = daemon.status()["totals"]
    assert (totals["loads"], totals["failed"], totals["cancelled"]) == (0, 1, 1) and MiB <= totals["read_bytes"] <= SIZE
    assert ", 0 failed, 1 cancelled, 0 B delivered, " in daemon.cli.ok("status").out
