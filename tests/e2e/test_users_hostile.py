"""Users who attack a daemon that they share: what they learn of what lies outside the trusted roots, what they can write into other
people's terminals and into the log, and how long others wait meanwhile. Run as root, like test_users.py."""
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import checkpoints
from stage import MiB
from test_users import ANN, BOB, command, open_to_all, pytestmark, write  # noqa: F401

PATIENCE_S = 40  # of one small load beside an attack; a daemon that is held up takes until the attack ends, 200 s
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NASTY = "\x1b[31mred\x07\n level=error event=forged \u009b2J\u202e"


@pytest.fixture
def secret():
    """A folder that only root may enter, with one thing of each kind."""
    folder = Path(tempfile.mkdtemp(prefix="tc8-secret-"))
    (folder / "z-file").write_bytes(b"x" * 100)
    (folder / "z-folder").mkdir()
    os.mkfifo(folder / "z-pipe")
    (folder / "z-link").symlink_to("z-file")
    yield folder
    for path in folder.iterdir():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


THERE = ["z-file", "z-folder", "z-pipe", "z-link", "z-missing", "z-file/z-x", "z-missing/z-x"]


def leading_out(folder, target):
    """Ways of one user from below a trusted root to the target."""
    folder.mkdir()
    (folder / "direct.safetensors").symlink_to(target)
    for name in ("linked", "indexed", "beside"):
        (folder / name).mkdir()
    (folder / "linked/model.safetensors").symlink_to(target)
    (folder / "indexed/model.safetensors.index.json").write_text('{"weight_map": {"w": "%s"}}' % os.path.relpath(target, folder / "indexed"))
    checkpoints.write(folder / "beside", {"w": checkpoints.blob(1, 64)})
    (folder / "beside/config.json").symlink_to(target)
    for path in [folder, *folder.rglob("*")]:
        os.lchown(path, ANN, ANN)
    return {name: folder / name for name in ("direct.safetensors", "linked", "indexed", "beside")} | {"by its own path": target}


def test_no_answer_tells_what_is_outside_of_the_trusted_roots(open_to_all, models, secret):
    daemon, answers = open_to_all(), {}
    for number, below in enumerate(THERE):
        for way, path in leading_out(models / f"k{number}", secret / below).items():
            for words in (["inspect"], ["load", "--memory", "copied"], ["load", "--memory", "mapped"], ["verify"]):
                outcome = command(daemon, ANN, words[0], f"disk:{path}", *words[1:])
                told = re.sub(r"\d+(\.\d+)?", "N", re.sub(rf"{secret}(/z-\w+)*|[./]*{secret.name}(/z-\w+)*", "TARGET", outcome.err))
                answers.setdefault((way, *words), {}).setdefault((outcome.code, told), []).append(below)
    differing = {question: told for question, told in answers.items() if len(told) > 1}
    assert not differing, differing


def test_nothing_that_a_user_names_reaches_a_terminal_or_the_log_as_it_is(open_to_all, models):
    daemon, folder = open_to_all(logging={"level": "trace"}), models / f"m{NASTY}"
    checkpoints.write(folder, {f"t{NASTY}": checkpoints.blob(1, 64), "fine": checkpoints.blob(2, 64)})
    reference = f"disk:{folder}"
    for words in (["inspect", reference], ["load", reference], ["load", reference, "--tensor", NASTY], ["explain", reference], ["verify", reference],
                  ["prewarm", reference], ["load", f"{reference}/{NASTY}.safetensors"], ["load", f"hf://{NASTY}/b"],
                  ["load", f"https://127.0.0.1:1/{NASTY}"], ["load", reference, "--group", NASTY, "--rank", "0", "--world-size", "1"],
                  ["fetch", reference, models / f"o{NASTY}"], ["status"], ["unpin", reference]):
        outcome = command(daemon, ANN, *words)
        assert not CONTROLS.search(outcome.out + outcome.err) and "\n level=error" not in outcome.out + outcome.err, outcome
    assert daemon.stop() == 0
    assert not CONTROLS.search(daemon.log()) and all(line.startswith("time=") for line in daemon.log().splitlines())


BECOME = f"""
import ctypes, os, socket, sys, threading, time
import tensorcast_client as tc
tc.connect().artifact(sys.argv[1]).load_into({{"w": tc.HostRegion(64 << 20).array("uint8", (64 << 20,))}})  # imports what ANN may not read
os.setgroups([]), os.setgid({ANN}), os.setuid({ANN})
"""
PUNCH = """
N, libc, end = 64 << 20, ctypes.CDLL(None), time.monotonic() + 200
region = tc.HostRegion(N)
def punch():
    while time.monotonic() < end:
        libc.fallocate(region.fd, 3, ctypes.c_long(0), ctypes.c_long(N))
for _ in range(2):
    threading.Thread(target=punch, daemon=True).start()
print("go", flush=True)
while time.monotonic() < end:
    try:
        tc.connect().artifact(sys.argv[1]).load_into({"w": region.array("uint8", (N,))})
    except tc.TensorcastError:
        pass
"""
FLOOD = """
end, (rpc, handoff) = time.monotonic() + 200, sys.argv[2:4]
def offers():
    null = os.open("/dev/null", os.O_RDONLY)
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.setblocking(False)
            try:
                peer.connect(handoff)
                socket.send_fds(peer, [b"x"], [null] * 200)
                for _ in range(400):
                    peer.send(b"x")
            except OSError:
                pass
def prefaces():
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.setblocking(False)
            try:
                peer.connect(rpc)
                peer.send(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + b"\\0\\0\\0\\4\\0\\0\\0\\0\\0" * 100)
            except OSError:
                pass
threads = [threading.Thread(target=work, daemon=True) for work in (offers, offers, prefaces)]
[thread.start() for thread in threads]
print("go", flush=True)
[thread.join() for thread in threads]
"""


@pytest.mark.parametrize("attack", [PUNCH, FLOOD], ids=["punches holes into memory that it lends", "floods both sockets"])
def test_another_user_loads_in_time_beside_one_who(open_to_all, models, attack):
    daemon, large, small = open_to_all(), write(models, "large", 64 * MiB), write(models, "a", 4 * MiB)
    attacker = subprocess.Popen([sys.executable, "-c", BECOME + attack, large, str(daemon.socket), str(daemon.handoff)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True, env={**daemon.cli.environment, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert attacker.stdout.readline() == "go\n"
        for _ in range(4):
            begun = time.monotonic()
            assert command(daemon, BOB, "load", small, "--memory", "copied").code == 0
            assert time.monotonic() - begun < PATIENCE_S and attacker.poll() is None
            daemon.cli.ok("release", "--all")
    finally:
        attacker.kill()
        attacker.wait()
        attacker.stdout.close()
    assert daemon.process.poll() is None
