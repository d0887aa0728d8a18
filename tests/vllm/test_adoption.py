"""Parameters that are the daemon's memory: the lease lives as long as they do, and what is changed in them stays here. Needs
build/tensorcastd, no vLLM."""
import gc
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import tensorcast_client as tc  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from scene import Model, counting  # noqa: E402
from stage import DAEMON, Daemon, soon  # noqa: E402
from tensorcast_vllm.attempts import trace  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint  # noqa: E402
from tensorcast_vllm.fill import fill  # noqa: E402
from tensorcast_vllm.plan import Plan  # noqa: E402

pytestmark = pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
W = counting(512, 64)


@pytest.fixture
def daemon(tmp_path):
    folder = tmp_path / "models/m"
    folder.mkdir(parents=True)
    save_file({"w": W}, folder / "model.safetensors")
    daemon = Daemon([tmp_path / "models"], {}, {}).start()
    daemon.reference = f"disk:{folder}"
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


def load(daemon, adopt):
    """(the model, what of it was adopted, whether it came from a replica)"""
    model = Model(lambda model, name, tensor: model.p.copy_(tensor[:256]), {"p": (256, 64)})
    with tc.connect(daemon.socket) as client:
        checkpoint = Checkpoint(client.artifact(daemon.reference), lambda request: tc.Options(), lambda text: None)
        sources = checkpoint.sources()
        plan = Plan(trace(model, sources, checkpoint.fetch), sources)
        loaded = checkpoint.load(plan, writable=adopt)
        filled = fill(model, plan, loaded, adopt)
    assert torch.equal(model.p, W[:256])
    return model, filled.adopted_bytes, loaded[0].diagnostics["from_replica"]


def test_an_adopted_parameter_holds_the_lease_as_long_as_it_lives(daemon):
    model, adopted, _ = load(daemon, adopt=True)
    gc.collect()
    assert adopted == 256 * 64 * 4 and daemon.status()["leases"] == 1
    other, _, from_replica = load(daemon, adopt=True)
    assert from_replica and daemon.status()["leases"] == 2
    del model
    assert soon(lambda: daemon.status()["leases"] == 1)
    assert torch.equal(other.p, W[:256])
    del other
    assert soon(daemon.at_rest)


def test_a_copied_parameter_holds_none(daemon):
    model, adopted, _ = load(daemon, adopt=False)
    gc.collect()
    assert not adopted and soon(daemon.at_rest) and torch.equal(model.p, W[:256])


def test_what_is_changed_in_an_adopted_parameter_stays_in_this_process(daemon):
    model, _, _ = load(daemon, adopt=True)
    model.p.mul_(0)
    assert not model.p.any()
    load(daemon, adopt=True)  # asserts that it gets what the checkpoint says


def test_an_adopted_parameter_outlives_the_daemon(daemon):
    model, _, _ = load(daemon, adopt=True)
    daemon.kill()
    assert torch.equal(model.p, W[:256])
