"""Thirty other hosts that ask one owner at once, played by clients that have the cluster key, and how many connections an owner takes."""
import contextlib
import http.client
import os
import re
import threading
import time

import numpy as np
import pytest

import etcd as etcd_scene
from checkpoints import blob
from stage import MiB, soon
from test_hosts import Peer, cluster, etcd, id_on_the_web, is_proven, shared, signed  # noqa: F401

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
READERS, BLOCK, HEADER, ADDRESS_CONNECTIONS_MAX, IDLE_S = 30, 4 * MiB, 1 * MiB, 128, 20


def test_thirty_readers_of_one_owner_get_their_bytes_and_the_store_is_read_once(cluster, fake):
    """Each third reader asks for the whole block, the others for ranges of it that overlap."""
    data = bytes(blob(1, 9 * MiB + 12345))
    fake.world.put("web", "m/model.safetensors", data)
    reference, file_id = f"{fake.url('web')}/m", id_on_the_web(fake, "m/model.safetensors")
    cluster.add(settings={"sources": {"http": {"hedge_percent": 0}}})
    fake.fault({"delay": 0.5}, {"listener": "web", "range": "bytes"}, times=0)  # so that all of them wait for the same reads
    wanted = [(BLOCK, 2 * BLOCK) if i % 3 == 0 else (BLOCK + 70_001 * i, 2 * BLOCK - 50_021 * (READERS - i)) for i in range(READERS)]
    peers, together, came = [Peer(cluster, os.urandom(16).hex()) for _ in range(READERS)], threading.Barrier(READERS), [None] * READERS

    def ask(i):
        together.wait(60)
        answer, body = peers[i].ask(reference, file_id, *wanted[i])  # which looks at the proof, too
        came[i] = answer.status == 206 and body == data[slice(*wanted[i])]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert came == [True] * READERS
    times = np.zeros(len(data), int)
    for entry in fake.requests("web", method="GET"):
        if entry["range"]:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", entry["range"]).groups())
            times[first:last + 1] += 1
    assert times.max() == 1 and times[BLOCK:2 * BLOCK].all() and times.sum() <= BLOCK + HEADER, "one block and the file's head, each once"


def test_one_address_has_as_many_connections_as_documented_and_leaves_room_for_others(cluster):
    """All of them prove themselves, so only the limit ends one."""
    cluster.add()
    row, key = cluster.row("h0"), cluster.key.read_bytes()
    port = int(row["address"].rsplit(":", 1)[1])

    def is_answered(connection):
        headers = signed(key, row["incarnation"])
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v1/host", headers=headers)
            answer = connection.getresponse()
            return is_proven(key, headers, answer, answer.read())
        return False

    def connect(address):
        made = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(address, 0))
        made.auto_open = 0  # connected once
        with contextlib.suppress(OSError):
            made.connect()
        return made

    def are_limited():
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(contextlib.closing(connect("127.0.0.2"))) for _ in range(ADDRESS_CONNECTIONS_MAX + 8)]
            answered = [is_answered(connection) for connection in crowd]
            other = is_answered(stack.enter_context(contextlib.closing(connect("127.0.0.3"))))
        if time.monotonic() - began > IDLE_S / 2:  # the first ones may have ended meanwhile
            return False
        assert sum(answered) <= ADDRESS_CONNECTIONS_MAX and other, (sum(answered), other)
        return sum(answered) == ADDRESS_CONNECTIONS_MAX  # soon: the server may not have put away those of the last try
    assert soon(are_limited)
