"""What names, folders and files of one user can do to another, and to root: two users and root, run as such (see test_users.py)."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import pytest

import checkpoints
from stage import MiB, Tensorcast, acting_as, soon
from test_users import ANN, BOB, OPEN, command, connections, open_to_all, pytestmark, wire, write  # noqa: F401

MAPPED = 3  # MemoryPreference


@pytest.fixture
def shm():
    """Anybody may make something in it, and remove what is his own, as in /dev/shm."""
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


def keep(spoken, path, **words):
    """Says that it is made, whatever is there."""
    for is_there in (False, True):
        spoken.call("KeepFolder", spoken.message("KeepFolderRequest", path=str(path), is_there=is_there, **words))


@pytest.mark.parametrize("how", ["asks and waits", "says that it was made"])
def test_a_path_that_a_user_claims_is_anothers_whom_the_file_system_lets(open_to_all, models, shm, how):
    artifact, daemon = write(models, "m", MiB), open_to_all()
    with wire(daemon, ANN) as anns:
        calls = [claim(anns, shm / name) for name in ("bobs", "roots", "model")]
        if how == "says that it was made":
            for name in ("bobs", "roots", "model"):
                keep(anns, shm / name, device=1, inode=2, stamp_ns=3)
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


def test_nobody_can_make_the_daemon_forget_a_folder_of_another_user(open_to_all, models, shm):
    """A record is of a user's folder, and device and inode are what he says they are."""
    artifact, daemon = write(models, "m", MiB), open_to_all()
    assert command(daemon, BOB, "folder", artifact, shm / "his").code == 0
    there = os.stat(shm / "his")
    with wire(daemon, ANN) as anns:
        for path in (shm / "his", shm / "hers"):
            call = claim(anns, path)
            keep(anns, path, device=there.st_dev, inode=there.st_ino, stamp_ns=1)
            call.cancel()
            anns.call("Release", anns.message("ReleaseRequest", folder=str(path), folder_is_gone=True))
    assert soon(lambda: [row["uid"] for row in daemon.status()["folders"]] == [BOB])
    daemon.stop()
    daemon.start()
    assert [(row["path"], row["uid"]) for row in daemon.status()["folders"]] == [(str(shm / "his"), BOB)]
    assert "is there" in command(daemon, BOB, "folder", artifact, shm / "his").out


# --- files' own pages ------------------------------------------------------------------------------------------------


def test_descriptors_that_a_user_does_not_receive_keep_nobody_elses_from_being_sent(start, models):
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
        assert "event=handoff_failed" not in daemon.log()
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
    os.symlink(hers / "secret" / "key", hers / "run" / "of root")  # whoever runs the command may link what he likes
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


def test_what_another_user_exchanges_meanwhile_is_not_copied_out_either(hers):
    """Files and folders for links and back, as fast as she can."""
    flip = ("import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nos.chdir(sys.argv[1])\n"
            "while True:\n for a, b in ((b'f', b'f2'), (b'd', b'd2')): libc.renameat2(-100, a, -100, b, 2)")
    with acting_as(ANN):
        (hers / "run" / "d").mkdir()
        for name in ("f", "d/key"):
            (hers / "run" / name).write_bytes(b"hers " * 140)
        os.symlink("../secret/key", hers / "run" / "f2")
        os.symlink("../secret", hers / "run" / "d2")
    busy = subprocess.Popen(["setpriv", f"--reuid={ANN}", f"--regid={ANN}", "--clear-groups", sys.executable, "-I", "-c", flip,
                             str(hers / "run")], cwd="/")
    try:
        codes = set()
        for i in range(60):
            codes.add(PUT.run("put", hers / "run", f"disk:{hers}/copy{i}").status)
            copied = [path for path in hers.glob(f"copy{i}/**/*") if path.is_file()]
            assert all(path.read_bytes().startswith(b"hers") for path in copied), copied
        assert busy.poll() is None and codes <= {None, "PERMISSION_DENIED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"}, codes
        assert codes & {"PERMISSION_DENIED", "INVALID_ARGUMENT"}, codes
    finally:
        busy.kill()
        busy.wait()


# --- exports ---------------------------------------------------------------------------------------------------------


def test_half_an_export_that_another_user_left_is_not_gone_on_with(open_to_all, models, shm):
    """Her folder beside the target, with a journal that says that all is written: the same export of hers, and other bytes."""
    artifact, daemon = write(models, "m", MiB), open_to_all()
    (models / "m" / "model.safetensors").chmod(0o644)  # an export reads with the rights of whoever runs it
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
