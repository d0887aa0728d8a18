"""Requests in flight to stores are shared: servers that send slowly hold up nobody who loads from others."""
import json
import os
import re
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stage import MiB, soon

ANN, BOB = 71001, 71002
SLOW_BYTES = 600 * MiB  # of one tensor: some forty requests


def head(size):
    text = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class Server(ThreadingHTTPServer):
    """Serves /x.safetensors of so many zeros. A slow one sends what a header needs, and of other ranges 25 KB/s."""

    request_queue_size, daemon_threads = 256, True

    def __init__(self, size, slow):
        self.size, self.slow, self.head, self.in_flight, self.lock = size, slow, head(size), 0, threading.Lock()
        self.stopped = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/x.safetensors"

    def count(self, by):
        with self.lock:
            self.in_flight += by

    def handle_error(self, request, client_address):
        pass  # the daemon hangs up on slow answers

    def close(self):
        self.stopped.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        found = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not self.path.endswith(".safetensors") or not found:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, total = int(found[1]), len(self.server.head) + self.server.size
        last = min(int(found[2]), total - 1)
        self.send_response(206)
        self.send_header("ETag", '"v"')
        self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        beginning = self.server.head[first:last + 1]
        self.wfile.write(beginning)
        self.send_zeros(last - first + 1 - len(beginning), self.server.slow and last >= MiB)

    def send_zeros(self, count, slowly):
        self.server.count(+1)
        try:
            while count > 0 and not self.server.stopped.wait(0.2 if slowly else 0):
                piece = min(count, 5000 if slowly else MiB)
                self.wfile.write(bytes(piece))
                count -= piece
        finally:
            self.server.count(-1)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = []

    def make(size=MiB, slow=False):
        made.append(Server(size, slow))
        return made[-1]

    yield make
    for one in made:
        one.close()


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
    daemon, good = start(memory={"host_budget": "8GiB"}), server()
    slow = [server(SLOW_BYTES, slow=True) for _ in range(3)]
    for one in slow:
        in_background(daemon, one.url)
    assert soon(lambda: sum(one.in_flight for one in slow) >= 50, 30)
    daemon.cli.ok("load", good.url, timeout=30)  # it had none of the 64 before


def test_a_slow_server_gives_the_only_slot_back_and_goes_on(start, server, in_background):
    daemon, good = start(sources={"http": {"max_connections": 1}}), server()
    slow = server(3 * MiB, slow=True)
    in_background(daemon, slow.url)
    assert soon(lambda: slow.in_flight == 1)
    daemon.cli.ok("load", good.url, timeout=60)
    assert soon(lambda: slow.in_flight == 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_load_that_gets_no_slot_is_told_who_has_it(start, server, in_background):
    daemon, good = start(server={"socket_mode": "0666"},
                         sources={"http": {"max_connections": 1, "progress_timeout": "500ms"}}), server()
    daemon.folder.chmod(0o755)
    slow = server(3 * MiB, slow=True)
    in_background(daemon, slow.url, user=ANN, group=ANN)
    assert soon(lambda: slow.in_flight == 1)
    outcome = daemon.cli.run("load", good.url, user=BOB, group=BOB)
    assert outcome.status == "DEADLINE_EXCEEDED" and f"uid {ANN} holds 1" in outcome.err, outcome
