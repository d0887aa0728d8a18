"""What the stores hold, who may read it, and the journal of requests."""
import hashlib
import mmap
import os
import random
import threading
import time
from pathlib import Path

import checksums


class Object:
    """One version of one object. Checksums are made when first asked for."""

    def __init__(self, data, generation, content_type="application/octet-stream", content_encoding=None, etag=None, declared=None,
                 checksum_type="FULL_OBJECT"):
        self.data, self.generation = data, generation
        self.content_type, self.content_encoding = content_type, content_encoding
        self.updated, self.metageneration, self.version_id = time.time(), 1, f"v{generation}"
        self.declared, self.checksum_type = dict(declared or {}), checksum_type  # S3: {kind: text}
        self._etag, self._made = etag, {}

    def checksum(self, kind):
        if kind not in self._made:
            make = {"md5": lambda data: hashlib.md5(data).digest(), **checksums.KINDS}[kind]
            self._made[kind] = make(self.data)
        return self._made[kind]

    @property
    def etag(self):
        return self._etag or self.checksum("md5").hex()

    def __len__(self):
        return len(self.data)


class Bucket:
    """Keys with their versions, newest last; None as the newest = deleted."""

    def __init__(self, name, region="us-east-1", versioned=False, requester_pays=False):
        self.name, self.region, self.versioned, self.requester_pays = name, region, versioned, requester_pays
        self.keys, self.lock = {}, threading.RLock()

    def put(self, key, data, **about):
        with self.lock:
            made = Object(data, World.next_generation(), **about)
            self.keys[key] = [*(self.keys.get(key, []) if self.versioned else []), made]
            return made

    def live(self, key):
        versions = self.keys.get(key)
        return versions[-1] if versions else None

    def find(self, key, test):
        return next((v for v in self.keys.get(key, []) if v is not None and test(v)), None)

    def delete(self, key):
        with self.lock:
            if self.versioned:
                self.keys.setdefault(key, []).append(None)
            else:
                self.keys.pop(key, None)

    def names(self, prefix=""):
        with self.lock:
            return sorted(k for k, v in self.keys.items() if v[-1] is not None and k.startswith(prefix))


class Journal:
    """Every request, in order. as_json() leaves credentials out; tests in this process may look at entries[i]["headers"]."""

    def __init__(self, world):
        self.world, self.entries, self.lock = world, [], threading.Lock()

    def add(self, request, do):
        entry = {"n": 0, "time": time.monotonic(), "listener": request.listener, "method": request.method, "path": request.path,
                 "query": request.query, "range": request.headers.get("range", ""), "host": request.host,
                 "authorization": "authorization" in request.headers, "connection": request.connection,
                 "faults": sorted(do), "status": 0, "sent": 0, "headers": dict(request.headers)}
        with self.lock:
            entry["n"] = len(self.entries)
            self.entries.append(entry)
        return entry

    def clear(self):
        with self.lock:
            self.entries.clear()

    def as_json(self):
        with self.lock:
            return [{k: v for k, v in entry.items() if k not in ("headers", "query")} for entry in self.entries]


class World:
    """All state. `tokens` maps a bearer token to its end (seconds since 1970, None = never), `aws` an access key to
    {secret, session, expires}."""

    _generation, _lock = 1_700_000_000_000_000, threading.Lock()

    @classmethod
    def next_generation(cls):
        with cls._lock:
            cls._generation += 1009
            return cls._generation

    def __init__(self):
        self.gcs, self.s3, self.repositories, self.web = {}, {}, {}, {}
        self.tokens, self.aws = {}, {}
        self.expired_tokens = set()
        self.clock_skew_s = 0.0  # of the servers
        self.journal = Journal(self)
        self.issued, self.uploads = 0, {}

    def now(self):
        return time.time() + self.clock_skew_s

    def token_is_good(self, token):
        return token in self.tokens and (self.tokens[token] is None or self.now() < self.tokens[token])

    def issue_token(self, lifetime_s=3600, prefix="ya29.fake"):
        with self._lock:
            self.issued += 1
            token = f"{prefix}-secret-{self.issued:04d}-{random.SystemRandom().randrange(1 << 64):016x}"
        self.tokens[token] = self.now() + lifetime_s
        return token

    def issue_keys(self, lifetime_s=3600):
        with self._lock:
            self.issued += 1
            access, number = f"ASIAFAKE{self.issued:08d}", random.SystemRandom().randrange(1 << 80)
        self.aws[access] = {"secret": f"issuedsecret{number:020x}", "session": f"issuedsession/{number:020x}+/==",
                            "expires": self.now() + lifetime_s}
        return access, self.aws[access]

    # --- objects by listener and path, for tests, rules and the control port ---

    def bucket(self, listener, name, **about):
        buckets = {"gcs": self.gcs, "s3": self.s3}[listener]
        if name not in buckets:
            buckets[name] = Bucket(name, **about)
        return buckets[name]

    def put(self, listener, path, data, **about):
        """gcs, s3: "bucket/key"; hub: "org/name/path"; web: "path"."""
        if listener == "web":
            self.web[path.lstrip("/")] = Object(data, self.next_generation(), **about)
        elif listener == "hub":
            org, name, rest = path.split("/", 2)
            self.repository(f"{org}/{name}").put(rest, data)
        else:
            name, key = path.split("/", 1)
            self.bucket(listener, name).put(key, data, **about)

    def remove(self, listener, path):
        if listener == "web":
            self.web.pop(path.lstrip("/"), None)
        elif listener == "hub":
            org, name, rest = path.split("/", 2)
            self.repository(f"{org}/{name}").files.pop(rest, None)
        else:
            name, key = path.split("/", 1)
            self.bucket(listener, name).delete(key)

    def get(self, listener, path):
        if listener == "web":
            return self.web.get(path.lstrip("/"))
        if listener == "hub":
            org, name, rest = path.split("/", 2)
            return self.repository(f"{org}/{name}").files.get(rest)
        name, key = path.split("/", 1)
        return self.bucket(listener, name).live(key)

    def repository(self, name, **about):
        from hub import Repository
        if name not in self.repositories:
            self.repositories[name] = Repository(name, **about)
        return self.repositories[name]

    def preload(self, listener, prefix, folder):
        """Every file below `folder`, mapped, not copied; the ETag is none of the content's."""
        for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
            with open(path, "rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.path.getsize(path) else b""
            about = {} if listener == "hub" else {"etag": f"{path.stat().st_ino:x}-{path.stat().st_mtime_ns:x}"}
            self.put(listener, "/".join(x for x in (prefix.strip("/"), path.relative_to(folder).as_posix()) if x), data, **about)

    def change(self, what, how):
        """A rule's change of the world."""
        if what == "replace":
            old = self.get(how["listener"], how["path"])
            data = bytes.fromhex(how["hex"]) if "hex" in how else random.Random(7).randbytes(how.get("random") or len(old))
            self.put(how["listener"], how["path"], data)
        elif what == "delete":
            self.remove(how["listener"], how["path"])
        elif what == "expire_tokens":
            for token in self.tokens:
                self.tokens[token] = 0
            for keys in self.aws.values():
                if keys.get("session"):
                    keys["expires"] = 0
        else:
            how()  # "call": only from tests in this process
