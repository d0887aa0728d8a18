"""Where requests may lead: redirects and links of hostile servers, addresses in odd forms, trusted URLs, and what of a
reference is shown."""
import json
import socket

import pytest

from store_scene import load, one, place
from stores_fixture import Stores
from test_store_faults import refused

REDIRECTS = (301, 302, 303, 307, 308)
SECRET = "SECRET-WORD"


@pytest.fixture
def inside():
    """A service to which no reference may lead: on every address of this host."""
    stores = Stores(host="0.0.0.0")
    stores.world.put("web", "latest/meta-data", b'{"SecretAccessKey": "topsecret"}')
    yield stores
    stores.close()


def port_of(stores, listener="web"):
    return stores.listeners[listener].port


def own_names():
    """Names and addresses of this host that are not its loopback."""
    name = socket.gethostname()
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)}
    except OSError:
        return []
    return [name, *addresses] if not any(address.startswith("127.") for address in addresses) else []


def hosts():
    """Other spellings of addresses, each of which some program takes for this host."""
    return ["2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "127.0.0.1.", "0.0.0.0", "0",
            "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "localhost.", "127.0.0.1%2f", "u:p@127.0.0.1", "127.0.0.1:80@localhost",
            *own_names()]


def forbidden(outcome):
    return outcome.failed and outcome.status in ("PERMISSION_DENIED", "FAILED_PRECONDITION", "INVALID_ARGUMENT")


# --- plain http leads to this host alone ---


def test_no_spelling_of_an_address_is_loaded_from(fake, inside, store_daemon):
    daemon = store_daemon(http={"allow_plain": False})
    for host in hosts():
        outcome = daemon.cli.run("load", f"http://{host}:{port_of(inside)}/latest/meta-data")
        assert forbidden(outcome), (host, outcome)
    assert not inside.requests()


@pytest.mark.parametrize("status", REDIRECTS)
def test_no_redirect_leads_to_another_spelling_of_an_address(fake, inside, store_daemon, status):
    daemon = store_daemon(http={"allow_plain": False})
    placed = one(fake, "http")
    for host in hosts():
        fake.faults.clear()
        fake.fault({"redirect": f"http://{host}:{port_of(inside)}/latest/meta-data", "status": status}, {"listener": "web"}, times=0)
        assert forbidden(load(daemon, placed)), host
    assert not inside.requests()


@pytest.mark.parametrize("file", ["manifest", r"index\.json", r"model\.safetensors$", r"model-\d+.*\.safetensors", r"config\.json"])
def test_no_file_of_an_artifact_is_led_elsewhere(fake, inside, store_daemon, tmp_path, file):
    import numpy
    daemon = store_daemon(http={"allow_plain": False})
    if file.startswith("model-") or "index" in file:
        placed = place(fake, "http", {"a": numpy.ones(9)}, {"b": numpy.ones(9)})
    else:
        placed = one(fake, "http")
    for target in (f"http://2130706433:{port_of(inside)}/latest/meta-data", "http://169.254.169.254/latest/meta-data",
                   *(f"http://{name}:{port_of(inside)}/latest/meta-data" for name in own_names())):
        fake.faults.clear()
        rule = fake.fault({"redirect": target, "status": 302}, {"listener": "web", "path": file}, times=0)
        outcome = load(daemon, placed)
        taken = daemon.cli.run("fetch", placed.reference, "--sidecars", tmp_path / "out")
        assert rule.acted and (forbidden(outcome) or forbidden(taken)), (outcome, taken)
        assert "topsecret" not in outcome.out + taken.out
    assert not inside.requests()
    assert not any(b"topsecret" in path.read_bytes() for path in (tmp_path / "out").glob("*"))


def test_two_hops_are_as_good_as_one(fake, inside, store_daemon):
    daemon = store_daemon(http={"allow_plain": False})
    placed = one(fake, "http")
    fake.fault({"redirect": f"http://127.1:{port_of(inside)}/latest/meta-data", "status": 302}, {"listener": "web", "path": "^/hop"}, times=0)
    fake.fault({"redirect": fake.url("web", "localhost") + "/hop", "status": 302}, {"listener": "web", "path": "safetensors"}, times=0)
    assert forbidden(load(daemon, placed))
    assert any(entry["path"] == "/hop" for entry in fake.requests("web")) and not inside.requests()


# --- link-local addresses and metadata services ---


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166", "0xa9fea9fe",
                                  "169.254.43518", "100.100.100.200"])
def test_metadata_services_are_never_asked(fake, store_daemon, host):
    """Also where plain http to others is allowed. Refused at once: connecting there would take seconds."""
    daemon = store_daemon(http={"allow_plain": True})
    for scheme in ("http", "https"):
        outcome = daemon.cli.run("load", f"{scheme}://{host}/latest/meta-data")
        assert forbidden(outcome), outcome
        placed = one(fake, "http")
        fake.fault({"redirect": f"{scheme}://{host}/latest/meta-data"}, {"listener": "web"}, times=0)
        outcome = load(daemon, placed)
        assert forbidden(outcome) and "tries" not in outcome.err.replace("(0 tries", ""), outcome
        fake.faults.clear()


@pytest.mark.parametrize("store", ["gs", "s3", "hf"])
def test_no_store_leads_to_a_metadata_service_or_to_other_hosts(fake, inside, store_daemon, store):
    """gs and s3 are followed nowhere; the hub's answers lead wherever the fence lets them."""
    daemon = store_daemon(http={"allow_plain": False, "max_tries": 1})
    placed = one(fake, store)
    for target in ("http://169.254.169.254/latest/meta-data", "https://169.254.169.254/latest/meta-data",
                   f"http://127.1:{port_of(inside)}/latest/meta-data", f"http://0.0.0.0:{port_of(inside)}/latest/meta-data",
                   *(f"http://{name}:{port_of(inside)}/latest/meta-data" for name in own_names())):
        for status in (302, 307):
            fake.faults.clear()
            rule = fake.fault({"redirect": target, "status": status}, {"listener": placed.listener}, times=0)
            outcome = load(daemon, placed)
            assert outcome.failed and rule.acted and "topsecret" not in outcome.out + outcome.err, outcome
    assert not inside.requests()


# --- trusted URLs ---


def test_redirects_of_a_trusted_server_stay_below_trusted_urls(fake, store_daemon):
    placed = one(fake, "http")
    private = place(fake, "http", {"w": placed.arrays["w"]}, name="private")
    other = Stores()
    try:
        other.world.put("web", "models/m/model.safetensors", placed.files["model.safetensors"])
        daemon = store_daemon(trusted_urls=[placed.reference, f"{fake.url('web', 'localhost')}/mirror/"])
        assert placed.is_delivered(load(daemon, placed))
        inner = private.reference + "/model.safetensors"
        for target in (inner, f"{placed.reference}/../private/model.safetensors", f"{placed.reference}/%2e%2e/private/model.safetensors",
                       f"{other.url('web')}/models/m/model.safetensors", f"{fake.url('web', 'localhost')}/models/m/model.safetensors"):
            fake.faults.clear()
            fake.fault({"redirect": target}, {"listener": "web", "path": r"models/m/model\.safetensors$"}, times=0)
            other_file = daemon.cli.run("load", placed.reference + "/model.safetensors", "--digest", "--json")
            assert refused(other_file, "PERMISSION_DENIED") and "trusted_urls" in other_file.err, (target, other_file)
        assert not other.requests() and not any("private" in entry["path"] for entry in fake.requests("web"))
        fake.faults.clear()
        fake.world.put("web", "mirror/model.safetensors", placed.files["model.safetensors"])
        fake.fault({"redirect": f"{fake.url('web', 'localhost')}/mirror/model.safetensors"},
                   {"listener": "web", "path": r"models/m/model\.safetensors$"}, times=0)
        assert placed.is_delivered(load(daemon, placed))
        assert any(entry["path"].startswith("/mirror/") for entry in fake.requests("web"))
    finally:
        other.close()


def test_the_hub_s_own_content_network_needs_no_trust(fake, store_daemon):
    placed = one(fake, "hf")
    assert placed.is_delivered(load(store_daemon(trusted_urls=["hf://org"]), placed))
    assert fake.requests("cdn")


# --- the token ---


@pytest.mark.parametrize("how", ["location", "link"])
def test_the_token_is_for_the_hub_and_not_for_what_looks_like_it(fake, store_daemon, how):
    placed = one(fake, "hf")
    other = Stores()
    try:
        hub, evil = port_of(fake, "hub"), port_of(other, "hub")
        daemon = store_daemon(environment={"HF_TOKEN": "hf_" + SECRET})
        for target in (f"http://127.0.0.1:{hub}@localhost:{evil}/x", f"//127.0.0.1:{hub}@localhost:{evil}/x", f"http://127.0.0.1:{hub}:x@localhost:{evil}/x",
                       f"//127.0.0.1@localhost:{evil}/x", f"http://127.0.0.1:{hub}\\@localhost:{evil}/x", f"//127.0.0.1:{hub}\\@localhost:{evil}/x",
                       f"/\\localhost:{evil}/x", f"///localhost:{evil}/x", f"\\\\localhost:{evil}/x", f"http:/localhost:{evil}/x",
                       f"http:localhost:{evil}/x", f"http://127.0.0.1:{hub}%40localhost:{evil}/x", f"http://127.0.0.1:{hub}#@localhost:{evil}/x",
                       f"http://localhost:{evil}/x", f"HTTP://LOCALHOST:{evil}/x"):
            fake.faults.clear()
            if how == "link":
                fake.fault({"headers": {"Link": f'<{target}>; rel="next"'}}, {"listener": "hub", "path": "/tree/"}, times=1)
            else:
                fake.fault({"redirect": target, "status": 302}, {"listener": "hub", "path": "/resolve/"}, times=0)
            load(daemon, placed)
        assert not any(SECRET in json.dumps(entry["headers"]) or entry["authorization"] for entry in other.requests())
        assert SECRET not in daemon.whole_log()
    finally:
        other.close()


# --- what is shown ---


def test_no_form_of_a_reference_shows_its_secrets(fake, store_daemon, tmp_path):
    daemon = store_daemon(logging={"level": "trace"}, http={"max_tries": 1})
    placed = one(fake, "http")
    url = placed.reference + "/model.safetensors"
    held = daemon.cli.run("load", f"{url}?{SECRET}")
    assert held.code == 0 and SECRET not in held.err, held
    shown = []
    for form in (f"{url}?{SECRET}", f"{url}?{SECRET}=", f"{url}?a=b;c={SECRET}", f"{url}?x#{SECRET}", f"http://127.0.0.1:1/x?{SECRET}",
                 f"http://u:{SECRET}@127.0.0.1:1/x", f"HTTPS://u:{SECRET}@h/x", f"https:/u:{SECRET}@h/x", f"https:u:{SECRET}@h/x",
                 f"https:///u:{SECRET}@h/x", f"https:\\\\u:{SECRET}@h/x", f"//u:{SECRET}@h/x", f"u:{SECRET}@h/x", f"ftp://u:{SECRET}@h/x",
                 f"sftp://u:{SECRET}@h/x", f"s3n://AK:{SECRET}@b/x", f"s3://AK:{SECRET}@b/x", f"s3:/AK:{SECRET}@b/x", f"gs://u:{SECRET}@b/x",
                 f"gs:u:{SECRET}@b/x", f"hf://u:{SECRET}@org/m", f"hf:/u:{SECRET}@org/m", f"hf://hf_{SECRET}@org/m", f"https://u:p/{SECRET}@h/x",
                 f"https://u:{SECRET}%40h/x", f"https://h/https://u:{SECRET}@g/x", f"gs://b/x?{SECRET}", f"s3://b/x#{SECRET}"):
        for command in ("inspect", "load", "explain", "release"):
            outcome = daemon.cli.run(command, form)
            shown.append((command, form, outcome.out + outcome.err))
    for status in (403, 302):
        fake.fault({"status": status, "redirect" if status == 302 else "body": f"http://u:{SECRET}@127.0.0.1:1/x?{SECRET}"},
                   {"listener": "web", "path": "refused"}, times=1)
        outcome = daemon.cli.run("load", f"{placed.reference}/refused.safetensors?{SECRET}")
        shown.append(("load", str(status), outcome.out + outcome.err))
    for line in (("load", f"{url}?{SECRET}", "--json"), ("inspect", f"{url}?{SECRET}", "--json"), ("explain", f"{url}?{SECRET}", "--json"),
                 ("plan", f"{url}?{SECRET}"), ("verify", f"{url}?{SECRET}"), ("verify", f"{url}?{SECRET}", "--json"),
                 ("fetch", f"{placed.reference}?{SECRET}", "--sidecars", tmp_path / "out", "--json"),
                 ("manifest", f"{url}?{SECRET}", "--out", tmp_path / "manifest.json", "--json")):
        outcome = daemon.cli.run(*line)
        shown.append((line, "", outcome.out + outcome.err))
    assert [entry for entry in shown if SECRET in entry[2]] == []
    assert [line for line in daemon.whole_log().splitlines() if SECRET in line] == []
    assert SECRET not in json.dumps(daemon.status())
