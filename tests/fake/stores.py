#!/usr/bin/env python3
"""One small server that plays object stores, well or badly: GCS JSON, S3, the Hugging Face hub with its content network, plain
files, and the services that give credentials. Python's standard library only.

    python3 tests/fake/stores.py --gcs bucket=DIR --s3 bucket=DIR --hub org/name=DIR --web DIR [--rules FILE] [--tls DIR]

prints one JSON object with the addresses and serves until it is ended. Faults are rules (see faults.py) from --rules or through
the control port:

    GET /journal                 every request so far: method, path, range, host, whether authorized, status, bytes sent
    DELETE /journal              forgets them
    POST /rules                  a list of rules, added;  DELETE /rules: none any more;  GET /rules: how often each acted
    POST /settings               {"gcs": {"needs_token": true}, "limits": {"s3": {"delay_s": 0.05, "bytes_per_s": 100000000}},
                                  "tokens": ["t"], "aws": {"AKFAKE": "secret"}, "clock_skew_s": 0}
    PUT /objects/LISTENER/PATH   the body becomes that object;  DELETE removes it
"""
import argparse
import json
import sys
import threading
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import certificates  # noqa: E402
from faults import Faults  # noqa: E402
from gcs import Gcs  # noqa: E402
from hub import Hub  # noqa: E402
from identity import Identity  # noqa: E402
from listener import Listener  # noqa: E402
from messages import Answer, json_answer  # noqa: E402
from s3 import S3  # noqa: E402
from web import Web  # noqa: E402
from world import World  # noqa: E402

NAMES = ("gcs", "s3", "hub", "cdn", "web", "identity")


class Stores:
    """All listeners of one fake. `ports` {name: port} fixes some; `tls` is a folder of certificates.make() for all but the
    identity listener. The content network is told as another host name than the hub."""

    def __init__(self, host="127.0.0.1", tls=None, ports=None):
        self.world, self.faults, self.host = World(), Faults(), host
        self.gcs, self.s3, self.hub, self.web = (make(self.world) for make in (Gcs, S3, Hub, Web))
        self.identity = Identity(self.world)
        handlers = {"gcs": self.gcs.handle, "s3": self.s3.handle, "hub": self.hub.handle, "cdn": self.hub.content,
                    "web": self.web.handle, "identity": self.identity.handle}
        secure = certificates.context(tls) if tls else None
        self.listeners = {name: Listener(name, handlers[name], self.faults, self.world.journal, (host, (ports or {}).get(name, 0)),
                                         None if name == "identity" else secure) for name in NAMES}
        self.scheme = "https" if tls else "http"
        for name in NAMES:
            store = getattr(self, name, None)
            if store is not None:
                store.url = self.url(name)
        self.hub.cdn_url = self.url("cdn", "[::1]" if ":" in host else "localhost")

    def url(self, name, host=None):
        scheme = "http" if name == "identity" else self.scheme
        shown = host or (f"[{self.host}]" if ":" in self.host else self.host)
        return f"{scheme}://{shown}:{self.listeners[name].port}"

    @property
    def journal(self):
        return self.world.journal

    def fault(self, do, match=None, **fields):
        return self.faults.add(do, match, **fields)

    def limit(self, name, **limits):
        self.listeners[name].limits.update(limits)

    def requests(self, *listeners, method=None):
        """Entries of the journal, of these listeners only."""
        return [entry for entry in list(self.journal.entries)
                if (not listeners or entry["listener"] in listeners) and method in (None, entry["method"])]

    def addresses(self):
        return {name: self.url(name, "localhost" if name == "cdn" and ":" not in self.host else None) for name in NAMES}

    def close(self):
        for listener in self.listeners.values():
            listener.close()

    # --- the control port ---

    def control(self, request):
        what, _, rest = request.path.lstrip("/").partition("/")
        if what == "journal":
            return self._journal(request.method)
        if what == "rules":
            return self._rules(request)
        if what == "settings":
            return self._settings(json.loads(request.body))
        if what == "objects":
            listener, _, path = urllib.parse.unquote(rest).partition("/")
            if request.method == "DELETE":
                self.world.remove(listener, path)
            else:
                self.world.put(listener, path, request.body)
            return Answer(200)
        return Answer(404)

    def _journal(self, method):
        if method == "DELETE":
            self.journal.clear()
        return json_answer(200, self.journal.as_json())

    def _rules(self, request):
        try:
            if request.method == "DELETE":
                self.faults.clear()
            elif request.method == "POST":
                trees = json.loads(request.body)
                self.faults.load(trees if isinstance(trees, list) else [trees])
        except (ValueError, TypeError) as error:
            return json_answer(400, {"error": str(error)})
        return json_answer(200, [{"name": rule.name, "matched": rule.matched, "acted": rule.acted} for rule in self.faults.rules])

    def _settings(self, tree):
        for name in NAMES:
            for key, value in tree.get(name, {}).items():
                setattr(getattr(self, name), key, value)
            self.limit(name, **tree.get("limits", {}).get(name, {}))
        self.world.clock_skew_s = tree.get("clock_skew_s", self.world.clock_skew_s)
        self.world.tokens.update({token: None for token in tree.get("tokens", [])})
        self.world.aws.update({access: {"secret": secret} for access, secret in tree.get("aws", {}).items()})
        return json_answer(200, {})


class NoFaults:
    @staticmethod
    def actions(_):
        return {}


class NoJournal:
    """The control port does not log itself."""

    def __init__(self, world):
        self.world = world

    @staticmethod
    def add(*_):
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, what in (("gcs", "BUCKET=DIR"), ("s3", "BUCKET=DIR"), ("hub", "ORG/NAME=DIR"), ("web", "DIR or PREFIX=DIR")):
        parser.add_argument(f"--{name}", action="append", default=[], metavar=what, help="preloaded from that folder")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", action="append", default=[], metavar="LISTENER=PORT", help=f"one of {', '.join(NAMES)}, control")
    parser.add_argument("--rules", metavar="FILE", help="JSON: a list of rules, see tests/fake/faults.py")
    parser.add_argument("--tls", metavar="DIR", help="certificates; made there when missing")
    parser.add_argument("--delay", type=float, default=0, metavar="S", help="before every answer")
    parser.add_argument("--rate", type=float, default=0, metavar="BYTES_PER_S", help="of each connection")
    parser.add_argument("--aws-key", default="AKFAKE:fakesecret", metavar="KEY:SECRET", help="accepted by the S3 listener")
    options = parser.parse_args()
    if options.tls and not (Path(options.tls) / "server.pem").exists():
        certificates.make(options.tls)
    ports = {name: int(port) for name, port in (text.split("=") for text in options.port)}
    stores = Stores(options.host, options.tls, ports)
    for name in ("gcs", "s3", "hub", "web"):
        for text in getattr(options, name):
            prefix, _, folder = text.rpartition("=")
            stores.world.preload(name, prefix, folder)
    access, _, secret = options.aws_key.partition(":")
    stores.world.aws[access] = {"secret": secret}
    for name in NAMES:
        stores.limit(name, delay_s=options.delay, bytes_per_s=options.rate)
    if options.rules:
        stores.faults.load(json.loads(Path(options.rules).read_text()))
    control = Listener("control", stores.control, NoFaults, NoJournal(stores.world), (options.host, ports.get("control", 0)))
    print(json.dumps({**stores.addresses(), "control": f"http://{options.host}:{control.port}"}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
