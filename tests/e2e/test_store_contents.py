"""Objects that change, vanish or arrive wrong, and listings that lie: cases 27 to 29, 38 to 40 and 42 to 45 of the list of
faults of object stores. No load mixes two versions; no wrong byte is delivered."""
import gzip
import struct

import pytest

from checkpoints import blob, digest, write
from stage import MiB, soon
from store_scene import DATA, load, noise, one, place
from stores_fixture import checksums
from test_store_faults import refused

CHANGED = {"FAILED_PRECONDITION", "ABORTED"}
MIDDLE = {"covers": 2_500_000}


def other_file(tmp_path, seed):
    """The bytes of one() with other contents."""
    write(tmp_path / "other", {"w": noise(seed)})
    return (tmp_path / "other" / DATA).read_bytes()


# --- objects that change: 27 to 29 ---


@pytest.mark.parametrize("scheme", ["gs", "s3", "http"])
def test_an_object_replaced_under_a_load_is_an_error_that_names_it(fake, store_daemon, scheme, tmp_path):
    placed = one(fake, scheme)
    new = other_file(tmp_path, 2)
    placed.fault({"call": lambda: fake.world.put(placed.listener, placed.prefix + DATA, new)}, match=MIDDLE)
    daemon = store_daemon()
    outcome = load(daemon, placed)
    assert refused(outcome, *CHANGED) and DATA in outcome.err, outcome
    assert soon(daemon.at_rest)
    after = load(daemon, placed)
    assert after.code == 0 and after.report["tensors"][0]["sha256"] == digest(noise(2)), after


def test_a_new_commit_under_a_load_from_the_hub_changes_nothing(fake, store_daemon, tmp_path):
    placed = one(fake, "hf")
    placed.fault({"call": fake.world.repository("org/m").new_commit}, match=MIDDLE)
    outcome = load(store_daemon(), placed)
    assert outcome.failed or placed.is_delivered(outcome), outcome
    assert all("/main/" not in entry["path"] for entry in fake.requests("hub") if entry["path"].endswith(DATA)), "unpinned"


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_a_server_that_ignores_preconditions_is_still_caught(fake, store_daemon, tmp_path, etag):
    fake.web.preconditions, fake.web.etag = False, etag
    placed = one(fake, "http")
    new = other_file(tmp_path, 2)

    def replace():
        fake.world.put("web", placed.prefix + DATA, new)
        fake.world.web[placed.prefix + DATA].updated += 100

    placed.fault({"call": replace}, match=MIDDLE)
    outcome = load(store_daemon(), placed)
    assert refused(outcome, *CHANGED) and DATA in outcome.err, outcome


@pytest.mark.parametrize("scheme", ["gs", "s3", "http"])
def test_an_object_deleted_under_a_load_is_an_error_that_names_it(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    placed.fault({"delete": {"listener": placed.listener, "path": placed.prefix + DATA}}, match=MIDDLE)
    daemon = store_daemon()
    outcome = load(daemon, placed)
    assert refused(outcome, "NOT_FOUND", *CHANGED) and DATA in outcome.err, outcome
    assert soon(daemon.at_rest)


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_old_versions_are_read_on_while_the_bucket_keeps_them(fake, store_daemon, scheme, tmp_path):
    fake.world.bucket("gcs" if scheme == "gs" else "s3", "b", versioned=True)
    placed = one(fake, scheme)
    new = other_file(tmp_path, 2)
    placed.fault({"call": lambda: fake.world.put(placed.listener, placed.prefix + DATA, new)}, match=MIDDLE)
    daemon = store_daemon()
    assert placed.is_delivered(load(daemon, placed))
    after = load(daemon, placed)
    assert after.code == 0 and after.report["tensors"][0]["sha256"] == digest(noise(2)), after


def test_keys_that_may_not_read_versions_read_the_object(fake, store_daemon):
    fake.world.bucket("s3", "b", versioned=True)
    placed = one(fake, "s3")
    fake.fault({"status": 403, "body": "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"},
               {"listener": "s3", "path": "versionId="}, times=0)
    assert placed.is_delivered(load(store_daemon(), placed))
    assert any(entry["status"] == 403 for entry in fake.requests("s3")), "no version was asked for"


# --- bytes that are wrong: 38 to 40 ---


WRONG = {"flipped bit": {"flip": 2_500_001}, "zeros": {"zeros": True}, "html": {"html": True}, "other bytes": {"shift": 4096}}


def declare(placed):
    """S3 gives a checksum only when the upload brought one."""
    if placed.scheme == "s3":
        made = placed.fake.world.get("s3", placed.prefix + DATA)
        made.declared = {"crc32c": checksums.text(made.checksum("crc32c"))}


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
@pytest.mark.parametrize("how", WRONG)
def test_bytes_spoiled_on_the_way_are_read_again(fake, store_daemon, scheme, how):
    placed = one(fake, scheme)
    declare(placed)
    rule = placed.fault(WRONG[how], match=MIDDLE)
    assert placed.is_delivered(load(store_daemon(), placed)) and rule.acted == 1


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
@pytest.mark.parametrize("how", ["flipped bit", "html"])
def test_bytes_that_stay_wrong_are_data_loss_and_nothing_is_delivered(fake, store_daemon, scheme, how):
    placed = one(fake, scheme)
    declare(placed)
    placed.fault(WRONG[how], match=MIDDLE, times=0)
    daemon = store_daemon()
    outcome = load(daemon, placed)
    assert refused(outcome, "DATA_LOSS") and DATA in outcome.err, outcome
    assert soon(daemon.at_rest) and daemon.status()["replicas"] == []
    fake.faults.clear()
    assert placed.is_delivered(load(daemon, placed))


@pytest.mark.parametrize("kind", ["crc32", "crc32c", "crc64nvme", "sha256"])
def test_each_whole_checksum_of_s3_is_verified(fake, store_daemon, kind):
    placed = one(fake, "s3")
    made = fake.world.get("s3", placed.prefix + DATA)
    made.declared = {kind: checksums.text(made.checksum(kind))}
    daemon = store_daemon(verify="required")
    assert placed.is_delivered(load(daemon, placed))
    made.declared = {kind: checksums.text(bytes(len(made.checksum(kind))))}
    other = store_daemon(verify="required")
    outcome = load(other, placed)
    assert refused(outcome, "DATA_LOSS") and DATA in outcome.err, outcome


def test_verification_can_be_required_or_left_out(fake, store_daemon):
    placed = one(fake, "http")
    outcome = load(store_daemon(verify="required"), placed)
    assert outcome.failed and outcome.status in {"FAILED_PRECONDITION", "DATA_LOSS"} and DATA in outcome.err, outcome
    spoiled = one(fake, "gs")
    spoiled.fault({"flip": 2_500_001}, times=0)
    outcome = load(store_daemon(verify="none"), spoiled)
    assert outcome.code == 0 and not spoiled.same(outcome.report)


@pytest.mark.parametrize("scheme", ["gs", "s3", "http"])
def test_objects_stored_compressed_are_refused_by_name(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    placed.put(DATA, gzip.compress(placed.files[DATA], 1), content_encoding="gzip")
    outcome = load(store_daemon(), placed)
    assert outcome.failed and DATA in outcome.err and ("compress" in outcome.err or "gzip" in outcome.err), outcome


def test_answers_compressed_on_the_way_are_not_taken(fake, store_daemon):
    placed = one(fake, "http")
    placed.fault({"gzip": True}, match=MIDDLE, times=0)
    outcome = load(store_daemon(http={"max_tries": 3}), placed)
    assert outcome.failed and DATA in outcome.err, outcome


# --- listings and headers: 42 to 45 ---


def listing(fake, scheme):
    return {"gs": fake.gcs, "s3": fake.s3, "hf": fake.hub}[scheme]


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
def test_listings_of_many_pages_are_read_to_the_end(fake, store_daemon, scheme):
    placed = place(fake, scheme, *({f"t{i}": blob(i, 1000)} for i in range(9)))
    store = listing(fake, scheme)
    if scheme == "hf":
        store.page = 2
    else:
        store.list_page, store.empty_pages = 2, 2
    assert placed.is_delivered(load(store_daemon(), placed))


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
def test_an_artifact_is_one_folder_as_on_a_disk(fake, store_daemon, scheme):
    placed = place(fake, scheme, {"a": blob(1, 1000)})
    other = placed.files[DATA]
    placed.put("part.safetensors", placed.files[DATA])
    fake.world.remove(placed.listener, placed.prefix + DATA)
    for name in ("original/consolidated.safetensors", "step-1/model.safetensors", "step-1/model.safetensors.index.json"):
        placed.put(name, other)
    daemon = store_daemon()
    assert placed.is_delivered(load(daemon, placed))
    assert [file["name"] for file in daemon.cli.json("inspect", placed.reference)["files"]] == ["part.safetensors"]
    fake.world.remove(placed.listener, placed.prefix + "part.safetensors")
    if scheme == "hf":
        fake.world.repository("org/m").new_commit()
    assert refused(load(daemon, placed), "NOT_FOUND")


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
@pytest.mark.parametrize("lie", ["list_loop", "repeat_items"])
def test_listings_that_go_round_or_repeat_are_errors(fake, store_daemon, scheme, lie):
    placed = place(fake, scheme, {"a": blob(1, 1000)}, {"b": blob(2, 1000)})
    setattr(listing(fake, scheme), lie, True)
    outcome = load(store_daemon(), placed)
    assert outcome.failed and outcome.status not in {"RESOURCE_EXHAUSTED", None}, outcome
    assert len(fake.journal.entries) < 100


def test_a_missing_part_file_is_an_error_before_any_data_is_read(fake, store_daemon, scheme):
    placed = place(fake, scheme, {"a": noise(1)}, {"b": noise(2)})
    fake.world.remove(placed.listener, placed.prefix + "model-00002-of-00002.safetensors")
    outcome = load(store_daemon(), placed)
    assert refused(outcome, "NOT_FOUND", "DATA_LOSS") and "model-00002-of-00002.safetensors" in outcome.err, outcome
    assert sum(entry["sent"] for entry in placed.reads()) < MiB


HOSTILE = {"huge": struct.pack("<Q", 200 << 20), "beyond the end": struct.pack("<Q", 1 << 40), "overflow": b"\xff" * 8,
           "not json": struct.pack("<Q", 20) + b"x" * 20}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_headers_are_refused_without_reading_on(fake, store_daemon, scheme, how):
    placed = one(fake, scheme)
    placed.put(DATA, HOSTILE[how] + bytes(3 * MiB))
    outcome = load(store_daemon(), placed)
    assert refused(outcome, "DATA_LOSS", "RESOURCE_EXHAUSTED") and DATA in outcome.err, outcome
    assert sum(entry["sent"] for entry in placed.reads()) < 2 * MiB


def test_an_absent_checkpoint_is_not_found(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    daemon = store_daemon()
    outcome = daemon.cli.run("load", placed.reference + "-absent")
    assert refused(outcome, "NOT_FOUND", "PERMISSION_DENIED") and "absent" in outcome.err, outcome
