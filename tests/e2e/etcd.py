"""A real etcd of one or three members, and etcdctl to look into it."""
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request

import grpc

from stage import free_port, soon

WITHOUT = None if shutil.which("etcd") and shutil.which("etcdctl") else "Debian's etcd-server and etcd-client are missing"


class Authority:
    """A certificate authority in a folder; issue() returns the paths of a certificate and its key."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name, self.file = folder, name, folder / f"{name}.crt"
        self._run("req", "-x509", "-days", "2", "-subj", f"/CN={name}", *self._key(name), "-out", self.file)

    def _key(self, name):
        return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.folder / f"{name}.key"

    @staticmethod
    def _run(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=30)

    def issue(self, name, subject="/O=hosts"):
        crt, key, csr, ext = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr", "ext"))
        ext.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._run("req", "-subj", subject, *self._key(name), "-out", csr)
        self._run("x509", "-req", "-in", csr, "-CA", self.file, "-CAkey", self.folder / f"{self.name}.key", "-CAcreateserial", "-days", "2",
                  "-extfile", ext, "-out", crt)
        return crt, key


class Etcd:
    def __init__(self, folder, members=1, authority=None, address="127.0.0.1", options=()):
        self.folder, self.authority, self.address, self.options = folder, authority, address, options
        self.ports = [(free_port(), free_port(), free_port()) for _ in range(members)]  # clients, members, metrics
        self.processes = [None] * members
        self.scheme = "https" if authority else "http"
        self.user, self.silent = None, set()
        if authority:
            self.server, self.client = authority.issue("server"), authority.issue("control")

    @property
    def endpoints(self):
        return [f"{self.scheme}://{self.address}:{client}" for client, _, _ in self.ports]

    def start(self, *which):
        members = ",".join(f"m{i}=http://127.0.0.1:{peer}" for i, (_, peer, _) in enumerate(self.ports))
        which = which or range(len(self.ports))
        for i in which:
            _, peer, metrics = self.ports[i]
            tls = []
            if self.authority:
                tls = ["--cert-file", self.server[0], "--key-file", self.server[1], "--client-cert-auth", "--trusted-ca-file", self.authority.file]
            with open(self.folder / f"m{i}.log", "a") as log:
                self.processes[i] = subprocess.Popen(
                    ["etcd", "--name", f"m{i}", "--data-dir", self.folder / f"m{i}", "--listen-client-urls", self.endpoints[i],
                     "--advertise-client-urls", self.endpoints[i], "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                     "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", members,
                     "--listen-metrics-urls", f"http://127.0.0.1:{metrics}", "--enable-grpc-gateway=false", "--log-level", "error",
                     "--logger", "zap", "--unsafe-no-fsync", *tls, *self.options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        assert soon(lambda: all(self._metrics(i, "health", '"health":"true"') for i in which)), "etcd does not start"
        return self

    def _metrics(self, i, page, pattern):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[i][2]}/{page}", timeout=1) as answer:
                return re.search(pattern, answer.read().decode())
        except OSError:
            return None

    def leader(self):
        return next(i for i in range(len(self.ports)) if self._metrics(i, "metrics", r"(?m)^etcd_server_is_leader 1"))

    def send(self, sig):
        for process in self.processes:
            if process:
                process.send_signal(sig)

    @contextlib.contextmanager
    def stopped(self, i):
        """One member is stopped; control() leaves it out."""
        self.processes[i].send_signal(signal.SIGSTOP)
        self.silent.add(i)
        try:
            yield
        finally:
            self.silent.remove(i)
            self.processes[i].send_signal(signal.SIGCONT)

    def kill(self, *which):
        for i in which or range(len(self.processes)):
            if self.processes[i]:
                self.processes[i].send_signal(signal.SIGCONT)
                self.processes[i].kill()
                self.processes[i].wait()
                self.processes[i] = None

    def _command(self, *args):
        tls = ["--cacert", self.authority.file, "--cert", self.client[0], "--key", self.client[1]] if self.authority else []
        user = ["--user", self.user] if self.user else []
        endpoints = ",".join(endpoint for i, endpoint in enumerate(self.endpoints) if i not in self.silent)
        return ["env", "ETCDCTL_API=3", "etcdctl", "--endpoints", endpoints, "--command-timeout", "10s", *tls, *user, *map(str, args)]

    def control(self, *args):
        done = subprocess.run(self._command(*args), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def put(self, entries):
        """Any bytes, by gRPC (mvccpb's PutRequest): quicker than a process for each."""
        def field(number, text):
            data, length = text.encode(), b""
            size = len(data)
            while size >= 128:
                length, size = length + bytes([size % 128 + 128]), size // 128
            return bytes([number * 8 + 2]) + length + bytes([size]) + data
        with grpc.insecure_channel(self.endpoints[0].split("//")[1]) as channel:
            put = channel.unary_unary("/etcdserverpb.KV/Put")
            for key, value in entries.items():
                put(field(1, key) + field(2, str(value)), timeout=10)

    def entry(self, key):
        return json.loads(self.control("get", key, "-w", "json"))["kvs"][0]

    def lease_of(self, key):
        return f"{self.entry(key)['lease']:x}"

    @contextlib.contextmanager
    def kept_alive(self, key):
        """The lease of an entry, whatever becomes of the session that has it: so it ends by no clock."""
        with subprocess.Popen(self._command("lease", "keep-alive", self.lease_of(key)), stdout=subprocess.PIPE, text=True) as keeper:
            try:
                assert "keepalived" in keeper.stdout.readline()
                yield
            finally:
                keeper.kill()

    def add_user(self, name, password):
        for args in (("user", "add", "root:root"), ("user", "grant-role", "root", "root"), ("role", "add", "all"),
                     ("role", "grant-permission", "all", "--prefix=true", "readwrite", "/"),
                     ("user", "add", f"{name}:{password}"), ("user", "grant-role", name, "all"), ("auth", "enable")):
            self.control(*args)
        self.user = "root:root"


class Gate:
    """A TCP proxy before an etcd. Until open() it holds what a client sends from the `nth` occurrence of `mark` on."""

    def __init__(self, etcd, mark, nth):
        self.target, self.mark, self.nth = (etcd.address, etcd.ports[0][0]), mark, nth
        self.held, self.is_open = threading.Event(), threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                server = socket.create_connection(self.target)
                for ends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source, sink, is_client):
        sent = b""
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sent += piece
                if is_client and sent.count(self.mark) >= self.nth and not self.is_open.is_set():
                    self.held.set()
                    self.is_open.wait()
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def open(self):
        self.is_open.set()

    def close(self):
        self.open()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
