"""Proxies, names, certificates, addresses and servers that say nothing: cases 6 to 8, 20 and 49 of the list of faults of
object stores."""
import os
import signal
import socket

import pytest

from stage import Tensorcast, free_port
from store_scene import load, one
from stores_fixture import Proxy, Stores, certificates
from test_store_faults import refused

UNREACHABLE = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


# --- 6 and 7: no way there ---


@pytest.mark.parametrize("store", ["gcs", "s3", "hf"])
def test_a_refused_connection_is_an_error_that_names_the_host(fake, store_daemon, store):
    endpoint = f"http://127.0.0.1:{free_port()}"
    daemon = store_daemon(http={"max_tries": 2}, **{store: {"endpoint": endpoint}})
    outcome = daemon.cli.run("load", {"gcs": "gs://b/m", "s3": "s3://b/m", "hf": "hf://org/m"}[store])
    assert refused(outcome, *UNREACHABLE) and "127.0.0.1" in outcome.err, outcome


def test_a_host_whose_first_address_refuses_is_reached_at_another(fake, store_daemon):
    """localhost is ::1 and 127.0.0.1; only the second one listens."""
    placed = one(fake, "http")
    placed.reference = placed.reference.replace("127.0.0.1", "localhost")
    assert placed.is_delivered(load(store_daemon(), placed))


@pytest.mark.parametrize("store", ["gcs", "s3", "hf", "https"])
def test_a_name_that_does_not_resolve_is_an_error_that_says_so(fake, store_daemon, store):
    endpoint = "https://store.tensorcast.invalid"
    sources = {} if store == "https" else {store: {"endpoint": endpoint, "addressing": "path"} if store == "s3" else {"endpoint": endpoint}}
    reference = {"gcs": "gs://b/m", "s3": "s3://b/m", "hf": "hf://org/m", "https": endpoint + "/m"}[store]
    outcome = store_daemon(http={"max_tries": 2}, **sources).cli.run("load", reference)
    assert refused(outcome, *UNREACHABLE) and "tensorcast.invalid" in outcome.err, outcome
    assert "resolve" in outcome.err.lower() or "name" in outcome.err.lower(), outcome


def test_ipv6_literals_are_hosts(store_daemon, fake):
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        six = Stores(host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 loopback: {error}")
    try:
        six.world.aws.update(fake.world.aws)
        daemon = store_daemon(gcs={"endpoint": six.url("gcs")}, s3={"endpoint": six.url("s3")}, hf={"endpoint": six.url("hub")})
        for name in ("gs", "s3", "hf", "http"):
            placed = one(six, name)
            assert placed.is_delivered(load(daemon, placed)), name
    finally:
        six.close()


def test_plain_http_to_other_hosts_needs_permission(fake, store_daemon):
    daemon = store_daemon(http={"allow_plain": False})
    outcome = daemon.cli.run("load", "http://192.0.2.1/m")
    assert refused(outcome, "PERMISSION_DENIED") and "allow_plain" in outcome.err, outcome
    placed = one(fake, "http")
    assert placed.is_delivered(load(daemon, placed))


# --- 8: TLS ---


def secure_sources(fake):
    return {"gcs": {"endpoint": fake.url("gcs")}, "s3": {"endpoint": fake.url("s3")}, "hf": {"endpoint": fake.url("hub")}}


def test_every_store_over_tls_with_a_private_authority(secure_fake, fake, authority, store_daemon, scheme):
    secure_fake.world.aws.update(fake.world.aws)
    placed = one(secure_fake, scheme)
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem")}, **secure_sources(secure_fake))
    assert placed.is_delivered(load(daemon, placed))


@pytest.mark.parametrize("how", ["environment", "profile"])
def test_buckets_trust_the_authority_that_the_aws_settings_name(secure_fake, fake, authority, store_daemon, tmp_path, how):
    """What conda, nix and others set for every program does not come first."""
    secure_fake.world.aws.update(fake.world.aws)
    placed = one(secure_fake, "s3")
    certificates.make(tmp_path / "other")
    (tmp_path / "aws").write_text(f"[profile own]\nca_bundle = {authority / 'ca.pem'}\n[default]\nca_bundle = /no/such/file\n")
    named = {"AWS_CA_BUNDLE": str(authority / "ca.pem")} if how == "environment" else {"AWS_PROFILE": "own"}
    environment = {"AWS_CONFIG_FILE": str(tmp_path / "aws"), "SSL_CERT_FILE": str(tmp_path / "other/ca.pem"), **named}
    daemon = store_daemon(environment=environment, s3={"endpoint": secure_fake.url("s3")})
    assert placed.is_delivered(load(daemon, placed))


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_the_authority_is_found_under_the_names_users_know(secure_fake, authority, store_daemon, name):
    placed = one(secure_fake, "http")
    assert placed.is_delivered(load(store_daemon(environment={name: str(authority / "ca.pem")}), placed))


def test_an_unknown_authority_is_refused_at_once_and_the_file_used_is_named(secure_fake, store_daemon):
    placed = one(secure_fake, "http")
    outcome = load(store_daemon(), placed)
    assert outcome.failed and "certificate" in outcome.err.lower() and "ca" in outcome.err.lower(), outcome
    assert secure_fake.listeners["web"].serial <= 2, "no retries of a certificate that is not trusted"


@pytest.mark.parametrize("how", ["name", "expired"])
def test_certificates_for_other_names_or_other_times_are_refused(fake, store_daemon, tmp_path, how):
    if how == "name":
        certificates.make(tmp_path / "ca", names="DNS:elsewhere.example")
    else:
        certificates.make(tmp_path / "ca", days=0)
    wrong = Stores(tls=tmp_path / "ca")
    try:
        placed = one(wrong, "http")
        outcome = load(store_daemon(http={"ca_file": str(tmp_path / "ca" / "ca.pem")}), placed)
        assert outcome.failed and "certificate" in outcome.err.lower(), outcome
        assert not wrong.requests("web")
    finally:
        wrong.close()


def test_a_truncated_tls_stream_is_not_taken_for_the_end(secure_fake, authority, store_daemon):
    placed = one(secure_fake, "http")
    rule = placed.fault({"truncate": 300_000, "no_length": True}, match={"covers": 2_500_000})
    assert placed.is_delivered(load(store_daemon(http={"ca_file": str(authority / "ca.pem")}), placed)) and rule.acted == 1


# --- 49: proxies ---


@pytest.fixture
def proxy():
    made = Proxy()
    yield made
    made.close()


def test_https_goes_through_the_proxy_of_the_environment(secure_fake, authority, store_daemon, proxy):
    placed = one(secure_fake, "http")
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem")}, environment={"https_proxy": proxy.url})
    assert placed.is_delivered(load(daemon, placed))
    assert proxy.connects > 0 and set(proxy.authorities) == {placed.reference.split("/")[2]}


@pytest.mark.parametrize("no_proxy", ["", "127.0.0.1,localhost"])
def test_plain_http_goes_through_the_proxy_too_unless_no_proxy_names_the_host(fake, store_daemon, proxy, no_proxy):
    placed = one(fake, "http")
    assert placed.is_delivered(load(store_daemon(environment={"http_proxy": proxy.url, "no_proxy": no_proxy}), placed))
    assert (proxy.forwards + proxy.connects > 0) == (no_proxy == "")


def test_a_password_for_the_proxy_is_sent_to_it_alone_and_never_shown(secure_fake, authority, store_daemon, proxy):
    proxy.user = "name:proxy-password-word"
    placed = one(secure_fake, "http")
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem")},
                          environment={"https_proxy": proxy.url.replace("//", "//name:proxy-password-word@")})
    assert placed.is_delivered(load(daemon, placed))
    assert not any("proxy-authorization" in entry["headers"] for entry in secure_fake.requests("web"))
    assert "proxy-password-word" not in daemon.whole_log()


def test_a_proxy_that_wants_a_password_is_named(secure_fake, authority, store_daemon, proxy):
    proxy.user = "name:proxy-password-word"
    placed = one(secure_fake, "http")
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem")}, environment={"https_proxy": proxy.url})
    outcome = load(daemon, placed)
    assert refused(outcome, "PERMISSION_DENIED") and "proxy" in outcome.err and f":{proxy.port}" in outcome.err, outcome
    assert proxy.refused == 1, "no retries, and no other name is tried"


def test_a_proxy_that_hangs_up_is_asked_again(secure_fake, authority, store_daemon, proxy):
    proxy.die_after_bytes, proxy.deaths = 500_000, 3
    placed = one(secure_fake, "http")
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem")}, environment={"https_proxy": proxy.url})
    assert placed.is_delivered(load(daemon, placed)) and proxy.deaths < 3


def test_a_proxy_that_is_not_there_is_an_error(secure_fake, authority, store_daemon):
    placed = one(secure_fake, "http")
    daemon = store_daemon(http={"ca_file": str(authority / "ca.pem"), "max_tries": 2},
                          environment={"https_proxy": f"http://127.0.0.1:{free_port()}"})
    outcome = load(daemon, placed)
    assert refused(outcome, *UNREACHABLE), outcome
    assert not secure_fake.requests("web")


# --- 20: a server that takes connections and never answers ---


@pytest.fixture
def silent():
    """(URL, wait): wait() returns when a client has connected; wait(0) takes the one that has, if any."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        kept = []

        def wait(seconds=60):
            listener.settimeout(seconds)
            try:
                kept.append(listener.accept())
            except BlockingIOError:
                return False
            return True

        yield f"http://127.0.0.1:{listener.getsockname()[1]}/m", wait


COMMANDS = {"load": [], "inspect": [], "explain": [], "verify": [], "plan": ["--compat"], "manifest": ["--out", "/dev/null"],
            "fetch": ["--sidecars", f"/tmp/tc8-never-made-{os.getpid()}"]}  # of this worker alone


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_daemon_a_silent_server_holds_up_no_caller(silent, bare, command):
    url, connected = silent
    alone = Tensorcast("/tmp/tc8-no-daemon-here.sock")
    late = alone.run(command, url, *COMMANDS[command], "--standalone", "--timeout", "300ms", timeout=60)
    assert (late.code, late.status) == (124, "DEADLINE_EXCEEDED") and "--timeout" in late.err, late
    while connected(0):
        pass
    waiting = alone.spawn(command, url, *COMMANDS[command], "--standalone")
    connected()
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)  # the first byte has 30 s, and there are several tries
    assert (waiting.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("where", [{"path": "/revision/"}, {"path": "/tree/"}, {"method": "HEAD"}])
def test_a_hub_that_falls_silent_holds_up_no_caller(fake, bare, where):
    fake.fault({"delay": 30}, {"listener": "hub", **where}, times=0)
    alone = Tensorcast("/tmp/tc8-no-daemon-here.sock")
    reference, environment = one(fake, "hf").reference, {**os.environ, "HF_ENDPOINT": fake.url("hub")}
    for timeout in ("1s", "9s"):  # a busy machine may need more to get as far as that
        late = alone.run("inspect", reference, "--standalone", "--timeout", timeout, timeout=60, env=environment)
        assert (late.code, late.status) == (124, "DEADLINE_EXCEEDED"), late
        if fake.requests("hub")[-1]["faults"]:
            break
    assert fake.requests("hub")[-1]["faults"] == ["delay"]


@pytest.mark.parametrize("command", ["load", "inspect", "fetch"])
def test_a_daemon_stops_although_a_server_is_silent(silent, store_daemon, command):
    url, connected = silent
    daemon = store_daemon(server={"shutdown_grace": "200ms"})
    waiting = daemon.cli.spawn(command, url, *COMMANDS[command])
    connected()
    assert daemon.stop(60) == 0, daemon.log()
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 3, err


def test_clients_that_gave_up_on_a_silent_server_are_in_no_clients_way(silent, fake, store_daemon):
    url, _ = silent
    placed, daemon = one(fake, "http"), store_daemon()
    waiting = [daemon.cli.spawn(command, url + path, *COMMANDS[command], "--timeout", "1s")
               for path in ("", "/other") for command in ("inspect", "load", "explain", "verify", "fetch") for _ in range(4)]
    assert [client.wait(60) for client in waiting] == [124] * len(waiting)
    assert placed.is_delivered(load(daemon, placed, "--timeout", "60s"))
