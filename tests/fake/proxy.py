"""A tiny HTTP proxy: CONNECT tunnels and absolute-form requests. Counts both; can ask for a password or hang up."""
import base64
import select
import socket
import threading
import urllib.parse


class Proxy:
    """`user`: "name:password" that Proxy-Authorization must give; `die_after_bytes`: ends a tunnel after so many bytes down,
    `deaths` times."""

    def __init__(self, address=("127.0.0.1", 0)):
        self.user, self.die_after_bytes, self.deaths = "", 0, 0
        self.connects, self.forwards, self.refused, self.authorities = 0, 0, 0, []
        self.heads, self.lock = [], threading.Lock()
        self.socket = socket.create_server(address, backlog=128)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://{address[0]}:{self.port}"
        threading.Thread(target=self._accept, daemon=True, name="fake-proxy").start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = None
        try:
            head, rest = self._head(client)
            if self.user and f"basic {base64.b64encode(self.user.encode()).decode()}".lower() not in head.lower():
                self.refused += 1
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"fake\"\r\n"
                               b"Content-Length: 0\r\nConnection: close\r\n\r\n")
                return
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            if method == "CONNECT":
                host, port = target.rsplit(":", 1)
                server = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._count("connects", head, target)
            else:
                server, head = self._forward(head, target)
                server.sendall(head.encode("latin-1"))
            if rest:
                server.sendall(rest)
            self._pump(client, server)
        except (OSError, ValueError):
            pass
        finally:
            for end in (client, server):
                if end:
                    end.close()

    def _count(self, what, head, authority):
        with self.lock:
            setattr(self, what, getattr(self, what) + 1)
            self.heads.append(head)
            self.authorities.append(authority)

    @staticmethod
    def _head(client):
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            piece = client.recv(65536)
            if not piece:
                raise OSError("gone")
            buffer += piece
        head, rest = buffer.split(b"\r\n\r\n", 1)
        return head.decode("latin-1"), rest

    def _forward(self, head, target):
        url = urllib.parse.urlsplit(target)
        self._count("forwards", head, url.netloc)
        server = socket.create_connection((url.hostname, url.port or 80), timeout=10)
        first, _, others = head.partition("\r\n")
        lines = [line for line in others.split("\r\n") if not line.lower().startswith(("proxy-", "connection:"))]
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        # one request a connection keeps the proxy from having to find where an answer ends
        return server, "\r\n".join([first.replace(target, path, 1), *lines, "Connection: close"]) + "\r\n\r\n"

    def _pump(self, client, server):
        down, limit = 0, 0
        with self.lock:
            if self.die_after_bytes and self.deaths:
                self.deaths -= 1
                limit = self.die_after_bytes
        server.settimeout(None)
        while True:
            for end in select.select([client, server], [], [])[0]:
                piece = end.recv(65536)
                if not piece:
                    return
                if end is server:
                    down += len(piece)
                    if limit and down > limit:
                        return
                (client if end is server else server).sendall(piece)
