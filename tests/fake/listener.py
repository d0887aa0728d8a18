"""One HTTP/1.1 listener: a thread per connection, keep-alive, TLS when given a context, and the faults on the way out.

`handle(request)` makes the answer that the store would give; what the rules of faults.py want instead happens here. Each
request is written into the journal before it is answered.
"""
import gzip
import re
import select
import socket
import ssl
import struct
import threading
import time

from messages import Answer, Request

MiB = 1 << 20
MAX_HEAD = 1 << 16
HTML = b"<!DOCTYPE html><html><body>Sign in to the hotel network</body></html>\n"
REASONS = {100: "Continue", 200: "OK", 204: "No Content", 206: "Partial Content", 301: "Moved Permanently", 302: "Found",
           307: "Temporary Redirect", 308: "Resume Incomplete", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
           404: "Not Found", 412: "Precondition Failed", 416: "Range Not Satisfiable", 429: "Too Many Requests",
           500: "Internal Server Error", 503: "Service Unavailable"}


class Gone(Exception):
    """The connection is over."""


class Listener:
    """`limits`: delay_s before every answer, bytes_per_s per connection, max_connections (more are reset), and
    requests_per_connection (then it closes without a word). All 0 = none."""

    def __init__(self, name, handle, faults, journal, address=("127.0.0.1", 0), tls=None):
        self.name, self.handle, self.faults, self.journal, self.tls = name, handle, faults, journal, tls
        self.limits = {"delay_s": 0, "bytes_per_s": 0, "max_connections": 0, "requests_per_connection": 0}
        self.n_connections, self.serial, self.lock, self.open = 0, 0, threading.Lock(), set()
        self.refused = 0
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.create_server(address, family=family, backlog=512)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True, name=f"fake-{name}")
        self.thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with self.lock:
                self.serial += 1
                self.n_connections += 1
                self.open.add(connection)
                serial, crowded = self.serial, 0 < self.limits["max_connections"] < self.n_connections
            if crowded:
                self.refused += 1
                self._end(connection, reset=True)
            else:
                threading.Thread(target=self._serve, args=(connection, serial), daemon=True).start()

    def _end(self, raw, reset=False, connection=None):
        try:
            if reset:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif connection is None:
                raw.shutdown(socket.SHUT_RDWR)
            (connection or raw).close()
        except OSError:
            pass
        with self.lock:
            self.n_connections -= raw in self.open
            self.open.discard(raw)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()
        with self.lock:
            left = list(self.open)
        for raw in left:
            try:
                raw.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _serve(self, raw, serial):
        connection, reset = raw, False
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                raw.settimeout(20)
                plain, raw = raw, self.tls.wrap_socket(raw, server_side=True)  # takes the descriptor of the plain one
                connection = raw
                with self.lock:
                    self.open.discard(plain)
                    self.open.add(raw)
                raw.settimeout(None)
            wire, served = Wire(connection, self), 0
            while True:
                request = wire.read_request(self.name, serial)
                if request is None:
                    break
                request.reused = served > 0
                wire.answer(request)
                served += 1
                if served == self.limits["requests_per_connection"]:
                    break
        except Gone as gone:
            reset = bool(gone.args and gone.args[0] == "reset")
        except (OSError, ssl.SSLError, ValueError):
            pass
        finally:
            self._end(raw, reset, connection if connection is not raw else None)


class Wire:
    """One connection."""

    def __init__(self, connection, listener):
        self.connection, self.listener, self.buffer, self.sent = connection, listener, b"", 0

    def _fill(self):
        piece = self.connection.recv(1 << 16)
        self.buffer += piece
        return bool(piece)

    def _take(self, count):
        pieces, missing = [], count
        while missing:
            if not self.buffer and not self._fill():
                raise Gone()
            pieces.append(self.buffer[:missing])
            self.buffer = self.buffer[len(pieces[-1]):]
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _line(self):
        while b"\r\n" not in self.buffer:
            if not self._fill():
                raise Gone()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def read_request(self, name, serial):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > MAX_HEAD or not self._fill():
                return None
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {}
        for line in lines:
            field, _, value = line.partition(":")
            headers[field.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._chunks()
        else:
            body = self._take(int(headers.get("content-length") or 0))
        return Request(name, method, target, headers, body, serial)

    def _chunks(self):
        body = b""
        while count := int(self._line().split(b";")[0], 16):
            body += self._take(count)
            self._line()
        while self._line():
            pass
        return body

    # --- the answer ---

    def answer(self, request):
        listener, do = self.listener, self.listener.faults.actions(request)
        entry = listener.journal.add(request, do)
        for name in ("replace", "delete", "expire_tokens", "call"):
            if name in do:
                listener.journal.world.change(name, do[name])
        time.sleep(listener.limits["delay_s"] + do.get("delay", 0))
        if do.get("close") == "before" or ("reset" in do and "truncate" not in do):
            raise Gone("reset" if do.get("reset") else "")
        if "garbage" in do or "gap" in do:
            self._nonsense(do)
        if do.get("whole"):
            request.headers.pop("range", None)
        answer = self._replacement(request, do) or listener.handle(request)
        self._alter(request, answer, do)
        entry["status"] = answer.status
        try:
            self._send(request, answer, do)
        finally:
            entry["sent"] = self.sent
        if do.get("close") == "after" or do.get("no_length"):
            raise Gone()

    def _nonsense(self, do):
        if "gap" in do:
            for _ in range(do["gap"][1]):
                self.connection.sendall(b"H")
                self._wait(do["gap"][0])
        else:
            self.connection.sendall(do["garbage"].encode("latin-1"))
        raise Gone()

    @staticmethod
    def _replacement(request, do):
        if "redirect" in do:
            answer = Answer(do.get("status", 307))
            answer.set("Location", request.target if do["redirect"] == "self" else do["redirect"])
        elif "status" in do:
            answer = Answer(do["status"], do.get("body", "").encode(), (), "text/plain")
        else:
            return None
        return answer

    @staticmethod
    def _alter(request, answer, do):
        data, start = answer.object_data, answer.start
        good = answer.status in (200, 206) and data is not None
        if good and "short" in do and do["short"] < len(answer.body):
            answer.body = answer.body[:do["short"]]
            answer.set("Content-Range", f"bytes {start}-{start + len(answer.body) - 1}/{len(data)}")
        if good and "shift" in do:
            at = max(0, min(len(data) - len(answer.body), start + do["shift"]))
            answer.body = memoryview(data)[at:at + len(answer.body)]
        if good and "flip" in do:
            at = 0 if do["flip"] is True else do["flip"] - start
            if 0 <= at < len(answer.body):
                answer.body = bytearray(answer.body)
                answer.body[at] ^= 1
        if good and do.get("zeros"):
            answer.body = bytes(len(answer.body))
        if good and do.get("html"):
            answer.body = (HTML * (len(answer.body) // len(HTML) + 1))[:len(answer.body)]
        if good and do.get("gzip"):
            answer.body = gzip.compress(bytes(answer.body))
            answer.set("Content-Encoding", "gzip")
        if "longer" in do:
            answer.body = bytes(answer.body) + bytes(do["longer"])
        if "content_range" in do and answer.get("Content-Range"):
            wrong = do["content_range"]
            if isinstance(wrong, dict):
                numbers = [int(n) for n in re.findall(r"\d+", answer.get("Content-Range"))]
                first, last, total = (n + wrong.get(k, 0) for n, k in zip(numbers, ("start", "end", "total")))
                wrong = f"bytes {first}-{last}/{total}"
            answer.set("Content-Range", wrong)
        if "huge_header" in do:
            answer.set("X-Huge", "h" * do["huge_header"])
        for name, value in do.get("headers", {}).items():
            answer.set(name, value)

    def _send(self, request, answer, do):
        lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Whatever')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        length = answer.get("X-Fake-Length") or len(answer.body)  # of the body that HEAD does not send
        lines = [line for line in lines if not line.startswith("X-Fake-Length")]
        if do.get("chunked"):
            lines.append("Transfer-Encoding: chunked")
        elif do.get("no_length"):
            lines.append("Connection: close")
        elif answer.status not in (204, 304):
            lines.append(f"Content-Length: {length}")
        lines.append(time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.listener.journal.world.clock_skew_s)))
        self.sent = 0
        self.connection.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        if request.method != "HEAD":
            self._body(memoryview(answer.body), do)

    def _body(self, body, do):
        stops = sorted({n for n in (do.get("truncate"), do.get("stall", {}).get("after")) if n is not None and n <= len(body)})
        at = 0
        for stop in [*stops, len(body)]:
            self._paced(body[at:stop], do)
            at = stop
            if at == do.get("truncate"):
                raise Gone("reset" if do.get("reset") else "")
            if "stall" in do and at == do["stall"]["after"]:
                self._wait(do["stall"].get("seconds", 0))
        if do.get("chunked"):
            self.connection.sendall(b"0\r\n\r\n")
        if "extra" in do:
            self.connection.sendall(b"x" * do["extra"])

    def _paced(self, piece, do):
        rate = do.get("drip") or self.listener.limits["bytes_per_s"]
        step = min(MiB, max(1, int(rate / 20))) if rate else MiB
        start, offset = time.monotonic(), 0
        while offset < len(piece):
            part = piece[offset:offset + step]
            if do.get("chunked"):
                self.connection.sendall(b"%x\r\n%s\r\n" % (len(part), bytes(part)))
            else:
                self.connection.sendall(part)
            offset += len(part)
            self.sent += len(part)
            if rate and (ahead := offset / rate - (time.monotonic() - start)) > 0:
                self._wait(ahead)

    def _wait(self, seconds):
        """Waits, but not longer than the client stays; 0 = until it goes."""
        end = time.monotonic() + (seconds or 3600)
        while (left := end - time.monotonic()) > 0:
            if select.select([self.connection], [], [], min(left, 0.5))[0]:
                try:
                    if not self._fill():  # the next request may come meanwhile
                        raise Gone()
                except OSError as error:
                    raise Gone() from error
