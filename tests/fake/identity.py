"""Who gives credentials: Google's OAuth endpoint and metadata server, EC2's metadata service (version 2 only), the container
endpoint, and STS AssumeRoleWithWebIdentity. Each checks what its real counterpart checks and hands out things that end."""
import base64
import hashlib
import json
import time
import urllib.parse

from messages import Answer, json_answer

JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GOOGLE_AUDIENCE = "https://oauth2.googleapis.com/token"  # google-auth says this whatever the token_uri
SHA256_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")


def unbase64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def rsa_sha256_is_good(message, signature, modulus, exponent=65537):
    """PKCS #1 v1.5, by the definition."""
    size = (modulus.bit_length() + 7) // 8
    padded = pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(size, "big")
    tail = SHA256_DIGEST_INFO + hashlib.sha256(message).digest()
    return padded == b"\x00\x01" + b"\xff" * (size - len(tail) - 3) + b"\x00" + tail


class Identity:
    """`lifetime_s` of what is given. `clients`: {client_id: (secret, refresh_token)}; `service_accounts`: {email: RSA modulus};
    `web_identity`: the token that STS accepts; `container_token`: what Authorization must be ("" = nothing);
    `google_metadata`, `ec2_metadata`: whether such a machine is played."""

    def __init__(self, world):
        self.world, self.url, self.lifetime_s = world, "", 3600
        self.clients, self.service_accounts = {}, {}
        self.web_identity, self.role_arn, self.container_token = "", "", ""
        self.google_metadata = self.ec2_metadata = False
        self.session_tokens, self.role, self.region = set(), "fake-role", "us-east-1"

    def handle(self, request):
        path = request.path
        if path == "/token" and request.method == "POST":
            return self._oauth(request)
        if path.startswith("/computeMetadata/") or (path == "/" and request.method == "GET" and self.google_metadata):
            return self._google(request)
        if path.startswith("/latest/"):
            return self._ec2(request)
        if path.startswith("/v2/credentials"):
            return self._container(request)
        if path == "/":
            return self._sts(request)
        return Answer(404)

    # --- Google ---

    def _token(self):
        return json_answer(200, {"access_token": self.world.issue_token(self.lifetime_s), "expires_in": int(self.lifetime_s),
                                 "token_type": "Bearer"})

    def _oauth(self, request):
        form = dict(urllib.parse.parse_qsl(request.body.decode()))
        if form.get("grant_type") == "refresh_token":
            known = self.clients.get(form.get("client_id"))
            if known != (form.get("client_secret"), form.get("refresh_token")):
                return json_answer(400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."})
            return self._token()
        if form.get("grant_type") == JWT_GRANT:
            complaint = self._jwt_complaint(form.get("assertion", ""))
            if complaint:
                return json_answer(400, {"error": "invalid_grant", "error_description": complaint})
            return self._token()
        return json_answer(400, {"error": "unsupported_grant_type"})

    def _jwt_complaint(self, assertion):
        try:
            head, claims, signature = assertion.split(".")
            about, said = json.loads(unbase64url(head)), json.loads(unbase64url(claims))
            modulus = self.service_accounts.get(said["iss"])
            if about["alg"] != "RS256" or modulus is None:
                return "Invalid issuer or algorithm"
            if not rsa_sha256_is_good(f"{head}.{claims}".encode(), unbase64url(signature), modulus):
                return "Invalid JWT Signature."
            now = self.world.now()
            if not (said["iat"] - 300 <= now < said["exp"] <= said["iat"] + 3600):
                return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
            is_for_storage = "devstorage" in said["scope"] or "cloud-platform" in said["scope"]
            if said["aud"] not in (f"{self.url}/token", GOOGLE_AUDIENCE) or not is_for_storage:
                return "Invalid audience or scope"
        except (ValueError, KeyError, TypeError) as error:
            return f"Malformed assertion: {error!r}"
        return ""

    def _google(self, request):
        if not self.google_metadata:
            return Answer(404)
        flavor = [("Metadata-Flavor", "Google"), ("Server", "Metadata Server for VM")]
        if request.headers.get("metadata-flavor") != "Google" and request.path != "/":
            return Answer(403, b"Missing Metadata-Flavor:Google header.", flavor)
        answer = Answer(404)
        if request.path.endswith("/service-accounts/default/token"):
            answer = self._token()
        elif request.path.endswith("/service-accounts/default/") and request.parameters.get("recursive"):
            answer = json_answer(200, {"email": "robot@fake.iam", "aliases": ["default"], "scopes": []})
        elif request.path.endswith("/project-id"):
            answer = Answer(200, b"fake-project", (), "text/plain")
        elif request.path == "/":
            answer = Answer(200, b"computeMetadata/\n", (), "text/plain")
        answer.headers += flavor
        return answer

    # --- Amazon ---

    def _keys(self, names=("AccessKeyId", "SecretAccessKey", "Token", "Expiration")):
        access, keys = self.world.issue_keys(self.lifetime_s)
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(keys["expires"]))
        return dict(zip(names, (access, keys["secret"], keys["session"], end)))

    def _ec2(self, request):
        if not self.ec2_metadata:
            return Answer(404)
        if request.path == "/latest/api/token":
            if request.method != "PUT" or not request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "").isdigit() \
                    or "x-forwarded-for" in request.headers:
                return Answer(400)
            token = f"imds-secret-{self.world.next_generation()}"
            self.session_tokens.add(token)
            return Answer(200, token.encode(), [("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")], "text/plain")
        if request.headers.get("x-aws-ec2-metadata-token") not in self.session_tokens:
            return Answer(401)
        base = "/latest/meta-data/iam/security-credentials"
        if request.path.rstrip("/") == base:
            return Answer(200, self.role.encode(), (), "text/plain")
        if request.path == f"{base}/{self.role}":
            return json_answer(200, {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", **self._keys()})
        if request.path == "/latest/meta-data/placement/region":
            return Answer(200, self.region.encode(), (), "text/plain")
        return Answer(404)

    def _container(self, request):
        if self.container_token and request.headers.get("authorization") != self.container_token:
            return json_answer(401, {"code": "AccessDenied", "message": "no"})
        return json_answer(200, self._keys())

    def _sts(self, request):
        asked = {**request.parameters, **dict(urllib.parse.parse_qsl(request.body.decode()))}
        wrong = ""
        if asked.get("Action") != "AssumeRoleWithWebIdentity" or asked.get("Version") != "2011-06-15":
            wrong = "InvalidAction"
        elif asked.get("WebIdentityToken") != self.web_identity or not self.web_identity:
            wrong = "InvalidIdentityToken"
        elif asked.get("RoleArn") != self.role_arn or not asked.get("RoleSessionName"):
            wrong = "AccessDenied"
        if wrong:
            text = f"<ErrorResponse><Error><Type>Sender</Type><Code>{wrong}</Code><Message>refused</Message></Error></ErrorResponse>"
            return Answer(400, text.encode(), (), "text/xml")
        inner = "".join(f"<{k}>{v}</{k}>" for k, v in self._keys(("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")).items())
        text = ('<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
                f"<Credentials>{inner}</Credentials><AssumedRoleUser><Arn>{self.role_arn}/s</Arn></AssumedRoleUser>"
                "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")
        return Answer(200, text.encode(), (), "text/xml")
