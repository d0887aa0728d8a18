"""The Hugging Face hub and its content network, which lives on another host name and port and wants signed, ending URLs."""
import hashlib
import json
import random
import re
import time
import urllib.parse

from messages import Answer, data_answer, json_answer
from world import Object, World


def failure(status, code, message, headers=()):
    return json_answer(status, {"error": message}, [("X-Error-Code", code), ("X-Error-Message", message), *headers])


class Repository:
    """One model repository; all of `refs` (one branch, main) are its one commit. `large`: files above that size, and all *.safetensors, live on the
    content network. `gated`: "" or "auto": needs a token of `readers`; `private`: hidden without one (401 RepoNotFound)."""

    def __init__(self, name, gated="", private=False):
        self.name, self.files, self.gated, self.private, self.readers = name, {}, gated, private, set()
        self.large = 1 << 20
        self.commit = hashlib.sha1(name.encode()).hexdigest()
        self.refs = {"main"}

    def put(self, path, data):
        self.files[path] = Object(data, World.next_generation())

    def new_commit(self):
        self.commit = hashlib.sha1(self.commit.encode()).hexdigest()

    def is_large(self, path):
        return path.endswith(".safetensors") or len(self.files[path]) > self.large

    def git_id(self, path):
        data = self.files[path].data
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def sha256(self, path):
        return self.files[path].checksum("sha256").hex()


class Hub:
    """`page`: entries on a page of the tree; `link_life_s`: how long a content URL is good."""

    def __init__(self, world):
        self.world, self.url, self.cdn_url = world, "", ""
        self.page, self.link_life_s, self.list_loop, self.repeat_items = 1000, 3600, False, False
        self.key = f"{random.SystemRandom().randrange(1 << 64):016x}"

    def handle(self, request):
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", request.path):
            name, revision, path = map(urllib.parse.unquote, found.groups())
            return self._in_repository(request, name, revision, lambda repository: self._resolve(request, repository, path))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|paths-info|refs)(?:/([^/]+)(?:/(.*))?)?)?", request.path):
            name, what, revision, path = (urllib.parse.unquote(part or "") for part in found.groups())
            then = {"tree": self._tree, "paths-info": self._paths, "refs": self._refs}.get(what, self._about)
            return self._in_repository(request, name, revision or "main", lambda repository: then(request, repository, path))
        return failure(404, "RepoNotFound", "Repository not found")

    def _in_repository(self, request, name, revision, then):
        repository = self.world.repositories.get(name)
        if repository is None:
            return failure(401, "RepoNotFound", "Repository not found")
        allowed = request.bearer in repository.readers and self.world.token_is_good(request.bearer)
        if request.bearer and not self.world.token_is_good(request.bearer):
            return failure(401, "", "Invalid credentials in Authorization header")
        if repository.private and not allowed:
            return failure(401, "RepoNotFound", "Repository not found")
        if repository.gated and not allowed and "/resolve/" in request.path:
            status = 403 if request.bearer else 401
            return failure(status, "GatedRepo", f"Access to model {name} is restricted. You must have access to it and be authenticated "
                           "to access it. Please log in.")
        if revision not in repository.refs | {repository.commit}:
            return failure(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return then(repository)

    def _resolve(self, request, repository, path):
        headers = [("X-Repo-Commit", repository.commit)]
        if path not in repository.files:
            return failure(404, "EntryNotFound", "Entry not found", headers)
        headers.append(("ETag", f'"{repository.git_id(path)}"'))
        if not repository.is_large(path):
            return data_answer(request, repository.files[path].data, headers)
        digest = repository.sha256(path)
        end = int(self.world.now() + self.link_life_s)
        headers += [("X-Linked-Etag", f'"{digest}"'), ("X-Linked-Size", str(len(repository.files[path]))),
                    ("Location", f"{self.cdn_url}/{repository.name}/{digest}?X-Amz-Expires={self.link_life_s}&Expires={end}"
                                 f"&X-Amz-Signature={self.sign(digest, end)}")]
        return Answer(302, f"Found. Redirecting to {self.cdn_url}".encode(), headers, "text/plain")

    def sign(self, digest, end):
        return hashlib.sha256(f"{self.key} {digest} {end}".encode()).hexdigest()

    def content(self, request):
        """The content network's side."""
        digest, asked = request.path.rsplit("/", 1)[-1], request.parameters
        end = asked.get("Expires", "0")
        if asked.get("X-Amz-Signature") != self.sign(digest, end) or self.world.now() >= int(end):
            return Answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", (), "application/xml")
        for repository in self.world.repositories.values():
            for path, made in repository.files.items():
                if repository.is_large(path) and repository.sha256(path) == digest:
                    stamp = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(made.updated))
                    return data_answer(request, made.data, [("ETag", f'"{digest}"'), ("Last-Modified", stamp),
                                                            ("Content-Type", "binary/octet-stream")])
        return Answer(404, b"<Error><Code>NoSuchKey</Code></Error>", (), "application/xml")

    # --- the API ---

    @staticmethod
    def _entry(repository, path):
        entry = {"type": "file", "oid": repository.git_id(path), "size": len(repository.files[path]), "path": path}
        if repository.is_large(path):
            entry["lfs"] = {"oid": repository.sha256(path), "size": entry["size"], "pointerSize": 134}
        return entry

    def _entries(self, repository, folder, recursive):
        entries, seen = [], set()
        for path in sorted(repository.files):
            if folder and not path.startswith(folder + "/"):
                continue
            parts = path[len(folder) + 1 if folder else 0:].split("/")
            for depth in range(1, len(parts)):
                above = "/".join([*([folder] if folder else []), *parts[:depth]])
                if above not in seen and (recursive or depth == 1):
                    seen.add(above)
                    entries.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": above})
            if recursive or len(parts) == 1:
                entries.append(self._entry(repository, path))
        return entries

    def _tree(self, request, repository, folder):
        asked = request.parameters
        entries = self._entries(repository, folder, asked.get("recursive", "").lower() in ("true", "1"))
        if not entries:
            return failure(404, "EntryNotFound", f"{folder} does not exist")
        at = int(asked.get("cursor", "0"))
        page = entries[at:at + self.page] * (2 if self.repeat_items else 1)
        answer = json_answer(200, page, [("X-Repo-Commit", repository.commit)])
        following = 0 if self.list_loop else at + self.page
        if following < len(entries):
            query = urllib.parse.urlencode({**asked, "cursor": following})
            answer.set("Link", f'<{self.url}{request.path}?{query}>; rel="next"')
        return answer

    def _paths(self, request, repository, _):
        if "json" in request.headers.get("content-type", ""):
            paths = json.loads(request.body)["paths"]
        else:
            paths = urllib.parse.parse_qs(request.body.decode()).get("paths", [])
        return json_answer(200, [self._entry(repository, path) for path in paths if path in repository.files])

    @staticmethod
    def _refs(request, repository, _):
        return json_answer(200, {"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commit}],
                                 "tags": [], "converts": []})

    @staticmethod
    def _about(request, repository, _):
        return json_answer(200, {"_id": "1", "id": repository.name, "modelId": repository.name, "sha": repository.commit,
                                 "private": repository.private, "gated": repository.gated or False, "disabled": False, "downloads": 0,
                                 "likes": 0, "tags": [], "siblings": [{"rfilename": path} for path in sorted(repository.files)]})
