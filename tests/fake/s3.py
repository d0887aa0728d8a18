"""Amazon S3: path and virtual-host style, signatures really checked, reads, ListObjectsV2, and the uploads that boto3 needs."""
import hashlib
import re
import time
import urllib.parse
from xml.sax.saxutils import escape

import checksums
import sigv4
from messages import Answer, data_answer

XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def element(name, text):
    return f"<{name}>{escape(str(text))}</{name}>"


def failure(status, code, message, more=None, headers=()):
    inner = "".join(element(k, v) for k, v in {"Code": code, "Message": message, **(more or {}), "RequestId": "FAKEREQUEST1"}.items())
    return Answer(status, f"{XML}<Error>{inner}</Error>".encode(), [("x-amz-request-id", "FAKEREQUEST1"), *headers], "application/xml")


def xml(text, headers=()):
    return Answer(200, (XML + text).encode(), headers, "application/xml")


class S3:
    """`anonymous`: unsigned requests may read. `redirect_regions`: a bucket of another region answers 301 with
    x-amz-bucket-region, else 400 AuthorizationHeaderMalformed. `virtual_host`: the suffix that buckets stand before. `conditions`:
    "kept", "bare" (If-Match without quotes, as Ceph's gateway has it), "broken" (If-Match is never met), "unknown" (501) or
    "ignored" for If-Match and If-None-Match of what is written. `whole_checksums`: multipart uploads may have a checksum of the type
    FULL_OBJECT; "refused": asking for one is 501, "of parts": it becomes one of the parts, as where the type is not known, and False:
    no client hears of it."""

    def __init__(self, world):
        self.world, self.virtual_host = world, "s3.localhost"
        self.anonymous, self.redirect_regions, self.checksums, self.list_page = False, False, True, 1000
        self.empty_pages, self.list_loop, self.repeat_items, self.conditions = 0, False, False, "kept"
        self.whole_checksums = True

    def handle(self, request):
        host = request.host.rsplit(":", 1)[0]
        if host.endswith("." + self.virtual_host):
            name, key = host[:-len(self.virtual_host) - 1], request.path[1:]
        else:
            name, _, key = request.path[1:].partition("/")
        name, key = urllib.parse.unquote(name), urllib.parse.unquote(key)
        bucket = self.world.s3.get(name)
        region = bucket.region if bucket else "us-east-1"
        try:
            signed_for = re.search(r"Credential=[^/]+/\d+/([^/]+)/", request.headers.get("authorization", ""))
            if self.redirect_regions and signed_for and signed_for[1] != region:
                raise sigv4.Refused(301, "PermanentRedirect", "The bucket you are attempting to access must be addressed using the "
                                    "specified endpoint.", {"Bucket": name, "Region": region})
            if sigv4.check(request, self.world, region) is None and not (self.anonymous and request.method in ("GET", "HEAD")):
                raise sigv4.Refused(403, "AccessDenied", "Access Denied")
        except sigv4.Refused as refused:
            headers = [("x-amz-bucket-region", region)] if refused.code in ("PermanentRedirect", "AuthorizationHeaderMalformed") else []
            answer = failure(refused.status, refused.code, refused.message, refused.more, headers)
            return self._headless(request, answer)
        return self._headless(request, self._signed(request, name, bucket, key))

    @staticmethod
    def _headless(request, answer):
        if request.method == "HEAD" and answer.status >= 300:
            answer.body = b""
        return answer

    def _signed(self, request, name, bucket, key):
        if not key and request.method == "PUT" and bucket is None:
            self.world.bucket("s3", name)
            return Answer(200)
        if bucket is None:
            return failure(404, "NoSuchBucket", "The specified bucket does not exist", {"BucketName": name})
        if bucket.requester_pays and request.headers.get("x-amz-request-payer") != "requester":
            return failure(403, "AccessDenied", "Access Denied")
        return self._object(request, bucket, key) if key else self._bucket(request, bucket)

    def _bucket(self, request, bucket):
        asked = request.parameters
        if request.method == "HEAD":
            return Answer(200, b"", [("x-amz-bucket-region", bucket.region)])
        if request.method == "PUT":
            if "versioning" in asked:
                bucket.versioned = b"Enabled" in request.body
            return Answer(200)
        if "location" in asked:
            return xml(f"<LocationConstraint {SPACE}>{bucket.region}</LocationConstraint>")
        if asked.get("list-type") == "2":
            return self._list(bucket, asked)
        return failure(501, "NotImplemented", "A header or query you provided implies functionality that is not implemented")

    def _list(self, bucket, asked):
        prefix, delimiter, start = asked.get("prefix", ""), asked.get("delimiter", ""), asked.get("start-after", "")
        shown = (lambda text: urllib.parse.quote(text, safe="/")) if asked.get("encoding-type") == "url" else (lambda text: text)
        keys, folders = [], []
        for key in bucket.names(prefix):
            rest = key[len(prefix):]
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter, 1)[0] + delimiter
                folders += [folder] if folder not in folders else []
            elif key > start:
                keys.append(key)
        token = re.fullmatch(r"t/(\d+) \+/(\d+)=", asked.get("continuation-token", ""))  # needs careful encoding, as real ones do
        if "continuation-token" in asked and not token:
            return failure(400, "InvalidArgument", "The continuation token provided is incorrect")
        empty, at = (int(token[1]), int(token[2])) if token else (self.empty_pages, 0)
        page = [] if empty else keys[at:at + min(self.list_page, int(asked.get("max-keys", 1000)))]
        following = at + len(page)
        more = following < len(keys)
        if self.list_loop:
            more, following, empty = True, 0, 0
        inner = element("Name", bucket.name) + element("Prefix", shown(prefix)) + element("KeyCount", len(page)) + \
            element("MaxKeys", 1000) + element("IsTruncated", str(more).lower())
        if asked.get("encoding-type") == "url":
            inner += element("EncodingType", "url")
        if more:
            inner += element("NextContinuationToken", f"t/{max(0, empty - 1)} +/{following}=")
        for key in page * (2 if self.repeat_items else 1):
            made = bucket.live(key)
            inner += "<Contents>" + element("Key", shown(key)) + element("LastModified", self._stamp(made)) + \
                element("ETag", f'"{made.etag}"') + element("Size", len(made)) + element("StorageClass", "STANDARD") + "</Contents>"
        inner += "".join("<CommonPrefixes>" + element("Prefix", shown(folder)) + "</CommonPrefixes>" for folder in folders if not at)
        return xml(f"<ListBucketResult {SPACE}>{inner}</ListBucketResult>")

    @staticmethod
    def _stamp(made):
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(made.updated))

    def _object(self, request, bucket, key):
        asked = request.parameters
        if "uploadId" in asked or "uploads" in asked:
            return self._multipart(request, bucket, key)
        if request.method == "PUT":
            return self._put(request, bucket, key)
        if request.method == "DELETE":
            bucket.delete(key)
            return Answer(204)
        if request.method not in ("GET", "HEAD"):
            return failure(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        made = bucket.live(key)
        if "versionId" in asked:
            made = bucket.find(key, lambda version: version.version_id == asked["versionId"])
            if made is None:
                return failure(404, "NoSuchVersion", "The specified version does not exist.", {"Key": key})
        if made is None:
            return failure(404, "NoSuchKey", "The specified key does not exist.", {"Key": key})
        if request.headers.get("if-match", f'"{made.etag}"') not in (f'"{made.etag}"', "*", made.etag):
            return failure(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold",
                           {"Condition": "If-Match"})
        return self._read(request, bucket, made)

    def _read(self, request, bucket, made):
        headers = [("Content-Type", made.content_type), ("ETag", f'"{made.etag}"'), ("x-amz-request-id", "FAKEREQUEST1"),
                   ("Last-Modified", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(made.updated)))]
        if bucket.versioned:
            headers.append(("x-amz-version-id", made.version_id))
        if made.content_encoding:
            headers.append(("Content-Encoding", made.content_encoding))
        answer = data_answer(request, made.data, headers)
        if request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED" and self.checksums and answer.status == 200:
            for kind, value in made.declared.items():
                answer.set(f"x-amz-checksum-{kind}", value)
            if made.declared:
                answer.set("x-amz-checksum-type", made.checksum_type)
        if answer.status == 416:
            return failure(416, "InvalidRange", "The requested range is not satisfiable", {}, answer.headers)
        return answer

    def _body(self, request):
        """The payload, without the chunk signatures and trailers of aws-chunked."""
        if "aws-chunked" not in request.headers.get("content-encoding", ""):
            return request.body, {}
        rest, body, trailers = request.body, b"", {}
        while True:
            line, rest = rest.split(b"\r\n", 1)
            count = int(line.split(b";")[0], 16)
            if not count:
                break
            body, rest = body + rest[:count], rest[count + 2:]
        for line in rest.decode().split("\r\n"):
            name, _, value = line.partition(":")
            trailers[name.lower()] = value.strip()
        return body, trailers

    def _declared(self, request, body, trailers):
        """Checksums that came with an upload, checked; raises Refused."""
        declared = {}
        for kind, make in checksums.KINDS.items():
            said = request.headers.get(f"x-amz-checksum-{kind}") or trailers.get(f"x-amz-checksum-{kind}")
            if said:
                if said != checksums.text(make(body)):
                    raise sigv4.Refused(400, "BadDigest", f"The {kind.upper()} you specified did not match the calculated checksum.")
                declared[kind] = said
        return declared

    def _put(self, request, bucket, key):
        asked = request.parameters
        body, trailers = self._body(request)
        try:
            declared = self._declared(request, body, trailers)
        except sigv4.Refused as refused:
            return failure(refused.status, refused.code, refused.message)
        encoding = request.headers.get("content-encoding", "").replace("aws-chunked", "").strip(",") or None
        with bucket.lock:
            if (refused := self._precondition(request, bucket.live(key))) is not None:
                return refused
            made = bucket.put(key, body, declared=declared, content_encoding=encoding,
                              content_type=request.headers.get("content-type", "binary/octet-stream"))
        headers = [("ETag", f'"{made.etag}"'), *((f"x-amz-checksum-{k}", v) for k, v in declared.items())]
        return Answer(200, b"", headers if not asked else headers)

    def _precondition(self, request, made):
        wanted, absent = request.headers.get("if-match"), request.headers.get("if-none-match")
        if self.conditions == "ignored" or not (wanted or absent):
            return None
        if self.conditions == "unknown":
            return failure(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        if wanted and made is None:
            return failure(404, "NoSuchKey", "The specified key does not exist.")
        met = {"kept": f'"{made and made.etag}"', "bare": made and made.etag}.get(self.conditions)
        if (absent == "*" and made is not None) or (wanted and wanted != met):
            return failure(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        return None

    def _multipart(self, request, bucket, key):
        asked, uploads = request.parameters, self.world.uploads
        if "uploads" in asked:
            kind, whole = request.headers.get("x-amz-checksum-algorithm", "").lower(), self._checksum_type(request)
            if whole == "refused":
                return failure(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
            if kind and not self.whole_checksums:
                kind, whole = "", ""
            identifier = f"u{self.world.next_generation()}"
            uploads[identifier] = {"parts": {}, "kind": kind, "type": whole, "sums": {}}
            inner = element("Bucket", bucket.name) + element("Key", key) + element("UploadId", identifier)
            told = [("x-amz-checksum-algorithm", kind.upper())] + ([("x-amz-checksum-type", whole)] if whole else []) if kind else []
            return xml(f"<InitiateMultipartUploadResult {SPACE}>{inner}</InitiateMultipartUploadResult>", told)
        upload = uploads.get(asked["uploadId"])
        if upload is None:
            return failure(404, "NoSuchUpload", "The specified upload does not exist.")
        if request.method == "PUT":
            body, trailers = self._body(request)
            try:
                declared = self._declared(request, body, trailers)
            except sigv4.Refused as refused:
                return failure(refused.status, refused.code, refused.message)
            if upload["type"] and upload["kind"] not in declared:
                return failure(400, "InvalidRequest", "Checksum Type mismatch occurred, expected checksum Type: " + upload["kind"])
            upload["parts"][int(asked["partNumber"])] = body
            upload["sums"][int(asked["partNumber"])] = declared.get(upload["kind"], "")
            return Answer(200, b"", [("ETag", f'"{hashlib.md5(body).hexdigest()}"'),
                                     *((f"x-amz-checksum-{k}", v) for k, v in declared.items())])
        if request.method == "DELETE":
            del uploads[asked["uploadId"]]
            return Answer(204)
        if request.method == "GET":
            inner = "".join("<Part>" + element("PartNumber", number) + element("ETag", f'"{hashlib.md5(part).hexdigest()}"') +
                            (element(f"Checksum{upload['kind'].upper()}", upload["sums"][number]) if upload["sums"][number] else "") +
                            element("Size", len(part)) + "</Part>" for number, part in sorted(upload["parts"].items()))
            inner += "".join(element(f"Checksum{name.title()}", value.upper()) for name, value in
                             (("algorithm", upload["kind"]), ("type", upload["type"])) if value)
            return xml(f"<ListPartsResult {SPACE}>{element('IsTruncated', 'false')}{inner}</ListPartsResult>")
        with bucket.lock:
            if (refused := self._precondition(request, bucket.live(key))) is not None:
                return refused
            if (refused := self._whole_differs(request, upload)) is not None:
                return refused
            return self._complete(bucket, key, uploads.pop(asked["uploadId"]))

    def _checksum_type(self, request):
        asked = request.headers.get("x-amz-checksum-type", "")
        return {True: asked, "refused": asked and "refused", "of parts": asked and "COMPOSITE", False: ""}[self.whole_checksums]

    @staticmethod
    def _whole_differs(request, upload):
        """What the request says of parts and whole, beside what is there."""
        kind = upload["kind"]
        said = re.findall(rf"<PartNumber>(\d+)</PartNumber><ETag>[^<]*</ETag><Checksum{kind.upper()}>([^<]*)<", request.body.decode()) if kind else []
        if any(upload["sums"].get(int(number)) != value for number, value in said) or (upload["type"] == "COMPOSITE" and not said):
            return failure(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if kind and upload["type"] == "FULL_OBJECT":
            whole = b"".join(upload["parts"][number] for number in sorted(upload["parts"]))
            told, wanted = request.headers.get(f"x-amz-checksum-{kind}"), request.headers.get("x-amz-checksum-type", "FULL_OBJECT")
            if told not in (None, checksums.text(checksums.KINDS[kind](whole))) or wanted != "FULL_OBJECT":
                return failure(400, "BadDigest", f"The {kind.upper()} you specified did not match the calculated checksum.")
        return None

    @staticmethod
    def _complete(bucket, key, upload):
        parts = [upload["parts"][number] for number in sorted(upload["parts"])]
        whole = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
        declared, kind = {}, upload["kind"]
        if kind:
            make, of_parts = checksums.KINDS[kind], upload["type"] != "FULL_OBJECT"
            declared[kind] = f"{checksums.text(make(b''.join(make(part) for part in parts)))}-{len(parts)}" if of_parts \
                else checksums.text(make(b"".join(parts)))
        made = bucket.put(key, b"".join(parts), etag=f"{whole}-{len(parts)}", declared=declared,
                          checksum_type=upload["type"] or "COMPOSITE")
        inner = element("Bucket", bucket.name) + element("Key", key) + element("ETag", f'"{made.etag}"')
        return xml(f"<CompleteMultipartUploadResult {SPACE}>{inner}</CompleteMultipartUploadResult>")
