"""What root's commands take from other users: links in the paths they are given, sockets, and files of a HOME that is not root's."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import checkpoints
from stage import CLI, DAEMON, MiB, Tensorcast, for_everybody

ANN = 70001
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def owned_by(uid, path):
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


@pytest.fixture
def anns():
    """A folder of Ann's that all users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tc-anns-"))
    folder.chmod(0o755)
    yield owned_by(ANN, folder)
    shutil.rmtree(folder)


@pytest.fixture
def roots(tmp_path):
    """Things that Ann must not touch: a file, a folder with something in it."""
    folder = tmp_path / "roots"
    (folder / "dir").mkdir(parents=True)
    (folder / "file").write_text("root's")
    (folder / "dir/kept").write_text("root's")
    checkpoints.write(folder / "model", {"w": checkpoints.blob(1, 300)})
    return folder


def link(anns, name, target):
    (anns / name).symlink_to(target)
    return owned_by(ANN, anns / name)


WRITING = [("load", "{model}", "--standalone", "--out", "{file}"), ("load", "{model}", "--standalone", "--out", "{dir}/new.safetensors"),
           ("manifest", "{model}", "--standalone", "--out", "{file}"), ("export", "{model}", "--out", "{dir}", "--force"),
           ("export", "{model}", "--out", "{dir}/new"), ("fetch", "{model}", "{dir}", "--all", "--standalone"),
           ("fetch", "{model}", "{dir}/new", "--sidecars", "--standalone"), ("activations", "claim", "{dir}", "--units", "1", "--owner", "x")]
READING = [("inspect", "{linked}", "--standalone"), ("load", "{linked}/model.safetensors", "--standalone"), ("export", "{linked}", "--out", "{out}"),
           ("put", "{linked}", "disk:{out}"), ("put", "{linked}/model.safetensors", "disk:{out}")]


@pytest.mark.parametrize("words", WRITING + READING, ids=" ".join)
def test_root_follows_no_link_of_another_user_to_what_is_not_theirs(anns, roots, tmp_path, words):
    names = {"model": roots / "model", "out": tmp_path / "out", "file": link(anns, "f", roots / "file"), "dir": link(anns, "d", roots / "dir"),
             "linked": link(anns, "m", roots / "model")}
    outcome = Tensorcast("/tmp/tc-no-daemon.sock").run(*(word.format(**names) for word in words))
    assert outcome.status == "PERMISSION_DENIED" and str(ANN) in outcome.err, outcome
    assert (roots / "file").read_text() == "root's" and [entry.name for entry in (roots / "dir").iterdir()] == ["kept"]
    assert not (tmp_path / "out").exists()


def test_root_follows_a_link_of_another_user_to_what_is_theirs_and_its_own_links_anywhere(anns, roots, tmp_path):
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    kept = owned_by(ANN, Path(tempfile.mkdtemp(dir=anns)))
    cli.ok("export", roots / "model", "--out", link(anns, "own", kept) / "copy")
    assert (kept / "copy/model.safetensors").exists()
    (tmp_path / "ours").symlink_to(roots / "dir")
    cli.ok("fetch", roots / "model", tmp_path / "ours", "--all", "--standalone")
    assert (roots / "dir/model.safetensors").exists()


def test_clients_of_root_use_no_daemon_of_the_user_they_came_from(anns):
    """su keeps XDG_RUNTIME_DIR."""
    runtime = owned_by(ANN, Path(tempfile.mkdtemp(dir=anns)))
    home = owned_by(ANN, Path(tempfile.mkdtemp(dir=anns)))
    environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime), "HOME": str(home), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    if os.path.exists("/run/tensorcast/daemon.sock"):
        pytest.skip("this host has a daemon")
    daemon = subprocess.Popen(["setpriv", f"--reuid={ANN}", f"--regid={ANN}", "--clear-groups", for_everybody(DAEMON), "--user"], env=environment,
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (runtime / "tensorcast/daemon.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        asked = subprocess.run([CLI, "status"], env=environment, capture_output=True, text=True)
        assert str(runtime) not in asked.stderr and f"pid {daemon.pid} " not in asked.stdout, asked  # another one of root's may run
        python = [sys.executable, "-c", "import tensorcast_client as tc; print(tc.connect().socket_path)"]
        said = subprocess.run(python, env=environment, capture_output=True, text=True)
        assert said.returncode == 0 and not said.stdout.startswith(str(runtime)), said
        own = subprocess.run(["setpriv", f"--reuid={ANN}", f"--regid={ANN}", "--clear-groups", for_everybody(CLI), "status"], env=environment,
                             capture_output=True, text=True)
        assert own.returncode == 0, own
    finally:
        daemon.kill()
        daemon.wait()


# --- uploads that were begun ---


@pytest.fixture
def put(fake, tmp_path):
    """put(home, *options): root's file, 20 MiB, to gs://b/backup."""
    fake.world.bucket("gcs", "b")
    fake.world.bucket("gcs", "anns")
    (tmp_path / "secret").write_bytes(os.urandom(20 * MiB))
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    cli.environment.update({"STORAGE_EMULATOR_HOST": fake.url("gcs"), "NO_GCE_CHECK": "true"})
    cli.environment.pop("XDG_STATE_HOME", None)

    def run(home, *options):
        cli.environment["HOME"] = str(home)
        return cli.run("put", tmp_path / "secret", "gs://b/backup", *options)

    return run


def begin_elsewhere(fake, put, home):
    """A session of Ann's for a bucket of hers, under the name that the command looks for in that home."""
    fake.fault({"status": 403}, match={"listener": "gcs", "method": "PUT"}, times=0)
    assert put(home).code != 0
    fake.faults.clear()
    kept = list((home / ".local/state/tensorcast/uploads").iterdir())
    assert len(kept) == 1, kept
    session = kept[0].read_text()
    assert "/b/b/o" in session, session
    return kept[0], session


def test_a_session_in_the_home_of_another_user_is_not_gone_on_with(fake, put, anns, tmp_path):
    refused = put(anns, "--resume")
    assert refused.status == "FAILED_PRECONDITION" and "HOME" in refused.err, refused
    done = put(anns)
    assert done.code == 0 and "belongs to user" in done.err and not (anns / ".local").exists(), done


@pytest.mark.parametrize("how", ["foreign", "open to others", "link", "open folder"])
def test_a_session_that_others_may_have_written_is_begun_anew(fake, put, tmp_path, how):
    home = tmp_path / "home"
    home.mkdir()
    kept, session = begin_elsewhere(fake, put, home)
    if how == "foreign":
        owned_by(ANN, kept)
    elif how == "open to others":
        kept.chmod(0o666)
    elif how == "link":
        shutil.move(kept, tmp_path / "moved")
        kept.symlink_to(tmp_path / "moved")
    else:
        kept.parent.chmod(0o777)
    fake.journal.clear()
    assert put(home, "--resume").code == 0
    identity = session.rsplit("upload_id=", 1)[1].split("&")[0]
    assert not any(identity in entry["path"] + str(entry.get("query", "")) for entry in fake.requests("gcs")), fake.requests("gcs")


def test_a_session_of_another_bucket_or_object_is_not_taken_for_this_one(fake, put, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    kept, session = begin_elsewhere(fake, put, home)
    kept.write_text(session.replace("/b/b/o", "/b/anns/o"))
    assert put(home, "--resume").code == 0
    assert fake.world.bucket("gcs", "b").keys.get("backup")


def test_an_upload_that_made_another_object_is_no_success(fake, put, tmp_path):
    (tmp_path / "home").mkdir()
    other = {"name": "loot", "bucket": "anns", "size": str(20 * MiB), "generation": "7", "crc32c": "AAAAAA=="}
    fake.fault({"status": 200, "body": json.dumps(other)}, match={"listener": "gcs", "method": "PUT", "header": {"content-range": r"-20971519/"}})
    failed = put(tmp_path / "home")
    assert failed.status == "FAILED_PRECONDITION" and "gs://anns/loot" in failed.err, failed


def test_an_export_to_a_store_is_not_staged_in_the_home_of_another_user(fake, anns, roots):
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    cli.environment = {"PATH": os.environ["PATH"], "HOME": str(anns), "STORAGE_EMULATOR_HOST": fake.url("gcs")}
    fake.world.bucket("gcs", "b")
    refused = cli.run("export", roots / "model", "--out", "gs://b/model")
    assert refused.status == "FAILED_PRECONDITION" and "HOME" in refused.err and not (anns / ".cache").exists(), refused
    cli.environment["XDG_CACHE_HOME"] = str(roots)
    cli.ok("export", roots / "model", "--out", "gs://b/model")


# --- settings of stores ---


def test_root_runs_no_credential_process_of_another_users_home(fake, anns, roots):
    (anns / ".aws").mkdir()
    (anns / ".aws/config").write_text(f"[default]\ncredential_process = touch {anns}/was-run\nendpoint_url = {fake.url('s3')}\n")
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    cli.environment = {"PATH": os.environ["PATH"], "HOME": str(anns), "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": fake.url("s3"),
                       "AWS_REGION": "us-east-1"}
    outcome = cli.run("inspect", "s3://bucket/model", "--standalone")
    assert outcome.status == "PERMISSION_DENIED" and "HOME is another user's" in outcome.err, outcome
    assert not (anns / "was-run").exists()
