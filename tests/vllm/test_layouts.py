"""A model whose tensors are in pieces: what the loader fills is what the plain checkpoint gives, and a rank reads its own slices."""
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("e2e", "support")]

import layouts  # noqa: E402
import numpy as np  # noqa: E402
import tensorcast_client as tc  # noqa: E402
from scene import Model  # noqa: E402
from stage import DAEMON, Daemon  # noqa: E402
from tensorcast_vllm.attempts import trace  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint  # noqa: E402
from tensorcast_vllm.fill import fill  # noqa: E402
from tensorcast_vllm.plan import Plan  # noqa: E402

pytestmark = pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
TENSORS = {"q": np.arange(64 * 48, dtype=np.float32).reshape(64, 48), "k": -np.arange(16 * 48, dtype=np.float32).reshape(16, 48),
           "down": np.arange(24 * 80, dtype=np.float32).reshape(24, 80), "norm": np.arange(48, dtype=np.float32)}


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon([tmp_path], {}, {}).start()
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


def take(rank):
    """A fused parameter and a split of columns, as layers of two ranks have them."""
    def taken(model, name, x):
        if name == "norm":
            model.norm.copy_(x)
        elif name == "down":
            model.down.copy_(x.narrow(1, rank * 40, 40))
        else:
            rows = x.shape[0] // 2
            (model.qk[:32] if name == "q" else model.qk[32:]).copy_(x.narrow(0, rank * rows, rows))
    return taken


@pytest.mark.parametrize("layout", ["plain", "topology", "dcp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_gets_its_slices_out_of_the_pieces(daemon, tmp_path, layout, rank):
    reference = layouts.write(tmp_path / layout, layout, TENSORS)
    model = Model(take(rank), {"qk": (40, 48), "down": (24, 40), "norm": (48,)})
    with tc.connect(daemon.socket) as client:
        checkpoint = Checkpoint(client.artifact(reference), lambda request: tc.Options(), lambda text: None)
        sources = checkpoint.sources()
        plan = Plan(trace(model, sources, checkpoint.fetch), sources)
        loaded = checkpoint.load(plan, writable=True)
        fill(model, plan, loaded, adopt=True)
    q, k = (np.split(TENSORS[name], 2)[rank] for name in ("q", "k"))
    assert np.array_equal(model.qk.numpy(), np.concatenate([q, k]))
    assert np.array_equal(model.down.numpy(), np.split(TENSORS["down"], 2, 1)[rank]) and np.array_equal(model.norm.numpy(), TENSORS["norm"])
    assert loaded[0].diagnostics["bytes"]["view"] == 4 * (40 * 48 + 24 * 40 + 48)
