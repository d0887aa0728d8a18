"""Models in object stores, from the reference to parameters: the folder that vLLM gets, and what is asked of the store for it.
Needs build/tensorcastd, no vLLM."""
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import numpy as np  # noqa: E402
import tensorcast_client as tc  # noqa: E402
from safetensors import SafetensorError, safe_open  # noqa: E402
from scene import Model  # noqa: E402
from stage import DAEMON, Daemon  # noqa: E402
from store_scene import SCHEMES, aws_keys, bare, place, settings  # noqa: E402, F401
from stores_fixture import fake  # noqa: E402, F401
from tensorcast_vllm.attempts import trace  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint  # noqa: E402
from tensorcast_vllm.fill import fill  # noqa: E402
from tensorcast_vllm.model_folder import HEADER, NOTE, origin_of, prepare  # noqa: E402
from tensorcast_vllm.plan import Plan  # noqa: E402

pytestmark = pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
Q = np.arange(1 << 21, dtype=np.float32).reshape(1 << 15, 64)
SIDECARS = {"config.json": b'{"model_type": "fake"}', "tokenizer.json": b"[]"}


@pytest.fixture
def daemon(fake, bare, aws_keys, tmp_path):  # noqa: F811
    daemon = Daemon([tmp_path], {"sources": settings(fake)}, {}).start()
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


@pytest.fixture(params=SCHEMES)
def placed(request, fake):  # noqa: F811
    placed = place(fake, request.param, {"q": Q}, {"k": Q[:64] + 1})
    placed.put("tokenizer.json", SIDECARS["tokenizer.json"])
    return placed


def checkpoint_of(client, folder):
    return Checkpoint(client.artifact(origin_of(folder).artifact), lambda request: tc.Options(), lambda text: None)


def test_the_folder_has_all_that_vllm_reads_before_it_loads(daemon, placed, tmp_path):
    folder = Path(prepare(placed.reference, daemon.socket, tmp_path / "cache"))
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in (NOTE, HEADER)} == SIDECARS
    assert origin_of(folder).artifact == placed.reference
    content = (folder / HEADER).read_bytes()
    header = json.loads(content[8:])
    assert len(content) == 8 + int.from_bytes(content[:8], "little")
    assert {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()} == {"q": ("F32", [1 << 15, 64]), "k": ("F32", [64, 64])}
    with pytest.raises(SafetensorError):  # it is no checkpoint
        safe_open(folder / HEADER, "np")


def test_the_loader_reads_its_slices_of_the_store(daemon, placed, tmp_path):
    folder = prepare(placed.reference, daemon.socket, tmp_path / "cache")
    model = Model(lambda model, name, x: (model.p[:64] if name == "k" else model.p[64:]).copy_(x[:64]), {"p": (128, 64)})
    with tc.connect(daemon.socket) as client:
        checkpoint = checkpoint_of(client, folder)
        sources = checkpoint.sources()
        origin_of(folder).check(checkpoint.identity)
        plan = Plan(trace(model, sources, checkpoint.fetch), sources)
        loaded = checkpoint.load(plan, writable=True)
        fill(model, plan, loaded, adopt=True)
    assert np.array_equal(model.p.numpy(), np.concatenate([Q[:64] + 1, Q[:64]]))
    assert plan.bytes == 2 * 64 * 64 * 4 and loaded[0].diagnostics["bytes"]["view"] == plan.bytes
    assert sum(entry["sent"] for entry in placed.reads()) < Q.nbytes // 8  # headers and slices, not the tensors


def test_a_checkpoint_that_was_replaced_is_refused(daemon, placed, tmp_path):
    folder = prepare(placed.reference, daemon.socket, tmp_path / "cache")
    place(placed.fake, placed.scheme, {"q": Q + 7}, {"k": Q[:64]})
    placed.fake.world.repository("org/m").new_commit()  # what nothing but a commit changes on a hub
    with tc.connect(daemon.socket) as client:
        checkpoint = checkpoint_of(client, folder)
        checkpoint.sources()
        with pytest.raises(ValueError, match="was changed since its configuration was fetched; start again"):
            origin_of(folder).check(checkpoint.identity)
    assert prepare(placed.reference, daemon.socket, tmp_path / "cache") == folder
    origin_of(folder).check(checkpoint.identity)


def test_a_reference_that_leads_nowhere_is_named(daemon, placed, tmp_path):
    with pytest.raises(tc.ArtifactNotFoundError, match="nobody"):
        prepare(placed.reference + "-nobody", daemon.socket, tmp_path / "cache")
