"""What goes wrong under a running daemon: files that change or shrink, descriptors and memory that run out, a full disk."""
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from checkpoints import blob, digest, digests, write
from stage import CLI, MiB, soon

DISTURBED = {"FAILED_PRECONDITION", "DATA_LOSS", "ABORTED"}


def load_while(daemon, models, disturb):
    """Loads 160 MiB while disturb(path) runs again and again; returns the outcome."""
    path = models / "m" / "model.safetensors"
    stop = threading.Event()

    def work():
        while not stop.is_set():
            disturb(path)
            time.sleep(0.002)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        return daemon.cli.run("load", f"disk:{models}/m", "--digest", "--json")
    finally:
        stop.set()
        worker.join()


@pytest.fixture
def big(models):
    return write(models / "m", {"w": blob(1, 160 * MiB)})


def is_sound(outcome, path, *contents):
    """Either a clean refusal that names the file, or exactly one of the contents; never a mixture."""
    if outcome.failed:
        return outcome.status in DISTURBED | {"NOT_FOUND"} and path.name in outcome.err
    return outcome.code == 0 and digests(outcome.report)["w"] in contents


def test_a_file_replaced_under_a_load_is_refused_or_delivered_whole(daemon, models, big):
    path = models / "m" / "model.safetensors"
    write(models / "other", {"w": blob(2, 160 * MiB)})
    old, new = digest(big["w"]), digest(blob(2, 160 * MiB))
    os.link(path, models / "a")
    os.link(models / "other" / "model.safetensors", models / "b")
    turn = [0]

    def swap(target):
        turn[0] ^= 1
        os.link(models / ("b" if turn[0] else "a"), models / "next")
        os.replace(models / "next", target)

    for _ in range(3):
        outcome = load_while(daemon, models, swap)
        assert is_sound(outcome, path, old, new), outcome
        daemon.cli.ok("release", "--all")
    assert soon(daemon.at_rest), daemon.status()


def test_a_file_truncated_under_a_load_is_refused_and_the_daemon_lives(daemon, models, big):
    path = models / "m" / "model.safetensors"
    whole = path.read_bytes()
    for fraction in (0.9, 0.5, 0.1):
        outcome = load_while(daemon, models, lambda p: os.truncate(p, int(len(whole) * fraction)))
        assert outcome.failed and outcome.status in DISTURBED and path.name in outcome.err, outcome
        path.write_bytes(whole)
    assert daemon.cli.json("load", f"disk:{models}/m", "--digest")["tensors"][0]["sha256"] == digest(big["w"])


def test_a_file_written_over_in_place_under_a_load_never_mixes_silently(daemon, models, big):
    path = models / "m" / "model.safetensors"

    def scribble(target):
        with open(target, "r+b") as file:
            file.seek(80 * MiB)
            file.write(os.urandom(4096))

    outcome = load_while(daemon, models, scribble)
    assert outcome.failed and outcome.status in DISTURBED and path.name in outcome.err, outcome
    assert soon(daemon.at_rest), daemon.status()


def test_a_part_file_that_vanished_is_named(daemon, models):
    write(models / "m", {"a": blob(3, MiB)}, {"b": blob(4, MiB)})
    daemon.cli.ok("load", f"disk:{models}/m")
    (models / "m" / "model-00002-of-00002.safetensors").unlink()
    outcome = daemon.cli.run("load", f"disk:{models}/m")
    assert outcome.failed and "model-00002-of-00002.safetensors" in outcome.err, outcome


def test_running_out_of_descriptors_refuses_work_and_recovers(start, models):
    write(models / "m", *({f"p{i}": blob(i, MiB)} for i in range(6)))
    daemon = start(limits={"nofile": (120, 120)})
    daemon.cli.ok("load", f"disk:{models}/m")
    crowd = []
    for _ in range(200):
        crowd.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        crowd[-1].settimeout(5)
        crowd[-1].connect(str(daemon.socket))
    for attempt in range(3):
        outcome = daemon.cli.run("--timeout", "5s", "load", f"disk:{models}/m", "--slice", f"p{attempt}[7:]")
        assert outcome.code == 0 or outcome.status in {"RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED"}, outcome
    for connection in crowd:
        connection.close()
    assert soon(lambda: daemon.cli.run("status", timeout=30).code == 0), "no connection is accepted any more"
    assert daemon.logged("event=connection_refused")
    assert soon(lambda: daemon.cli.run("load", f"disk:{models}/m", "--slice", "p0[5:]").code == 0)
    assert soon(daemon.at_rest), daemon.status()


def test_replicas_that_no_client_holds_give_their_descriptors_to_the_next_load(start, models):
    write(models / "m", *({f"p{i}": blob(i, 4096)} for i in range(4)))
    daemon = start(limits={"nofile": (150, 150)})
    for i in range(40):  # each costs nine
        daemon.cli.ok("load", f"disk:{models}/m", "--slice", f"p{i % 4}[{i}:]")
    assert daemon.descriptors() < 150 and 0 < len(daemon.status()["replicas"]) < 40


def test_loads_that_fit_one_after_the_other_do(start, models):
    """Also while clients hold what came before, and those who do not fit at all are told so at once."""
    write(models / "m", *({f"p{i}": blob(i, 512), f"q{i}": blob(i, 64)} for i in range(40)))
    write(models / "huge", *({f"p{i}": blob(i, 64)} for i in range(90)))
    daemon = start(limits={"nofile": (300, 300)}, sources={"disk": {"trusted_roots": [str(models)]}, "http": {"max_connections": 1}})
    holders = [daemon.cli.spawn("load", f"disk:{models}/m", "--tensor", "p*", "--slice", f"q{i}[0:{i + 1}]", "--memory", "copied", "--hold", "1")
               for i in range(5)]
    assert [(holder.wait(60), holder.stderr.read()) for holder in holders] == [(0, "")] * 5
    assert soon(daemon.at_rest)
    daemon.cli.ok("release", "--all")
    began = time.monotonic()
    assert daemon.cli.run("load", f"disk:{models}/huge").status == "RESOURCE_EXHAUSTED" and time.monotonic() - began < 25, "not after 30 s"


@pytest.mark.plain  # a sanitizer reserves terabytes of address space
def test_loads_that_no_memory_is_left_for_fail_and_others_do_not(start, models):
    write(models / "m", {"w": blob(5, 160 * MiB)})
    write(models / "many", {f"layer.{i}.weight": numpy.full(1, i, numpy.uint16) for i in range(2000)})
    daemon = start()

    def address_space_bytes():
        return int(open(f"/proc/{daemon.process.pid}/statm").read().split()[0]) * resource.getpagesize()

    with ThreadPoolExecutor(4) as side_by_side:
        # Each thread's first load may reserve 72 MiB, a stack and an arena of malloc. The limit comes after these.
        before_bytes, same = 0, 0
        for i in range(100):
            list(side_by_side.map(lambda j: daemon.cli.ok("load", f"disk:{models}/many", "--tensor", f"layer.{j}.weight"), range(4 * i, 4 * i + 4)))
            same = same + 1 if address_space_bytes() == before_bytes else 0
            before_bytes = address_space_bytes()
            if same == 5:
                break
        subprocess.run(["prlimit", f"--pid={daemon.process.pid}", f"--as={before_bytes + 128 * MiB}:"], check=True)
        large = list(side_by_side.map(lambda _: daemon.cli.run("load", f"disk:{models}/m"), range(8)))
    assert [outcome.status for outcome in large] == ["RESOURCE_EXHAUSTED"] * 8, large
    daemon.cli.ok("load", f"disk:{models}/many")
    subprocess.run(["prlimit", f"--pid={daemon.process.pid}", "--as=unlimited:"], check=True)
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(5, 160 * MiB))}


def test_the_state_folder_may_vanish_while_the_daemon_runs(daemon, models):
    write(models / "m", {"w": blob(7, MiB)})
    shutil.rmtree(daemon.state)
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(7, MiB))}


# --- a limit on the size of files (ulimit -f) ---

@pytest.mark.parametrize("arguments", [
    ("load", "M", "--out", "OUT/x"), ("load", "M", "--out", "-"), ("load", "M", "--standalone", "--out", "OUT/x"), ("export", "M", "--out", "OUT/y"),
    ("fetch", "M", "OUT/z", "--all"), ("put", "M/model.safetensors", "disk:OUT/w"), ("manifest", "M", "--out", "OUT/m")], ids=lambda a: a[0])
def test_a_command_under_a_limit_on_the_size_of_files_says_so(daemon, models, tmp_path, arguments):
    write(models / "m", {f"layer.{i}": blob(i, 300) for i in range(9)})
    arguments = [word.replace("OUT", str(tmp_path)).replace("M", f"{models}/m", 1) for word in arguments]
    with open(tmp_path / "stdout", "wb") as out:
        done = subprocess.run(["prlimit", "--fsize=300:300", "--", CLI, *arguments], stdout=out, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "TENSORCAST_SOCKET": str(daemon.socket)}, timeout=60)
    assert done.returncode == 1 and "tensorcast: RESOURCE_EXHAUSTED: " in done.stderr, done
    assert "ulimit -f" in done.stderr and "300 bytes" in done.stderr, done
    assert all(path.stat().st_size <= 300 for path in tmp_path.rglob("*") if path.is_file() and models not in path.parents)


def test_a_daemon_under_a_limit_on_the_size_of_files_loads_what_fits(start, models):
    tensors = {"large": blob(1, 3 * MiB), "small": blob(2, 5000)}
    write(models / "m", tensors)
    daemon = start(limits={"fsize": (MiB, MiB)})
    refused = daemon.cli.run("load", f"disk:{models}/m", "--tensor", "large", "--memory", "copied")
    assert refused.status == "RESOURCE_EXHAUSTED" and "ulimit -f" in refused.err and str(daemon.process.pid) in refused.err, refused
    report = daemon.cli.json("load", f"disk:{models}/m", "--tensor", "small", "--memory", "copied", "--digest")
    assert digests(report) == {"small": digest(tensors["small"])}
