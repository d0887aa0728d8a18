"""What the listener and the stores exchange: a request as it came, an answer as it should be."""
import json
import re
import urllib.parse


class Request:
    """One request. `path` and `target` are as sent; `key(prefix)` decodes."""

    def __init__(self, listener, method, target, headers, body, connection):
        self.listener, self.method, self.target, self.headers, self.body = listener, method, target, headers, body
        self.connection, self.reused = connection, False
        if re.match(r"https?://", target):  # a proxy's form
            target = re.sub(r"^https?://[^/]*", "", target) or "/"
        self.path, _, self.query = target.partition("?")
        self.parameters = dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))

    @property
    def host(self):
        return self.headers.get("host", "")

    @property
    def bearer(self):
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def range(self, size):
        """(start, end) of a single satisfiable range, None without one, False when it cannot be satisfied."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range", "").replace(" ", ""))
        if not found or not (found[1] or found[2]):
            return None
        if not found[1]:
            return (max(0, size - int(found[2])), size) if int(found[2]) and size else False
        start, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
        return (start, end) if start < end else False


class Answer:
    """Status, headers (a list of pairs, so that names may repeat) and a body of bytes or a memoryview."""

    def __init__(self, status, body=b"", headers=(), content_type=None):
        self.status, self.body = status, body
        self.headers = [*(headers.items() if isinstance(headers, dict) else headers)]
        if content_type:
            self.headers.insert(0, ("Content-Type", content_type))
        self.object_data = None  # the whole object that a body is a range of, for faults
        self.start = 0           # ... and where the body begins in it

    def set(self, name, value):
        self.headers = [pair for pair in self.headers if pair[0].lower() != name.lower()]
        if value is not None:
            self.headers.append((name, value))

    def get(self, name):
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)


def json_answer(status, tree, headers=()):
    return Answer(status, json.dumps(tree).encode(), headers, "application/json; charset=UTF-8")


def data_answer(request, data, headers, ranges=True):
    """The object or the range of it that was asked for. `ranges` False = always 200, as `max_ranges 0` of nginx."""
    bounds = request.range(len(data)) if ranges else None
    if bounds is False:
        return Answer(416, b"", [("Content-Range", f"bytes */{len(data)}")])
    start, end = bounds or (0, len(data))
    answer = Answer(206 if bounds else 200, memoryview(data)[start:end], headers)
    if bounds:
        answer.set("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
    if ranges:
        answer.set("Accept-Ranges", "bytes")
    answer.object_data, answer.start = data, start
    return answer
