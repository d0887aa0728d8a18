"""The HTTP port of operators: metrics against reports and status, health, what strangers may do. Prometheus' own parsers and promtool
judge the text in the acceptance tests."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import time

import pytest

from checkpoints import blob, write
from group_scene import arrays, group, strategy  # noqa: F401
from stage import MiB, free_port, soon

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\.)*)"')


@pytest.fixture
def watched(start):
    """A daemon with its port on, at daemon.port."""
    def make(port=0, **settings):
        daemon = start(**{**settings, "server": {"metrics_address": f"127.0.0.1:{port}", **settings.get("server", {})}})
        daemon.port = int(daemon.status()["metrics_address"].rsplit(":", 1)[1])
        return daemon
    return make


def get(port, path, timeout=30, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers


def samples(port, **headers):
    """{(name, ((label, value), ...)): number}; every line has to be well-formed, and every family told of before its samples."""
    status, text, _ = get(port, "/metrics", **headers)
    assert status == 200 and text.endswith("\n")
    found, family = {}, ""
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            family = line.split()[2].removesuffix("_total")
        if line.startswith("#"):
            continue
        name, labels, number = SAMPLE.fullmatch(line).groups()
        assert name.startswith(family), (name, family)
        key = (name, tuple(LABEL.findall(labels or "")))
        assert key not in found, key
        found[key] = float(number)
    return found


def total(port, name, **labels):
    return sum(number for (key, have), number in samples(port).items() if key == name and labels.items() <= dict(have).items())


def test_both_formats_tell_the_same(watched, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = watched()
    daemon.cli.ok("load", f"disk:{models}/m")
    assert soon(daemon.at_rest)
    plain, modern = samples(daemon.port), samples(daemon.port, Accept="application/openmetrics-text")
    assert plain.keys() == modern.keys()
    moving = ("process_", "tensorcast_memory", "tensorcast_connections", "tensorcast_quota")
    assert {k: v for k, v in plain.items() if not k[0].startswith(moving)} == {k: v for k, v in modern.items() if not k[0].startswith(moving)}


def test_counters_are_the_sum_of_reports_also_of_loads_that_share(watched, models):
    for name, size in (("a", 8), ("b", 3)):
        write(models / name, {"w": blob(1, size * MiB), "v": blob(2, MiB)})
    daemon = watched()
    calls = [("load", f"disk:{models}/{name}", *words) for name in "ab" for words in [(), (), ("--tensor", "v"), ("--executor", "generic")]] * 2
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        reports = list(pool.map(lambda call: daemon.cli.json(*call), calls))
    found = samples(daemon.port)

    def added(name, **labels):
        return sum(number for (key, have), number in found.items() if key == name and labels.items() <= dict(have).items())

    assert added("tensorcast_loads_total", code="OK", source="disk") == added("tensorcast_loads_total") == len(reports)
    for executor in {report["executor"] for report in reports}:
        assert added("tensorcast_loads_total", executor=executor) == sum(report["executor"] == executor for report in reports)
    for kind, key in (("needed", "view"), ("read", "read"), ("copied", "copied"), ("shared", "shared")):
        assert added("tensorcast_load_bytes_total", kind=kind) == sum(report["bytes"][key] for report in reports), kind
    assert added("tensorcast_load_duration_seconds_count") == len(reports)
    took = sum(report["ms"]["total"] for report in reports) / 1000
    assert abs(added("tensorcast_load_duration_seconds_sum") - took) < 0.001 * len(reports)
    for name in "ab":
        assert added("tensorcast_artifact_loads_total", artifact=f"disk:{models}/{name}") == len(reports) / 2
    status = daemon.status()
    assert added("tensorcast_read_bytes_total") == status["totals"]["read_bytes"]
    assert added("tensorcast_delivered_bytes_total") == status["totals"]["delivered_bytes"]
    assert added("tensorcast_replicas") == len(status["replicas"])
    assert added("tensorcast_memory_budget_bytes", budget="host") == status["memory"]["host_budget_bytes"]


def test_what_is_refused_counts_with_its_code(watched, models):
    daemon = watched()
    for reference in (f"disk:{models}/none", "disk:/etc", "nonsense:x"):
        assert daemon.cli.run("load", reference).code
    found = samples(daemon.port)
    codes = {dict(labels)["code"]: (dict(labels)["source"], number) for (name, labels), number in found.items() if name == "tensorcast_loads_total"}
    assert codes["NOT_FOUND"] == ("disk", 1) and codes["PERMISSION_DENIED"] == ("disk", 1) and len(codes) == 3, codes
    assert found["tensorcast_load_results_total", (("result", "refused"),)] == 3
    assert not any(name == "tensorcast_artifact_loads_total" and dict(labels)["artifact"] != "other" for name, labels in found)


def test_an_evicted_replica_is_counted(watched, models):
    for name in "ab":
        write(models / name, {"w": blob(1, 12 * MiB)})
    daemon = watched(memory={"host_budget": "20MiB"})
    for name in "ab":
        daemon.cli.ok("load", f"disk:{models}/{name}")
    assert total(daemon.port, "tensorcast_replica_evictions_total") == total(daemon.port, "tensorcast_replicas_dropped_total", reason="evicted") == 1


def test_status_over_http_is_that_of_the_command(watched, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = watched()
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "600")
    assert soon(lambda: daemon.status()["leases"] == 1)
    code, body, headers = get(daemon.port, "/status.json")
    told, same = json.loads(body), daemon.status()
    assert code == 200 and headers["Content-Type"] == "application/json"
    assert told.keys() == same.keys() and told["metrics_address"] == f"127.0.0.1:{daemon.port}"
    for answer in (told, same):
        for replica in answer["replicas"]:
            for lease in replica["held_by"]:
                del lease["since_s"]
    assert told["replicas"] == same["replicas"] != []
    holder.kill()
    holder.communicate()


def test_events_come_once_a_second_and_tell_how_long_lists_are(watched, models):
    for i in range(103):
        write(models / f"m{i}", {"w": blob(1, 4096)})
    daemon = watched()
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream"

        def event():
            assert answer.readline() == b"event: state\n"
            name, data = answer.readline().split(b": ", 1)
            assert name == b"data" and answer.readline() == b"\n"
            return json.loads(data)

        first = event()
        assert first["replicas"] == 0 and first["status"].keys() == daemon.status().keys()
        assert event()["status"]["uptime_s"] > first["status"]["uptime_s"] + 0.5
        for i in range(103):
            daemon.cli.ok("load", f"disk:{models}/m{i}")
        while (newest := event())["replicas"] < 103:
            pass
    shown = [replica["artifact"] for replica in newest["status"]["replicas"]]
    assert len(shown) == 100 and shown[-1] == f"disk:{models}/m102" and newest["loads"] == 0
    done = [line for line in newest["events"] if line["event"] == "load_done"]
    assert len(newest["events"]) == 64 and done[-1]["artifact"] == f"disk:{models}/m102" and done[-1]["load_id"] and done[-1]["time"]


def test_a_daemon_that_drains_lives_and_is_not_ready(watched, models, arrays):  # noqa: F811
    daemon = watched(**strategy(), server={"shutdown_grace": "60s"})
    assert get(daemon.port, "/healthz")[:2] == (200, "ok\n") and get(daemon.port, "/readyz")[:2] == (200, "ready\n")
    rank = daemon.cli.spawn("load", f"disk:{models}/m", *group(0))  # waits for the others
    assert daemon.logged("event=load_waiting")
    daemon.process.send_signal(signal.SIGTERM)
    assert soon(lambda: get(daemon.port, "/readyz")[:2] == (503, "draining\n"))
    assert get(daemon.port, "/healthz")[0] == 200 and total(daemon.port, "tensorcast_draining") == 1
    rank.kill()
    rank.communicate()
    assert daemon.process.wait(60) == 0


def test_ranks_that_wait_for_their_group_are_counted(watched, models, arrays):  # noqa: F811
    daemon = watched(**strategy())
    assert total(daemon.port, "tensorcast_ranks_waiting") == 0
    ranks = [daemon.cli.spawn("load", f"disk:{models}/m", *group(rank)) for rank in range(3)]
    assert soon(lambda: total(daemon.port, "tensorcast_ranks_waiting") == 3) and total(daemon.port, "tensorcast_loads_running") == 0
    daemon.cli.ok("load", f"disk:{models}/m", *group(3))
    for rank in ranks:
        rank.communicate()
        assert rank.returncode == 0
    assert total(daemon.port, "tensorcast_ranks_waiting") == 0


def test_a_bad_address_is_named_and_a_taken_one_too(watched, start):
    first = watched(free_port())
    taken = start(wait=False, server={"metrics_address": f"127.0.0.1:{first.port}"})
    assert taken.process.wait(30) > 0 and "server.metrics_address" in taken.log() and f"127.0.0.1:{first.port}" in taken.log()
    assert "FAILED_PRECONDITION" in taken.log() and "INTERNAL" not in taken.log(), "it is no defect of the daemon"
    first.stop()
    assert start(server={"metrics_address": f"127.0.0.1:{first.port}"}).status()["metrics_address"] == f"127.0.0.1:{first.port}"
    bad = start(wait=False, server={"metrics_address": "localhost:1"})
    assert bad.process.wait(30) > 0 and "server.metrics_address: expected ADDRESS:PORT" in bad.log()


def test_without_an_address_no_port_is_open(daemon):
    inodes = {line.split()[9] for name in ("tcp", "tcp6") for line in open(f"/proc/{daemon.process.pid}/net/{name}") if line.split()[3] == "0A"}
    links = set()
    for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"):
        with contextlib.suppress(OSError):  # a connection that has ended
            links.add(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}"))
    assert daemon.status()["metrics_address"] == "" and not {f"socket:[{inode}]" for inode in inodes} & links


def test_whatever_strangers_send_a_scrape_gets_through(watched):
    """More connections than there are places, of all that a request can be wrong in."""
    daemon, chance = watched(), random.Random(int(os.environ.get("TEST_SEED", "7")))
    own = b" HTTP/1.1\r\nHost: localhost\r\n"
    beginnings = [b"", b"GET /metrics HTTP/1.1\r\nX-Slow: ", b"GET /events" + own + b"\r\n", b"GET /status.json" + own + b"\r\n",
                  b"GET /" + b"a" * 20000, b"POST /metrics" + own + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"\x16\x03\x01\x02\x00\x01",
                  b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 5000, b"GET /metrics HTTP/9.9\r\n\r\n", bytes(chance.randbytes(300))]
    strangers = []
    for _ in range(400):
        with contextlib.suppress(OSError):
            strangers.append(socket.create_connection(("127.0.0.1", daemon.port), 5))
            strangers[-1].settimeout(5)
            strangers[-1].sendall(chance.choice(beginnings))

    def answers():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(daemon.port, "/metrics", timeout=10)[0] == 200

    assert soon(answers, 60) and daemon.serving()
    assert daemon.descriptors() < 300
    for stranger in strangers:
        stranger.close()
    assert soon(answers) and soon(lambda: daemon.descriptors() < 60)
    assert daemon.stop() == 0


@pytest.mark.plain
def test_a_scrape_does_not_walk_replicas(watched, models):
    """What it costs does not grow with them: processor time of the daemon per scrape, with few and with many."""
    for i in range(400):
        write(models / f"m{i}", {"w": blob(1, 64)})
    daemon = watched()

    def cost():
        before = total(daemon.port, "process_cpu_seconds_total")
        for _ in range(100):
            get(daemon.port, "/metrics")
        return (total(daemon.port, "process_cpu_seconds_total") - before) / 100

    daemon.cli.ok("load", f"disk:{models}/m0")
    few = cost()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: daemon.cli.ok("load", f"disk:{models}/m{i}"), range(400)))
    many = cost()
    assert total(daemon.port, "tensorcast_replicas") == 400 and many < 3 * few + 0.002, (few, many)
    told = json.loads(get(daemon.port, "/status.json")[1])["replicas"]
    assert [row["artifact"] for row in told] == [row["artifact"] for row in daemon.status()["replicas"]] and len(told) == 400


@pytest.mark.plain
def test_a_reader_that_stops_reading_costs_no_memory(watched, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = watched()
    daemon.cli.ok("load", f"disk:{models}/m")
    readers = []
    for _ in range(20):
        readers.append(socket.create_connection(("127.0.0.1", daemon.port), 5))
        readers[-1].sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(1)
    before = daemon.resident()
    time.sleep(5)
    assert daemon.resident() - before < 8 * MiB and get(daemon.port, "/metrics")[0] == 200
    for reader in readers:
        reader.close()
