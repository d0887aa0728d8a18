"""Scripted faults: rules that say which requests are answered wrongly, and how.

A rule is a dictionary, from JSON or from a test:

    {"name": "busy", "match": {...}, "nth": 1, "times": 1, "do": {...}}

`match` (all that are given must hold): `listener` (gcs s3 hub cdn web identity), `method`, `path` (regular expression, searched
in the percent-decoded path with its query), `range` (regular expression, searched in the Range header; "" = only without
one), `covers` (a byte offset that the requested range must contain), `reused` (whether its connection has served a request
before), `header` ({name: regular expression}).
The rule acts on the matching requests number `nth` ... `nth + times - 1`; `times` 0 = for ever; `every` k = each k-th of those.

`do`, before the real answer is made:
    replace {listener, path, hex | random}   the object gets new bytes (and a new version)
    delete {listener, path}                  the object is gone
    expire_tokens true                       every token given out so far is refused from now on
    delay s                                  waits before it answers
instead of the real answer:
    status n, headers {...}, body "..."      this answer (headers alone: added to the real one; null removes)
    redirect "url"                           307 (or status) to it; "self" = to the same URL
    close "before"                           the connection ends without a byte; with `reset` by RST
    garbage "text"                           this instead of HTTP
    gap [s, n]                               n bytes of a header line, one each s seconds, then the end
to the body of the answer:
    whole true                               200 with the whole object, Range ignored
    short n                                  an honest 206 of only n bytes
    shift n                                  other bytes: those n further on, under the right Content-Range
    flip o / zeros true / html true          bit 0 of the object's byte o (or true: of the first byte sent) is inverted / ...
    gzip true                                compressed, with Content-Encoding
    longer n                                 n more bytes, Content-Length too
    extra n                                  n bytes behind the end of the answer
to its head:
    content_range null | "text" | {start, end, total: n to add}
    huge_header n                            one header of n bytes
    no_length true                           no Content-Length; the end of the connection ends it
    chunked true                             Transfer-Encoding: chunked
on the way:
    truncate n                               ends the connection after n bytes of body; with `reset` by RST
    stall {after: n, seconds: t}             stops for t seconds (0 = until the client goes) after n bytes of body
    drip r                                   at r bytes per second
    close "after"                            closes the connection silently after the answer
"""
import re
import threading
import urllib.parse


class Rule:
    """One rule and how often it has matched and acted."""

    FIELDS = {"name", "match", "nth", "times", "every", "do"}
    MATCHES = {"listener", "method", "path", "range", "covers", "reused", "header"}
    ACTIONS = {"replace", "delete", "expire_tokens", "delay", "status", "headers", "body", "redirect", "close", "reset", "garbage",
               "gap", "whole", "short", "shift", "flip", "zeros", "html", "gzip", "longer", "extra", "content_range",
               "huge_header", "no_length", "chunked", "truncate", "stall", "drip", "call"}

    def __init__(self, do, match=None, nth=1, times=1, every=1, name=""):
        unknown = [*(set(do) - self.ACTIONS), *(set(match or {}) - self.MATCHES)]
        if unknown:
            raise ValueError(f"unknown in a rule: {unknown}")
        self.do, self.match, self.nth, self.times, self.every, self.name = dict(do), dict(match or {}), nth, times, every, name
        self.matched = self.acted = 0

    @classmethod
    def of(cls, tree):
        if set(tree) - cls.FIELDS:
            raise ValueError(f"unknown in a rule: {sorted(set(tree) - cls.FIELDS)}")
        return cls(**tree)

    def fits(self, request):
        want = self.match
        for field in ("listener", "method"):
            if field in want and getattr(request, field) != want[field]:
                return False
        if "path" in want and not re.search(want["path"], urllib.parse.unquote(request.target)):
            return False
        asked = request.headers.get("range", "")
        if "range" in want and not (re.search(want["range"], asked) if want["range"] else not asked):
            return False
        if "reused" in want and request.reused != want["reused"]:
            return False
        if "covers" in want:
            bounds = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            if not bounds or not int(bounds[1]) <= want["covers"] <= int(bounds[2] or 1 << 62):
                return False
        return all(re.search(pattern, request.headers.get(name, "")) for name, pattern in want.get("header", {}).items())

    def acts(self, request):
        if not self.fits(request):
            return False
        self.matched += 1
        turn = self.matched - self.nth
        if turn < 0 or (self.times and turn >= self.times * self.every) or turn % self.every:
            return False
        self.acted += 1
        return True


class Faults:
    """The rules in force. Several may act on one request; later ones win where they say the same thing."""

    def __init__(self):
        self.rules, self.lock = [], threading.Lock()

    def add(self, do, match=None, **fields):
        rule = Rule(do, match, **fields)
        with self.lock:
            self.rules.append(rule)
        return rule

    def load(self, trees):
        with self.lock:
            self.rules += [Rule.of(tree) for tree in trees]

    def clear(self):
        with self.lock:
            self.rules = []

    def actions(self, request):
        with self.lock:
            actions = {}
            for rule in self.rules:
                if rule.acts(request):
                    actions.update(rule.do)
            return actions
