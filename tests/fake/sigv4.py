"""Checks AWS Signature Version 4 of a request from its bytes, as the published description says, and names what is wrong
with the codes that S3 uses. Sees only what was on the wire, so a client's wrong encoding or sorting shows."""
import calendar
import hashlib
import hmac
import re
import time
import urllib.parse

SKEW_S = 15 * 60
EMPTY = hashlib.sha256(b"").hexdigest()


class Refused(Exception):
    """(status, code, message, {more elements})"""

    def __init__(self, status, code, message, more=None):
        super().__init__(code)
        self.status, self.code, self.message, self.more = status, code, message, more or {}


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _canonical_query(query):
    pairs = []
    for item in query.split("&") if query else []:
        name, _, value = item.partition("=")
        pairs.append(tuple(urllib.parse.quote(urllib.parse.unquote(x), safe="-_.~") for x in (name, value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _signature(request, secret, scope, stamp, signed):
    path = urllib.parse.quote(urllib.parse.unquote(request.path), safe="/-_.~")
    headers = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signed)
    canonical = "\n".join((request.method, path, _canonical_query(request.query), headers, ";".join(signed),
                           request.headers.get("x-amz-content-sha256", EMPTY)))
    key = ("AWS4" + secret).encode()
    for part in scope:
        key = _hmac(key, part)
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check(request, world, region):
    """Who signed it, or None for an anonymous request; raises Refused."""
    authorization = request.headers.get("authorization")
    if not authorization:
        return None
    parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/aws4_request, ?"
                         r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", authorization)
    if not parts:
        raise Refused(400, "AuthorizationHeaderMalformed", "The authorization header is malformed")
    access, day, signed_region, service, names, signature = parts.groups()
    stamp = request.headers.get("x-amz-date", "")
    if not re.fullmatch(r"\d{8}T\d{6}Z", stamp) or not stamp.startswith(day):
        raise Refused(403, "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
    if abs(calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - world.now()) > SKEW_S:
        raise Refused(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.",
                      {"RequestTime": stamp, "MaxAllowedSkewMilliseconds": str(SKEW_S * 1000)})
    if signed_region != region:
        raise Refused(400, "AuthorizationHeaderMalformed", f"The authorization header is malformed; the region "
                      f"'{signed_region}' is wrong; expecting '{region}'", {"Region": region})
    if service != "s3":
        raise Refused(400, "AuthorizationHeaderMalformed", "incorrect service")
    keys = world.aws.get(access)
    if keys is None:
        raise Refused(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.",
                      {"AWSAccessKeyId": access})
    _check_session(request, keys, world)
    signed = names.split(";")
    unsigned = [name for name in request.headers if name.startswith("x-amz-") and name not in signed]
    if signed != sorted(signed) or "host" not in signed or unsigned:
        raise Refused(403, "AccessDenied", f"There were headers present in the request which were not signed: {unsigned}")
    good = _signature(request, keys["secret"], (day, signed_region, service, "aws4_request"), stamp, signed)
    if not hmac.compare_digest(good, signature):
        raise Refused(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you "
                      "provided. Check your key and signing method.", {"AWSAccessKeyId": access})
    digest = request.headers.get("x-amz-content-sha256")
    if not digest:
        raise Refused(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
    if re.fullmatch(r"[0-9a-f]{64}", digest) and hashlib.sha256(request.body).hexdigest() != digest:
        raise Refused(400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
    return access


def _check_session(request, keys, world):
    token = request.headers.get("x-amz-security-token")
    if (keys.get("session") or None) != token:
        raise Refused(400 if token else 403, "InvalidToken", "The provided token is malformed or otherwise invalid.")
    if keys.get("expires") is not None and world.now() >= keys["expires"]:
        raise Refused(400, "ExpiredToken", "The provided token has expired.")
