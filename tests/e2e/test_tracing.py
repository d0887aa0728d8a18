"""Traces of loads at an OpenTelemetry collector, and what becomes of loads when that is slow, refuses, or is not there."""
import contextlib
import http.server
import json
import threading
import time

import pytest

from checkpoints import blob, write
from stage import MiB, soon

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """Keeps what comes; `status` is its answer, `delay` the seconds before it."""

    def __init__(self):
        self.spans, self.posts, self.status, self.delay = [], [], 200, 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(collector.delay)
                collector.posts.append((self.path, self.headers["Content-Type"]))
                if collector.status == 200:
                    collector.spans += [
                        {**span, "service": {a["key"]: a["value"] for a in resource["resource"]["attributes"]},
                         "values": {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}}
                        for resource in body["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
                with contextlib.suppress(OSError):
                    self.send_response(collector.status)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"{}")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def roots(self):
        return [span for span in self.spans if span["name"] == "load"]

    def of(self, load_id):
        traces = {span["traceId"] for span in self.roots() if span["values"]["tensorcast.load_id"] == load_id}
        return [span for span in self.spans if span["traceId"] in traces]


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.server.shutdown()


@pytest.fixture
def traced(start, models, collector):
    """A daemon that sends its traces there, and a model."""
    write(models / "m", {"w": blob(1, MiB)})
    daemon = start(tracing={"otlp_endpoint": collector.url})
    daemon.model = f"disk:{models}/m"
    return daemon


def test_each_load_is_a_trace_with_its_stages(traced, collector):
    report = traced.cli.ok("load", traced.model, "--json").report
    assert soon(lambda: collector.of(report["load_id"]))
    trace = collector.of(report["load_id"])
    (root,) = [span for span in trace if not span.get("parentSpanId")]
    assert root["name"] == "load" and {"resolve", "plan", "execute"} <= {span["name"] for span in trace}
    assert root["values"]["tensorcast.artifact"] == traced.model and root["values"]["tensorcast.executor"] == report["executor"]
    assert int(root["values"]["tensorcast.bytes.read"]) == report["bytes"]["read"] and root["status"] == {"code": 1}
    assert root["service"]["service.name"] == {"stringValue": "tensorcastd"}
    assert collector.posts == [("/v1/traces", "application/json")]
    assert len({span["spanId"] for span in trace}) == len(trace) and all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in trace)
    begin, end = int(root["startTimeUnixNano"]), int(root["endTimeUnixNano"])
    assert (end - begin) / 1e6 >= 0.99 * report["ms"]["total"] and abs(end / 1e9 - time.time()) < 300
    for span in trace:
        assert span is root or span["parentSpanId"] == root["spanId"]
        assert begin <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= end


def test_a_failed_load_is_a_failed_trace(traced, collector, models):
    assert traced.cli.run("load", f"disk:{models}/none").failed
    assert soon(collector.roots)
    (root,) = collector.roots()
    assert root["status"] == {"code": 2, "message": "NOT_FOUND"} and root["values"]["tensorcast.code"] == "NOT_FOUND"


def test_explaining_sends_nothing(traced, collector):
    traced.cli.ok("explain", traced.model)
    traced.cli.ok("load", traced.model)
    assert soon(collector.roots) and len(collector.roots()) == 1


def test_the_command_is_part_of_the_trace_in_its_environment(traced, collector):
    for parent in (f"00-{TRACE}-{SPAN}-00", "rubbish\n", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01"):
        traced.cli.environment["TRACEPARENT"] = parent
        traced.cli.ok("load", traced.model)
    assert soon(lambda: len(collector.roots()) == 3), "one of them is not sampled"
    theirs = [root for root in collector.roots() if root["traceId"] == TRACE]
    assert [root["parentSpanId"] for root in theirs] == [SPAN]
    assert [root.get("parentSpanId") for root in collector.roots() if root not in theirs] == [None, None]


def test_urls_lose_user_and_query(traced, collector):
    assert traced.cli.run("load", "https://user:hunter2@127.0.0.1:1/m?token=hunter3").failed
    assert soon(collector.roots)
    assert "hunter" not in json.dumps(collector.spans) and "127.0.0.1" in collector.roots()[0]["values"]["tensorcast.artifact"]


@pytest.mark.parametrize("what", ["refuses", "hangs", "is not there"])
def test_a_collector_that_fails_costs_no_load_anything(traced, collector, what):
    if what == "refuses":
        collector.status = 400
    elif what == "hangs":
        collector.delay = 3600
    else:
        collector.server.shutdown()
        collector.server.server_close()
    for _ in range(5):
        traced.cli.ok("load", traced.model, timeout=60)
    assert soon(lambda: "event=tracing_failed" in traced.log())
    assert len([line for line in traced.log().splitlines() if "event=tracing_failed" in line]) == 1, "a line a minute"
    assert "endpoint=" in traced.log() and not collector.spans


def test_a_stop_sends_what_is_left(traced, collector):
    report = traced.cli.ok("load", traced.model, "--json").report
    assert traced.stop() == 0
    assert collector.of(report["load_id"])


def test_an_endpoint_that_is_none_ends_the_start(start):
    daemon = start(wait=False, tracing={"otlp_endpoint": "http://user:hunter2@127.0.0.1:4318"})
    assert daemon.process.wait(60) != 0
    assert "tracing.otlp_endpoint" in daemon.log() and "hunter2" not in daemon.log()


def test_a_name_that_no_tensor_has_is_a_load_that_failed(traced, collector):
    outcome = traced.cli.run("load", traced.model, "--tensor", "nope")
    assert outcome.status == "NOT_FOUND" and "nope" in outcome.err
    assert soon(collector.roots) and collector.roots()[0]["status"]["code"] == 2
