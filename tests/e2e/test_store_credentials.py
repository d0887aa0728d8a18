"""Where credentials come from, how they are renewed, and that they go nowhere else: cases 30 to 34, 36 and 37 of the list of
faults of object stores, and every step of each store's chain. No secret is ever in a log, an answer or an error."""
import json
import os
import re

import pytest

from stage import soon
from store_scene import ACCESS, DATA, SECRET, load, one
from stores_fixture import Stores, certificates
from test_store_faults import refused

MIDDLE = {"covers": 2_500_000}
DENIED = {"PERMISSION_DENIED", "UNAUTHENTICATED"}
GOOGLE = {"anonymous": False}


@pytest.fixture(autouse=True)
def nothing_leaks(fake, start, request):  # start: before daemons and their logs are removed
    """What every test of this file ends with: no secret in any log, and none sent to another host."""
    daemons, secrets = [], {SECRET}
    request.node.watch = lambda daemon, *more: (daemons.append(daemon), secrets.update(more))
    yield
    secrets |= {token for token in fake.world.tokens} | {keys["secret"] for keys in fake.world.aws.values()}
    secrets |= {keys["session"] for keys in fake.world.aws.values() if keys.get("session")}
    for daemon in daemons:
        log = daemon.whole_log()
        assert not [secret for secret in secrets if secret in log]
    for entry in fake.requests("cdn"):
        assert "authorization" not in entry["headers"] and "cookie" not in entry["headers"]


@pytest.fixture
def watched(store_daemon, request):
    """store_daemon whose log is searched for secrets at the end."""

    def make(*secrets, **options):
        daemon = store_daemon(**options)
        request.node.watch(daemon, *secrets)
        return daemon

    return make


def silent(outcome, *secrets):
    """The outcome's text, which holds none of these."""
    assert not [secret for secret in secrets if secret in outcome.out + outcome.err], outcome
    return outcome


# --- Google ---


@pytest.fixture
def private_google(fake):
    fake.gcs.needs_token = True
    return one(fake, "gs")


def service_account(fake, folder):
    tree, modulus = certificates.service_account(folder, "robot@fake.iam", fake.url("identity") + "/token")
    fake.identity.service_accounts["robot@fake.iam"] = modulus
    path = folder / "key.json"
    path.write_text(json.dumps(tree))
    return path, tree["private_key"].split("\n")[3]


def authorized_user(fake, path):
    fake.identity.clients["an-id"] = ("client-secret-word", "refresh-secret-word")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"type": "authorized_user", "client_id": "an-id", "client_secret": "client-secret-word",
                                "refresh_token": "refresh-secret-word", "token_uri": fake.url("identity") + "/token"}))
    return path


def test_a_service_account_from_the_environment(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    daemon = watched(secret, gcs=GOOGLE, environment={"GOOGLE_APPLICATION_CREDENTIALS": str(path)})
    assert private_google.is_delivered(load(daemon, private_google))
    assert len([entry for entry in fake.requests("identity") if entry["path"] == "/token"]) == 1, "one token serves all requests"


def test_a_credentials_file_from_the_configuration_wins(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    (tmp_path / "other.json").write_text("{}")
    daemon = watched(secret, gcs={**GOOGLE, "credentials_file": str(path)},
                     environment={"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "other.json")})
    assert private_google.is_delivered(load(daemon, private_google))


@pytest.mark.parametrize("place_of", ["home", "cloudsdk"])
def test_the_credentials_of_gcloud_are_found(fake, watched, private_google, tmp_path, bare, place_of):
    name = "application_default_credentials.json"
    if place_of == "home":
        path, environment = bare / ".config" / "gcloud" / name, {}
    else:
        path, environment = tmp_path / "sdk" / name, {"CLOUDSDK_CONFIG": str(tmp_path / "sdk")}
    authorized_user(fake, path)
    fake.identity.google_metadata = True
    daemon = watched("client-secret-word", "refresh-secret-word", gcs=GOOGLE, environment=environment)
    assert private_google.is_delivered(load(daemon, private_google))


def metadata_host(fake):
    return {"GCE_METADATA_HOST": fake.url("identity").removeprefix("http://"), "NO_GCE_CHECK": "false",
            "http_proxy": "http://127.0.0.1:1"}  # the metadata server is never asked through a proxy


def test_the_metadata_server_is_the_last_step_and_no_proxy_is_asked(fake, watched, private_google):
    fake.identity.google_metadata = True
    daemon = watched(gcs=GOOGLE, environment={**metadata_host(fake), "no_proxy": "127.0.0.1"})
    assert private_google.is_delivered(load(daemon, private_google))
    asked = [entry for entry in fake.requests("identity") if entry["path"].endswith("/token")]
    assert asked and all(entry["headers"]["metadata-flavor"] == "Google" for entry in asked)


def test_without_any_credentials_google_is_not_asked_anonymously(fake, watched, private_google):
    outcome = load(watched(gcs=GOOGLE), private_google)
    assert outcome.failed and "credentials" in outcome.err, outcome
    assert not fake.requests("gcs")


@pytest.mark.parametrize("kind", ["external_account", "impersonated_service_account"])
def test_kinds_that_are_not_supported_are_named(fake, watched, private_google, tmp_path, kind):
    (tmp_path / "key.json").write_text(json.dumps({"type": kind}))
    outcome = load(watched(gcs={**GOOGLE, "credentials_file": str(tmp_path / "key.json")}), private_google)
    assert refused(outcome, "UNIMPLEMENTED", "FAILED_PRECONDITION", "INVALID_ARGUMENT") and kind in outcome.err, outcome
    assert "service account" in outcome.err and "gcloud auth" in outcome.err, "what to do instead"


def test_a_token_that_ends_in_mid_load_is_renewed_once(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    private_google.fault({"expire_tokens": True}, match=MIDDLE)
    daemon = watched(secret, gcs={**GOOGLE, "credentials_file": str(path)})
    assert private_google.is_delivered(load(daemon, private_google))
    assert len([entry for entry in fake.requests("identity") if entry["path"] == "/token"]) == 2


def test_a_token_that_stays_refused_ends_in_an_error(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    private_google.fault({"expire_tokens": True}, match={"range": "bytes="}, times=0)
    outcome = load(watched(secret, gcs={**GOOGLE, "credentials_file": str(path)}), private_google)
    assert refused(outcome, *DENIED), outcome
    assert "robot@fake.iam" in outcome.err or "credentials" in outcome.err, outcome
    assert len([entry for entry in fake.requests("identity") if entry["path"] == "/token"]) <= 40


def test_a_token_endpoint_that_is_busy_is_asked_again(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    rule = fake.fault({"status": 503}, {"listener": "identity", "path": "/token"}, times=2)
    assert private_google.is_delivered(load(watched(secret, gcs={**GOOGLE, "credentials_file": str(path)}), private_google))
    assert rule.acted == 2


def test_a_busy_token_endpoint_does_not_matter_while_the_token_lives(fake, watched, private_google, tmp_path):
    path, secret = service_account(fake, tmp_path)
    fake.identity.lifetime_s = 200  # within the time before its end at which a new one is asked for
    daemon = watched(secret, gcs={**GOOGLE, "credentials_file": str(path)})
    assert private_google.is_delivered(load(daemon, private_google))
    fake.fault({"status": 503}, {"listener": "identity", "path": "/token"}, times=0)
    other = one(fake, "gs", seed=2, name="n")
    assert other.is_delivered(load(daemon, other))


def test_refused_grants_are_final_and_show_no_secret(fake, watched, private_google, tmp_path):
    path = authorized_user(fake, tmp_path / "adc.json")
    fake.identity.clients["an-id"] = ("client-secret-word", "another-token")
    outcome = load(watched("client-secret-word", gcs={**GOOGLE, "credentials_file": str(path)}), private_google)
    assert refused(outcome, *DENIED, "FAILED_PRECONDITION"), outcome
    silent(outcome, "client-secret-word", "refresh-secret-word")
    assert len([entry for entry in fake.requests("identity") if entry["path"] == "/token"]) <= 1


@pytest.mark.parametrize("by", ["configuration", "environment"])
def test_requester_pays_buckets_are_read_with_a_project(fake, watched, by):
    fake.world.bucket("gcs", "b", requester_pays=True)
    placed = one(fake, "gs")
    refusal = load(watched(), placed)
    assert refusal.failed and "project" in refusal.err, refusal
    options = {"gcs": {"user_project": "payer"}} if by == "configuration" else {"environment": {"GOOGLE_CLOUD_QUOTA_PROJECT": "payer"}}
    assert placed.is_delivered(load(watched(**options), placed))


# --- Amazon ---


@pytest.mark.parametrize("by", ["configuration", "environment"])
def test_requester_pays_buckets_of_amazon_are_read_when_told(fake, watched, by):
    fake.world.bucket("s3", "b", requester_pays=True)
    placed = one(fake, "s3")
    refusal = load(watched(), placed)
    assert refused(refusal, "PERMISSION_DENIED"), refusal
    fake.journal.clear()
    options = {"s3": {"requester_pays": True}} if by == "configuration" else {"environment": {"AWS_REQUEST_PAYER": "requester"}}
    assert placed.is_delivered(load(watched(**options), placed))
    assert all("x-amz-request-payer" in entry["headers"]["authorization"] for entry in fake.requests("s3")), "unsigned"


@pytest.fixture
def no_keys(monkeypatch, aws_keys):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


def profile_file(path, section, **keys):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(f"[{section}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()))


def test_keys_with_a_session_from_the_environment(fake, watched):
    access, keys = fake.world.issue_keys()
    placed = one(fake, "s3")
    daemon = watched(environment={"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": keys["secret"], "AWS_SESSION_TOKEN": keys["session"]})
    assert placed.is_delivered(load(daemon, placed))


@pytest.mark.parametrize("where", ["credentials file", "home", "config file", "profile", "profile in the configuration"])
def test_profiles_give_credentials(fake, watched, bare, no_keys, tmp_path, where):
    keys, environment, sources = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}, {}, {}
    if where == "credentials file":
        profile_file(tmp_path / "c", "default", **keys)
        environment = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c")}
    elif where == "home":
        profile_file(bare / ".aws" / "credentials", "default", **keys)
    elif where == "config file":
        profile_file(tmp_path / "c", "profile p", **keys)
        environment = {"AWS_CONFIG_FILE": str(tmp_path / "c"), "AWS_PROFILE": "p"}
    else:
        profile_file(bare / ".aws" / "credentials", "default", aws_access_key_id="AKWRONG", aws_secret_access_key="wrong")
        profile_file(bare / ".aws" / "credentials", "team", **keys)
        environment = {"AWS_PROFILE": "team"} if where == "profile" else {}
        sources = {} if where == "profile" else {"s3": {"profile": "team"}}
    placed = one(fake, "s3")
    assert placed.is_delivered(load(watched(environment=environment, **sources), placed))


def test_a_credential_process_gives_credentials(fake, watched, bare, no_keys, tmp_path):
    answer = json.dumps({"Version": 1, "AccessKeyId": ACCESS, "SecretAccessKey": SECRET})
    (tmp_path / "keys.json").write_text(answer)
    profile_file(bare / ".aws" / "config", "default", credential_process=f"cat {tmp_path}/keys.json")
    placed = one(fake, "s3")
    assert placed.is_delivered(load(watched(), placed))


def test_a_credential_process_that_comes_after_the_start_does_not_run(fake, watched, bare, no_keys, tmp_path):
    """The sandbox lets no program run where no profile had one at the start."""
    daemon = watched()
    profile_file(bare / ".aws" / "config", "default", credential_process=f"touch {tmp_path}/ran")
    told = daemon.cli.run("load", one(fake, "s3").reference)
    assert "credential_process: its program cannot be started" in told.err and "EPERM" in told.err and not (tmp_path / "ran").exists()


@pytest.fixture(params=["web identity", "container", "container file", "instance"])
def issuing(request, fake, no_keys, tmp_path):
    """The environment of a service that issues keys that end."""
    url = fake.url("identity")
    if request.param == "web identity":
        fake.identity.web_identity, fake.identity.role_arn = "a.jwt.token-secret", "arn:aws:iam::1:role/r"
        (tmp_path / "jwt").write_text("a.jwt.token-secret")
        return {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "jwt"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
                "AWS_ROLE_SESSION_NAME": "s", "AWS_ENDPOINT_URL_STS": url}
    if request.param == "container":
        fake.identity.container_token = "pod-secret"
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/v2/credentials/x", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod-secret"}
    if request.param == "container file":
        fake.identity.container_token = "pod-secret"
        (tmp_path / "pod").write_text("pod-secret")
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url + "/v2/credentials/x",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "pod")}
    fake.identity.ec2_metadata = True
    return {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
            "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "3"}  # one try is everybody's default there


def test_services_that_issue_keys_are_asked(fake, watched, issuing):
    placed = one(fake, "s3")
    daemon = watched("pod-secret", "a.jwt.token-secret", environment=issuing)
    assert placed.is_delivered(load(daemon, placed))
    assert fake.world.issued == 1, "one set of keys serves all requests"
    assert not any("pod-secret" in str(entry["headers"]) for entry in fake.requests("s3"))


def test_keys_that_end_in_mid_load_are_renewed(fake, watched, issuing):
    placed = one(fake, "s3")
    placed.fault({"expire_tokens": True}, match=MIDDLE)
    assert placed.is_delivered(load(watched(environment=issuing), placed))
    assert fake.world.issued == 2


def test_a_busy_issuer_is_asked_again(fake, watched, issuing):
    placed = one(fake, "s3")
    fake.fault({"status": 503}, {"listener": "identity"}, times=1)
    assert placed.is_delivered(load(watched(environment=issuing), placed))


def test_no_keys_at_all_is_said_plainly(fake, watched, no_keys):
    outcome = load(watched(), one(fake, "s3"))
    assert outcome.failed and re.search("no (keys|credentials)", outcome.err) and not fake.requests("s3"), outcome


def test_public_buckets_are_read_unsigned_when_told(fake, watched, no_keys):
    fake.s3.anonymous = True
    placed = one(fake, "s3")
    assert placed.is_delivered(load(watched(s3={"anonymous": True}), placed))
    assert not any(entry["authorization"] for entry in fake.requests("s3"))


@pytest.mark.parametrize("wrong, code", [("secret", "SignatureDoesNotMatch"), ("access", "InvalidAccessKeyId")])
def test_wrong_keys_are_refused_at_once_by_name(fake, watched, wrong, code):
    placed = one(fake, "s3")
    environment = {"AWS_SECRET_ACCESS_KEY": "wrong-secret-word"} if wrong == "secret" else {"AWS_ACCESS_KEY_ID": "AKOTHER"}
    outcome = silent(load(watched("wrong-secret-word", environment=environment), placed), SECRET, "wrong-secret-word")
    assert refused(outcome, *DENIED) and code in outcome.err, outcome
    assert len(fake.requests("s3")) <= 2, "no retries of a refusal, but with keys that were looked up once more"


@pytest.mark.parametrize("redirects", [False, True])
def test_the_right_region_is_learned_once(fake, watched, redirects):
    fake.s3.redirect_regions = redirects
    fake.world.bucket("s3", "b", region="eu-west-9")
    placed = one(fake, "s3")
    daemon = watched(s3={"region": "us-east-1"})
    assert placed.is_delivered(load(daemon, placed))
    assert len([entry for entry in fake.requests("s3") if entry["status"] in (301, 400)]) == 1


@pytest.mark.parametrize("skew_s", [-1900, 1900])
def test_a_wrong_clock_is_corrected_once(fake, watched, skew_s):
    fake.world.clock_skew_s = skew_s
    placed = one(fake, "s3")
    assert placed.is_delivered(load(watched(), placed))
    assert 1 <= len([entry for entry in fake.requests("s3") if entry["status"] == 403]) <= 2


@pytest.mark.parametrize("addressing", ["path", "virtual"])
def test_buckets_stand_where_the_setting_says(fake, watched, addressing):
    placed = one(fake, "s3")
    endpoint = fake.url("s3", "s3.localhost")
    assert placed.is_delivered(load(watched(s3={"addressing": addressing, "endpoint": endpoint}), placed))
    hosts = {entry["host"].split(":")[0] for entry in fake.requests("s3")}
    assert hosts == ({"b.s3.localhost"} if addressing == "virtual" else {"s3.localhost"})


# --- the hub ---


@pytest.fixture
def gated(fake):
    placed = one(fake, "hf")
    fake.world.repository("org/m").gated = "auto"
    fake.world.repository("org/m").readers.add("hf_secret_token")
    fake.world.tokens["hf_secret_token"] = None
    return placed


@pytest.mark.parametrize("where", ["environment", "token path", "home", "configuration"])
def test_the_hubs_token_is_found_and_stays_with_the_hub(fake, watched, gated, tmp_path, where):
    path = tmp_path / "hf-home" / "token"
    path.parent.mkdir()
    path.write_text("hf_secret_token\n")
    environment = {"environment": {"HF_TOKEN": "hf_secret_token"}, "token path": {"HF_TOKEN_PATH": str(path)},
                   "home": {"HF_HOME": str(path.parent)}, "configuration": {}}[where]
    sources = {"hf": {"token_file": str(path)}} if where == "configuration" else {}
    assert gated.is_delivered(load(watched(environment=environment, **sources), gated))
    assert fake.requests("cdn") and all(entry["authorization"] for entry in fake.requests("hub"))


def test_a_gated_repository_is_explained(fake, watched, gated):
    outcome = load(watched(), gated)
    assert refused(outcome, *DENIED) and "org/m" in outcome.err and ("licen" in outcome.err or "access" in outcome.err), outcome
    fake.world.tokens["hf_of_another"] = None
    outcome = silent(load(watched(environment={"HF_TOKEN": "hf_of_another"}), gated), "hf_of_another")
    assert refused(outcome, *DENIED) and "org/m" in outcome.err, outcome


def test_content_links_that_end_in_mid_load_are_made_anew(fake, watched):
    placed = one(fake, "hf")

    def later():
        fake.hub.key = "another"  # every link given so far is refused

    placed.fault({"call": later}, match=MIDDLE)
    assert placed.is_delivered(load(watched(), placed))
    resolved = [entry for entry in fake.requests("hub") if "/resolve/" in entry["path"] and entry["path"].endswith(DATA)]
    assert 2 <= len(resolved) <= 3, "once a file, not once a range"


def test_content_links_that_are_always_refused_end_in_an_error(fake, watched):
    placed = one(fake, "hf")
    fake.hub.link_life_s = -1
    outcome = load(watched(), placed)
    assert refused(outcome, *DENIED, "UNAVAILABLE") and DATA in outcome.err, outcome
    assert not re.search("[0-9a-f]{16}", outcome.err.partition("?")[2]), "the link's signature"


# --- plain files, and what must not leave ---


def test_a_real_403_is_final(fake, watched):
    for scheme in ("gs", "s3", "hf", "http"):
        placed = one(fake, scheme)
        rule = placed.fault({"status": 403, "body": "<Error><Code>AccessDenied</Code></Error>"}, match={"range": "bytes="}, times=0)
        outcome = load(watched(), placed)
        assert refused(outcome, *DENIED), outcome
        assert rule.acted <= 4, f"{scheme}: retries of a refusal"
        fake.faults.clear()


def test_names_and_passwords_in_urls_are_not_shown(fake, watched):
    placed = one(fake, "http")
    secret = placed.reference.replace("http://", "http://user:url-password-word@")
    daemon = watched("url-password-word")
    outcome = daemon.cli.run("load", secret + "-absent", "--json")
    assert outcome.failed and "url-password-word" not in outcome.out + outcome.err, outcome
    signed = daemon.cli.run("load", placed.reference + "/model.safetensors?X-Amz-Signature=query-secret-word")
    assert "query-secret-word" not in signed.out + signed.err + daemon.whole_log()


def test_a_redirect_to_another_host_loses_the_token(fake, watched, gated):
    """The hub's first answer sends small files elsewhere too: the token stays."""
    other = Stores()
    try:
        other.world.put("web", "stolen", b"{}")
        fake.fault({"redirect": other.url("web", "localhost") + "/stolen", "status": 302},
                   {"listener": "hub", "path": r"/resolve/.*\.safetensors"}, times=0)
        load(watched(environment={"HF_TOKEN": "hf_secret_token"}), gated)
        assert not any(entry["authorization"] or "hf_secret_token" in str(entry["headers"]) for entry in other.requests("web"))
    finally:
        other.close()


def test_a_redirect_from_tls_to_plain_text_is_refused(fake, authority, store_daemon):
    secure = Stores(tls=authority)
    try:
        placed = one(secure, "http")
        one(fake, "http")
        secure.fault({"redirect": fake.url("web") + "/models/m/model.safetensors"}, {"listener": "web", "path": r"model\.safetensors"}, times=0)
        daemon = store_daemon(http={"ca_file": str(authority / "ca.pem"), "max_tries": 2})
        outcome = load(daemon, placed)
        assert outcome.failed and not fake.requests("web"), outcome
    finally:
        secure.close()


def test_the_log_at_start_says_which_source_won(fake, watched, tmp_path):
    path, secret = service_account(fake, tmp_path)
    daemon = watched(secret, "hf_secret_token", gcs={**GOOGLE, "credentials_file": str(path)}, environment={"HF_TOKEN": "hf_secret_token"})
    assert soon(lambda: "AWS_ACCESS_KEY_ID" in daemon.log() or "environment" in daemon.log()), daemon.log()
    assert daemon.logged(os.path.basename(path)), daemon.log()


def test_the_dump_of_the_configuration_shows_no_secret(fake, watched):
    daemon = watched(environment={"HF_TOKEN": "hf_secret_token"})
    status = daemon.cli.ok("status", "--json")
    assert SECRET not in status.out and "hf_secret_token" not in status.out


# --- whose environment counts ---


@pytest.mark.parametrize("name, reference", [("AWS_ACCESS_KEY_ID", "s3://bucket/m"), ("GOOGLE_APPLICATION_CREDENTIALS", "gs://bucket/m")])
def test_credentials_that_only_the_client_has_are_told_from_those_of_the_daemon(store_daemon, monkeypatch, name, reference):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    daemon = store_daemon(environment={"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}, gcs=GOOGLE, s3={})
    cli = daemon.cli
    words = f"the daemon (pid {daemon.process.pid}, user {os.geteuid()})"
    before = cli.run("inspect", reference)
    assert before.status == "PERMISSION_DENIED" and words in before.err and "restart it, or use --standalone" in before.err, before
    assert "your environment" not in before.err
    cli.environment = {**cli.environment, name: "/mine"}
    assert f"{name} is set in your environment, which the daemon does not see" in cli.run("inspect", reference).err
    tc = pytest.importorskip("tensorcast_client")
    monkeypatch.setenv(name, "/mine")
    with tc.connect(daemon.socket) as client, pytest.raises(PermissionError, match=f"{name} is set in your environment"):
        client.artifact(reference).tensor_names
