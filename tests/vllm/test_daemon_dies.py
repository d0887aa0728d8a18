"""A daemon that is killed in mid-load: a waiting client hears of it at once, and when it is back the same client, the
same traced plan and the same model go on. Needs build/tensorcastd, no vLLM."""
import os
import sys
import threading
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import tensorcast_client as tc  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from scene import Model, counting  # noqa: E402
from tensorcast_vllm.attempts import trace  # noqa: E402
from tensorcast_vllm.checkpoint import Checkpoint, unavailable  # noqa: E402
from tensorcast_vllm.fill import fill  # noqa: E402
from tensorcast_vllm.plan import Plan  # noqa: E402
from stage import DAEMON, Daemon, soon  # noqa: E402

pytestmark = pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
MAX_SECONDS = 15  # on a busy machine; it would wait for the other rank, or for its deadline
# a lone rank waits for the other so long; until then the load is certainly under way
PATIENT = {"engine": {"materialization_strategy": {"enable_owner_file_collective": True,
                                                   "owner_file_collective_min_dedup_saving_bytes": "1",
                                                   "owner_file_collective_group_assemble_timeout": "60s"}},
           "logging": {"level": "debug"}}
HALF = tc.Options(group=tc.CollectiveLoadGroup("g", 0, 2), source_locality="shared_source")
BIG_BYTES = (1 << 30) - (1 << 20)  # the budget is a gibibyte, and where tensors begin is the daemon's choice


@pytest.fixture
def models(tmp_path):
    (tmp_path / "models/m").mkdir(parents=True)
    (tmp_path / "models/m").chmod(0o755)
    return tmp_path / "models"


@pytest.fixture
def daemon(models):
    daemon = Daemon([models], PATIENT, {})
    daemon.start()
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


class Outcome(threading.Thread):
    """What became of fn(), and when."""

    def __init__(self, fn):
        super().__init__(daemon=True)
        self.fn, self.error, self.ended = fn, None, None
        self.start()

    def run(self):
        try:
            self.fn()
        except Exception as error:
            self.error = error
        self.ended = time.monotonic()


def assert_heard_of_it(outcome, killed):
    outcome.join(30)
    assert outcome.ended and outcome.ended - killed < MAX_SECONDS
    assert unavailable(outcome.error), outcome.error
    assert "no daemon answers on" in str(outcome.error) and ".sock" in str(outcome.error)


def test_a_rank_of_a_model_hears_of_it_and_the_next_load_works(daemon, models):
    w = counting(64, 16)
    save_file({"w": w}, models / "m/model.safetensors")
    model = Model(lambda model, name, tensor: model.p.copy_(tensor[16:48]), {"p": (32, 16)})
    options = [HALF]
    with tc.connect(daemon.socket) as client:
        checkpoint = Checkpoint(client.artifact(f"disk:{models}/m"), lambda request: options[0], lambda text: None)
        sources = checkpoint.sources()
        plan = Plan(trace(model, sources, checkpoint.fetch), sources)
        loading = Outcome(lambda: checkpoint.load(plan, writable=True))
        assert soon(lambda: "action=join" in daemon.log() or loading.ended), "the load does not begin"
        killed = time.monotonic()
        daemon.kill()
        assert_heard_of_it(loading, killed)
        assert (model.p == -77).all()  # untouched
        daemon.start()
        options[0] = tc.Options()
        fill(model, plan, checkpoint.load(plan, writable=True), adopt=True)
    assert torch.equal(model.p, w[16:48])


def sparse(folder):
    """A checkpoint of one tensor of zeros that takes no room."""
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (BIG_BYTES, BIG_BYTES)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + BIG_BYTES)


def test_a_client_hears_of_it_while_bytes_are_being_read(daemon, models):
    sparse(models / "m")
    killed = []

    def kill(stage, done_bytes, total_bytes):
        if stage == "read" and done_bytes < total_bytes and not killed:
            killed.append(time.monotonic())
            daemon.kill()

    with tc.connect(daemon.socket) as client:
        whole = client.artifact(f"disk:{models}/m")
        for _ in range(20):  # a fast machine may be done before it tells of any progress
            loading = Outcome(lambda: whole.tensor_dict(framework="numpy", progress=kill))
            loading.join(60)
            if killed:
                break
            client.release()
        assert killed, "never caught in the middle"
        assert_heard_of_it(loading, killed[0])
        daemon.start()
        with whole.view({"w": slice(0, 4096)}).tensor_dict(framework="numpy") as tensors:
            assert not tensors["w"].any() and len(tensors["w"]) == 4096


def test_sidecars_of_a_daemon_that_dies_are_an_error_and_no_half_file(daemon, models, tmp_path):
    (models / "m/big.json").write_bytes(os.urandom(60 << 20))
    out = tmp_path / "out"
    with tc.connect(daemon.socket) as client:
        fetching = Outcome(lambda: client.artifact(f"disk:{models}/m").fetch_sidecars(out))
        assert soon(lambda: out.exists() and any(out.iterdir()) or fetching.ended), "nothing is written"
        killed = time.monotonic()
        daemon.kill()
        fetching.join(30)
        assert fetching.ended and fetching.ended - killed < MAX_SECONDS
        assert unavailable(fetching.error) or fetching.error is None  # it may have been faster
        assert [path.name for path in out.iterdir()] == ([] if fetching.error else ["big.json"])
        daemon.start()
        client.artifact(f"disk:{models}/m").fetch_sidecars(out)
    assert (out / "big.json").read_bytes() == (models / "m/big.json").read_bytes()
