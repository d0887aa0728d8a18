"""The daemon uses files of FUSE mounts as any others. A request that the mount's server does not answer cannot be ended, not even by
SIGKILL: at a stop the daemon cuts the connection, or says which mount keeps it. Root only."""
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob, digest, digests, write
from stage import DAEMON, ROOT, MiB, Tensorcast, soon
from test_dead_mounts import ask
from test_log import lines
from wire import Wire

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import MNT_DETACH, HangingFiles, have_mounts_of_our_own, libc, why_not  # noqa: E402

pytestmark = pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
GRACE_S, SLACK_S = 1, 30
SIZE = 8 * MiB
EVERYWHERE = ["lookup", "getattr", "open", "opendir", "readdir", "read", "late_read", "flush"]


def part(folder, seed, name="w"):
    """The bytes of a model.safetensors, and what is in it."""
    tensors = write(folder / f"made{seed}", {name: blob(seed, SIZE)})
    return (folder / f"made{seed}" / "model.safetensors").read_bytes(), tensors


@pytest.fixture
def mount(models):
    """models/net with m0 to m3, whose server answers until it is told not to."""
    (models / "net").mkdir()
    files = {f"m{i}/model.safetensors": part(models, i)[0] for i in range(4)}
    with HangingFiles(models / "net", {**files, **{f"m{i}/config.json": b"{}" for i in range(4)}}) as served:
        yield served


def loads(daemon, path, seed):
    report = daemon.cli.json("load", f"disk:{path}", "--digest", timeout=30)
    assert digests(report) == {"w": digest(blob(seed, SIZE))}
    return report


def ends(daemon):
    started = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    return daemon.process.wait(GRACE_S + SLACK_S) == 0 and time.monotonic() - started < GRACE_S + SLACK_S


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_daemon_ends_within_its_grace_whatever_a_fuse_server_does_not_answer(start, models, mount, where):
    daemon = start(server={"shutdown_grace": f"{GRACE_S}s"})
    loads(daemon, models / "net/m0", 0)
    with daemon.channel() as channel:
        wire = Wire(channel)
        mount.hangs = {where}
        calls = [ask(wire, method, f"disk:{models}/net/m{i}" + ("/.." if where == "readdir" else ""))
                 for method in ("Resolve", "Materialize", "Verify", "FetchSidecars") for i in range(4)]
        assert soon(lambda: mount.hung)
        assert ends(daemon)
        assert lines(daemon, "fuse_mount_cut")[0]["mount"] == f"{models}/net" and not lines(daemon, "stop_forced")
        for call in calls:
            call.cancel()
    assert not daemon.socket.exists() and not daemon.handoff.exists()


def test_a_fuse_server_that_answers_late_is_not_cut_off(start, models, mount):
    daemon = start(server={"shutdown_grace": f"{GRACE_S}s"})
    with daemon.channel() as channel:
        mount.hangs = {"late_read"}
        call = ask(Wire(channel), "Materialize", f"disk:{models}/net/m0")
        assert mount.wait_for("read")
        daemon.process.send_signal(signal.SIGTERM)
        assert soon(lambda: lines(daemon, "drain_incomplete"))
        mount.hangs = set()
        mount.answer_late(b"x")
        assert daemon.process.wait(GRACE_S + SLACK_S) == 0
        call.cancel()
    assert not lines(daemon, "fuse_mount_cut")


def without_the_right_to_mount(daemon, connections):
    """Started so, with that over the kernel's files of connections: "fusectl", or "tmpfs" for none."""
    if not os.path.isdir("/sys/fs/fuse/connections"):
        pytest.skip("no sysfs is mounted here")
    have_mounts_of_our_own()
    assert libc.mount(b"none", b"/sys/fs/fuse/connections", connections, 0, None) == 0
    with open(daemon.log_path, "a") as log:
        daemon.process = subprocess.Popen(["setpriv", "--bounding-set", "-sys_admin", str(DAEMON), "--config", str(daemon.config)],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    assert soon(daemon.serving), daemon.log()


@pytest.fixture
def unmount_connections():
    yield
    libc.umount2(b"/sys/fs/fuse/connections", MNT_DETACH)


def test_a_connection_is_cut_by_the_kernels_file_of_it(start, models, mount, unmount_connections):
    daemon = start(running=False, server={"shutdown_grace": f"{GRACE_S}s"})
    without_the_right_to_mount(daemon, b"fusectl")
    mount.hangs = {"late_read"}
    load = daemon.cli.spawn("load", f"disk:{models}/net/m0")
    assert mount.wait_for("read") and ends(daemon)
    assert lines(daemon, "fuse_mount_cut")
    load.communicate()


def test_what_may_not_be_cut_is_named_and_keeps_neither_sockets_nor_memory(start, models, mount, unmount_connections):
    """The kernel keeps what is left of the process until the server answers. A new daemon does not care."""
    write(models / "good", {"w": blob(9, SIZE)})
    daemon = start(running=False, server={"shutdown_grace": f"{GRACE_S}s"})
    without_the_right_to_mount(daemon, b"tmpfs")
    loads(daemon, models / "good", 9)
    mount.hangs = {"late_read"}
    load = daemon.cli.spawn("load", f"disk:{models}/net/m0")
    assert mount.wait_for("read")
    process = daemon.process
    process.send_signal(signal.SIGTERM)
    assert "the daemon is stopping" in load.communicate(timeout=60)[1]
    assert soon(lambda: lines(daemon, "stop_forced"), SLACK_S)
    hangs, = lines(daemon, "fuse_mount_hangs")
    assert hangs["mount"] == f"{models}/net" and hangs["error"] == "EPERM"
    assert lines(daemon, "replica_dropped")[-1]["reason"] == "shutdown"
    assert not daemon.socket.exists() and not daemon.handoff.exists()
    daemon.start()
    loads(daemon, models / "good", 9)
    mount.end()  # hung readers get an error
    assert process.wait(30) == 1


def test_a_load_that_is_cancelled_while_its_read_hangs_gives_its_memory_back_when_the_read_ends(start, models, mount):
    daemon = start()
    mount.hangs = {"late_read"}
    load = daemon.cli.spawn("load", f"disk:{models}/net/m0")
    assert mount.wait_for("read")
    load.kill()
    load.communicate()
    write(models / "good", {"w": blob(9, SIZE)})
    loads(daemon, models / "good", 9)
    daemon.cli.ok("release", "--all")
    mount.hangs = set()
    mount.answer_late(b"\xee")
    assert soon(daemon.at_rest)
    for how in [], ["--placement", "packed"]:
        assert digests(daemon.cli.json("load", f"disk:{models}/net/m0", "--digest", *how)) == {"w": digest(blob(0, SIZE))}
        daemon.cli.ok("release", "--all")


def test_no_file_of_a_mount_is_mapped_whatever_the_operator_says(start, models, mount):
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}})
    refused = daemon.cli.run("load", f"disk:{models}/net/m0", "--memory", "mapped")
    assert refused.status == "FAILED_PRECONDITION" and "it is on a FUSE mount" in refused.err, refused
    loads(daemon, models / "net/m0", 0)
    assert "/net/" not in Path(f"/proc/{daemon.process.pid}/maps").read_text()


def test_no_store_for_activations_is_on_a_mount(start, models, mount):
    daemon = start(activations={"roots": [str(models)]})
    with pytest.raises(tc.TensorcastError, match="the store is on a FUSE mount"):
        tc.connect(daemon.socket).activation_store(f"disk:{models}/net/m0", host=1)


def test_links_lead_from_a_local_folder_into_a_mount_and_from_one_mount_into_another(start, models, mount):
    expected = {"local": blob(20, SIZE), "w": blob(0, SIZE), "x": blob(21, SIZE)}
    whole = write(models / "mixed", {"local": expected["local"]}, {"w": expected["w"]}, {"x": expected["x"]})
    assert set(whole) == set(expected)
    second, third = "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"
    data = (models / "mixed" / third).read_bytes()
    (models / "net2").mkdir()
    (models / "net3").mkdir()
    with HangingFiles(models / "net2", {"data": data}), \
            HangingFiles(models / "net3", {"far": f"{models}/net2/data", "out": "/etc/passwd", "mixed": f"{models}/mixed"}):
        for name, target in (second, models / "net/m0/model.safetensors"), (third, models / "net3/far"):
            (models / "mixed" / name).unlink()
            (models / "mixed" / name).symlink_to(target)
        daemon = start()
        for folder in "mixed", "net3/mixed":
            report = daemon.cli.json("load", f"disk:{models}/{folder}", "--digest", timeout=30)
            assert digests(report) == {name: digest(value) for name, value in expected.items()}
            daemon.cli.ok("release", "--all")
        refused = daemon.cli.run("load", f"disk:{models}/net3/out")
        assert refused.status == "PERMISSION_DENIED" and "outside the trusted roots" in refused.err, refused


def test_a_trusted_root_that_leads_into_a_mount_is_used_under_both_its_names(start, models):
    folder = Path(tempfile.mkdtemp(prefix="tc8-fuse-")).resolve()
    data, _ = part(models, 5)
    with HangingFiles(folder, {"real/m/model.safetensors": data, "link": "real/m"}) as files:
        (models / "root").symlink_to(folder / "real")
        (models / "inside").mkdir()
        (models / "inside/m").symlink_to(folder / "real/m")
        daemon = start(sources={"disk": {"trusted_roots": [str(models / "root"), str(models / "inside")]}})
        for name in "root/m", "inside/m":
            loads(daemon, models / name, 5)
            daemon.cli.ok("release", "--all")
        files.hangs = {"lookup", "getattr"}
        write(models / "inside/good", {"w": blob(9, SIZE)})
        loads(daemon, models / "inside/good", 9)
        assert daemon.cli.run("inspect", f"disk:{models}/root/m", "--timeout", "1s").status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        daemon.stop()
    folder.rmdir()


def test_the_hubs_cache_may_lie_on_a_mount(start, models):
    data, _ = part(models, 7)
    commit, blob_name, top = "c" * 40, hashlib.sha256(data).hexdigest(), "models--org--m"
    files = {f"{top}/refs/main": commit.encode(), f"{top}/blobs/{blob_name}": data,
             f"{top}/snapshots/{commit}/model.safetensors": f"../../blobs/{blob_name}",
             f"{top}/snapshots/{commit}/config.json": b"{}"}
    (models / "hub").mkdir()
    with HangingFiles(models / "hub", files) as served:
        daemon = start(server={"shutdown_grace": f"{GRACE_S}s"}, running=False)
        tree = daemon.tree
        tree["sources"]["hf"] = {"cache_dir": str(models / "hub"), "offline": True}
        daemon.configure(tree)
        daemon.start()
        report = daemon.cli.json("load", "hf://org/m", "--digest", timeout=30)
        assert digests(report) == {"w": digest(blob(7, SIZE))}
        served.hangs = {"lookup", "getattr", "readlink"}
        load = daemon.cli.spawn("load", "hf://org/m@" + "d" * 40)
        assert soon(lambda: served.hung)
        assert ends(daemon)
        load.communicate(timeout=30)


def test_errors_of_files_on_a_mount_are_those_of_local_files(start, models, mount):
    daemon = start()
    missing = daemon.cli.run("inspect", f"disk:{models}/net/none")
    assert missing.status == "NOT_FOUND" and f"{models}/net/none" in missing.err, missing
    outside = daemon.cli.run("inspect", f"disk:{models}/net/../../etc")
    assert outside.status == "PERMISSION_DENIED", outside
    whole = daemon.cli.json("inspect", f"disk:{models}/net/m0")
    assert whole["tensors"][0]["name"] == "w"
    explained = daemon.cli.json("explain", f"disk:{models}/net/m0")
    assert "may change a file without this host's kernel" in str(explained)
    verified = daemon.cli.run("verify", f"disk:{models}/net/m0", timeout=60)
    assert verified.code in (0, 1), verified


# --- what users mount where the daemon writes and looks ---


def test_a_host_folder_on_a_fuse_mount_is_refused_and_the_others_serve(start, models):
    acts = models / "acts"
    for host in (1, 2):
        (acts / f"host_{host:03}").mkdir(parents=True)
    with HangingFiles(acts / "host_001", {"manifest.json": b"{}"}) as served:
        served.hangs = set(EVERYWHERE)
        daemon = start(server={"shutdown_grace": f"{GRACE_S}s"}, activations={"roots": [str(models)]})
        client = tc.connect(daemon.socket)
        with client.activation_store(f"disk:{acts}", host=2) as store:
            store.append(1, {1: np.arange(3.0)})
        with pytest.raises(tc.TensorcastError, match="on a FUSE mount"):
            client.activation_store(f"disk:{acts}", host=1)
        assert served.hung == [] and ends(daemon)


def test_a_folder_that_is_said_to_lie_on_a_fuse_mount_is_not_looked_for_there(start, models):
    (models / "net").mkdir()
    with HangingFiles(models / "net", {"a/b": b"x"}) as served:
        served.hangs = set(EVERYWHERE)
        daemon = start(server={"shutdown_grace": f"{GRACE_S}s"})
        with daemon.channel() as channel:
            wire = Wire(channel)
            for path in ("net/a/model", "net/model", "gone"):
                making = wire.call("MakeFolder", wire.message("MakeFolderRequest", path=f"{models}/{path}", artifact="disk:/x", identity=path))
                next(making)
                if path != "gone":
                    next(wire.call("MakeFolder", wire.message("MakeFolderRequest", path=f"{models}/{path}", is_made=True), timeout=10))
                making.cancel()
            assert soon(lambda: len(daemon.status()["folders"]) == 2)  # all have been looked for twice
        assert served.hung == [] and ends(daemon)


def test_root_follows_a_link_of_a_server_to_that_server_alone(models, tmp_path):
    """Every link there says that it is root's. Outside is what only root may read."""
    secret = tmp_path / "secret"
    secret.write_text('{"token": "root alone knows"}')
    secret.chmod(0o600)
    (models / "net").mkdir()
    data, _ = part(models, 1)
    cli = Tensorcast(models / "nobody.sock")
    served = {"good/model.safetensors": data, "same/model.safetensors": "../good/model.safetensors", "out/model.safetensors": data,
              "out/config.json": str(secret), "through/model.safetensors": "../again/model.safetensors",
              "again/model.safetensors": f"{models}/made1/model.safetensors"}
    with HangingFiles(models / "net", served):
        cli.ok("load", "--standalone", models / "net/same", "--out", tmp_path / "same.safetensors")
        assert (tmp_path / "same.safetensors").stat().st_size >= SIZE
        for words in (["fetch", "--standalone", models / "net/out", tmp_path / "o", "--all"], ["export", models / "net/out", "--out", tmp_path / "o"],
                      ["put", models / "net/out", f"disk:{tmp_path}/o"], ["load", "--standalone", models / "net/through", "--out", tmp_path / "o"],
                      ["verify", "--standalone", models / "net/again"]):
            seen = cli.run(*words)
            assert seen.status == "PERMISSION_DENIED" and "its server" in seen.err, seen
            assert not any(b"root alone knows" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != secret)
    (models / "here").mkdir()
    os.symlink(secret, models / "here/config.json")  # root's own link, on a file system of this kernel
    cli.ok("put", models / "here", f"disk:{tmp_path}/own")
