"""How many requests a store is asked at once: a store that sends each answer slowly is only fast together."""
import http.server
import re
import threading

import pytest

import checkpoints
from stage import MiB, Tensorcast


class Together(http.server.ThreadingHTTPServer):
    """Answers ranges of a folder's files. Large ones wait until `wanted` of them are asked for at once, or five seconds have passed."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self, folder, wanted):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.wanted, self.now, self.most, self.bytes = folder, wanted, 0, 0, 0
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait(self):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.wanted, 5)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        file = self.server.folder / self.path.lstrip("/")
        size = file.stat().st_size if file.is_file() else 0
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
        is_large = last - first >= MiB
        if is_large:
            self.server.wait()
        self.send_response(206 if size else 404)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1 if size else 0))
        self.end_headers()
        if size:
            with open(file, "rb") as opened:
                opened.seek(first)
                self.wfile.write(opened.read(last - first + 1))
        with self.server.changed:
            self.server.now -= is_large
            self.server.bytes += last - first + 1 if size else 0


WAYS = {"export": (("export",), 20), "export with memory": (("export", "--memory", "2GiB"), 8), "fetch": (("fetch", "--all", "--standalone"), 20)}


@pytest.mark.parametrize("how, wanted", WAYS.values(), ids=WAYS)
def test_many_requests_are_in_flight_from_a_store_and_no_byte_is_asked_for_twice(tmp_path, how, wanted):
    tensors = {f"t{i:02}": checkpoints.blob(i, 4 * MiB) for i in range(40)}
    checkpoints.write(tmp_path / "m", tensors)
    server = Together(tmp_path / "m", wanted)
    command, *options = how
    place = ["--out", tmp_path / "out"] if command == "export" else [tmp_path / "out"]
    try:
        Tensorcast("/tmp/tc-no-daemon.sock").ok(command, f"http://127.0.0.1:{server.server_port}/", *place, *options)
    finally:
        server.shutdown()
        server.server_close()
    assert server.most >= wanted
    assert server.bytes < 161 * MiB + 1
    made = checkpoints.read_back(tmp_path / "out/model.safetensors")
    assert all((made[name] == value).all() for name, value in tensors.items())
