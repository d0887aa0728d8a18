"""A host's folder that holds what no daemon wrote: opening, describing and reading it ends with an answer, in bounded memory, and
the daemon serves others meanwhile."""
import contextlib
import os
import socket
import struct
import time

import numpy as np
import pytest
import tensorcast_client as tc

import checkpoints
from stage import MiB

NAMES = ["manifest.json", "segment_000001.safetensors", "segment_000002.open", "segment_000002.journal", ".writer"]
PATIENCE_S = 90


def pipes(host):
    for name in NAMES:
        os.mkfifo(host / name)


def folders(host):
    for name in NAMES:
        (host / name).mkdir()


def links(host):
    for name in NAMES:
        (host / name).symlink_to("/etc/passwd")


def sockets(host):
    for name in NAMES:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(host / name))


def sparse(host):
    with open(host / NAMES[1], "wb") as file:
        file.truncate(1 << 40)


def long_header(host):
    with open(host / NAMES[1], "wb") as file:
        file.write(struct.pack("<Q", 90 << 20))
        file.truncate(200 << 20)


def blank_manifest(host):
    (host / NAMES[0]).write_bytes(b'{"format": "tensorcast-activations", "version": 1, "host": 0, "segments": [' + b" " * (80 << 20) + b"]}")


def many_files(host):
    for i in range(5000):
        (host / f"segment_{i + 1:06}.safetensors").touch()


@pytest.mark.parametrize("make", [pipes, folders, links, sockets, sparse, long_header, blank_manifest, many_files], ids=lambda make: make.__name__)
def test_a_host_folder_of_strange_files_is_answered_in_time(start, models, make):
    daemon = start(activations={"roots": [str(models)]}, memory={"host_budget": "256MiB"})
    checkpoints.write(models / "m", {"w": checkpoints.blob(1, 64)})
    host, begun = models / "store/host_000", time.monotonic()
    host.mkdir(parents=True)
    make(host)
    before = daemon.resident()
    with contextlib.suppress(tc.TensorcastError), tc.connect(str(daemon.socket)).activation_store(f"disk:{models}/store", host=0) as store:
        store.append(99, {1: np.zeros(4, np.float32)})
    with contextlib.suppress(tc.TensorcastError):
        for _ in tc.connect(str(daemon.socket)).activation_store(f"disk:{models}/store").samples():
            pass
    daemon.cli.run("activations", "status", f"disk:{models}/store")
    daemon.cli.ok("load", f"disk:{models}/m")
    assert time.monotonic() - begun < PATIENCE_S and daemon.process.poll() is None
    assert daemon.resident("VmHWM") - before < 512 * MiB
