"""Plain files over HTTP: with a strong, a weak or no ETag, with or without Last-Modified, ranges or HEAD."""
import time
import urllib.parse

from messages import Answer, data_answer


class Web:
    """`etag`: "strong", "weak" or "none"; `last_modified`, `ranges`, `head`: whether it has them; `preconditions`: whether
    it looks at If-Match; `user`: "name:password" that Basic authorization must give."""

    def __init__(self, world):
        self.world = world
        self.etag, self.last_modified, self.ranges, self.head, self.preconditions, self.user = "strong", True, True, True, True, ""

    def handle(self, request):
        made = self.world.web.get(urllib.parse.unquote(request.path).lstrip("/"))
        if made is None:
            return Answer(404, b"<html>404 Not Found</html>", (), "text/html")
        if request.method not in ("GET", "HEAD") or (request.method == "HEAD" and not self.head):
            return Answer(405, b"", [("Allow", "GET")])
        tag = {"strong": f'"{made.etag}"', "weak": f'W/"{made.etag}"', "none": None}[self.etag]
        wanted = request.headers.get("if-match")
        if wanted and self.preconditions and (self.etag != "strong" or wanted not in (tag, "*")):
            return Answer(412)
        headers = [("Content-Type", made.content_type)]
        if made.content_encoding:
            headers.append(("Content-Encoding", made.content_encoding))
        if tag:
            headers.append(("ETag", tag))
        if self.last_modified:
            headers.append(("Last-Modified", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(made.updated))))
        return data_answer(request, made.data, headers, self.ranges)
