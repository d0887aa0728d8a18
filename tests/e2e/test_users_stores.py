"""Whose activation stores are: two users and root, run as such (see test_users.py)."""
import fcntl
import os

import numpy as np
import pytest
import tensorcast_client as tc

from stage import acting_as, soon
from test_users import ANN, BOB, command, open_to_all, pytestmark, write  # noqa: F401


@pytest.fixture
def stores(open_to_all, models):
    """The daemon, the folder of stores, and what opens a host of one as somebody. What Python has not imported yet it could not
    read as somebody else, so root has a store first."""
    acts = models / "acts"
    daemon = None

    def make(**settings):
        nonlocal daemon
        daemon = open_to_all(activations={"roots": [str(acts)]}, **settings)
        append(0, "first", 1)
        return daemon, acts, append

    def append(uid, store, host, closes=True):
        with acting_as(uid):
            writer = tc.connect(daemon.socket).activation_store(f"disk:{acts / store}", host=host)
            try:
                writer.append(0 if writer.resume["last_sample"] is None else writer.resume["last_sample"] + 1,
                              {1: np.full(3, uid, np.float32)})
            finally:
                if closes:
                    writer.close()
        return writer

    acts.mkdir()
    return make


def test_a_store_is_made_in_no_folder_that_is_another_users_alone(stores):
    daemon, acts, append = stores()
    hers = acts / "hers"
    hers.mkdir()
    os.chown(hers, ANN, ANN)
    hers.chmod(0o755)
    for store in ("hers", "hers/deep/below", "hers/bobs"):
        with pytest.raises(PermissionError, match=f"cannot be made for user {BOB}: .* belongs to user {ANN}"):
            append(BOB, store, 1)
    assert not list(hers.iterdir())
    append(ANN, "hers/own", 1)
    append(0, "hers/roots", 1)
    hers.chmod(0o777)
    append(BOB, "hers/bobs", 1)


@pytest.mark.parametrize("made", ["host_003", ""])
def test_nothing_is_written_into_a_folder_that_another_user_made(stores, made):
    """What is there already is as little the daemon's to give as what would be made."""
    daemon, acts, append = stores()
    with acting_as(0):
        (acts / "hers" / made).mkdir(parents=True)
        if not made:
            (acts / "hers/host_003").mkdir()  # as of a store that the daemon does not know any more
    for folder in (acts / "hers", acts / "hers" / made):
        os.chown(folder, ANN, ANN)
        folder.chmod(0o755)
    with pytest.raises(PermissionError, match=f"for user {BOB}: .* belongs to user {ANN}"):
        append(BOB, "hers", 3)
    assert not list((acts / "hers/host_003").iterdir())
    append(ANN, "hers", 3)


def test_a_store_that_was_moved_within_her_folder_is_hers_under_its_new_name(stores):
    """The daemon knows it no more, and has made all folders of it."""
    daemon, acts, append = stores()
    (acts / "anns").mkdir()
    os.chown(acts / "anns", ANN, ANN)
    append(ANN, "anns/store", 3)
    with acting_as(ANN):
        (acts / "anns/store").rename(acts / "anns/moved")
    for store, host in (("anns/moved", 3), ("anns/moved", 4), ("anns/moved/host_003", 1), ("anns/moved/new/deep", 1)):
        with pytest.raises(PermissionError, match=f"for user {BOB}: .* belongs to user {ANN}"):
            append(BOB, store, host)
    assert [p.name for p in (acts / "anns/moved").iterdir()] == ["host_003"]
    append(ANN, "anns/moved", 3)
    assert len(list((acts / "anns/moved/host_003").glob("*.safetensors"))) == 2


def test_who_may_read_a_store_cannot_keep_its_owner_out_by_a_lock(stores):
    daemon, acts, append = stores()
    append(ANN, "hers", 3)
    with acting_as(BOB):
        held = [os.open(path, os.O_RDONLY) for path in (acts / "hers/host_003", *(acts / "hers/host_003").iterdir())]
        for fd in held:
            fcntl.flock(fd, fcntl.LOCK_EX)
    writer = append(ANN, "hers", 3, closes=False)
    with acting_as(BOB), pytest.raises(PermissionError):
        os.open(acts / "hers/host_003/.writer", os.O_RDONLY)
    daemon.kill()
    daemon.start()
    assert soon(lambda: not (acts / "hers/host_003/.writer").exists())  # what a crash left was looked at, and sealed
    append(ANN, "hers", 3)
    assert sorted(p.name for p in (acts / "hers/host_003").iterdir())[0] == "manifest.json"
    del writer
    for fd in held:
        os.close(fd)


def test_a_store_has_one_name_however_many_lead_to_its_root(open_to_all, models):
    """Whose a store is, is told by its name."""
    (models / "disk").mkdir()
    (models / "acts").symlink_to("disk")
    daemon = open_to_all(activations={"roots": [str(models / "acts")]})

    def append(uid, name):
        with acting_as(uid), tc.connect(daemon.socket).activation_store(f"disk:{models}/{name}/hers", host=3) as writer:
            writer.append(0 if writer.resume["last_sample"] is None else writer.resume["last_sample"] + 1, {1: np.full(3, uid, np.float32)})

    append(0, "acts/roots")  # what Python has not imported yet it could not read as somebody else
    append(ANN, "acts")
    for uid, name in ((BOB, "disk"), (BOB, "acts"), (ANN, "disk")):
        with pytest.raises((PermissionError, tc.TensorcastError), match=f"user {ANN}'s|leads through a link; name the folder itself, {models}/acts/"):
            append(uid, name)
    append(ANN, "acts")
    assert len(list((models / "disk/hers/host_003").glob("*.safetensors"))) == 2


def test_nobody_appends_to_the_store_of_another_user_nor_within_it(stores):
    daemon, acts, append = stores()
    append(ANN, "hers", 3)
    for store, host in (("hers", 3), ("hers", 4), ("hers/host_003", 1), ("hers/host_003/segment_000002.safetensors", 1)):
        with pytest.raises(PermissionError, match=f"user {ANN}'s"):
            append(BOB, store, host)
    append(BOB, "hers/other", 1)  # a folder that no host of hers has
    append(ANN, "hers", 4)
    append(0, "hers", 3)
    daemon.stop()
    daemon.start()
    with pytest.raises(PermissionError, match=f"user {ANN}'s"):
        append(BOB, "hers", 3)
    append(ANN, "hers", 3)
    assert sorted(p.name for p in (acts / "hers/host_003").iterdir()) == [
        "manifest.json", *(f"segment_00000{i}.safetensors" for i in (1, 2, 3))]


def test_a_user_with_all_writers_he_can_get_leaves_descriptors_to_others(stores, models):
    artifact = write(models, "m", 4096)
    daemon, _, append = stores(limits={"nofile": (400, 400)})
    writers = []
    with pytest.raises(tc.TensorcastError, match="descriptors"):  # by the offer of memory, or by the opening
        for host in range(200):
            writers.append(append(ANN, "hers", host, closes=False))
    assert len(writers) > 3 and daemon.logged(f"user {ANN} has ")
    append(BOB, "his", 1)
    assert command(daemon, BOB, "load", artifact).code == 0
    assert daemon.status()["leases"] == 0 and "TOO_MANY_OPEN_FILES" not in daemon.log()
    for writer in writers:
        writer.close()
    append(ANN, "hers", 199)


def test_a_link_of_another_user_leads_into_nobodys_store(stores):
    daemon, acts, append = stores()
    acts.chmod(0o1777)  # as a folder for everybody's runs
    append(ANN, "hers", 3)
    with acting_as(BOB):
        os.symlink("hers", acts / "his")
        os.symlink(acts, acts / "all")
    for store, host in (("his", 3), ("his", 4), ("all/hers", 3), ("all/hers/host_003", 1), ("his/host_003", 5)):
        with pytest.raises((PermissionError, tc.TensorcastError), match=f"user {ANN}'s|leads through a link"):
            append(BOB, store, host)
    with acting_as(BOB):
        (acts / "b").mkdir()
    append(BOB, "b/own", 3)
    with acting_as(BOB):
        (acts / "b/own").rename(acts / "b/was")  # his folder: the next daemon will look after "b/own"
        os.symlink("../hers", acts / "b/own")
    daemon.stop()
    daemon.start()
    with pytest.raises(tc.TensorcastError, match="leads through a link"):
        append(BOB, "b/own", 3)
    append(ANN, "hers", 3)
    assert sorted(p.name for p in (acts / "hers").iterdir()) == ["host_003"]
    assert sorted(p.name for p in (acts / "hers/host_003").iterdir()) == [
        "manifest.json", *(f"segment_00000{i}.safetensors" for i in (1, 2))]
