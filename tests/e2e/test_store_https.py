"""https:// and http:// as a source: what is asked, what is pinned, what is refused. The fake server plays the web."""
import hashlib
import json

import pytest

import checkpoints
from stage import MiB

SECRET = "very-secret-signature"


@pytest.fixture
def weights(fake, tmp_path):
    """Two parts with an index below /m, one file below /s; their tensors."""
    parts = checkpoints.write(tmp_path / "m", {"a": checkpoints.blob(1, 3 * MiB)}, {"b": checkpoints.blob(2, MiB)})
    single = checkpoints.write(tmp_path / "s", {"c": checkpoints.blob(3, 2 * MiB)})
    fake.world.preload("web", "m", tmp_path / "m")
    fake.world.preload("web", "s", tmp_path / "s")
    return {**parts, **single}


def load(cli, reference):
    return cli.json("load", reference, "--digest")


def same(report, weights, *names):
    assert checkpoints.digests(report) == {name: checkpoints.digest(weights[name]) for name in names}


def test_a_folder_with_an_index_and_a_single_file_arrive(either, fake, weights):
    same(load(either, f"{fake.url('web')}/m"), weights, "a", "b")
    same(load(either, f"{fake.url('web')}/s"), weights, "c")
    same(load(either, f"{fake.url('web')}/s/model.safetensors"), weights, "c")


def test_inspect_explain_and_verify_work(either, fake, weights):
    reference = f"{fake.url('web')}/m"
    assert {t["name"] for t in either.json("inspect", reference)["tensors"]} == {"a", "b"}
    assert "model-00002-of-00002.safetensors" in either.ok("explain", reference).out
    either.ok("verify", reference)


def test_headers_cost_one_request_a_file_and_ranges_are_pinned(either, fake, weights):
    either.json("inspect", f"{fake.url('web')}/m")
    asked = fake.requests("web")
    assert [entry["path"] for entry in asked].count("/m/model.safetensors.index.json") == 1
    assert len(asked) == 5, asked  # and whether there is a topology or a manifest
    fake.journal.clear()
    load(either, f"{fake.url('web')}/m")
    data = [entry for entry in fake.requests("web") if not entry["range"].startswith("bytes=0-")]
    assert data and all(entry["headers"].get("if-match", "").startswith('"') for entry in data)


def test_a_second_resolve_asks_whether_files_changed_and_no_more(daemon, fake, weights):
    reference = f"{fake.url('web')}/m"
    daemon.cli.json("inspect", reference)
    fake.journal.clear()
    daemon.cli.json("inspect", reference)
    asked = fake.requests("web")
    assert [entry["status"] for entry in asked] == [404] + [304] * 3 + [404], asked  # still no topology and no manifest


def test_after_a_restart_no_header_is_parsed_again(start, fake, weights):
    daemon = start()
    reference = f"{fake.url('web')}/m"
    daemon.cli.json("inspect", reference)
    daemon.stop()
    daemon.start()
    fake.journal.clear()
    stored = [path.stat().st_ino for path in sorted((daemon.state / "headers").rglob("*"))]
    daemon.cli.json("inspect", reference)
    assert len(fake.requests("web")) == 5
    assert stored and stored == [path.stat().st_ino for path in sorted((daemon.state / "headers").rglob("*"))]


def test_a_replaced_file_is_another_artifact(daemon, fake, weights, tmp_path):
    reference = f"{fake.url('web')}/s"
    first = load(daemon.cli, reference)
    fresh = checkpoints.write(tmp_path / "t", {"c": checkpoints.blob(9, 2 * MiB)})
    fake.world.preload("web", "s", tmp_path / "t")
    second = load(daemon.cli, reference)
    same(second, fresh, "c")
    assert checkpoints.digests(first) != checkpoints.digests(second)


@pytest.mark.parametrize("etag", ["weak", "none"])
def test_without_a_strong_etag_size_and_date_are_the_pin(either, fake, weights, etag):
    fake.web.etag = etag
    same(load(either, f"{fake.url('web')}/s"), weights, "c")
    assert not any("if-match" in entry["headers"] for entry in fake.requests("web"))


def test_a_checksum_in_the_reference_of_another_file_or_form_is_refused(either, fake, weights, tmp_path):
    url = f"{fake.url('web')}/s/model.safetensors"
    digest = hashlib.sha256((tmp_path / "s" / "model.safetensors").read_bytes()).hexdigest()
    same(load(either, f"{url}#sha256={digest}"), weights, "c")
    for wrong in (f"{url}#sha256={digest[:-1]}", f"{url}#md5=00", f"{fake.url('web')}/s#sha256={digest}"):
        done = either.run("load", wrong)
        assert (done.code, done.status) == (1, "INVALID_ARGUMENT"), done


def test_a_query_goes_along_and_is_shown_nowhere(daemon, fake, weights):
    reference = f"{fake.url('web')}/s/model.safetensors?X-Amz-Signature={SECRET}"
    report = load(daemon.cli, reference)
    same(report, weights, "c")
    assert all(SECRET in entry["query"] for entry in fake.requests("web"))
    fake.fault({"status": 403}, {"listener": "web"}, times=0)
    done = daemon.cli.run("load", reference)
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    assert SECRET not in done.err + daemon.whole_log() + json.dumps(daemon.status())


def test_redirects_are_followed_and_remembered(either, fake, weights):
    fake.fault({"redirect": f"{fake.url('web', 'localhost')}/s/model.safetensors", "status": 302},
               {"listener": "web", "path": "^/moved/"}, times=0)
    same(load(either, f"{fake.url('web')}/moved/model.safetensors"), weights, "c")
    assert len([entry for entry in fake.requests("web") if entry["path"].startswith("/moved/")]) == 1


def test_passwords_in_a_url_are_refused_and_not_repeated(either):
    done = either.run("load", f"https://user:{SECRET}@localhost/m")
    assert (done.code, done.status) == (1, "INVALID_ARGUMENT"), done
    assert SECRET not in done.err


def test_sources_can_be_switched_off_or_confined(start, fake, weights):
    off = start(sources={"https": {"enabled": False}})
    done = off.cli.run("load", f"{fake.url('web')}/m")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    confined = start(sources={"trusted_urls": ["gs://elsewhere", f"{fake.url('web')}/m"]})
    same(load(confined.cli, f"{fake.url('web')}/m"), weights, "a", "b")
    for path in ("s", "mm", "m/../s"):
        done = confined.cli.run("load", f"{fake.url('web')}/{path}")
        assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    assert fake.requests("web") and all(entry["path"].startswith("/m/") for entry in fake.requests("web"))


def test_files_without_bytes_are_files(either, fake, weights, tmp_path):
    """Ranges of them are answered 416."""
    fake.world.put("web", "m/merges.txt", b"")
    done = either.run("fetch", f"{fake.url('web')}/m", "--sidecars", tmp_path / "out")
    assert done.code == 0 and (tmp_path / "out" / "merges.txt").read_bytes() == b"", done
    fake.world.put("web", "empty/model.safetensors", b"")
    done = either.run("load", f"{fake.url('web')}/empty")
    assert (done.code, done.status) == (1, "DATA_LOSS") and "0 bytes" in done.err, done


def test_a_server_that_forbids_what_is_not_there_is_understood(either, fake, weights):
    fake.fault({"status": 403}, {"listener": "web", "path": "index.json|manifest.json"}, times=0)
    same(load(either, f"{fake.url('web')}/s"), weights, "c")
    done = either.run("load", f"{fake.url('web')}/m")
    assert (done.code, done.status) == (1, "NOT_FOUND"), done
    fake.fault({"status": 403}, {"listener": "web"}, times=0)
    done = either.run("load", f"{fake.url('web')}/s")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done


def test_links_in_an_index_that_lead_elsewhere_are_refused(either, fake, weights):
    for path in ("../s/model.safetensors", "/etc/passwd", "http://localhost/x.safetensors", "x/../y.safetensors"):
        fake.world.put("web", "evil/model.safetensors.index.json", json.dumps({"weight_map": {"a": path}}).encode())
        fake.journal.clear()
        done = either.run("load", f"{fake.url('web')}/evil")
        assert (done.code, done.status) == (1, "DATA_LOSS"), done
        assert len(fake.requests("web")) <= 2
