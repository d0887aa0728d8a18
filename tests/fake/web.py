"""Plain files over HTTP: with a strong, a weak or no ETag, with or without Last-Modified, ranges or HEAD."""
import time
import urllib.parse

from messages import Answer, data_answer


class Web:
    """`etag`: "strong", "weak" or "none"; `last_modified`, `ranges`, `head`: whether it has them; `preconditions`: whether
    it looks at If-Match; `conditions`: at If-None-Match and If-Modified-Since; `user`: "name:password" that Basic authorization must give."""

    def __init__(self, world):
        self.world = world
        self.etag, self.last_modified, self.ranges, self.head, self.preconditions, self.user = "strong", True, True, True, True, ""
        self.conditions = True

    def handle(self, request):
        made = self.world.web.get(urllib.parse.unquote(request.path).lstrip("/"))
        if made is None:
            return Answer(404, b"<html>404 Not Found</html>", (), "text/html")
        if request.method not in ("GET", "HEAD") or (request.method == "HEAD" and not self.head):
            return Answer(405, b"", [("Allow", "GET")])
        tag = {"strong": f'"{made.etag}"', "weak": f'W/"{made.etag}"', "none": None}[self.etag]
        stamp = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(made.updated))
        known = request.headers.get("if-none-match")
        since = not known and self.last_modified and request.headers.get("if-modified-since") == stamp
        if self.conditions and ((known and tag in known.split(", ")) or since):
            return Answer(304, b"", [("ETag", tag)] if tag else [])
        wanted = request.headers.get("if-match")
        if wanted and self.preconditions and (self.etag != "strong" or wanted not in (tag, "*")):
            return Answer(412)
        headers = [("Content-Type", made.content_type)]
        if made.content_encoding:
            headers.append(("Content-Encoding", made.content_encoding))
        if tag:
            headers.append(("ETag", tag))
        if self.last_modified:
            headers.append(("Last-Modified", stamp))
        return data_answer(request, made.data, headers, self.ranges)
