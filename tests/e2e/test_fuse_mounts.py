"""Files of FUSE mounts are opened and read by a process of their own, since a request that the mount's server does not answer
cannot be ended, not even by SIGKILL: the daemon goes on, gives up and ends all the same. Root only."""
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob, digest, digests, write
from stage import ROOT, MiB, Tensorcast, soon
from test_dead_mounts import ask
from test_log import lines
from wire import Wire

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import MNT_DETACH, MS_BIND, FlickeringMount, HangingFiles, have_mounts_of_our_own, libc, why_not  # noqa: E402

pytestmark = pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
GRACE_S, SLACK_S = 1, 12
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


def helpers(daemon):
    """The pids of the processes that it has started for mounts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            before, _, after = (folder / "stat").read_text().rpartition(")")  # of a name that may have any letters
        except OSError:
            continue
        state, parent = after.split()[:2]
        if int(parent) == daemon.process.pid and before.partition("(")[2] == "tensorcast-fuse" and state != "Z":
            found.append(int(folder.name))
    return found


def open_files(pid):
    """What its descriptors lead to."""
    links = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links[int(entry.name)] = os.readlink(entry)
        except OSError:
            pass  # closed meanwhile
    return links


def loads(daemon, path, seed):
    report = daemon.cli.json("load", f"disk:{path}", "--digest", timeout=30)
    assert digests(report) == {"w": digest(blob(seed, SIZE))}
    return report


def test_the_daemon_has_no_file_of_a_fuse_mount_open_and_its_helper_nothing_else(start, models, mount):
    daemon = start()
    loads(daemon, models / "net/m0", 0)
    holder = daemon.cli.spawn("load", f"disk:{models}/net/m1", "--hold", "60")
    assert soon(lambda: daemon.status()["leases"] == 1)
    helper, = helpers(daemon)
    assert soon(lambda: lent_kib(helper) == 0)
    theirs = open_files(helper)
    assert not [link for link in open_files(daemon.process.pid).values() if "/net/" in link]
    assert [link for link in theirs.values() if link.endswith("net/m1/model.safetensors")]
    assert [theirs.pop(fd) for fd in (0, 1, 2)] == ["/dev/null"] * 3
    strangers = [link for link in theirs.values() if "/net/m" not in link and "mountinfo" not in link
                 and not link.startswith(("socket:", "/memfd:tensorcast-mount"))]
    assert strangers == []
    assert len([link for link in theirs.values() if link.startswith("socket:")]) <= 18  # control, idle connections
    environment = Path(f"/proc/{helper}/environ").read_bytes()
    assert all(entry.startswith(b"LD_") or b"SAN_OPTIONS=" in entry for entry in environment.split(b"\0") if entry)
    holder.kill()
    holder.communicate()
    daemon.cli.ok("release", "--all")
    assert soon(lambda: not [link for link in open_files(helper).values() if "/net/" in link])
    daemon.stop()
    assert soon(lambda: not Path(f"/proc/{helper}").exists())


def test_four_mounts_have_their_process_before_the_first_load_and_a_fifth_from_then_on(start, models):
    data, _ = part(models, 0)
    with contextlib.ExitStack() as mounted:
        for i in range(5):
            (models / f"net{i}").mkdir()
            served = HangingFiles(models / f"net{i}", {"m/model.safetensors": data})
            mounted.enter_context(served)
            if i == 0:
                silent = served
                silent.hangs = set(EVERYWHERE)
        daemon = start()
        assert soon(lambda: len(helpers(daemon)) == 4)
        for i in range(1, 5):
            loads(daemon, models / f"net{i}/m", 0)
        assert len(helpers(daemon)) == 5
        assert silent.hung == []  # nobody is asked without a request
        daemon.stop()


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
        helper, = helpers(daemon)
        started = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(GRACE_S + SLACK_S) == 0
        assert time.monotonic() - started < GRACE_S + SLACK_S
        assert not lines(daemon, "stop_forced")
        for call in calls:
            call.cancel()
    assert not daemon.socket.exists() and not daemon.handoff.exists()
    # what hangs is left behind and in nobody's way
    daemon.start()
    write(models / "good", {"w": blob(9, SIZE)})
    loads(daemon, models / "good", 9)
    mount.end()  # whoever hangs gets an error
    assert soon(lambda: not Path(f"/proc/{helper}").exists())


def test_a_load_that_is_cancelled_while_its_read_hangs_gives_its_memory_back(start, models, mount):
    daemon = start()
    mount.hangs = {"late_read"}
    load = daemon.cli.spawn("load", f"disk:{models}/net/m0")
    assert mount.wait_for("read")
    assert daemon.status()["loads"]
    load.kill()
    load.communicate()
    assert soon(daemon.at_rest)
    mount.hangs = set()
    loads(daemon, models / "net/m1", 1)


def lent_kib(pid):
    """How much of our memory the process has mapped."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "memfd:tensorcast-replica" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in (line[0].split("-") for line in lines)) >> 10


@pytest.mark.parametrize("how", [[], ["--placement", "packed"]])
def test_a_read_that_was_given_up_writes_late_into_memory_that_nobody_uses(start, models, mount, how):
    daemon = start()
    loads(daemon, models / "net/m0", 0)
    helper, = helpers(daemon)
    assert soon(lambda: lent_kib(helper) == 0)
    for seed in (1, 2):
        mount.hangs = {"late_read"}
        load = daemon.cli.spawn("load", f"disk:{models}/net/m{seed}", *how)
        assert mount.wait_for("read") and soon(lambda: lent_kib(helper))
        load.kill()
        load.communicate()
        assert soon(daemon.at_rest)
        assert lent_kib(helper) > 0  # it is still there
        mount.hangs = set()
        other = daemon.cli.spawn("load", f"disk:{models}/net/m3", "--digest", "--json", *how)
        mount.answer_late(b"\xee")
        out, err = other.communicate(timeout=60)
        assert other.returncode == 0, err
        assert digests(json.loads(out)) == {"w": digest(blob(3, SIZE))}
        assert soon(lambda: lent_kib(helper) == 0)
        assert digests(daemon.cli.json("load", f"disk:{models}/net/m{seed}", "--digest", *how)) == {"w": digest(blob(seed, SIZE))}
        daemon.cli.ok("release", "--all")
        mount.hung.clear()


@pytest.mark.parametrize("how", [[], ["--placement", "packed"], ["--slice", f"w[4097:{SIZE - 4099}]"]])
def test_bytes_are_right_whichever_memory_the_helper_fills(start, models, mount, how):
    daemon = start()
    whole = blob(0, SIZE)
    expected = whole[4097:SIZE - 4099] if "--slice" in how else whole
    for _ in range(2):
        report = daemon.cli.json("load", f"disk:{models}/net/m0", "--digest", *how)
        assert digests(report) == {"w": digest(expected)}
        daemon.cli.ok("release", "--all")
    helper, = helpers(daemon)
    assert soon(lambda: lent_kib(helper) == 0)


def test_a_mount_with_many_requests_that_were_given_up_refuses_more(start, models, mount):
    daemon = start()
    loads(daemon, models / "net/m0", 0)
    daemon.cli.ok("release", "--all")
    mount.hangs = {"getattr", "lookup"}
    for i in range(100):
        if i >= 20 and len(mount.hung) >= 16:  # on a busy machine some give up before they have asked
            break
        late = daemon.cli.run("inspect", f"disk:{models}/net/m{i % 4}", "--timeout", "100ms")
        assert late.status == "DEADLINE_EXCEEDED", late
    refused = daemon.cli.run("inspect", f"disk:{models}/net/m1", "--timeout", "30s")
    said = re.search(rf"FUSE mount {models}/net has not answered (\d+) requests", refused.err)
    # one more than a user's share where a request was sent before the daemon gave up the one before it
    assert refused.status == "UNAVAILABLE" and said and 16 <= int(said[1]) <= 17, refused
    write(models / "good", {"w": blob(9, SIZE)})
    loads(daemon, models / "good", 9)


def test_a_helper_that_dies_fails_its_loads_and_the_next_one_starts_another(start, models, mount):
    daemon = start()
    loads(daemon, models / "net/m0", 0)
    mount.hangs = {"late_read"}
    load = daemon.cli.spawn("load", f"disk:{models}/net/m1")
    assert mount.wait_for("read")
    helper, = helpers(daemon)
    os.kill(helper, signal.SIGKILL)
    _, err = load.communicate(timeout=60)
    assert "UNAVAILABLE" in err and f"the process that reads the FUSE mount {models}/net has ended" in err
    mount.hangs = set()
    loads(daemon, models / "net/m2", 2)
    other, = helpers(daemon)
    assert other != helper


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
        assert not [link for link in open_files(daemon.process.pid).values() if "/net" in link]
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
        assert len(helpers(daemon)) == 1
        assert not [link for link in open_files(daemon.process.pid).values() if "/hub/" in link]
        served.hangs = {"lookup", "getattr", "readlink"}
        load = daemon.cli.spawn("load", "hf://org/m@" + "d" * 40)
        assert soon(lambda: served.hung)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(GRACE_S + SLACK_S) == 0
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
    assert len(helpers(daemon)) == 1


# --- what users mount where the daemon writes and looks ---


def ends(daemon):
    """Whatever hangs in it, a process with a thread on a FUSE mount does not."""
    started = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    return daemon.process.wait(GRACE_S + SLACK_S) == 0 and time.monotonic() - started < GRACE_S + SLACK_S


def test_no_host_folder_of_a_store_is_a_mount(start, models):
    """Whose folder it is may mount something there, and on its files."""
    acts = models / "acts"
    for host in (1, 2, 3):
        (acts / f"host_{host:03}").mkdir(parents=True)
    with HangingFiles(acts / "host_001", {"manifest.json": b"{}"}) as served:
        served.hangs = set(EVERYWHERE)
        daemon = start(server={"shutdown_grace": f"{GRACE_S}s"}, activations={"roots": [str(models)]})
        client = tc.connect(daemon.socket)
        with client.activation_store(f"disk:{acts}", host=2) as store:
            store.append(1, {1: np.arange(3.0)})
        with pytest.raises(tc.TensorcastError, match="host_001 is a mount of its own"):
            client.activation_store(f"disk:{acts}", host=1)
        for name, what in (("manifest.json", b"{}"), ("segment_000001.safetensors", b"x"), ("segment_000002.open", b"y")):
            at, other = acts / "host_003" / name, models / "other"
            at.touch()
            other.write_bytes(what)
            assert libc.mount(os.fsencode(other), os.fsencode(at), None, MS_BIND, None) == 0
            with pytest.raises(tc.TensorcastError, match=f"{name}.*cross-device"):
                client.activation_store(f"disk:{acts}", host=3)
            assert libc.umount2(os.fsencode(at), MNT_DETACH) == 0
            at.unlink()
        assert served.hung == [] and ends(daemon)


def test_a_folder_that_is_said_to_lie_on_a_fuse_mount_is_not_looked_for_there(start, models):
    (models / "net").mkdir()
    (models / "link").symlink_to("net")
    with HangingFiles(models / "net", {"a/b": b"x"}) as served:
        served.hangs = set(EVERYWHERE)
        daemon = start(server={"shutdown_grace": f"{GRACE_S}s"})
        with daemon.channel() as channel:
            wire = Wire(channel)
            for path in ("net/a/model", "net/model", "link/a/model", "gone"):
                making = wire.call("MakeFolder", wire.message("MakeFolderRequest", path=f"{models}/{path}", artifact="disk:/x", identity=path))
                next(making)
                for is_there in (False, True)[:1 if path == "gone" else 2]:
                    wire.call("KeepFolder", wire.message("KeepFolderRequest", path=f"{models}/{path}", is_there=is_there, device=1, inode=2,
                                                         stamp_ns=3), timeout=10)
                making.cancel()
            assert soon(lambda: len(daemon.status()["folders"]) == 3)  # all have been looked for twice
        assert served.hung == [] and ends(daemon)


def test_a_mount_that_comes_while_its_path_is_looked_at_is_not_entered(start, models):
    """Mounted and unmounted as fast as can be, while many ask for what is below."""
    net = models / "net"
    (net / "deep" / "acts").mkdir(parents=True)
    have_mounts_of_our_own()  # the daemon's, too
    daemon = start(server={"shutdown_grace": f"{GRACE_S}s"}, activations={"roots": [str(models)]})
    with FlickeringMount(net) as mount:
        asking = [threading.Thread(target=open_until, args=(daemon, f"disk:{net}/deep/acts", host, 3, lambda: mount.n_mounts > 100))
                  for host in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    threads = {int(name) for name in os.listdir(f"/proc/{daemon.process.pid}/task")}
    assert mount.n_mounts > 100 and not threads & mount.asked_by, mount.n_mounts
    assert ends(daemon)


def open_until(daemon, store, host, seconds, has_ended):
    """So long, and on a busy machine until it has."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds or not has_ended() and time.monotonic() < begin + 60:
        with contextlib.suppress(tc.TensorcastError, OSError):
            tc.connect(daemon.socket, timeout=2.0).activation_store(store, host=host).close()


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
