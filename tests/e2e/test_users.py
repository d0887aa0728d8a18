"""What one user can do to another, and what root can do for all: a daemon whose sockets are open to everybody, two users and
root. A test runs as root and acts for others by its effective uid, which is what a socket tells of its peer."""
import contextlib
import os
import resource
import signal
import socket
import subprocess

import grpc
import pytest

import checkpoints
from stage import CLI, MiB, Outcome, acting_as, for_everybody, soon
from wire import Wire, code_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act for several users")
ANN, BOB = 70001, 70002
OPEN = {"socket_mode": "0666"}


@pytest.fixture
def open_to_all(start):
    def make(limits=None, limits_section=None, **settings):
        settings["server"] = {**OPEN, **settings.get("server", {})}
        daemon = start(limits=limits, running=False, **settings)
        if limits_section:
            daemon.configure({**daemon.tree, "limits": limits_section})
        daemon.folder.chmod(0o755)
        return daemon.start()

    return make


def write(models, name, size):
    checkpoints.write(models / name, {"w": checkpoints.blob(len(name), size)})
    return f"disk:{models / name}"


def connections(daemon, uid, n, path=None, kind=socket.SOCK_STREAM):
    """Connections that say nothing, as many as are accepted."""
    made = []
    with acting_as(uid):
        for _ in range(n):
            sock = socket.socket(socket.AF_UNIX, kind)
            sock.connect(str(path or daemon.socket))  # waits while the backlog is full
            sock.settimeout(60)
            made.append(sock)
    return made


def spawn(daemon, uid, *arguments, gid=None):
    """setpriv and not Popen's user=, which would fork, and gRPC's handlers of a fork abort where its threads are at work."""
    return subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={gid}" if gid else "--clear-groups",
                             for_everybody(CLI), *map(str, arguments)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
                            env=daemon.cli.environment)


def command(daemon, uid, *arguments):
    process = spawn(daemon, uid, *arguments)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return Outcome(arguments, process.returncode, out, err)


@contextlib.contextmanager
def wire(daemon, uid):
    with daemon.channel() as channel:
        with acting_as(uid):
            grpc.channel_ready_future(channel).result(timeout=60)
            spoken = Wire(channel)
        yield spoken


def materialize(spoken, artifact):
    for event in spoken.call("Materialize", spoken.message("MaterializeRequest", load=spoken.load_request(artifact))):
        if event.WhichOneof("event") == "result":
            return event.result


def lease(daemon, uid, token):
    """A connection that is a lease, and the memory's descriptor."""
    (sock,) = connections(daemon, uid, 1, daemon.handoff, socket.SOCK_SEQPACKET)
    sock.send(token)
    _, (fd,), _, _ = socket.recv_fds(sock, 256, 1)
    return sock, fd


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_user_with_too_many_connections_is_told_so_and_root_can_look(open_to_all, models):
    artifact = write(models, "m", 4096)
    daemon = open_to_all(server={"max_connections_per_uid": 4})
    holders = [daemon.cli.spawn("load", artifact, "--hold", "60") for _ in range(4)]
    try:
        assert soon(lambda: daemon.log().count("event=load_done") == 4)
        outcome = daemon.cli.run("load", artifact)
        assert outcome.status == "RESOURCE_EXHAUSTED"
        assert "user 0 has 4 connections" in outcome.err and "server.max_connections_per_uid" in outcome.err
        assert soon(lambda: daemon.status()["leases"] == 4)
        assert daemon.cli.run("release", "--all").code == 0
        assert daemon.logged("event=connection_refused uid=0 connections=4")
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
    assert soon(lambda: daemon.cli.run("load", artifact).code == 0)


def test_a_refused_ordinary_user_gets_no_status_but_an_answer(open_to_all):
    daemon = open_to_all(server={"max_connections_per_uid": 4})
    crowd = connections(daemon, ANN, 4)
    assert soon(lambda: daemon.status()["connections"] >= 4)
    outcome = command(daemon, ANN, "status")
    assert outcome.status == "RESOURCE_EXHAUSTED", outcome
    assert command(daemon, BOB, "status").code == 0
    crowd.pop().close()
    assert soon(lambda: command(daemon, ANN, "status").code == 0)
    for sock in crowd:
        sock.close()


def test_silent_connections_of_many_users_keep_neither_root_nor_a_new_user_away(open_to_all, models):
    artifact = write(models, "m", 4096)
    daemon = open_to_all(limits={"nofile": (700, 700)})
    crowd = [sock for uid in range(71000, 71009) for sock in connections(daemon, uid, 90)]
    assert soon(lambda: "event=connection_refused" in daemon.log())
    assert daemon.status()["connections"] < 160
    assert daemon.cli.run("load", artifact).code == 0
    assert soon(lambda: command(daemon, ANN, "load", artifact).code == 0)  # silent ones make way after a second
    assert daemon.descriptors() < 500
    for sock in crowd:
        sock.close()


def test_ten_thousand_connections_of_forty_users_keep_no_other_user_away(open_to_all, models):
    artifact = write(models, "m", 4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 11000:
        pytest.skip(f"this process may have {hard} descriptors, and needs one for each connection")
    daemon = open_to_all(limits={"nofile": (hard, hard)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (11000, hard))
    crowd = []
    try:
        for uid in range(73000, 73040):
            crowd += connections(daemon, uid, 256)
        assert len(crowd) == 10240
        assert daemon.cli.run("load", artifact).code == 0
        assert soon(lambda: command(daemon, ANN, "load", artifact).code == 0)
    finally:
        for sock in crowd:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert soon(lambda: daemon.status()["connections"] == 1)
    assert daemon.descriptors() < 100


# Sends as many sockets that linger for an hour as the second argument says, each in the queue of a connection of its own, to a
# daemon that is stopped, so that it has the last copies.
LINGER = """
import socket, struct, sys

def lingering(listener):
    ours = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    ours.setblocking(False)
    try:
        while True:
            ours.send(b"x" * 65536)
    except BlockingIOError:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(sys.argv[1])
    socket.send_fds(client, [b"x"], [ours.fileno()])
    ours.close()
    return other

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.bind(("127.0.0.1", 0))
listener.listen(4)
others = [lingering(listener) for _ in range(int(sys.argv[2]))]
print("sent", flush=True)
sys.stdin.read()
"""


def test_users_whose_descriptors_do_not_close_delay_no_other_user(open_to_all, models):
    """Each of the three has a thread that hangs, and the daemon has its descriptors back when they end."""
    artifact = write(models, "m", 4096)
    daemon = open_to_all(limits={"nofile": (400, 400)})
    before, hostile = daemon.descriptors(), []
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        for uid in range(74000, 74003):
            hostile.append(subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3",
                                             "-c", LINGER, daemon.handoff, "40"],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"))
        assert [one.stdout.readline() for one in hostile] == ["sent\n"] * 3
        daemon.process.send_signal(signal.SIGCONT)
        assert soon(lambda: command(daemon, ANN, "load", artifact).code == 0)
        assert all(one.poll() is None for one in hostile)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        for one in hostile:
            one.kill()
            one.communicate()
    assert soon(lambda: daemon.descriptors() - before < 20)


def test_a_user_who_left_leaves_nothing_behind(open_to_all):
    daemon = open_to_all()
    for uid in range(72000, 72300):
        connections(daemon, uid, 1)[0].close()
    assert soon(lambda: daemon.status()["connections"] == 1)
    before = daemon.descriptors()
    with wire(daemon, ANN):
        assert daemon.status()["connections"] == 2
    assert soon(lambda: daemon.descriptors() <= before)


# --- leases and descriptors --------------------------------------------------------------------------------------------


def test_a_user_who_takes_all_leases_leaves_some_to_others_and_to_root(open_to_all, models):
    artifact, another = write(models, "a", 4096), write(models, "bb", 4096)
    daemon = open_to_all(limits={"nofile": (400, 400)})
    held = []
    with wire(daemon, ANN) as ann:
        with pytest.raises(grpc.RpcError) as refused:
            for _ in range(600):
                held.append(lease(daemon, ANN, materialize(ann, artifact).handoff_token))
        assert code_of(refused.value) == grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value
        assert f"user {ANN} has" in refused.value.details() and "leases" in refused.value.details()
        assert 20 < len(held) < 300
        assert command(daemon, BOB, "load", another).code == 0
        assert daemon.cli.run("load", another).code == 0
        assert daemon.status()["leases"] == len(held)
        for sock, fd in held:
            sock.close(), os.close(fd)
        assert soon(lambda: daemon.status()["leases"] == 0)
        materialize(ann, artifact)


def test_many_small_loads_of_one_user_end_in_a_refusal_that_says_why(open_to_all, models):
    artifacts = [write(models, f"m{i}", 4096) for i in range(100)]
    daemon = open_to_all(limits={"nofile": (400, 400)})
    held = []
    with wire(daemon, ANN) as ann:
        with pytest.raises(grpc.RpcError) as refused:
            for artifact in artifacts:
                held.append(lease(daemon, ANN, materialize(ann, artifact).handoff_token))
        assert code_of(refused.value) == grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value
        assert "descriptors" in refused.value.details()
        assert command(daemon, BOB, "load", artifacts[-1]).code == 0
        for sock, fd in held:
            sock.close(), os.close(fd)
        assert soon(lambda: daemon.status()["leases"] == 0)
        assert materialize(ann, artifacts[-2])  # idle replicas make way
    log = daemon.whole_log()
    assert "was removed" not in log and "TOO_MANY_OPEN_FILES" not in log


def test_idle_replicas_make_way_for_what_reads_without_loading(open_to_all, models):
    """Not only loads: what is resolved, verified or fetched opens files, too."""
    checkpoints.write(models / "parts", *({f"w{i}": checkpoints.blob(i, 64)} for i in range(60)))
    for i in range(20):
        (models / "parts" / f"sidecar{i}.json").write_text("{}")
    artifacts = [write(models, f"m{i}", 64) for i in range(110)]
    daemon = open_to_all(limits={"nofile": (400, 400)})

    def fill():
        with wire(daemon, 0) as root:
            for artifact in artifacts:
                root.call("Prewarm", root.message("PrewarmRequest", load=root.load_request(artifact)))
        quota = daemon.status()["quotas"]["descriptors"]
        assert quota["limit"] - quota["taken"] <= quota["limit"] // 8, quota  # files leave an eighth for what loads need besides

    for command_line in [["verify"], ["fetch", "--sidecars", models / "copy"], ["inspect"]]:
        fill()
        before = len(daemon.status()["replicas"])
        daemon.cli.ok(command_line[0], f"disk:{models / 'parts'}", *command_line[1:])
        assert len(daemon.status()["replicas"]) < before, command_line
    assert "TOO_MANY_OPEN_FILES" not in daemon.whole_log()


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_user_who_takes_all_memory_leaves_a_part_to_others(open_to_all, models):
    large, small, more = write(models, "large", 88 * MiB), write(models, "small", 4 * MiB), write(models, "more", 6 * MiB)
    daemon = open_to_all(memory={"host_budget": "100MiB"})
    with wire(daemon, ANN) as ann, wire(daemon, BOB) as bob:
        sock, fd = lease(daemon, ANN, materialize(ann, large).handoff_token)
        with pytest.raises(grpc.RpcError) as refused:
            materialize(ann, small)
        assert code_of(refused.value) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"user {ANN} has 88.0 MiB (88 %)" in refused.value.details()
        assert "limits.kept_for_others" in refused.value.details()
        kept = lease(daemon, BOB, materialize(bob, small).handoff_token)
        status = daemon.status()
        rows = {row["uid"]: row for row in status["users"]}
        assert [row["uid"] for row in status["users"]][:2] == [ANN, BOB]  # who has most comes first
        assert rows[ANN]["held_bytes"] == 88 * MiB and rows[BOB]["held_bytes"] == 4 * MiB
        assert rows[ANN]["leases"] == rows[ANN]["connections"] == 1 and rows[ANN]["descriptors"] >= 4
        assert rows[0]["calls"] == 1 and rows[ANN]["calls"] == 0
        assert status["quotas"]["leases"]["taken"] == 2 < status["quotas"]["leases"]["limit"]
        assert f"uid {ANN}" in daemon.cli.ok("status").out
        assert daemon.cli.run("load", more).code == 0  # root may take what is left
        for thing in (sock, kept[0]):
            thing.close()
        os.close(fd), os.close(kept[1])


def test_memory_that_a_client_keeps_is_charged_until_it_is_gone(open_to_all, models):
    artifacts = [write(models, "m" * (i + 1), 32 * MiB) for i in range(4)]
    daemon = open_to_all(memory={"host_budget": "64MiB", "replica_idle_ttl": "0"})
    fds = []
    with wire(daemon, 0) as root:
        for artifact in artifacts[:2]:
            sock, fd = lease(daemon, 0, materialize(root, artifact).handoff_token)
            sock.close()
            fds.append(fd)
        assert soon(lambda: daemon.status()["leases"] == 0)
        with pytest.raises(grpc.RpcError) as refused:
            materialize(root, artifacts[2])
        assert "64.0 MiB by clients that kept memory beyond their lease" in refused.value.details()
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        socket.send_fds(left, [b"x"], fds)  # no process reads them
        for fd in fds:
            os.close(fd)
        status = daemon.status()
        assert status["memory"]["used_bytes"] == status["memory"]["kept_bytes"] == 64 * MiB
        assert {row["uid"]: row["kept_bytes"] for row in status["users"]}[0] == 64 * MiB
        assert "64.0 MiB kept by clients without a lease" in daemon.cli.ok("status").out
        left.close(), right.close()
        assert materialize(root, artifacts[2]).memory_bytes == 32 * MiB


def test_release_drops_ones_own_replicas_and_root_those_of_all(open_to_all, models):
    of_ann, of_bob = write(models, "a", 4096), write(models, "bb", 4096)
    daemon = open_to_all()
    assert command(daemon, ANN, "prewarm", of_ann).code == 0
    assert command(daemon, BOB, "prewarm", of_bob).code == 0
    assert "released 1 replica" in command(daemon, ANN, "release", "--all").out
    assert [row["artifact"] for row in daemon.status()["replicas"]] == [of_bob]
    assert "released 0 replicas, 0 B; 1 of other users is left" in command(daemon, ANN, "release", of_bob).out
    assert "released 1 replica" in daemon.cli.ok("release", "--all").out


def test_memory_that_is_ready_for_all_is_given_back_by_root_alone(open_to_all, models):
    artifact = write(models, "m", 4 * MiB)
    daemon = open_to_all(memory={"pool_budget": "64MiB"})

    def pooled():
        return daemon.status()["memory"]["pool_bytes"]

    assert command(daemon, ANN, "load", artifact).code == 0
    assert soon(lambda: pooled() > 0)
    assert "released 1 replica" in command(daemon, ANN, "release", "--all").out
    assert pooled() > 0
    daemon.cli.ok("release", "--all")
    assert soon(lambda: pooled() == 0)


# --- groups ----------------------------------------------------------------------------------------------------------

COLLECTIVE = {"materialization_strategy": {"enable_owner_file_collective": True,
                                           "owner_file_collective_min_dedup_saving_bytes": "0",
                                           "owner_file_collective_group_assemble_timeout": "60s"}}


def rank(daemon, artifact, uid, number, gid=None):
    return spawn(daemon, uid, "load", artifact, "--group", "job", "--world-size", "2", "--rank", str(number),
                 "--source-locality", "shared_source", "--collective", "required", gid=gid)


def test_four_users_with_all_they_may_run_leave_prewarms_to_a_fifth_and_root(open_to_all):
    daemon = open_to_all()
    with socket.create_server(("127.0.0.1", 0), backlog=500) as silent:
        url, took = f"http://127.0.0.1:{silent.getsockname()[1]}/m.safetensors", {}
        for uid in (70001, 70002, 70003, 70004, 70005, 0):
            took[uid] = 0
            with wire(daemon, uid) as spoken:
                with pytest.raises(grpc.RpcError) as refused:
                    for i in range(65):
                        load = spoken.load_request(f"{url}?{uid}-{i}")
                        spoken.call("Prewarm", spoken.message("PrewarmRequest", load=load, detach=True))
                        took[uid] += 1
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert f"user {uid} has {took[uid]} detached prewarms" in refused.value.details()
        assert [took[uid] for uid in (70001, 70002, 70003)] == [64] * 3 and 50 <= took[70004] < 64, took
        assert took[70005] > 0 and took[0] > 0, took


def test_what_became_of_a_users_prewarm_is_told_whatever_another_one_has_asked_for_since(open_to_all, models):
    daemon = open_to_all()

    def prewarm(uid, name):
        with wire(daemon, uid) as spoken:
            for i in range(50) if uid == ANN else (0,):
                load = spoken.load_request(f"disk:{models}/{name}-{i}")
                spoken.call("Prewarm", spoken.message("PrewarmRequest", load=load, detach=True))

    def ended():
        return [(row["uid"], row["artifact"]) for row in daemon.status()["prewarms"] if row["state"] == "failed"]

    prewarm(BOB, "his")
    assert soon(lambda: ended() == [(BOB, f"disk:{models}/his-0")])
    prewarm(ANN, "hers")
    assert soon(lambda: all(row["state"] == "failed" for row in daemon.status()["prewarms"]))
    prewarm(BOB, "later")
    assert soon(lambda: (BOB, f"disk:{models}/later-0") in ended())
    assert (BOB, f"disk:{models}/his-0") in ended() and (ANN, f"disk:{models}/hers-49") in ended(), ended()


def test_no_user_can_take_a_rank_of_another_users_group(open_to_all, models):
    artifact = write(models, "m", 4 * MiB)
    daemon = open_to_all(engine=COLLECTIVE)

    intruder = rank(daemon, artifact, BOB, 1)
    assert soon(lambda: daemon.log().count("action=join") == 1)
    ranks = [rank(daemon, artifact, ANN, 0), rank(daemon, artifact, ANN, 1)]
    assert [process.wait(60) for process in ranks] == [0, 0]
    assert intruder.poll() is None  # waits for its own
    intruder.kill()
    intruder.wait()
    for process in [*ranks, intruder]:
        process.stdout.close(), process.stderr.close()


def test_members_of_the_shared_group_may_load_as_one_group(open_to_all, models):
    artifact, gid = write(models, "m", 4 * MiB), 70100
    daemon = open_to_all(engine=COLLECTIVE, limits_section={"shared_group": str(gid)})
    stranger = rank(daemon, artifact, 70003, 1)
    assert soon(lambda: daemon.log().count("action=join") == 1)
    ranks = [rank(daemon, artifact, ANN, 0, gid), rank(daemon, artifact, BOB, 1, gid)]
    assert [process.wait(60) for process in ranks] == [0, 0]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    for process in [*ranks, stranger]:
        process.stdout.close(), process.stderr.close()
