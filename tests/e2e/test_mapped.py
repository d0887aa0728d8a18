"""The files' own pages: each proof with real images and attributes, what is none, and that nothing of a file stays open."""
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import numpy as np
import pytest

from checkpoints import blob, digests, write
from group_scene import WORLD, Load, arrays, expected, group, slices, strategy  # noqa: F401
from stage import ROOT, MiB, soon
from wire import Wire

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import HangingFiles, why_not  # noqa: E402

COPIED, AUTO, MAPPED = 2, 1, 3
MAKE = {"squashfs": ["mksquashfs", "{tree}", "{image}", "-noappend", "-no-progress", "-quiet"],
        "erofs": ["mkfs.erofs", "{image}", "{tree}"],
        "ext4": ["mke2fs", "-q", "-F", "-t", "ext4", "-d", "{tree}", "{image}", "16M"]}


def run(*command):
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]} here (setup/packages.debian)")
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")


@pytest.fixture
def model(models):
    w = np.arange(60 * 50, dtype=np.uint32).reshape(60, 50)
    write(models / "m", {"w": w})
    return models / "m"


@pytest.fixture
def mounted(models, model):
    """mounted(kind, *options): the model in an image of that kind, below the trusted folder."""
    if os.geteuid():
        pytest.skip("only root can mount")
    folder, made = Path(tempfile.mkdtemp(prefix="tc8-images-")), []

    def mount(kind, *options, at=None):
        image, at = folder / f"{kind}.image", at or models / f"mounted-{len(made)}"
        if not image.exists():
            run(*(part.format(tree=model, image=image) for part in MAKE[kind]))
        at.mkdir(exist_ok=True)
        run("mount", "-t", kind, "-o", ",".join(["loop", *options]), image, at)
        made.append(at)
        return at

    yield mount
    for at in reversed(made):
        subprocess.run(["umount", "-l", at], capture_output=True)
    shutil.rmtree(folder)


@pytest.fixture
def trusting(start, models):
    """trusting(folder): a daemon whose operator says that nothing in it changes."""
    return lambda folder, **sources: start(sources={
        "disk": {"trusted_roots": [str(models)], "immutable_roots": [str(folder)]}, **sources})


class Lease:
    """A mapped load by hand: the result, and the descriptors that came for it."""

    def __init__(self, daemon, folder, memory=MAPPED, **fields):
        with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
            wire = Wire(channel)
            request = wire.message("MaterializeRequest")
            request.load.artifact = folder if isinstance(folder, str) else f"disk:{folder}"
            request.load.memory = memory
            for name, value in fields.items():
                setattr(request.load, name, value)
            events = list(wire.call("Materialize", request))
            self.result = events[-1].result
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.fds = []
            if self.result.handoff_token:
                self.socket.connect(self.result.handoff_socket)
                self.socket.send(self.result.handoff_token)
                while len(self.fds) < max(1, len(self.result.files)):
                    answer, fds, _, _ = socket.recv_fds(self.socket, 32, 64)
                    assert struct.unpack("<4sIQIIQ", answer)[4] == len(fds), "not what was promised"
                    self.fds += fds

    def end(self):
        for fd in self.fds:
            os.close(fd)
        self.socket.close()


def refusal(daemon, folder, **fields):
    with pytest.raises(grpc.RpcError) as caught:
        Lease(daemon, folder, **fields)
    return caught.value.code().name, caught.value.details()


def open_files(daemon, below):
    """Descriptors of the daemon that stand for something below a folder."""
    links = []
    for fd in os.scandir(f"/proc/{daemon.process.pid}/fd"):
        try:
            links.append(os.readlink(fd.path))
        except FileNotFoundError:
            pass
    return [link for link in links if link.startswith(str(below))]


@pytest.mark.parametrize("kind", ["squashfs", "erofs"])
def test_an_image_is_mapped_and_can_be_unmounted_afterwards(daemon, mounted, kind):
    at = mounted(kind)
    lease = Lease(daemon, at)
    report = lease.result.report
    assert (report.memory, report.mapped.proof, report.read_bytes) == ("mapped", "read_only_superblock", 0)
    assert os.fstat(lease.fds[0]).st_ino == (at / "model.safetensors").stat().st_ino
    assert report.verified.status == "unverified" and "mapped" in report.verified.reason
    lease.end()
    assert soon(lambda: not open_files(daemon, at))
    assert subprocess.run(["umount", at], capture_output=True).returncode == 0


def test_an_image_that_another_user_may_write_to_is_no_proof(daemon, mounted):
    if not os.path.exists("/sys/dev/block"):
        pytest.skip("no sysfs here, which tells what file is below a loop device")
    at = mounted("squashfs")
    image = at.parent.joinpath(subprocess.run(["findmnt", "-no", "SOURCE", at], capture_output=True, text=True).stdout.strip())
    file = Path(subprocess.run(["losetup", "-nO", "BACK-FILE", image], capture_output=True, text=True).stdout.strip())
    for change, undo, says in ((lambda: os.chown(file, 4242, -1), lambda: os.chown(file, 0, -1), "belongs to user 4242"),
                               (lambda: file.chmod(0o664), lambda: file.chmod(0o644), "mode 0664"),
                               (lambda: file.rename(f"{file}.moved"), lambda: os.link(f"{file}.moved", file), None)):
        change()
        if says:
            code, text = refusal(daemon, at)
            assert code == "FAILED_PRECONDITION" and says in text and str(file) in text, text
        else:  # the kernel tells the new name
            Lease(daemon, at).end()
        undo()
        Lease(daemon, at).end()
    for mode, says in ((0o777, "is below"), (0o1777, None), (0o700, None)):  # who may put another file in its place
        file.parent.chmod(mode)
        if says:
            assert says in refusal(daemon, at)[1]
        else:
            Lease(daemon, at).end()
    os.unlink(file)
    os.unlink(f"{file}.moved")
    for name in (None, f"{file} (deleted)", f"{file}.moved (deleted)"):  # as the kernel calls what is gone
        if name:
            os.symlink("/etc/passwd", name)
        code, text = refusal(daemon, at)
        assert code == "FAILED_PRECONDITION" and "cannot be seen" in text, text


def test_an_attribute_in_an_image_that_another_user_may_write_to_is_no_proof(daemon, mounted):
    at = mounted("ext4")
    image = subprocess.run(["findmnt", "-no", "SOURCE", at], capture_output=True, text=True).stdout.strip()
    file = Path(subprocess.run(["losetup", "-nO", "BACK-FILE", image], capture_output=True, text=True).stdout.strip())
    run("chattr", "+i", at / "model.safetensors")
    Lease(daemon, at).end()
    os.chown(file, 4242, -1)
    code, text = refusal(daemon, at)
    assert code == "FAILED_PRECONDITION" and "belongs to user 4242" in text, text


def test_an_attribute_is_looked_at_for_every_load(daemon, model):
    if os.geteuid():
        pytest.skip("only root can give a file the attribute")
    file = model / "model.safetensors"
    assert refusal(daemon, model)[0] == "FAILED_PRECONDITION"
    run("chattr", "+i", file)
    try:
        lease = Lease(daemon, model)
        assert lease.result.report.mapped.proof == "immutable_attribute"
    finally:
        run("chattr", "-i", file)
    assert refusal(daemon, model)[0] == "FAILED_PRECONDITION"
    lease.end()


def test_what_is_no_proof_is_copied(daemon, mounted, models):
    """A read-only mount of what can be written, tmpfs, an overlay: refused, and copied by auto."""
    ext4 = mounted("ext4", "ro")
    squashfs = mounted("squashfs")  # a proof by itself, but not below an overlay
    for name in ("upper", "work", "over", "tmp"):
        (models / name).mkdir()
    run("mount", "-t", "tmpfs", "tensorcast-test", models / "tmp")
    shutil.copy(ext4 / "model.safetensors", models / "tmp")
    run("mount", "-t", "overlay", "tensorcast-test", "-o",
        f"lowerdir={squashfs},upperdir={models}/upper,workdir={models}/work", models / "over")
    try:
        for at in (ext4, models / "tmp", models / "over"):
            code, text = refusal(daemon, at)
            assert code == "FAILED_PRECONDITION" and "model.safetensors can change" in text
            lease = Lease(daemon, at, memory=AUTO)
            assert lease.result.report.memory != "mapped" and not lease.result.files and len(lease.fds) == 1
            lease.end()
    finally:
        for name in ("tmp", "over"):
            subprocess.run(["umount", "-l", models / name], capture_output=True)


def test_a_link_out_of_an_immutable_root_is_no_proof(trusting, models, model):
    (models / "kept").mkdir()
    (models / "kept" / "model.safetensors").symlink_to(model / "model.safetensors")
    daemon = trusting(models / "kept")
    assert refusal(daemon, models / "kept")[0] == "FAILED_PRECONDITION"
    other = trusting(model)
    lease = Lease(other, models / "kept")
    assert lease.result.report.mapped.proof == "immutable_root"
    lease.end()


def test_who_does_not_ask_for_files_gets_memory(trusting, model):
    daemon = trusting(model)
    for memory in (0, COPIED):
        lease = Lease(daemon, model, memory=memory)
        assert not lease.result.files and not lease.result.layout.strides
        assert (lease.result.report.mapped.possible, lease.result.report.mapped.reason) == (False, "copied memory was asked for")
        lease.end()
    lease = Lease(daemon, model, memory=AUTO)  # a replica is there
    assert lease.result.report.from_replica and not lease.result.files
    lease.end()


def test_auto_maps_what_is_proven_and_estimated_to_be_quicker(trusting, large):
    daemon = trusting(large.parent)
    lease = Lease(daemon, large.parent, memory=AUTO)
    assert lease.result.report.memory == "mapped" and len(lease.fds) == 1
    lease.end()


def test_who_wants_only_what_is_in_memory_gets_cached_pages_and_reads_no_others(trusting, large):
    daemon = trusting(large.parent)
    large.read_bytes()
    lease = Lease(daemon, large, memory=AUTO, resident_only=True)
    assert lease.result.report.memory == "mapped" and len(lease.fds) == 1
    lease.end()
    evict(large)
    for memory in (AUTO, COPIED):
        assert "is not in memory" in refusal(daemon, large, memory=memory, resident_only=True)[1]
    assert resident(large) < MiB and daemon.status()["totals"]["failed"] == 0


def test_a_snapshot_of_the_hubs_cache_is_mapped(start, models, model):
    """By its reference, and by its path: links lead to the blobs, which the word for the cache covers."""
    cache, commit = models / "hub" / "models--org--m", "0123456789abcdef0123456789abcdef01234567"
    for name in ("refs", "blobs", f"snapshots/{commit}"):
        (cache / name).mkdir(parents=True)
    (cache / "refs/main").write_text(commit)
    shutil.move(model / "model.safetensors", cache / "blobs/b")
    (cache / "snapshots" / commit / "model.safetensors").symlink_to("../../blobs/b")
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models / "hub")]},
                            "hf": {"cache_dir": str(models / "hub"), "offline": True}})
    for reference in ("hf://org/m", f"disk:{cache}/snapshots/{commit}"):
        lease = Lease(daemon, reference)
        assert lease.result.report.mapped.proof == "immutable_root"
        assert os.fstat(lease.fds[0]).st_ino == (cache / "blobs/b").stat().st_ino
        lease.end()


@pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
def test_the_word_for_a_fuse_mount_is_not_enough(trusting, models, model):
    (models / "net").mkdir()
    with HangingFiles(models / "net", {"m/model.safetensors": (model / "model.safetensors").read_bytes()}):
        code, text = refusal(trusting(models), models / "net/m")
        assert code == "FAILED_PRECONDITION" and "FUSE" in text, text


def test_verification_that_is_required_needs_a_copy(trusting, model):
    daemon = trusting(model, verify="required")
    code, text = refusal(daemon, model)
    assert code == "FAILED_PRECONDITION" and "sources.verify" in text


def test_a_lease_of_files_is_counted_and_charged_nothing(trusting, model):
    daemon = trusting(model)
    lease = Lease(daemon, model)
    status = daemon.status()
    assert status["leases"] == 1 and status["memory"]["used_bytes"] == 0
    (row,) = status["replicas"]
    assert row["memory"] == "mapped" and row["bytes"] == 0 and row["leases"] == 1
    lease.end()
    assert soon(lambda: daemon.status()["leases"] == 0 and not daemon.status()["replicas"])
    assert soon(lambda: not open_files(daemon, model))


def resident(path):
    """Bytes of a file in the page cache."""
    out = subprocess.run(["fincore", "-bnro", "RES", path], capture_output=True, text=True).stdout
    return int(out)


def evict(path):
    if not shutil.which("fincore"):
        pytest.skip("there is no fincore here")
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if resident(path) > MiB:
        pytest.skip("this file system keeps its pages in memory")


def locked_bytes(daemon):
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(text.split("VmLck:")[1].split()[0]) * 1024


def prewarm(daemon, folder, memory=MAPPED):
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        wire = Wire(channel)
        request = wire.message("PrewarmRequest")
        request.load.artifact = f"disk:{folder}"
        request.load.memory = memory
        return wire.call("Prewarm", request).report


@pytest.fixture
def large(models):
    write(models / "large", {"w": blob(1, 24 * MiB)})
    return models / "large" / "model.safetensors"


def test_what_is_handed_out_cold_is_read_ahead(trusting, large):
    daemon = trusting(large.parent)
    evict(large)
    lease = Lease(daemon, large.parent)
    assert soon(lambda: resident(large) >= 24 * MiB), "no process has touched a page"
    assert locked_bytes(daemon) == 0 and daemon.status()["memory"]["used_bytes"] == 0
    lease.end()
    assert soon(lambda: not open_files(daemon, large))


def test_a_prewarm_of_mapped_files_fills_the_page_cache_and_keeps_nothing(trusting, large):
    daemon = trusting(large.parent)
    evict(large)
    assert prewarm(daemon, large.parent).memory == "mapped"
    assert resident(large) >= 24 * MiB
    assert locked_bytes(daemon) == 0 and not daemon.status()["replicas"]
    assert soon(lambda: not open_files(daemon, large))


def test_a_prewarm_within_the_budget_stays_until_it_is_released(start, models, large):
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}},
                   memory={"locked_pages_budget": "32MiB"})
    for _ in range(2):  # the second one finds the pages of the first
        prewarm(daemon, large.parent)
        assert 24 * MiB <= locked_bytes(daemon) < 25 * MiB
    (row,) = daemon.status()["replicas"]
    assert row["memory"] == "mapped" and row["bytes"] >= 24 * MiB and daemon.status()["memory"]["used_bytes"] == 0
    lease = Lease(daemon, large.parent, memory=COPIED)  # pages are no memory of ours
    assert not lease.result.report.from_replica
    lease.end()
    assert daemon.cli.json("release", "--all")["released_bytes"] >= 24 * MiB
    assert soon(lambda: locked_bytes(daemon) == 0 and not daemon.status()["replicas"])
    assert soon(lambda: not open_files(daemon, large))


def test_locked_pages_that_are_pinned_count_and_stay_until_they_are_unpinned(start, models, large):
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}},
                   memory={"locked_pages_budget": "32MiB"})
    daemon.cli.ok("prewarm", f"disk:{large.parent}", "--pin", "--memory", "mapped")
    told = daemon.cli.json("release", "--all")
    assert told["released_replicas"] == 0 and told["pinned_bytes"] >= 24 * MiB and locked_bytes(daemon) >= 24 * MiB
    assert daemon.cli.json("unpin", "--all")["unpinned_bytes"] >= 24 * MiB
    assert daemon.cli.json("release", "--all")["released_bytes"] >= 24 * MiB
    assert soon(lambda: locked_bytes(daemon) == 0 and not daemon.status()["replicas"])


def test_a_rank_whose_files_are_handed_out_keeps_no_other_waiting(start, models, arrays):
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}},
                   **strategy(owner_file_collective_group_assemble_timeout="10m"))
    memory = ["mapped", "copied", "mapped", "copied"]
    loads = [Load(daemon, models, *group(r, *slices(r)), "--memory", memory[r]) for r in range(WORLD)]
    for rank, load in enumerate(loads):
        report = load.report_ok()
        assert digests(report) == expected(arrays, rank)
        is_mapped = memory[rank] == "mapped"
        assert (report["memory"] == "mapped") is is_mapped
        assert (report["collective"]["skip_reason"] == "files_handed_out") is is_mapped


def test_a_prewarm_that_is_given_up_leaves_nothing(start, models):
    write(models / "huge", {"w": blob(2, 96 * MiB)})
    file = models / "huge" / "model.safetensors"
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}},
                   memory={"locked_pages_budget": "1GiB"})
    evict(file)
    process = daemon.cli.spawn("prewarm", f"disk:{models}/huge", "--memory", "mapped")
    soon(lambda: locked_bytes(daemon) > 0)  # or it is through already: then there is something to release
    process.kill()
    process.communicate()
    assert soon(lambda: daemon.cli.run("release", "--all").code == 0 and locked_bytes(daemon) == 0)
    assert soon(lambda: not daemon.status()["replicas"] and not open_files(daemon, file))
