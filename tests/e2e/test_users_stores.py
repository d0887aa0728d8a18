"""Activation stores and uploads of a daemon whose sockets are open to all users: it writes for its own user and for root, and for
no other user. Two users and root, run as such (see test_users.py)."""
import contextlib
import os
import pwd
import shutil
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorcast_client as tc

from stage import acting_as, soon
from store_scene import settings
from test_users import BOB, command, open_to_all, pytestmark, wire  # noqa: F401

NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def acts(models):
    folder = models / "acts"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def writing(open_to_all, models, acts, fake, bare, aws_keys):
    """Starts a daemon for all users that may write below `acts` and upload to the bucket b."""
    fake.world.bucket("gcs", "b")

    def make(**more):
        sources = {"disk": {"trusted_roots": [str(models)]}, **settings(fake, http={"max_tries": 1})}
        daemon = open_to_all(sources=sources, **{"activations": {"roots": [str(acts)]}, **more})
        append(daemon, acts / "first", 0)  # another user could not read modules that Python imports later
        return daemon

    return make


def append(daemon, store, sample, host=3, value=7.0, **options):
    """What the host had before."""
    with tc.connect(daemon.socket).activation_store(f"disk:{store}", host=host, **options) as writer:
        writer.append(sample, {1: np.full(5, value, np.float32)})
        return writer.resume


def bucket(fake):
    return {key: versions[-1].data for key, versions in list(fake.world.bucket("gcs", "b").keys.items()) if versions[-1] is not None}


@contextlib.contextmanager
def refused():
    with pytest.raises(tc.TensorcastError, match="tensorcastd --user") as caught:
        yield
    assert (caught.value.code.name, caught.value.reason) == ("FAILED_PRECONDITION", "NOT_THE_DAEMONS_USER")


def test_only_root_and_the_daemons_user_append(writing, acts, fake):
    """Neither into a folder of one's own, nor one for all users, nor a store that is there, nor to a bucket."""
    daemon = writing()
    (acts / "his").mkdir()
    os.chown(acts / "his", BOB, BOB)
    append(daemon, acts / "roots", 1)
    before = sorted(acts.rglob("*"))
    for store, options in (("his/store", {}), ("new", {}), ("roots", {}), ("roots", {"host": 4}), ("roots/host_003", {}),
                           ("his/store", {"upload": "gs://b/his", "keep_local": False})):
        with acting_as(BOB), refused():
            append(daemon, acts / store, 2, **options)
    assert sorted(acts.rglob("*")) == before and not bucket(fake)
    assert append(daemon, acts / "roots", 2)["samples"] == 1


def test_the_daemons_user_and_root_append_to_the_same_stores(writing, acts, monkeypatch):
    daemon = writing()
    daemon.stop()
    shutil.rmtree(acts / "first")
    daemon.start(user="nobody")
    with acting_as(NOBODY):
        append(daemon, acts / "both", 1)
    assert append(daemon, acts / "both", 2)["samples"] == 1
    assert {path.stat().st_uid for path in (acts / "both").rglob("*")} == {NOBODY}
    with acting_as(BOB), refused():
        append(daemon, acts / "both", 3)


def test_who_may_not_append_is_told_nothing_of_a_store(writing, acts):
    """Not even whether it is there; a user with the right can read the folder directly."""
    daemon = writing()
    (acts / "private").mkdir(mode=0o700)
    append(daemon, acts / "private/store", 1, upload="gs://b/secret")
    append(daemon, acts / "open", 1, upload="gs://b/secret")
    told = set()
    with wire(daemon, BOB) as spoken:
        spoken = type(spoken)(spoken.channel, "tensorcast.daemon.v1.ActivationStore")
        for store in ("private/store", "private/other", "open", "nowhere"):
            with pytest.raises(grpc.RpcError) as caught:
                spoken.call("Describe", spoken.message("DescribeActivationsRequest", store=f"disk:{acts}/{store}"))
            told.add((caught.value.code(), caught.value.details()))
    assert len(told) == 1 and "secret" not in str(told), told
    seen = command(daemon, BOB, "activations", "status", acts / "open", "--json")
    assert seen.code == 0 and seen.report["hosts"][0]["samples"] == 1 and "not known" in seen.err, seen
    assert command(daemon, BOB, "activations", "status", acts / "private/store").status == "PERMISSION_DENIED"


def test_a_lost_state_folder_gives_a_store_to_no_other_and_what_was_to_be_uploaded_is_found_again(writing, acts, fake):
    daemon = writing()
    fake.fault({"status": 503}, {"listener": "gcs", "method": "POST"}, times=0)
    append(daemon, acts / "store", 1, upload="gs://b/acts")
    daemon.stop()
    shutil.rmtree(daemon.state)
    fake.faults.clear()
    daemon.start()
    with acting_as(BOB), refused():
        append(daemon, acts / "store", 2, upload="gs://b/his", keep_local=False)
    assert append(daemon, acts / "store", 2, upload="gs://b/acts")["samples"] == 1
    names = [f"acts/host_003/{name}" for name in ("manifest.json", "segment_000001.safetensors", "segment_000002.safetensors")]
    assert soon(lambda: sorted(bucket(fake)) == names), bucket(fake).keys()


def test_a_store_whose_disk_was_not_there_at_a_start_goes_on_when_it_is(writing, acts):
    daemon = writing()
    append(daemon, acts / "store", 1)
    daemon.stop()
    (acts / "store").rename(acts / "away")
    daemon.start()
    assert daemon.logged("event=activations_not_recovered", "store")
    (acts / "away").rename(acts / "store")
    with acting_as(BOB), refused():
        append(daemon, acts / "store", 2)
    assert append(daemon, acts / "store", 2)["samples"] == 1


def test_a_store_that_is_renamed_and_back_while_samples_wait_for_room_is_given_to_no_other(writing, acts):
    """A user that could rename it gains nothing; what was moved away makes room, and is there when it is back."""
    daemon = writing(activations={"roots": [str(acts)], "disk_quota": "1MiB", "quota_timeout": "60s"})
    acts.chmod(0o777)
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}/store", host=3) as writer:
        writer.append(0, {1: np.zeros(700 << 10, np.uint8)})
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}/other", host=3) as writer, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(writer.append, 0, {1: np.zeros(700 << 10, np.uint8)})
        with pytest.raises(TimeoutError):
            waiting.result(timeout=.5)
        os.rename(acts / "store", acts / "away")
        waiting.result(timeout=50)
    os.rename(acts / "away", acts / "store")
    with acting_as(BOB), refused():
        append(daemon, acts / "store", 1, upload="gs://b/his", keep_local=False)
    shutil.rmtree(acts / "other")
    assert append(daemon, acts / "store", 1)["samples"] == 1


def test_a_folder_with_two_paths_has_one_writer(writing, acts):
    daemon = writing()
    for name in ("one", "two"):
        (acts / name).mkdir()
    assert os.system(f"mount --bind {acts}/one {acts}/two") == 0
    try:
        with tc.connect(daemon.socket).activation_store(f"disk:{acts}/one/store", host=3) as writer:
            writer.append(0, {1: np.zeros(5, np.float32)})
            with pytest.raises(tc.TensorcastError, match="has a writer"):
                append(daemon, acts / "two/store", 1)
        with acting_as(BOB), refused():
            append(daemon, acts / "two/store", 1)
        assert append(daemon, acts / "two/store", 1)["samples"] == 1
        assert append(daemon, acts / "one/store", 2)["samples"] == 2
    finally:
        os.system(f"umount -l {acts}/two")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_may_be_appended_to_may_be_read_and_the_umask_says_who_else_may(writing, acts, umask):
    daemon = writing()
    daemon.stop()
    shutil.rmtree(acts / "first")
    before = os.umask(umask)
    try:
        daemon.start(user="nobody")
    finally:
        os.umask(before)
    with acting_as(NOBODY):
        append(daemon, acts / "store", 1)
    others = {}
    for uid in (0, NOBODY, BOB):
        for what in (["status"], ["verify"]):
            others[uid, what[0]] = command(daemon, uid, "activations", what[0], acts / "store", *what[1:]).code == 0
        with acting_as(uid), contextlib.suppress(tc.TensorcastError):
            assert len(list(tc.connect(daemon.socket).activation_store(f"disk:{acts}/store").samples())) == 1
    assert all(ok for (uid, _), ok in others.items() if uid != BOB), others
    assert [ok for (uid, _), ok in others.items() if uid == BOB] == [umask == 0o022] * 2
    for uid in (NOBODY, 0):
        for what in (["merge"], ["claim", "--units", 9, "--owner", f"u{uid}"]):
            assert command(daemon, uid, "activations", what[0], acts / "store", *what[1:]).code == 0
