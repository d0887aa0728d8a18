"""What names, folders and files of one user can do to another, and to root: two users and root, run as such (see test_users.py)."""
import contextlib
import fcntl
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorcast_client as tc

import checkpoints
from stage import MiB, Tensorcast, acting_as, soon
from test_users import ANN, BOB, OPEN, command, connections, open_to_all, pytestmark, wire, write  # noqa: F401

MAPPED = 3  # MemoryPreference


@pytest.fixture
def shm():
    """Any user may make something in it, and remove their own, as in /dev/shm."""
    folder = Path(tempfile.mkdtemp(prefix="tc-users-", dir="/dev/shm"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# --- folders on tmpfs ------------------------------------------------------------------------------------------------


def claim(spoken, path):
    """As a client that asks for a folder and then does nothing."""
    making = spoken.call("MakeFolder", spoken.message("MakeFolderRequest", path=str(path), artifact="disk:/x", identity=path.name))
    next(making)
    return making


def keep(spoken, path):
    """Says that it is made, whatever is there."""
    next(spoken.call("MakeFolder", spoken.message("MakeFolderRequest", path=str(path), is_made=True)))


@pytest.mark.parametrize("how", ["asks and waits", "says that it was made"])
def test_a_path_that_a_user_claims_is_anothers_whom_the_file_system_lets(open_to_all, models, shm, how):
    artifact, daemon = write(models, "m", MiB), open_to_all()
    with wire(daemon, ANN) as anns:
        calls = [claim(anns, shm / name) for name in ("bobs", "roots", "model")]
        if how == "says that it was made":
            for name in ("bobs", "roots", "model"):
                keep(anns, shm / name)
        for uid, name in ((BOB, "bobs"), (0, "roots")):
            made = command(daemon, uid, "folder", artifact, shm / name)
            assert made.code == 0 and (shm / name).stat().st_uid == uid, made
            assert "is there" in command(daemon, uid, "folder", artifact, shm / name).out
            assert command(daemon, uid, "release", shm / name).code == 0 and not (shm / name).exists()
        (shm / "model").mkdir()  # root's model, which a release names by its path
        checkpoints.write(shm / "model", {"w": checkpoints.blob(1, 4096)})
        seen = command(daemon, BOB, "release", shm / "model")
        assert seen.status == "NOT_FOUND", seen
        for call in calls:
            call.cancel()


def test_a_folder_that_is_another_users_is_refused_by_who_is_there_and_not_by_who_asked(open_to_all, models, shm):
    artifact, daemon = write(models, "m", MiB), open_to_all()
    assert command(daemon, ANN, "folder", artifact, shm / "hers").code == 0
    with acting_as(ANN):
        (shm / "made").mkdir()
    for uid in (BOB, 0):
        for name in ("hers", "made"):
            seen = command(daemon, uid, "folder", artifact, shm / name)
            assert seen.status == "PERMISSION_DENIED" and f"user {ANN}" in seen.err, seen
    used = daemon.status()["memory"]["used_bytes"]
    assert MiB <= used < 2 * MiB  # of hers alone
    assert command(daemon, BOB, "release", shm / "hers").status == "NOT_FOUND"
    assert command(daemon, 0, "release", shm / "hers").code == 0


def test_no_user_can_make_the_daemon_forget_a_folder_of_another_user(open_to_all, models, shm):
    """A record is of a user's folder, and its path is what the user says."""
    artifact, daemon = write(models, "m", MiB), open_to_all()
    assert command(daemon, BOB, "folder", artifact, shm / "his").code == 0
    with wire(daemon, ANN) as anns:
        for path in (shm / "his", shm / "hers"):
            call = claim(anns, path)
            keep(anns, path)
            call.cancel()
            anns.call("Release", anns.message("ReleaseRequest", folder=str(path), folder_is_gone=True))
    assert soon(lambda: [row["uid"] for row in daemon.status()["folders"]] == [BOB])
    daemon.stop()
    daemon.start()
    # a record whose removal the stop overtook is looked at, and given up
    assert soon(lambda: [(row["path"], row["uid"]) for row in daemon.status()["folders"]] == [(str(shm / "his"), BOB)])
    assert "is there" in command(daemon, BOB, "folder", artifact, shm / "his").out


# --- files' own pages ------------------------------------------------------------------------------------------------


def test_descriptors_that_a_user_does_not_receive_do_not_keep_others_from_being_sent(start, models):
    """The kernel counts what lies in sockets against the daemon's user, and sends nothing for it beyond its limit of open files: so
    there must not be more of them than the daemon charges their client with, for the files that a lease keeps open."""
    checkpoints.write(models / "many", *({f"w{i}": checkpoints.blob(i, 4096)} for i in range(40)))
    artifact = write(models, "m", MiB)
    daemon = start(running=False, limits={"nofile": (1000, 1000)}, server=OPEN,
                   sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models / "many")]}})
    for path in models.rglob("*.safetensors"):
        path.chmod(0o644)
    daemon.start(user="nobody")
    daemon.folder.chmod(0o755)
    waiting, refused = [], ""
    with wire(daemon, ANN) as anns:
        for _ in range(30):
            load = anns.load_request(f"disk:{models / 'many'}")
            load.memory = MAPPED
            try:
                (result,) = [event.result for event in anns.call("Materialize", anns.message("MaterializeRequest", load=load))
                             if event.WhichOneof("event") == "result"]
            except grpc.RpcError as error:
                refused = error.details()
                break
            (sock,) = connections(daemon, ANN, 1, daemon.handoff, socket.SOCK_SEQPACKET)
            sock.send(result.handoff_token)
            waiting.append(sock)
        assert "descriptors" in refused and len(waiting) > 3, (refused, len(waiting))
        for uid in (BOB, 0):
            seen = command(daemon, uid, "load", artifact)
            assert seen.code == 0, seen
        assert "event=handoff_failed" not in daemon.whole_log()
        for sock in waiting:
            sock.close()
        assert soon(lambda: command(daemon, ANN, "load", f"disk:{models / 'many'}", "--memory", "mapped").code == 0)


# --- put -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hers():
    """A folder of hers in one that others can reach, and beside it what root alone may read."""
    top = Path(tempfile.mkdtemp(prefix="tc8-put-", dir="/tmp"))
    top.chmod(0o755)
    (top / "secret").mkdir(mode=0o700)
    (top / "secret" / "key").write_bytes(b"secret " * 100)
    (top / "run").mkdir()
    (top / "run" / "a.bin").write_bytes(b"hers " * 140)
    for path in (top / "run", top / "run" / "a.bin"):
        os.chown(path, ANN, ANN)
    yield top
    shutil.rmtree(top)


PUT = Tensorcast("/nowhere")


def test_what_another_user_links_to_is_not_copied_out_for_root(hers):
    with acting_as(ANN):
        os.symlink("a.bin", hers / "run" / "own")  # a link of hers to a file of hers, as in a cache
        os.symlink("own", hers / "run" / "chain")
    os.symlink(hers / "secret" / "key", hers / "run" / "of root")  # the command's user may link anything
    PUT.ok("put", hers / "run", f"disk:{hers}/copy")
    assert {path.name: path.read_bytes()[:4] for path in (hers / "copy").iterdir()} == {
        "a.bin": b"hers", "own": b"hers", "chain": b"hers", "of root": b"secr"}
    for target in (hers / "secret" / "key", "../secret/key", "elsewhere/key"):
        with acting_as(ANN):
            (hers / "run" / "link").unlink(missing_ok=True)
            (hers / "run" / "elsewhere").unlink(missing_ok=True)
            if target == "elsewhere/key":
                os.symlink("../secret", hers / "run" / "elsewhere")
            os.symlink(target, hers / "run" / "link")
        seen = PUT.run("put", hers / "run", f"disk:{hers}/copy2")
        assert seen.status in ("PERMISSION_DENIED", "INVALID_ARGUMENT") and not (hers / "copy2").exists(), seen


@pytest.mark.parametrize("what", ["model.safetensors", "config.json"])
def test_what_another_user_links_to_in_a_model_is_not_exported_for_root(hers, what):
    checkpoints.write(hers / "secret" / "m", {"w": checkpoints.blob(1, 4096)})
    (hers / "secret" / "m" / "config.json").write_text('{"secret": 1}')
    shutil.copytree(hers / "secret" / "m", hers / "run" / "m")
    with acting_as(ANN):
        os.symlink("m/model.safetensors", hers / "run" / "own")
    model = hers / "run" / "m"
    for path in (model, *model.iterdir()):
        os.chown(path, ANN, ANN)
    PUT.ok("export", model, "--out", hers / "out0")
    with acting_as(ANN):
        (model / what).rename(model / "own")
        os.symlink("own", model / what)
    PUT.ok("export", model, "--out", hers / "out1")  # hers to hers
    with acting_as(ANN):
        (model / what).unlink()
        os.symlink(f"../../secret/m/{what}", model / what)
    for i, words in enumerate((["export", model, "--out", hers / "out2"], ["load", "--standalone", model, "--out", hers / "out3"],
                               ["fetch", "--standalone", model, hers / "out4", "--all"])):
        seen = PUT.run(*words)
        if i != 1 or what == "model.safetensors":
            assert seen.status == "PERMISSION_DENIED" and "FOREIGN" in PUT.run(*words, "--json").out, seen
        assert not list(hers.glob("out[234]/*.json")) and not (i == 1 and what == "model.safetensors" and (hers / "out3").exists())
    os.unlink(model / what)
    os.symlink(f"../../secret/m/{what}", model / what)  # root's own link
    PUT.ok("export", model, "--out", hers / "out5")


@contextlib.contextmanager
def her_program(folder, text):
    """Python of hers with `libc`, in that folder, that runs meanwhile; it says `go` when it has begun."""
    begin = "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nos.chdir(sys.argv[1])\nprint('go', flush=True)\n"
    busy = subprocess.Popen(["setpriv", f"--reuid={ANN}", f"--regid={ANN}", "--clear-groups", sys.executable, "-I", "-c", begin + text, folder],
                            cwd="/", stdout=subprocess.PIPE)
    try:
        assert busy.stdout.readline() == b"go\n"
        yield busy
    finally:
        busy.kill()
        busy.communicate()


def test_what_another_user_exchanges_meanwhile_is_not_copied_out_either(hers):
    """Files and folders for links and back, as fast as she can."""
    with acting_as(ANN):
        (hers / "run" / "d").mkdir()
        for name in ("f", "d/key"):
            (hers / "run" / name).write_bytes(b"hers " * 140)
        os.symlink("../secret/key", hers / "run" / "f2")
        os.symlink("../secret", hers / "run" / "d2")
    flip = "while True:\n for a, b in ((b'f', b'f2'), (b'd', b'd2')): libc.renameat2(-100, a, -100, b, 2)"
    with her_program(hers / "run", flip) as busy:
        codes = set()
        for i in range(60):
            codes.add(PUT.run("put", hers / "run", f"disk:{hers}/copy{i}").status)
            copied = [path for path in hers.glob(f"copy{i}/**/*") if path.is_file()]
            assert all(path.read_bytes().startswith(b"hers") for path in copied), copied
        assert busy.poll() is None and codes <= {None, "PERMISSION_DENIED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"}, codes
        assert codes & {"PERMISSION_DENIED", "INVALID_ARGUMENT"}, codes


def test_put_into_a_folder_of_another_user_writes_where_it_was_told(hers):
    """She exchanges the folder for a link, and what has been begun for another file."""
    (hers / "secret" / "there").mkdir()
    PUT.ok("put", hers / "run", f"disk:{hers}/run/copy")
    with acting_as(ANN):
        os.symlink("../secret/there", hers / "run" / "link")
        (hers / "run" / "own").mkdir()
        os.symlink("own", hers / "run" / "links own")
    seen = PUT.run("put", hers / "secret" / "key", f"disk:{hers}/run/link/key")
    told = PUT.run("put", hers / "secret" / "key", f"disk:{hers}/run/link/key", "--json").out
    assert seen.status == "PERMISSION_DENIED" and "FOREIGN_LINK" in told, seen
    assert PUT.run("put", hers / "secret" / "key", f"disk:{hers}/run/link/deep/er/key").status == "PERMISSION_DENIED"
    assert not list((hers / "secret" / "there").iterdir())
    PUT.ok("put", hers / "run" / "a.bin", f"disk:{hers}/run/links own/a.bin")
    assert (hers / "run" / "own" / "a.bin").read_bytes().startswith(b"hers")
    PUT.ok("put", hers / "run" / "a.bin", f"disk:{hers}/run/new/deep/a.bin")
    with her_program(hers / "run", "while True: libc.renameat2(-100, b'own', -100, b'link', 2)") as busy:
        codes = {PUT.run("put", hers / "secret" / "key", f"disk:{hers}/run/own/k{i}").status for i in range(60)}
        assert busy.poll() is None and "PERMISSION_DENIED" in codes, codes
    assert not list((hers / "secret" / "there").iterdir())


# --- exports ---------------------------------------------------------------------------------------------------------


def test_half_an_export_that_another_user_left_is_not_gone_on_with(open_to_all, models, shm):
    """Her folder beside the target, with a journal that says that all is written: the same export of hers, and other bytes."""
    artifact, daemon = write(models, "m", MiB), open_to_all()
    (models / "m" / "model.safetensors").chmod(0o644)  # an export reads with the rights of its user
    assert command(daemon, ANN, "export", artifact, "--out", shm / "hers").code == 0
    with acting_as(ANN):
        (shm / ".root.exporting").mkdir()
        (shm / "hers").rename(shm / ".root.exporting" / "content")
        (shm / ".root.exporting").chmod(0o755)
        (shm / ".root.exporting" / "journal").write_bytes(b"")
    for options in ([], ["--resume"], ["--force"]):
        seen = command(daemon, 0, "export", artifact, "--out", shm / "root", *options)
        assert seen.status == "FAILED_PRECONDITION" and f"user {ANN}" in seen.err and not (shm / "root").exists(), seen
    assert sorted(path.name for path in (shm / ".root.exporting").iterdir()) == ["content", "journal"]


# --- stores of others, and what root writes ----------------------------------------------------------------------------


@pytest.fixture
def store(open_to_all):
    """Her store in a folder of hers, and root's beside it, which only root may read."""
    top = Path(tempfile.mkdtemp(prefix="tc8-store-", dir="/tmp"))
    top.chmod(0o755)
    (top / "hers").mkdir()
    (top / "roots").mkdir(mode=0o700)
    daemon = open_to_all(activations={"roots": [str(top)]})
    for folder, host, sample in (("roots", 5, 50), ("hers", 3, 30)):
        with tc.connect(daemon.socket).activation_store(f"disk:{top}/{folder}", host=host) as writer:
            writer.append(sample, {1: np.full(3, sample, np.float32)}, info={"text_preview": f"{folder} alone"})
    for path in (top / "hers", *(top / "hers").rglob("*")):
        os.chown(path, ANN, ANN)
    yield daemon, top
    shutil.rmtree(top)


def test_a_merge_reads_and_writes_through_no_link_of_another_user(store):
    daemon, top = store
    key = top / "roots" / "key"
    key.write_text("secret")
    key.chmod(0o600)
    with acting_as(ANN):
        os.symlink("../roots/key", top / "hers/manifest.json")
    daemon.cli.ok("activations", "merge", top / "hers")
    assert key.read_text() == "secret" and '"samples":1' in (top / "hers/manifest.json").read_text().replace(" ", "")
    with acting_as(ANN):
        os.symlink("../roots/host_005", top / "hers/host_005")
        (top / "hers/host_003").rename(top / "hers/elsewhere")
        os.symlink("elsewhere", top / "hers/host_003")  # of hers to what is hers
    for what in ("merge", "status", "verify"):
        seen = daemon.cli.run("activations", what, top / "hers")
        assert seen.status == "PERMISSION_DENIED" and "host_005" in seen.err and "roots alone" not in seen.out, seen
    (top / "hers/host_005").unlink()
    assert daemon.cli.json("activations", "merge", top / "hers") == {"hosts": 1, "samples": 1}
    os.symlink("../roots/host_005", top / "hers/host_005")  # root's own
    assert daemon.cli.json("activations", "merge", top / "hers") == {"hosts": 2, "samples": 2}


def test_no_shard_is_imported_that_another_user_links_to(store):
    daemon, top = store
    (top / "roots/shard_0001.pkl").write_bytes(pickle.dumps({1: [{"sample_idx": 50, "activation": np.zeros(3)}]}, 4))
    with acting_as(ANN):
        (top / "hers/shards").mkdir()
        os.symlink("../../roots/shard_0001.pkl", top / "hers/shards/shard_0001.pkl")
    seen = daemon.cli.run("activations", "import", top / "hers", top / "hers/shards", "--host", 7)
    assert seen.status == "PERMISSION_DENIED" and not (top / "hers/host_007").exists(), seen
    os.symlink("../../roots/shard_0001.pkl", top / "hers/shards/shard_0002.pkl")
    (top / "hers/shards/shard_0001.pkl").unlink()
    daemon.cli.ok("activations", "import", top / "hers", top / "hers/shards", "--host", 7)


def test_claims_are_written_through_no_link_and_no_reader_keeps_them_locked_for_ever(store):
    daemon, top = store
    with acting_as(ANN):
        os.symlink("../roots", top / "hers/claims")
    words = ["activations", "claim", top / "hers", "--owner", "me", "--units", 1, "--lease", "1ms"]
    seen = daemon.cli.run(*words)
    assert seen.status == "PERMISSION_DENIED" and not list((top / "roots").glob("*unit*")), seen
    (top / "hers/claims").unlink()
    assert daemon.cli.ok(*words).out == "0\n"
    with acting_as(BOB):
        fd = os.open(top / "hers/claims", os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
    started = time.monotonic()
    for more in (words, [*words[:5], "--done", 0]):
        seen = daemon.cli.run(*more, "--timeout", "300ms")
        assert seen.status == "UNAVAILABLE" and "locked" in seen.err, seen
    assert time.monotonic() - started < 20
    os.close(fd)
    assert daemon.cli.ok(*words).out == "0\n"
    assert len(list((top / "hers/claims").iterdir())) == 1


def test_what_root_writes_over_a_file_of_another_user_has_not_its_mode(store, models):
    daemon, top = store
    artifact, out = write(models, "m", 4096), top / "hers/out.safetensors"
    for mode in (0o4755, 0o666):
        with acting_as(ANN):
            out.unlink(missing_ok=True)
            out.touch()
            out.chmod(mode)
        daemon.cli.ok("load", artifact, "--out", out)
        assert out.stat().st_uid == 0 and out.stat().st_mode & 0o7777 & ~0o644 == 0
    out.chmod(0o4600)
    daemon.cli.ok("load", artifact, "--out", out)
    assert out.stat().st_mode & 0o7777 == 0o600  # one's own is kept


def test_a_folder_that_is_exchanged_while_it_is_filled_is_the_one_that_was_opened(store, models):
    """fetch writes file after file, and another process moves the folder."""
    daemon, top = store
    checkpoints.write(models / "many", *({f"w{i}": checkpoints.blob(i, 64 << 10)} for i in range(40)))
    (top / "roots/there").mkdir()
    with acting_as(ANN):
        (top / "hers/to").mkdir()
        os.symlink("../roots/there", top / "hers/link")
    with her_program(top / "hers", "while not os.listdir('to'): pass\nlibc.renameat2(-100, b'to', -100, b'link', 2)") as busy:
        daemon.cli.ok("fetch", f"disk:{models}/many", top / "hers/to", "--all")
        assert busy.wait(60) == 0 and (top / "hers/to").is_symlink()
    assert not list((top / "roots/there").iterdir()) and len(list((top / "hers/link").glob("*.safetensors"))) == 40


# --- locked pages ----------------------------------------------------------------------------------------------------


def test_a_user_who_locks_all_the_pages_he_may_leaves_some_to_others_and_to_root(open_to_all, models):
    """A budget of four artifacts and a little: Ann gets two of three, Bob one, root the last."""
    artifacts = [write(models, "m" * n, 3 * MiB) for n in range(1, 7)]
    daemon = open_to_all(limits_section={"kept_for_others": 30}, memory={"locked_pages_budget": "12352KiB"},
                         sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}})

    def prewarm(uid, artifact):
        assert command(daemon, uid, "prewarm", artifact, "--memory", "mapped").code == 0

    for uid, artifact in zip((ANN, ANN, ANN, BOB, 0, 0), artifacts):
        prewarm(uid, artifact)
    status = daemon.status()
    assert {row["uid"]: row["locked_bytes"] for row in status["users"] if row["locked_bytes"]} == {
        ANN: 6 * MiB, BOB: 3 * MiB, 0: 3 * MiB}
    assert status["quotas"]["bytes of locked pages"] == {"taken": 12 * MiB, "limit": 12352 * 1024}
    assert soon(lambda: daemon.log().count("event=pages_not_locked") >= 2), daemon.log()
    refused = [line for line in daemon.whole_log().splitlines() if "event=pages_not_locked" in line]
    assert f"uid={ANN}" in refused[0] and "the rest is kept for other users" in refused[0] and "no more are left" in refused[-1]
    assert command(daemon, ANN, "release", "--all").code == 0
    assert soon(lambda: daemon.status()["quotas"]["bytes of locked pages"]["taken"] == 6 * MiB)
    prewarm(BOB, artifacts[0])
    assert daemon.status()["quotas"]["bytes of locked pages"]["taken"] == 9 * MiB
