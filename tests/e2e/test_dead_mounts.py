"""A mount that stops answering stops the requests that need it, and no others, wherever it stops and however many there are.

A FUSE server that never answers stands for a dead NFS server. Root only."""
import errno
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from checkpoints import blob, digest, digests, write
from stage import ROOT, MiB, soon
from test_users import ANN, BOB, OPEN, command, wire as wire_of
from wire import Wire

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import ROOT as ROOT_NODE, HangingFiles, why_not  # noqa: E402

pytestmark = pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
MANY = 100
PATIENCE_S = 60
NEVER = {("late_read", "Resolve")}


@pytest.fixture
def dead(models):
    """models/net, a mount whose server still answers."""
    data = {}
    for name in [f"m{i}" for i in range(4)]:
        write(models / "made", {"w": blob(1, 8 * MiB)})
        data[f"{name}/config.json"] = b"{}" * 1_000_000
        data[f"{name}/model.safetensors"] = (models / "made" / "model.safetensors").read_bytes()
    (models / "net").mkdir()
    with HangingFiles(models / "net", data) as files:
        yield files


def ask(wire, method, artifact):
    if method == "Materialize":
        request = wire.message("MaterializeRequest", load=wire.load_request(artifact))
    else:
        request = wire.message(f"{method}Request", artifact=artifact, **({"make_manifest": True} if method == "Verify" else {}))
    described = wire.service.methods_by_name[method]
    kind = wire.channel.unary_stream if described.server_streaming else wire.channel.unary_unary
    stub = kind(f"/tensorcast.daemon.v1.StoreDaemon/{method}", request_serializer=lambda m: m.SerializeToString())
    return stub(request, timeout=600) if described.server_streaming else stub.future(request, timeout=600)


def others_go_on(daemon, models, name="good"):
    expected = write(models / name, {"w": blob(7, 4 * MiB)})
    for _ in range(3):
        report = daemon.cli.json("load", f"disk:{models}/{name}", "--digest", timeout=PATIENCE_S)
        assert digests(report) == {tensor: digest(value) for tensor, value in expected.items()}
        daemon.cli.ok("release", "--all", timeout=PATIENCE_S)
    daemon.cli.json("inspect", f"disk:{models}/{name}", timeout=PATIENCE_S)
    daemon.cli.json("explain", f"disk:{models}/{name}", timeout=PATIENCE_S)
    assert daemon.cli.run("verify", f"disk:{models}/{name}", timeout=PATIENCE_S).code in (0, 1)


@pytest.mark.parametrize("method", ["Materialize", "Resolve", "Verify", "FetchSidecars"])
@pytest.mark.parametrize("where", ["lookup", "getattr", "open", "opendir", "readdir", "read", "late_read", "flush"])
def test_whatever_hangs_on_a_dead_mount_others_go_on(start, models, dead, where, method):
    daemon = start(engine={"io_threads": 2})
    with daemon.channel() as channel:
        wire = Wire(channel)
        dead.hangs = {where}
        calls = [ask(wire, method, f"disk:{models}/net/m{i % 4}" + ("" if where != "readdir" else "/.."))
                 for i in range(MANY)]
        can_hang = (where, method) not in NEVER
        assert bool(soon(lambda: dead.hung, 60 if can_hang else 0.2)) == can_hang
        others_go_on(daemon, models)
        for call in calls:
            call.cancel()
        others_go_on(daemon, models, "later")


@pytest.mark.parametrize("name", ["ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN", "ECONNABORTED", "EREMOTEIO", "EAGAIN",
                                  "ENODEV", "ENODATA", "EINTR"])
def test_an_error_of_a_slow_server_is_worth_another_try(dead, daemon, models, name):
    dead.late_error = getattr(errno, name)
    outcome = daemon.cli.run("load", models / "net/m0", "--memory", "copied", timeout=PATIENCE_S)
    assert outcome.status == "UNAVAILABLE" and f"({name})" in outcome.err, outcome
    dead.late_error = 0
    daemon.cli.ok("load", models / "net/m0", "--memory", "copied")


def test_a_server_that_has_died_is_no_defect_of_the_daemon(dead, daemon, models):
    daemon.cli.ok("load", models / "net/m0", "--memory", "copied")
    dead.die()
    for words in (["load", models / "net/m1"], ["inspect", models / "net/m0/model.safetensors"], ["verify", models / "net/m0"]):
        assert daemon.cli.run(*words, timeout=PATIENCE_S).status == "UNAVAILABLE"
    assert "code=INTERNAL" not in daemon.whole_log()


@pytest.fixture
def dead_root():
    """A folder on a mount outside the models."""
    folder = Path(tempfile.mkdtemp(prefix="tc8-dead-"))
    with HangingFiles(folder, {"root/m/config.json": b"{}"}) as files:
        yield folder / "root", files
    folder.rmdir()


def test_a_trusted_root_on_a_dead_mount_does_not_stop_the_other_roots(start, models, dead_root):
    root, files = dead_root
    daemon = start(sources={"disk": {"trusted_roots": [str(root), str(models)]}})
    files.hangs = {"lookup", "getattr"}
    others_go_on(daemon, models)
    with daemon.channel() as channel:
        wire = Wire(channel)
        calls = [ask(wire, "Materialize", f"disk:{root}/m{i % 4}") for i in range(MANY)]
        calls += [ask(wire, "Resolve", f"disk:/no/such/root{i}") for i in range(MANY)]
        assert files.wait_for("lookup")
        others_go_on(daemon, models)
        for call in calls:
            call.cancel()


def test_links_into_a_dead_mount_do_not_stop_the_folder_that_they_are_in(start, models, dead):
    daemon = start()
    for i in range(4):
        (models / f"absolute{i}").symlink_to(models / "net" / f"m{i}")
        (models / f"relative{i}").symlink_to(f"net/m{i}")
    dead.hangs = {"lookup", "getattr"}
    with daemon.channel() as channel:
        wire = Wire(channel)
        calls = [ask(wire, "Resolve", f"disk:{models}/{kind}{i % 4}") for i in range(MANY) for kind in ("absolute", "relative")]
        assert soon(lambda: dead.hung)
        others_go_on(daemon, models)
        for call in calls:
            call.cancel()


def test_helpers_are_shared_between_users_also_those_for_one_mount(start, models):
    """Ann's requests to a mount hang, as many as may run, and more wait; Bob has helpers for the same mount left, and Ann some
    for other files."""
    (models / "net").mkdir()
    whole = write(models / "made", {"w": blob(1, MiB)})
    data = (models / "made" / "model.safetensors").read_bytes()
    with HangingFiles(models / "net", {f"m{i}/model.safetensors": data for i in range(MANY + 1)}) as files:
        daemon = start(server=OPEN)
        daemon.folder.chmod(0o755)
        files.hangs, files.spared = {"open"}, set(files.children[files.children[ROOT_NODE][f"m{MANY}"]].values())
        with wire_of(daemon, ANN) as anns:
            calls = [ask(anns, "Resolve", f"disk:{models}/net/m{i}") for i in range(MANY)]
            assert soon(lambda: len(files.hung) >= 10)  # half of the half that a user alone may have
            for uid, where in (BOB, f"net/m{MANY}"), (BOB, "made"), (ANN, "made"), (0, f"net/m{MANY}"):
                seen = command(daemon, uid, "load", f"disk:{models}/{where}", "--digest", "--json", "--timeout", f"{PATIENCE_S}s")
                assert seen.code == 0, seen
                assert digests(seen.report) == {"w": digest(whole["w"])}
            assert len(files.hung) < MANY / 2 and not any(call.done() for call in calls)  # the others still wait for their turn
            for call in calls:
                call.cancel()


def test_a_folder_on_a_dead_mount_does_not_keep_another_users_from_being_missed(start, models, dead):
    """What a client calls its folder may lie anywhere, and the daemon looks for it every few seconds."""
    daemon = start(server=OPEN)
    daemon.folder.chmod(0o755)
    model = models / "made"
    with wire_of(daemon, ANN) as anns, tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        path = f"{models}/net/hers"
        making = anns.call("MakeFolder", anns.message("MakeFolderRequest", path=path, artifact="disk:/x", identity="x"))
        next(making)
        next(anns.call("MakeFolder", anns.message("MakeFolderRequest", path=path, is_made=True)))
        making.cancel()
        dead.hangs = {"lookup", "getattr"}
        daemon.cli.ok("folder", f"disk:{model}", f"{shm}/his")
        shutil.rmtree(f"{shm}/his")
        assert soon(lambda: [row["path"] for row in daemon.status()["folders"]] == [path], 60)
        assert dead.hung == []  # a FUSE mount is not asked
