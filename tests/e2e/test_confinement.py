"""server.sandbox: that it bites, what a reload finds out, kernels without Landlock, and what strict leaves. That nothing needed is
denied is what all other tests show, since it is on for their daemons; here is what they do not do."""
import contextlib
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob, digest, digests, write
from group_scene import arrays, expected, group, load_all, slices, strategy  # noqa: F401
from stage import soon
from store_scene import place
from test_dead_mounts import HangingFiles, why_not
from test_log import lines

# What a plugin tries while it is loaded, so from inside of the daemon: errno of each, 0 = it could.
INTRUDER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static int error_of(long result) { return result < 0 ? errno : 0; }
__attribute__((constructor)) static void try_all(void)
{
    const char *outside = getenv("INTRUDER_OUTSIDE"), *inside = getenv("INTRUDER_INSIDE");
    char path[4096], *words[] = {"true", NULL};
    snprintf(path, sizeof path, "%s/new", outside);
    int create = error_of(open(path, O_WRONLY | O_CREAT, 0600)), folder = error_of(mkdir(strcat(path, "-folder"), 0700));
    snprintf(path, sizeof path, "%s/there", outside);
    int change = error_of(open(path, O_RDWR)), look = error_of(open(path, O_RDONLY)), remove = error_of(unlink(path));
    snprintf(path, sizeof path, "%s/new", inside);
    int own = error_of(open(path, O_WRONLY | O_CREAT, 0600)), status = 0;
    pid_t child = fork();
    if (child == 0) {
        execv("/bin/true", words);
        _exit(errno);
    }
    int execute = waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 255;
    fprintf(stderr, "intruder create=%d folder=%d change=%d remove=%d look=%d own=%d packet=%d unshare=%d execute=%d\n", create, folder,
            change, remove, look, own, error_of(socket(AF_PACKET, SOCK_RAW, 0)), error_of(unshare(CLONE_NEWNS)), execute);
}
"""
# A filter of system calls for the program in the arguments: Landlock's fail with ENOSYS, as on a kernel without it.
WITHOUT_LANDLOCK = """import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0)] + [step for number in (444, 445, 446) for step in ((0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 38))]
steps += [(0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])"""


def landlock_abi():
    import ctypes
    return max(ctypes.CDLL(None).syscall(444, None, 0, 1), 0)


def sandbox_of(daemon):
    assert soon(lambda: lines(daemon, "sandbox")), daemon.log()
    event, = lines(daemon, "sandbox")
    return event["mode"], event["seccomp"], int(event["landlock"])


def threads(daemon):
    """(Seccomp, NoNewPrivs) of each thread."""
    tasks = []
    for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            tasks.append(Path(f"/proc/{daemon.process.pid}/task/{task}/status").read_text())
    return {(re.search(r"^Seccomp:\s+(\d)", text, re.M)[1], re.search(r"^NoNewPrivs:\s+(\d)", text, re.M)[1]) for text in tasks}


@pytest.fixture
def outside():
    with tempfile.TemporaryDirectory(prefix="tc8-outside-") as folder:
        (Path(folder) / "there").write_text("mine")
        yield Path(folder)


@pytest.fixture
def intruded(start, tmp_path, outside):
    """intruded(mode): what a plugin could do in a daemon with that sandbox."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugin.c").write_text(INTRUDER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "plugins/tensorcast-cuda.so", tmp_path / "plugin.c"], check=True)

    def run(mode):
        daemon = start(running=False, server={"sandbox": mode}, devices={"plugin_folder": str(tmp_path / "plugins")})
        daemon.state.mkdir(mode=0o700)
        daemon.start(environment={"INTRUDER_OUTSIDE": str(outside), "INTRUDER_INSIDE": str(daemon.state)})
        assert soon(lambda: "intruder " in daemon.log()), daemon.log()
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", re.search("^intruder .*", daemon.log(), re.M)[0])}
    return run


@pytest.mark.skipif(os.geteuid() != 0, reason="a user may not do half of it anyway")
@pytest.mark.parametrize("mode", ["on", "strict", "off"])
def test_what_is_not_needed_is_refused_from_inside(intruded, outside, mode):
    EPERM, EACCES, EAFNOSUPPORT = 1, 13, 97
    could = intruded(mode)
    if mode == "off":
        assert not any(could.values()), could
        return
    expect = dict(create=EACCES, folder=EACCES, change=EACCES, remove=EACCES, look=EACCES if mode == "strict" else 0, own=0,
                  packet=EAFNOSUPPORT, unshare=EPERM, execute=EPERM)
    if not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    assert could == expect and sorted(path.name for path in outside.iterdir()) == ["there"]


@pytest.mark.parametrize("mode,confined", [("on", True), (True, True), ("strict", True), ("off", False), (False, False)])
def test_every_thread_is_confined_or_none(start, models, mode, confined):
    write(models / "m", {"w": blob(1, 100_000)})
    daemon = start(server={"sandbox": mode, "metrics_address": "127.0.0.1:0"})
    daemon.cli.ok("load", f"{models}/m")
    name = {True: "on", False: "off"}.get(mode, mode)
    assert sandbox_of(daemon) == (name, str(confined).lower(), landlock_abi() if confined else 0)
    assert threads(daemon) == ({("2", "1")} if confined else {("0", "0")})


def test_a_reload_cannot_widen_it_and_says_so(start, models, outside):
    if not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    (models / "acts").mkdir()
    (outside / "acts").mkdir()
    (outside / "more").mkdir()
    daemon = start(logging={"file": f"{models}/log"}, activations={"roots": [f"{models}/acts"]})
    daemon.log_path = models / "log"

    def reload(**changes):
        daemon.configure({**daemon.tree, **changes})
        daemon.process.send_signal(signal.SIGHUP)

    reload(logging={"file": f"{models}/log2"})  # in a folder that it has
    assert soon(lambda: (models / "log2").exists() and "config_reloaded" in (models / "log2").read_text())
    daemon.log_path = models / "log2"
    reload(activations={"roots": [f"{models}/acts", f"{outside}/acts"]}, sources={"disk": {"trusted_roots": [str(models), f"{outside}/more"]}})
    assert soon(lambda: len(lines(daemon, "sandbox_needs_restart")) == 1)
    told, = lines(daemon, "sandbox_needs_restart")
    assert told["key"] == "activations.roots" and told["path"] == f"{outside}/acts"
    with tc.connect(str(daemon.socket)) as client:
        with client.activation_store(f"disk:{models}/acts/run", host=0) as store:
            store.append(1, {3: np.arange(12, dtype=np.float32)})
        with pytest.raises(tc.TensorcastError), client.activation_store(f"disk:{outside}/acts/run", host=0) as store:
            store.append(1, {3: np.arange(12, dtype=np.float32)})
    write(outside / "more", {"w": blob(1, 100_000)})  # a new root to read from needs no restart
    assert digests(daemon.cli.json("load", outside / "more", "--digest")) == {"w": digest(blob(1, 100_000))}
    reload(logging={"file": f"{outside}/log"})
    assert soon(lambda: any("the sandbox was made without" in line["message"] for line in lines(daemon, "config_reload_refused")))
    assert not (outside / "log").exists() and daemon.serving()


@pytest.mark.parametrize("mode", ["on", "strict"])
def test_a_log_that_is_named_by_a_link_is_opened_again(start, models, outside, mode):
    """logrotate moves the file that the link leads to."""
    (models / "log").symlink_to(outside / "daemon.log")
    daemon = start(server={"sandbox": mode}, logging={"file": f"{models}/log"})
    daemon.log_path = outside / "daemon.log"
    daemon.log_path.rename(outside / "daemon.log.1")
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: daemon.log_path.exists() and lines(daemon, "config_reloaded")), (outside / "daemon.log.1").read_text()


def test_strict_reads_roots_and_named_files_alone(start, fake, models, outside, arrays, tmp_path):  # noqa: F811
    if not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "token").write_text("hf_token")
    (models / "acts").mkdir()
    placed = place(fake, "http", {"w": blob(2, 300_000)})
    daemon = start(**strategy(), server={"sandbox": "strict"}, activations={"roots": [f"{models}/acts"]},
                   sources={"disk": {"trusted_roots": [str(models)]}, "hf": {"token_file": str(tmp_path / "token")}})
    reports = load_all(daemon, models, [[*group(rank), *slices(rank)] for rank in range(4)])
    assert all(digests(report) == expected(arrays, rank) for rank, report in enumerate(reports))
    assert digests(daemon.cli.json("load", placed.reference.replace("127.0.0.1", "localhost"), "--digest")) == {"w": digest(blob(2, 300_000))}
    daemon.cli.ok("verify", f"{models}/m")
    with tc.connect(str(daemon.socket)) as client, client.activation_store(f"disk:{models}/acts/run", host=0) as store:
        store.append(1, {3: np.arange(12, dtype=np.float32)})
    write(outside / "m", {"w": blob(1, 100_000)})
    daemon.configure({**daemon.tree, "sources": {"disk": {"trusted_roots": [str(models), str(outside)]}}})
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: [line["path"] for line in lines(daemon, "sandbox_needs_restart")] == [str(outside)])
    assert daemon.cli.run("load", outside / "m").status == "PERMISSION_DENIED"
    assert daemon.stop() == 0
    daemon.start()
    assert digests(daemon.cli.json("load", outside / "m", "--digest")) == {"w": digest(blob(1, 100_000))}


@pytest.mark.skipif(subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode, reason="no mount namespace can be made here")
def test_strict_reads_names_of_users_and_hosts_after_their_files_were_replaced(start, fake, models, tmp_path):
    """As usermod, dhclient and NetworkManager do: they rename a new file over the old one."""
    own = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", own], check=True)
    placed = place(fake, "http", {"w": blob(1, 3000)})
    daemon = start(running=False, server={"sandbox": "strict"}, sources={"disk": {"trusted_roots": [str(models)]}, "http": {"allow_plain": True}})
    daemon.start(through=["unshare", "-m", "sh", "-c", f'mount --bind {own} /etc && exec "$0" "$@"'])
    for name, line in (("group", "tc-later:x:4242:"), ("hosts", "127.0.0.1 later.example")):
        (own / "new").write_text((own / name).read_text() + line + "\n")
        (own / "new").chmod(0o644)
        (own / "new").rename(own / name)
    daemon.configure({**daemon.tree, "limits": {"shared_group": "tc-later"}})
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: lines(daemon, "config_reloaded")) and "shared_group_unknown" not in daemon.whole_log(), daemon.log()
    daemon.cli.ok("load", placed.reference.replace("127.0.0.1", "later.example"))


def test_without_landlock_it_is_less_and_strict_does_not_start(start, models):
    write(models / "m", {"w": blob(1, 100_000)})
    through = ["/usr/bin/env", "python3", "-I", "-c", WITHOUT_LANDLOCK]
    daemon = start(running=False).start(through=through)
    assert sandbox_of(daemon) == ("on", "true", 0)
    assert soon(lambda: any("no Landlock" in line["message"] for line in lines(daemon, "sandbox_incomplete"))), daemon.log()
    daemon.cli.ok("load", f"{models}/m")
    strict = start(running=False, server={"sandbox": "strict"})
    strict.start(wait=False, through=through)
    assert strict.process.wait(30) == 1 and "server.sandbox: strict: this kernel has no Landlock" in strict.log()


@pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
def test_a_root_that_hangs_holds_up_the_start_for_a_second_and_is_told(start, models):
    write(models / "m", {"w": blob(1, 100_000)})
    (models / "net").mkdir()
    with HangingFiles(models / "net", {"acts/x": b""}) as files:
        files.hangs = {"lookup", "getattr"}
        daemon = start(activations={"roots": [f"{models}/net/acts"]})
        daemon.cli.ok("load", f"{models}/m")
        assert soon(lambda: lines(daemon, "sandbox_without_rule")), daemon.log()
        told, = lines(daemon, "sandbox_without_rule")
        assert told["path"] == f"{models}/net/acts" and told["error"] == "ETIMEDOUT"
        assert threads(daemon) <= {("2", "1"), ("0", "0")}, "that thread waits, and does nothing else"
        assert daemon.stop() == 0
