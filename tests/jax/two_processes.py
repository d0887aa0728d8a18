"""Run twice by test_jax.py, as the two processes of one jax program with four devices each. A mesh that takes devices of either
in turn gives each process blocks with gaps between them; each must ask for its own and nothing else."""
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from safetensors import safe_open

import tensorcast_client as tc
from tensorcast_client.jax import load

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402


def coordinator(file, rank):
    """An address that both processes know: the first chooses a free port and writes it down."""
    if rank == 0:
        Path(file + ".new").write_text(str(free_port()))
        os.rename(file + ".new", file)
    while not os.path.exists(file):
        time.sleep(0.02)
    return f"127.0.0.1:{Path(file).read_text()}"


def main():
    file, rank = sys.argv[1].partition(":")[2], int(sys.argv[2])
    jax.distributed.initialize(coordinator(file, rank), 2, rank)
    folder = Path(os.environ["JAX_MODELS"]) / "small"
    asked, tensor_dict = [], tc.View.tensor_dict

    def watched(view, *arguments, **how):
        asked.append(view)
        tensors = tensor_dict(view, *arguments, **how)
        asked[-1] = tensors.diagnostics["bytes"]["view"]
        return tensors

    tc.View.tensor_dict = watched
    by_process = np.array(jax.devices()).reshape(2, 4)
    names = ["matrix.f32", "tall.u8"]
    with safe_open(folder / "model.safetensors", "np") as opened:
        wholes = {name: opened.get_tensor(name) for name in names}
    with tc.connect() as client:
        for mesh in (Mesh(by_process.T.ravel(), ("a",)), Mesh(by_process.ravel(), ("a",))):
            asked.clear()
            arrays = load(client.artifact(f"disk:{folder}").subset(names), NamedSharding(mesh, P("a")))
            for name, array in arrays.items():
                assert array.shape == wholes[name].shape and len(array.addressable_shards) == 4
                for shard in array.addressable_shards:
                    assert np.asarray(shard.data).tobytes() == wholes[name][shard.index].tobytes()
            assert sum(asked) == sum(whole.nbytes for whole in wholes.values()) // 2, asked
    print("all blocks are right", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
