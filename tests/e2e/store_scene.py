"""The same checkpoint in every fake store, and a daemon whose settings lead there with short limits.

`bare` empties the environment of what could lead elsewhere; `place(fake, scheme, *parts)` writes a checkpoint into a store and
returns a Placed; `settings(fake)` is the daemon's `sources` section. Loads are compared by digest with what was placed.
"""
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpoints import blob, digest, digests, write
from stage import MiB

SCHEMES = ("gs", "s3", "hf", "http")
LISTENERS = {"gs": "gcs", "s3": "s3", "hf": "hub", "http": "web"}
FORGOTTEN = ("AWS_", "GOOGLE_", "HF_", "HUGGINGFACE_", "GCE_", "CLOUDSDK_", "LEVANTER_", "SSL_CERT", "CURL_CA", "REQUESTS_CA",
             "STORAGE_EMULATOR", "TENSORSTORE_", "NO_GCE", "XDG_")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "HTTP_PROXY")
ACCESS, SECRET = "AKFAKE", "fakesecret/with+signs"
DATA = "model.safetensors"


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No credentials, no proxies, an empty home, and no metadata service that answers."""
    for name in [n for n in os.environ if n.startswith(FORGOTTEN) or n in PROXIES]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    return home


@dataclass
class Placed:
    """A checkpoint in a store."""

    fake: object
    scheme: str
    reference: str
    prefix: str   # as World.put takes it, with a slash at the end
    arrays: dict
    files: dict = field(default_factory=dict)  # name: bytes

    @property
    def listener(self):
        return LISTENERS[self.scheme]

    @property
    def data_listener(self):
        """Where the bytes of the tensors come from."""
        return "cdn" if self.scheme == "hf" else self.listener

    def put(self, name, data, **about):
        self.files[name] = data
        self.fake.world.put(self.listener, self.prefix + name, data, **about)
        made = self.fake.world.get(self.listener, self.prefix + name)
        for kind in {"gs": ("md5", "crc32c"), "hf": ("sha256",)}.get(self.scheme, ("md5",)):
            made.checksum(kind)  # here, not while a daemon waits for an answer

    def fault(self, do, name=DATA, **fields):
        """A fault on requests for the bytes of a file; with `match` in fields for more conditions."""
        match = {"listener": self.data_listener, "method": "GET", "range": "bytes", **fields.pop("match", {})}
        if self.scheme != "hf":
            match.setdefault("path", name.replace(".", r"\.") + (r"\?.*alt=media" if self.scheme == "gs" else r"($|\?)"))
        return self.fake.fault(do, match, **fields)

    def reads(self):
        """Requests for bytes of tensors so far: entries of the journal with a Range."""
        return [entry for entry in self.fake.requests(self.data_listener, method="GET")
                if entry["range"] and entry["status"] != 304 and (self.scheme == "hf" or ".safetensors" in entry["path"])
                and not entry["path"].endswith("index.json")]

    def same(self, report):
        return digests(report) == {name: digest(value) for name, value in self.arrays.items()}

    def is_delivered(self, outcome):
        assert outcome.code == 0, outcome
        return self.same(outcome.report)


def place(fake, scheme, *parts, name="m", **about):
    """Writes {tensor: array} parts as a checkpoint into the fake store of that scheme."""
    prefix = {"gs": f"b/models/{name}/", "s3": f"b/models/{name}/", "hf": f"org/{name}/", "http": f"models/{name}/"}[scheme]
    reference = {"gs": f"gs://b/models/{name}", "s3": f"s3://b/models/{name}", "hf": f"hf://org/{name}",
                 "http": f"{fake.url('web')}/models/{name}"}[scheme]
    with tempfile.TemporaryDirectory(prefix="tc8-place-") as folder:
        arrays = write(folder, *parts)
        placed = Placed(fake, scheme, reference, prefix, arrays)
        for path in sorted(Path(folder).iterdir()):
            placed.put(path.name, path.read_bytes(), **about)
    placed.put("config.json", b'{"model_type": "fake"}')
    return placed


def settings(fake, **sections):
    """`sources` for a daemon: endpoints of the fake and limits that let a test end soon. Keys of a section are added."""
    tree = {"http": {"request_size": "1MiB", "connect_timeout": "10s", "first_byte_timeout": "30s", "stall_timeout": "3s",
                     "progress_timeout": "10m", "hedge_percent": 0, "allow_plain": True},
            "gcs": {"endpoint": fake.url("gcs"), "anonymous": True},
            "s3": {"endpoint": fake.url("s3"), "region": "us-east-1"},
            "hf": {"endpoint": fake.url("hub"), "cache_dir": tempfile.gettempdir() + "/tc8-no-such-cache"}}
    for section, keys in sections.items():
        tree[section] = {**tree.get(section, {}), **keys} if isinstance(keys, dict) else keys
    return tree


@pytest.fixture
def aws_keys(monkeypatch, fake):
    """Static keys that the fake S3 accepts, in the environment."""
    fake.world.aws[ACCESS] = {"secret": SECRET}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def store_daemon(start, models, fake, bare, aws_keys):
    """Starts a daemon for the fake: store_daemon(http={"max_tries": 2}, gcs={...}, environment={...})."""

    def make(environment=(), limits=None, memory=None, server=None, engine=None, logging=None, **sections):
        more = {name: keys for name, keys in (("memory", memory), ("server", server), ("engine", engine), ("logging", logging)) if keys}
        daemon = start(running=False, limits=limits, sources={"disk": {"trusted_roots": [str(models)]}, **settings(fake, **sections)}, **more)
        return daemon.start(environment=environment)

    return make


def load(daemon, placed, *view, **options):
    return daemon.cli.run("load", placed.reference, *view, "--digest", "--json", **options)


SIZE = 4 * MiB + 12345  # of the tensor of one(): several requests of 1 MiB and a rest
_noise = {}


def noise(seed, size=SIZE):
    """Random bytes, the same object each time, so that the fake sums them once."""
    if (seed, size) not in _noise:
        _noise[seed, size] = blob(seed, size)
    return _noise[seed, size]


def one(fake, scheme, seed=1, **about):
    """One file with one tensor of SIZE bytes."""
    return place(fake, scheme, {"w": noise(seed)}, **about)
