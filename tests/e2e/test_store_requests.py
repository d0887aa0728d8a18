"""How many requests a load costs, and that bytes are read once: counted at the store."""
import json
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from checkpoints import digest, write
from stage import MiB, soon
from store_scene import Placed, load, noise, one, place
from stores_fixture import checksums

RANKS = 8
LAYERS, HIDDEN, INNER, KEYS, WORDS = 32, 64, 224, 16, 2048  # Llama-3.1-8B with each width divided by 64


def llama():
    """The tensors of Llama-3.1-8B in its four part files, small; [{name: array}, ...]."""
    rng = np.random.default_rng(3)
    shapes = [("model.embed_tokens.weight", (WORDS, HIDDEN))]
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        shapes += [(base + "self_attn.q_proj.weight", (HIDDEN, HIDDEN)), (base + "self_attn.k_proj.weight", (KEYS, HIDDEN)),
                   (base + "self_attn.v_proj.weight", (KEYS, HIDDEN)), (base + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)),
                   (base + "mlp.gate_proj.weight", (INNER, HIDDEN)), (base + "mlp.up_proj.weight", (INNER, HIDDEN)),
                   (base + "mlp.down_proj.weight", (HIDDEN, INNER)), (base + "input_layernorm.weight", (HIDDEN,)),
                   (base + "post_attention_layernorm.weight", (HIDDEN,))]
    shapes += [("model.norm.weight", (HIDDEN,)), ("lm_head.weight", (WORDS, HIDDEN))]
    arrays = {name: np.frombuffer(rng.bytes(2 * int(np.prod(shape))), np.float16).reshape(shape) for name, shape in shapes}
    names, quarter = list(arrays), -(-len(arrays) // 4)
    return [{name: arrays[name] for name in names[at:at + quarter]} for at in range(0, len(names), quarter)]


def last_dimension(arrays, rank):
    """The view of one rank: every matrix split on its last dimension, and the expected arrays."""
    tensors, expected = [], {}
    for name, array in arrays.items():
        width = array.shape[-1] // RANKS
        slices = [None] * (array.ndim - 1) + [[rank * width, (rank + 1) * width]]
        tensors.append({"name": name, "slices": slices})
        expected[name] = digest(array[..., rank * width:(rank + 1) * width])
    return json.dumps({"tensors": tensors}), expected


def counted(fake):
    """(requests that read, all others) of the journal."""
    reading = [entry for entry in fake.journal.entries if entry["range"] and entry["status"] in (200, 206)]
    return len(reading), len(fake.journal.entries) - len(reading)


def test_the_pathological_split_costs_files_and_extents_not_millions(fake, store_daemon, scheme):
    placed = place(fake, scheme, *llama())
    parts = [name for name in placed.files if name.endswith(".safetensors")]
    request = 1 * MiB  # what settings() asks for
    extents = sum(-(-len(placed.files[name]) // request) for name in parts)
    daemon = store_daemon()
    view, expected = last_dimension(placed.arrays, 3)
    report = daemon.cli.json("load", placed.reference, "--view", "-", "--digest", stdin=view)
    assert {t["name"]: t["sha256"] for t in report["tensors"]} == expected
    reading, others = counted(fake)
    links = len([entry for entry in fake.requests("hub") if "/resolve/" in entry["path"]])
    assert reading <= len(parts) + extents + 2, "headers, extents and the index"
    assert others - links <= len(parts) + 4, "listings and what stands for them"


def test_eight_ranks_at_once_read_the_bytes_of_one(fake, store_daemon):
    placed = place(fake, "s3", *llama())
    total = sum(len(data) for name, data in placed.files.items() if name.endswith(".safetensors"))
    daemon, gate = store_daemon(), threading.Event()
    fake.fault({"call": lambda: gate.wait(20)}, {"listener": "s3", "range": "^bytes=[1-9]"}, times=0)  # until all of them are there
    ranks = [(daemon.cli.spawn("load", placed.reference, "--view", "-", "--digest", "--json", "--group", "g", "--rank", rank,
                               "--world-size", RANKS, stdin=-1), *last_dimension(placed.arrays, rank)) for rank in range(RANKS)]
    for process, view, _ in ranks:
        process.stdin.write(view)
        process.stdin.close()
        process.stdin = None
    soon(lambda: [one["stage"] for one in daemon.status()["loads"]] == ["read"] * RANKS)
    gate.set()
    for process, _, expected in ranks:
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        assert {t["name"]: t["sha256"] for t in json.loads(out)["tensors"]} == expected
    heads = [entry for entry in placed.reads() if entry["range"].startswith("bytes=0-")]
    data = [entry for entry in placed.reads() if entry not in heads]
    sent = sum(entry["sent"] for entry in data)
    assert sent <= 1.02 * total, f"{sent} bytes of tensors were read for {total}"
    assert len(heads) <= RANKS * 4 and len(data) <= 2 * RANKS * 4, "what a rank needs before or after the others is little"


def test_eight_clients_that_resolve_at_once_ask_what_one_asks(fake, store_daemon, scheme):
    placed = place(fake, scheme, *llama())
    alone = store_daemon().cli.json("inspect", placed.reference)
    asked = sorted(f"{e['method']} {e['listener']} {e['path']} {e['range']}" for e in fake.requests())
    fake.journal.clear()
    gate = threading.Event()
    fake.fault({"call": lambda: gate.wait(60)}, {"listener": placed.listener})  # the first request of all
    daemon = store_daemon()
    clients = [daemon.cli.spawn("inspect", placed.reference, "--json") for _ in range(8)]
    assert soon(lambda: [row["method"] for row in daemon.status()["requests"]] == ["Resolve"] * 8, 60), daemon.status()
    gate.set()
    for client in clients:
        out, err = client.communicate(timeout=100)
        assert client.returncode == 0 and json.loads(out)["identity"] == alone["identity"], err
    together = sorted(f"{e['method']} {e['listener']} {e['path']} {e['range']}" for e in fake.requests())
    assert [line.split("?")[0] for line in together] == [line.split("?")[0] for line in asked]


def test_checksums_of_parts_are_asked_for_at_once(fake, store_daemon):
    placed = place(fake, "s3", *({f"w{i}": noise(i, 1000)} for i in range(4)))
    for name in placed.files:
        made = fake.world.get("s3", placed.prefix + name)
        made.declared = {"crc32c": checksums.text(made.checksum("crc32c"))}
    together = threading.Barrier(3)
    fake.fault({"call": lambda: together.wait(30)}, {"listener": "s3", "method": "HEAD"}, nth=2, times=3)
    outcome = load(store_daemon(), placed)
    assert placed.is_delivered(outcome) and outcome.report["verified"]["by"] == "crc32c", outcome
    assert len(fake.requests("s3", method="HEAD")) == 4 and not together.broken


@pytest.mark.parametrize("scheme", ["gs", "s3", "hf"])
def test_a_refused_listing_is_asked_for_once(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    path = {"gs": r"/o\?", "s3": "list-type=2", "hf": "/tree/"}[scheme]
    refusal = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    fake.fault({"status": 403, "body": refusal if scheme == "s3" else "{}"}, {"listener": placed.listener, "path": path}, times=0)
    outcome = load(store_daemon(), placed)
    assert outcome.failed and outcome.status == "PERMISSION_DENIED", outcome
    assert len([entry for entry in fake.requests(placed.listener) if entry["status"] == 403]) == 1


def test_a_second_load_asks_only_whether_it_is_still_the_same(fake, store_daemon, scheme):
    placed = one(fake, scheme)
    daemon = store_daemon()
    assert placed.is_delivered(load(daemon, placed))
    daemon.cli.ok("release", "--all")
    assert soon(daemon.at_rest)
    before = len(placed.reads())
    fake.journal.clear()
    assert placed.is_delivered(load(daemon, placed))
    again = placed.reads()
    assert len(again) < before, "the header is read again"
    fake.journal.clear()
    report = load(daemon, placed)
    assert report.code == 0 and report.report["from_replica"] and not placed.reads()


def test_a_second_resolve_asks_for_what_proves_freshness_and_no_more(fake, store_daemon, scheme):
    placed = place(fake, scheme, *llama())
    daemon = store_daemon()
    first = daemon.cli.json("inspect", placed.reference)
    fake.journal.clear()
    assert daemon.cli.json("inspect", placed.reference)["identity"] == first["identity"]
    asked = fake.requests()
    if scheme == "http":  # of each file whether it is the same, and whether there is a topology or a manifest now
        assert sorted(entry["status"] for entry in asked) == [304] * 5 + [404] * 2, asked
    else:
        assert len(asked) == 1 and not asked[0]["range"], "the listing, or what the revision is"


def test_a_slice_reads_little_more_than_it_needs(fake, store_daemon, scheme):
    placed = place(fake, scheme, {"w": noise(1).reshape(-1)[:4 * MiB], "v": noise(2)})
    daemon = store_daemon()
    outcome = load(daemon, placed, "--slice", "w[1000000:1100000]")
    assert outcome.code == 0 and outcome.report["tensors"][0]["sha256"] == digest(noise(1)[1000000:1100000]), outcome
    assert sum(entry["sent"] for entry in placed.reads()) < 2 * MiB


def test_unrelated_loads_of_the_same_bytes_share_them(fake, store_daemon):
    placed = one(fake, "s3")
    fake.limit("s3", delay_s=0.3)
    daemon = store_daemon()
    clients = [daemon.cli.spawn("load", placed.reference, "--digest", "--json") for _ in range(4)]
    for client in clients:
        out, err = client.communicate(timeout=100)
        assert client.returncode == 0 and placed.same(json.loads(out)), err
    assert sum(entry["sent"] for entry in placed.reads()) < 1.5 * len(placed.files["model.safetensors"])


def test_files_beside_the_tensors_are_listed_and_fetched(fake, store_daemon, scheme, tmp_path):
    placed = one(fake, scheme)
    daemon = store_daemon()
    outcome = daemon.cli.run("fetch", placed.reference, "--sidecars", tmp_path / "out")
    if scheme == "http":
        return  # a plain server cannot list
    assert outcome.code == 0 and (tmp_path / "out" / "config.json").read_bytes() == placed.files["config.json"], outcome


@pytest.mark.plain
@pytest.mark.parametrize("columns", [2048, 1024])
def test_memory_stays_within_the_budgets_while_a_large_object_or_its_columns_are_loaded(fake, store_daemon, columns):
    placed = Placed(fake, "http", f"{fake.url('web')}/models/large", "models/large/", {})
    whole = np.arange(96 * MiB, dtype=np.uint32).astype(np.uint8).reshape(-1, 2048)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, {"w": whole})
        placed.put("model.safetensors", (Path(folder) / "model.safetensors").read_bytes(), etag="fixed")
    daemon = store_daemon(memory={"host_budget": "1GiB", "staging_budget": "8MiB"})
    daemon.cli.ok("status")
    daemon.reset_peak()
    before = daemon.resident("VmHWM")
    outcome = load(daemon, placed, *(["--slice", f"w[:, :{columns}]"] if columns < 2048 else []))
    assert outcome.code == 0 and outcome.report["tensors"][0]["sha256"] == digest(whole[:, :columns]), outcome
    assert daemon.resident("VmHWM") - before <= len(whole) * columns + 8 * MiB + 64 * MiB
