"""A proxy before a store that passes requests on and does one of them wrong: faults of uploads, before real servers."""
import http.client
import http.server
import socket
import struct
import threading

FAULTS = ("reset", "reset in the middle", "503", "429", "answer lost", "answer cut", "flipped")


class Handler(http.server.BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # head and body of an answer are two writes: clients would wait 40 ms for the second
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        raise ConnectionResetError

    def pass_on(self):
        proxy, size = self.server.proxy, int(self.headers.get("Content-Length") or 0)
        what = proxy.take(self.command, self.path, size)
        if what == "reset":
            self.reset()
        body = self.rfile.read(size // 2 if what == "reset in the middle" else size)
        if what == "reset in the middle":
            self.reset()
        if what in ("503", "429"):
            return self.answer(int(what), [("Retry-After", "0")], b"not now")
        if what == "flipped" and body:
            body = body[:len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1:]
        status, headers, data = proxy.forward(self.command, self.path, self.headers, body)
        proxy.passed.append((self.command, self.path, size))
        if what == "answer lost":
            self.reset()
        self.answer(status, headers, data, cut=what == "answer cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = pass_on

    def answer(self, status, headers, body, cut=False):
        self.send_response_only(status)
        length = next((value for name, value in headers if name.lower() == "content-length"), None)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        if cut:  # in its head: an empty body cannot be cut
            self.wfile.write(b"".join(self._headers_buffer)[:-5])
            self.wfile.flush()
            self.reset()
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class UploadProxy:
    """`fault(number, method, path, size)` names what goes wrong with a request, from 1; `seen` has them all, `passed` those
    that the store has answered."""

    def __init__(self, port):
        self.port, self.seen, self.passed, self.fault, self.lock = port, [], [], lambda *_: None, threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads, self.server.proxy = True, self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, method, path, size):
        with self.lock:
            self.seen.append((method, path, size))
            return self.fault(len(self.seen), method, path, size)

    def forward(self, method, path, headers, body):
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in ("connection", "content-length"):
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.putheader("Connection", "close")
            upstream.endheaders(body)
            reply = upstream.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            upstream.close()

    def fresh(self, fault=lambda *_: None):
        self.seen.clear()
        self.passed.clear()
        self.fault = fault

    def close(self):
        self.server.shutdown()
        self.server.server_close()
