"""What goes wrong while a daemon's queue uploads a segment: nothing is lost, nothing is deleted before the store has it whole, what
is wrong is said, and it goes on when that is put right. tests/stores does the same to real servers."""
import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob
from stage import Tensorcast, fill_disk, soon
from store_scene import SECRET, settings
import checksums  # noqa: E402, I001 -- stores_fixture makes it importable
from test_activation_uploads import bucket, files, manifest, uploads
from test_store_credentials import issuing, no_keys, service_account  # noqa: F401

LISTENERS = {"gs": "gcs", "s3": "s3"}
SIZE = (8 << 20) + 4321  # two parts
KEY = "acts/host_003/segment_000001.safetensors"


@pytest.fixture(params=["gs", "s3"])
def scheme(request):
    return request.param


@pytest.fixture
def scene(start, models, fake, bare, aws_keys, scheme):
    """make(environment=...) starts a daemon; fill() appends a sample that becomes one segment, which goes when it is uploaded."""
    acts, listener = models / "acts", LISTENERS[scheme]
    scene = SimpleNamespace(acts=acts, listener=listener, fake=fake, secrets=[SECRET, "upload_id=", "uploadId=", "Signature="])
    fake.world.bucket(listener, "b")

    def make(environment=(), at=fake, sections=None, **more):
        sources = {"disk": {"trusted_roots": [str(models)]}, **settings(at, http={"max_tries": 1, **(sections or {}).pop("http", {})},
                                                                          **(sections or {}))}
        scene.daemon = start(running=False, sources=sources, activations={"roots": [str(models)]}, **more).start(environment=environment)
        return scene.daemon

    def fill(i=1):
        client = tc.connect(scene.daemon.socket)
        with client.activation_store(f"disk:{acts}", host=3, upload=f"{scheme}://b/acts", keep_local=False, segment_bytes="1GiB") as store:
            if i:
                store.append(i, {0: np.random.default_rng(i).integers(0, 255, SIZE, np.uint8)})
        scene.whole = scene.whole or (acts / KEY.removeprefix("acts/")).read_bytes()

    scene.make, scene.fill, scene.whole = make, fill, b""
    scene.large = {"listener": listener, "method": "PUT", "path": r"upload_id=|partNumber="}
    yield scene
    log = scene.daemon.whole_log()
    assert not [secret for secret in scene.secrets if secret in log]


def kept(scene):
    """It is here, and what there is says the same."""
    listed = {s["file"]: s.get("local", True) for s in manifest(scene.acts)}
    return (scene.acts / KEY.removeprefix("acts/")).read_bytes() == scene.whole and listed["segment_000001.safetensors"]


def arrived(scene, at=None):
    """It is there, whole, and its manifest; nothing is left here or begun there."""
    at = at or scene.fake
    done = {"pending": 0, "done": 1, "failed": 0, "error": ""}
    assert soon(lambda: uploads(scene.daemon, scene.acts) == done and not list(scene.acts.glob("*/*.safetensors"))), \
        uploads(scene.daemon, scene.acts)
    there = bucket(at, scene.listener)
    assert there[KEY] == scene.whole and {**files(scene.acts), KEY: scene.whole}.keys() == there.keys()
    assert not at.world.uploads


def has_failed(scene, *words, failed=1):
    told = lambda: uploads(scene.daemon, scene.acts)  # noqa: E731
    assert soon(lambda: told()["failed"] == failed and not told()["pending"]), told()
    assert all(word in told()["error"] for word in (f"://b/{KEY}", *words)), told()
    assert kept(scene)


def test_every_part_is_cut_off_once_and_the_last_answers_are_lost(scene):
    scene.make()
    cut = scene.fake.fault({"reset": True}, {**scene.large, **({"path": "partNumber=1&"} if scene.listener == "s3" else {})}, times=1)
    late = scene.fake.fault({"truncate": 0, "reset": True}, {**scene.large, **({"path": "partNumber=2&"} if scene.listener == "s3" else {
        "header": {"content-range": r"bytes 8388608-"}})})
    lost = scene.fake.fault({"truncate": 0, "reset": True}, {"listener": scene.listener, "method": "POST", "path": r"uploadId=|uploadType=multipart"})
    scene.fill()
    arrived(scene)
    assert cut.acted == late.acted == lost.acted == 1


def test_a_bucket_that_vanishes_in_the_middle_is_said_and_gone_on_with_when_it_is_back(scene):
    scene.make()
    world = scene.fake.world
    buckets = {"gcs": world.gcs, "s3": world.s3}[scene.listener]
    gone = scene.fake.fault({"call": lambda: buckets.pop("b", None)}, scene.large, nth=2)
    scene.fill()
    has_failed(scene, "404", "make the bucket")
    assert gone.acted == 1
    world.bucket(scene.listener, "b")
    world.uploads.clear()  # what was begun in a bucket goes with it
    scene.fill(0)
    arrived(scene)


def test_a_session_that_the_store_has_forgotten_is_begun_anew(scene):
    scene.make()
    forgotten = scene.fake.fault({"call": scene.fake.world.uploads.clear}, scene.large, nth=2)
    scene.fill()
    arrived(scene)
    assert forgotten.acted == 1


def test_other_bytes_in_the_store_are_found_by_its_checksum_and_removed_and_the_file_stays(scene, monkeypatch):
    scene.make()
    made = scene.fake.world.bucket(scene.listener, "b")
    put = made.put

    def put_other(key, data, **about):
        data = bytes([data[0] ^ 1]) + data[1:]
        sums = {kind: checksums.text(checksums.KINDS[kind](data)) for kind in about.get("declared", {})}
        return put(key, data, **{**about, **({"etag": None, "declared": sums} if "etag" in about else {})})

    monkeypatch.setattr(made, "put", lambda key, data, **about: (put_other if key == KEY else put)(key, data, **about))
    scene.fill()
    has_failed(scene, "checksum")
    assert KEY not in bucket(scene.fake, scene.listener)
    monkeypatch.undo()
    scene.fill(0)
    arrived(scene)


@pytest.mark.parametrize("scheme", ["gs"], indirect=True)
def test_a_token_that_ends_in_the_middle_is_renewed_and_one_that_is_refused_waits_for_an_operator(scene, tmp_path):
    key, secret = service_account(scene.fake, tmp_path)
    scene.secrets += [secret, "ya29.fake-secret"]
    scene.fake.gcs.needs_token = True
    scene.make({"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, sections={"gcs": {"anonymous": False}})
    ended = scene.fake.fault({"expire_tokens": True}, scene.large, nth=2)
    refused = scene.fake.fault({"status": 401}, scene.large, nth=3, times=0)
    scene.fill()
    has_failed(scene, "refuses the credentials (401", "renew the credentials")
    assert ended.acted == 1 and refused.acted
    scene.fake.faults.clear()
    arrived(scene)  # by itself, and what was there is not sent again
    assert sum("bytes 0-" in entry["headers"].get("content-range", "") for entry in scene.fake.requests("gcs", method="PUT")) == 1


@pytest.mark.parametrize("scheme", ["s3"], indirect=True)
@pytest.mark.parametrize("issuing", ["instance"], indirect=True)
def test_keys_that_end_in_the_middle_are_renewed_by_who_issues_them(scene, issuing):
    scene.secrets += ["issuedsecret", "issuedsession"]
    scene.make(issuing)
    ended = scene.fake.fault({"expire_tokens": True}, scene.large, nth=2)
    scene.fill()
    arrived(scene)
    assert ended.acted == 1 and scene.fake.world.issued == 2


@pytest.mark.parametrize("scheme", ["s3"], indirect=True)
def test_keys_that_have_ended_and_are_not_renewed_are_reported_and_the_file_waits(scene):
    access, keys = scene.fake.world.issue_keys()
    scene.secrets += [keys["secret"], keys["session"]]
    scene.make({"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": keys["secret"], "AWS_SESSION_TOKEN": keys["session"]})
    ended = scene.fake.fault({"call": lambda: keys.update(expires=0)}, {"listener": "s3", "method": "POST", "path": "uploadId="})
    scene.fill()
    has_failed(scene, "renew the credentials")
    keys["expires"] = scene.fake.world.now() + 3600
    arrived(scene)
    assert ended.acted == 1 and len([e for e in scene.fake.requests("s3", method="PUT") if "partNumber=" in e["query"]]) == 2


def test_a_server_whose_authority_is_not_known_gets_nothing_and_everything_when_it_is(scene, secure_fake, authority, monkeypatch):
    secure_fake.world.bucket(scene.listener, "b")
    secure_fake.world.aws.update(scene.fake.world.aws)
    daemon = scene.make(at=secure_fake)
    scene.fill()
    assert soon(lambda: "ertificate" in uploads(daemon, scene.acts)["error"]), uploads(daemon, scene.acts)
    assert kept(scene) and not bucket(secure_fake, scene.listener)
    daemon.stop()
    daemon.start(environment={"SSL_CERT_FILE": str(authority / "ca.pem")})
    arrived(scene, secure_fake)


def test_a_state_disk_that_fills_keeps_what_is_sealed_until_there_is_room(scene, small_disk):
    """What waits is on a disk without room for another line: nothing is lost, and what is queued goes on."""
    disk = small_disk(128 << 10)
    daemon = scene.make(server={"state_dir": str(disk / "state")})
    scene.fake.fault({"status": 503}, {"listener": scene.listener}, times=0)
    scene.fill()
    filler = fill_disk(disk)
    scene.fake.faults.clear()
    told = lambda: uploads(daemon, scene.acts)  # noqa: E731
    assert soon(lambda: "ENOSPC" in told()["error"] or not told()["pending"]), told()
    if told()["pending"]:
        assert kept(scene)
    filler.unlink()
    arrived(scene)


@pytest.fixture
def s3(fake, bare, aws_keys, monkeypatch):
    for name, value in {"AWS_ENDPOINT_URL": fake.url("s3"), "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    fake.world.bucket("s3", "b")
    return fake


def noise(path, size):
    path.write_bytes(data := blob(size, size).tobytes())
    return data


@pytest.mark.parametrize("whole_checksums", [True, False])
@pytest.mark.parametrize("size", [(64 << 20), (64 << 20) + 1, (72 << 20) + 7])  # groups of eight parts, full and not
def test_parts_that_are_read_and_summed_together_arrive_each_in_its_place(s3, tmp_path, size, whole_checksums):
    s3.s3.whole_checksums = whole_checksums
    data, command = noise(tmp_path / "file", size), Tensorcast("/nowhere")
    s3.fault({"status": 403}, {"listener": "s3", "method": "PUT", "path": "partNumber=6&"}, times=2)
    assert command.run("put", tmp_path / "file", "s3://b/file").status == "PERMISSION_DENIED"
    assert not bucket(s3, "s3")
    told = command.json("put", tmp_path / "file", "s3://b/file", "--resume")
    sent, resumed = told["bytes"]["sent"], told["bytes"]["resumed"]
    assert told["files"][0]["proof"] == ("crc32c" if whole_checksums else "etag") and sent >= 8 << 20
    assert sent + resumed >= size  # a part that is late is sent again
    assert bucket(s3, "s3")["file"] == data and not s3.world.uploads


def parts_sent(s3):
    return [e["headers"] for e in s3.requests("s3", method="PUT") if "partNumber=" in e["query"]]


@pytest.mark.parametrize("whole_checksums", [True, "refused", "of parts", False])
def test_parts_carry_md5_exactly_where_the_store_does_not_compare_the_crc_of_the_whole(s3, tmp_path, whole_checksums):
    s3.s3.whole_checksums = whole_checksums
    data, command = noise(tmp_path / "file", SIZE), Tensorcast("/nowhere")
    told = command.json("put", tmp_path / "file", "s3://b/file")["files"][0]
    assert told["proof"] == ("crc32c" if whole_checksums is True else "etag") and bucket(s3, "s3")["file"] == data
    carried = {("content-md5" in headers, "x-amz-checksum-crc32c" in headers) for headers in parts_sent(s3)}
    assert carried == ({(False, True)} if whole_checksums is True else {(True, False)}) and not s3.world.uploads
    assert command.json("put", tmp_path / "file", "s3://b/file")["files"][0]["was_there"]


def test_parts_that_the_store_has_otherwise_are_sent_again_and_a_store_that_gives_no_crc_in_the_end_is_read_back(s3, tmp_path):
    data, command = noise(tmp_path / "file", 2 * SIZE), Tensorcast("/nowhere")
    s3.fault({"status": 403}, {"listener": "s3", "method": "POST", "path": "uploadId="}, times=2)
    assert command.run("put", tmp_path / "file", "s3://b/file").status == "PERMISSION_DENIED"
    (begun,) = s3.world.uploads.values()
    begun["parts"][2], begun["sums"][2] = bytes(8 << 20), "AAAAAA=="  # of other bytes
    s3.s3.checksums = False
    told = command.json("put", tmp_path / "file", "s3://b/file", "--resume")
    assert told["bytes"]["sent"] == 8 << 20 and told["files"][0]["proof"] == "read back" and bucket(s3, "s3")["file"] == data


def test_a_body_that_is_not_what_its_crc_says_is_sent_again(s3, tmp_path, monkeypatch):
    data, command = noise(tmp_path / "file", SIZE), Tensorcast("/nowhere")
    declared, left = s3.s3._declared, [True]
    monkeypatch.setattr(s3.s3, "_declared", lambda request, body, trailers: declared(
        request, b"x" + body[1:] if "partNumber" in request.parameters and left and left.pop() else body, trailers))
    assert command.json("put", tmp_path / "file", "s3://b/file")["files"][0]["proof"] == "crc32c"
    assert not left and len(parts_sent(s3)) == 3 and bucket(s3, "s3")["file"] == data


@pytest.mark.parametrize("change", ["cut off", "written over"])
@pytest.mark.parametrize("whole_checksums", [True, False])
def test_a_file_that_changes_between_its_sum_and_its_sending_is_said_and_no_object_is_made(s3, tmp_path, monkeypatch, whole_checksums, change):
    path, command, declared = tmp_path / "file", Tensorcast("/nowhere"), s3.s3._declared
    s3.s3.whole_checksums = whole_checksums
    noise(path, 3 * SIZE)

    def change_it(request, body, trailers):
        if "partNumber" in request.parameters:
            if change == "cut off":
                os.truncate(path, 1 << 20)
            else:
                with open(path, "r+b") as file:
                    file.write(bytes(3 * SIZE))
        return declared(request, body, trailers)

    monkeypatch.setattr(s3.s3, "_declared", change_it)
    for number in (1, 3):  # which were summed when they are sent again
        s3.fault({"status": 503, "headers": {"Retry-After": "1"}}, {"listener": "s3", "method": "PUT", "path": f"partNumber={number}&"})
    failed = command.run("put", path, "s3://b/file")
    assert failed.status == "FAILED_PRECONDITION" and "has changed meanwhile" in failed.err, failed
    assert not bucket(s3, "s3") and not s3.world.uploads
