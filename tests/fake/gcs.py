"""Google Cloud Storage's JSON API: reads, listing, and the uploads that the official clients need to fill it."""
import base64
import email
import email.policy
import gzip
import json
import re
import time
import urllib.parse

import checksums
from messages import Answer, data_answer, json_answer


def failure(status, reason, message):
    return json_answer(status, {"error": {"code": status, "message": message, "errors": [
        {"domain": "global", "reason": reason, "message": message}]}})


class Gcs:
    """`needs_token`: every request must carry a good bearer token. `list_page`: at most that many items on a page;
    `empty_pages`: so many pages without items, but with a token, come first; `list_loop`: the token never moves."""

    def __init__(self, world):
        self.world, self.url = world, ""
        self.needs_token, self.list_page, self.empty_pages, self.list_loop, self.repeat_items = False, 1000, 0, False, False
        self.conditions = "kept"  # or "ignored", of what is written

    def handle(self, request):
        if self.needs_token and not (request.bearer and self.world.token_is_good(request.bearer)):
            return failure(401, "authError", "Invalid Credentials")
        path, decode = request.path, urllib.parse.unquote
        if found := re.fullmatch(r"/(?:download/)?storage/v1/b/([^/]+)/o/([^/]+)", path):
            return self._in_bucket(request, decode(found[1]), lambda bucket: self._object(request, bucket, decode(found[2])))
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)/o/?", path):
            return self._in_bucket(request, decode(found[1]), lambda bucket: self._list(request, bucket))
        if found := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o/?", path):
            return self._in_bucket(request, decode(found[1]), lambda bucket: self._upload(request, bucket))
        if found := re.fullmatch(r"/storage/v1/b/([^/]+)", path):
            return self._in_bucket(request, decode(found[1]), lambda bucket: json_answer(200, self._about_bucket(bucket)))
        if path == "/storage/v1/b" and request.method == "POST":
            return json_answer(200, self._about_bucket(self.world.bucket("gcs", json.loads(request.body)["name"])))
        return failure(404, "notFound", "Not Found")

    def _in_bucket(self, request, name, then):
        bucket = self.world.gcs.get(name)
        if bucket is None:
            return failure(404, "notFound", "The specified bucket does not exist.")
        if bucket.requester_pays and not (request.parameters.get("userProject") or request.headers.get("x-goog-user-project")):
            return json_answer(400, {"error": {"code": 400, "message": "Bucket is a requester pays bucket but no user project "
                                               "provided.", "errors": [{"domain": "global", "reason": "required",
                                                                        "message": "no user project"}]}})
        return then(bucket)

    @staticmethod
    def _about_bucket(bucket):
        return {"kind": "storage#bucket", "id": bucket.name, "name": bucket.name, "location": "US", "locationType": "multi-region",
                "storageClass": "STANDARD", "versioning": {"enabled": bucket.versioned}, "metageneration": "1"}

    def _about(self, bucket, key, made):
        tree = {"kind": "storage#object", "id": f"{bucket.name}/{key}/{made.generation}", "name": key, "bucket": bucket.name,
                "generation": str(made.generation), "metageneration": "1", "contentType": made.content_type,
                "size": str(len(made)), "md5Hash": checksums.text(made.checksum("md5")), "storageClass": "STANDARD",
                "crc32c": checksums.text(made.checksum("crc32c")), "etag": base64.b64encode(b"e%d" % made.generation).decode(),
                "updated": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(made.updated)),
                "timeCreated": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(made.updated)),
                "mediaLink": f"{self.url}/download/storage/v1/b/{bucket.name}/o/{urllib.parse.quote(key, safe='')}"
                             f"?generation={made.generation}&alt=media"}
        if made.content_encoding:
            tree["contentEncoding"] = made.content_encoding
        return tree

    @staticmethod
    def _only(tree, fields):
        """The partial response `fields=a,b` or `items(a,b),nextPageToken` asks for; only these two forms."""
        if not fields or "/" in fields:
            return tree
        inner = re.search(r"items\(([^)]*)\)", fields)
        if inner and "items" in tree:
            wanted = set(inner[1].split(","))
            tree = {**tree, "items": [{k: v for k, v in item.items() if k in wanted} for item in tree["items"]]}
        names = set(re.sub(r"\([^)]*\)", "", fields).split(","))
        return {k: v for k, v in tree.items() if k in names}

    def _object(self, request, bucket, key):
        made, asked = bucket.live(key), request.parameters
        if "generation" in asked:
            if not re.fullmatch(r"\d+", asked["generation"]):
                return failure(400, "invalid", "Invalid value for generation")
            made = bucket.find(key, lambda version: str(version.generation) == asked["generation"])
        if made is None:
            return failure(404, "notFound", f"No such object: {bucket.name}/{key}")
        if (refused := self._precondition(asked, made)) is not None:
            return refused
        if request.method == "DELETE":
            bucket.delete(key)
            return Answer(204)
        if asked.get("alt") == "media":
            return self._media(request, made)
        return json_answer(200, self._only(self._about(bucket, key, made), asked.get("fields")))

    @staticmethod
    def _precondition(asked, made):
        generation = str(made.generation) if made else "0"
        if asked.get("ifGenerationMatch", generation) != generation or asked.get("ifMetagenerationMatch", "1") != "1":
            return failure(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        if asked.get("ifGenerationNotMatch") == generation:
            return Answer(304)
        return None

    @staticmethod
    def _media(request, made):
        headers = [("Content-Type", made.content_type), ("X-Goog-Generation", str(made.generation)), ("X-Goog-Metageneration", "1"),
                   ("X-Goog-Hash", f"crc32c={checksums.text(made.checksum('crc32c'))},md5={checksums.text(made.checksum('md5'))}"),
                   ("X-Goog-Stored-Content-Length", str(len(made))),
                   ("X-Goog-Stored-Content-Encoding", made.content_encoding or "identity"), ("X-Goog-Storage-Class", "STANDARD"),
                   ("ETag", f'"{made.etag}"')]
        if made.content_encoding == "gzip":
            if "gzip" not in request.headers.get("accept-encoding", ""):
                headers.append(("X-Guploader-Response-Body-Transformations", "gunzipped"))
                return Answer(200, gzip.decompress(made.data), headers)
            headers.append(("Content-Encoding", "gzip"))
        return data_answer(request, made.data, headers)

    def _list(self, request, bucket):
        asked = request.parameters
        if request.method != "GET":
            return failure(405, "methodNotAllowed", "only GET")
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        entries, folders = [], []
        for name in bucket.names(prefix):
            rest = name[len(prefix):]
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter, 1)[0] + delimiter
                folders += [folder] if folder not in folders else []
            else:
                entries.append(name)
        token = asked.get("pageToken", "")
        empty, at = (int(x) for x in base64.urlsafe_b64decode(token + "==").split(b":")) if token else (self.empty_pages, 0)
        size = 0 if empty else min(self.list_page, int(asked.get("maxResults", 1000)))
        page = entries[at:at + size]
        tree = {"kind": "storage#objects"}
        if page:
            tree["items"] = [self._about(bucket, name, bucket.live(name)) for name in page]
            if self.repeat_items:
                tree["items"] *= 2
        if folders and not at:
            tree["prefixes"] = folders
        at, empty = at + len(page), max(0, empty - 1)
        if self.list_loop:
            tree["nextPageToken"] = base64.urlsafe_b64encode(b"0:0").decode()
        elif at < len(entries):
            tree["nextPageToken"] = base64.urlsafe_b64encode(b"%d:%d" % (empty, at)).decode()
        return json_answer(200, self._only(tree, asked.get("fields")))

    # --- uploads: media, multipart, resumable ---

    def _upload(self, request, bucket):
        asked = request.parameters
        kind = asked.get("uploadType")
        if "upload_id" in asked:
            return self._resume(request, bucket, asked["upload_id"])
        if kind == "multipart":
            whole = b"Content-Type: " + request.headers["content-type"].encode() + b"\r\n\r\n" + request.body
            about, media = email.message_from_bytes(whole, policy=email.policy.HTTP).iter_parts()
            tree = json.loads(about.get_payload(decode=True))
            body = request.body.split(b"\r\n\r\n", 2)[2].rsplit(b"\r\n--", 1)[0]
            return self._finish(asked, bucket, tree, body, media.get_content_type())
        if kind == "resumable":
            tree = {"name": asked.get("name"), **(json.loads(request.body) if request.body else {})}
            identifier = f"u{self.world.next_generation()}"
            self.world.uploads[identifier] = {"tree": tree, "data": bytearray(), "asked": asked}
            query = urllib.parse.urlencode({"uploadType": "resumable", "upload_id": identifier})
            return Answer(200, b"", {"Location": f"{self.url}{request.path}?{query}"})
        return self._finish(asked, bucket, {"name": asked.get("name")}, request.body, request.headers.get("content-type"))

    def _resume(self, request, bucket, identifier):
        upload = self.world.uploads.get(identifier)
        if upload is None:
            return failure(410, "gone", "The upload is over.")
        if request.method == "DELETE":
            del self.world.uploads[identifier]
            return Answer(499)
        bounds = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", request.headers.get("content-range", ""))
        if bounds and bounds[1] is not None and int(bounds[1]) <= len(upload["data"]):
            upload["data"][int(bounds[1]):] = request.body
        elif not bounds:
            upload["data"] += request.body
        if not bounds or bounds[3] == str(len(upload["data"])):
            del self.world.uploads[identifier]
            return self._finish(upload["asked"], bucket, upload["tree"], bytes(upload["data"]), None)
        done = {"Range": f"bytes=0-{len(upload['data']) - 1}"} if upload["data"] else {}
        return Answer(308, b"", done)

    def _finish(self, asked, bucket, tree, data, content_type):
        key = tree.get("name") or asked["name"]
        crc = checksums.text(checksums.crc32c(data)) if "crc32c" in tree else None
        if crc and tree["crc32c"] != crc:
            return failure(400, "invalid", f"Provided CRC32C {tree['crc32c']} doesn't match calculated CRC32C {crc}.")
        with bucket.lock:
            refused = self._precondition(asked, bucket.live(key)) if self.conditions == "kept" else None
            if refused is not None:
                return refused
            made = bucket.put(key, data, content_type=tree.get("contentType") or content_type or "application/octet-stream",
                              content_encoding=tree.get("contentEncoding"))
        return json_answer(200, self._about(bucket, key, made))
