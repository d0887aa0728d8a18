"""The ranks of tests/python/test_dcp.py: each saves DTensors with torch's writer, loads them with ours and compares.

usage: ranks.py FOLDER SOCKET WORLD_SIZE ...
All ranks of all worlds run side by side, forked from one process that has imported torch, and log to FOLDER/log-WORLD-RANK. They
meet in the folder: "saved-N" appears when the world of N ranks has saved. Exit status 0 when all ranks ended with 0.
"""
import os
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import tensorcast_client as tc
from tensorcast_client.dcp import TensorcastReader
from tensorcast_client.torch import load_state_dict

SHAPES = {"even": (16, 6), "uneven": (10, 3), "empty.shards": (2, 5), "columns": (4, 10), "cube": (5, 4, 6), "vector": (7,),
          "scalar": (), "nothing": (0, 3)}
DTYPES = {"columns": torch.bfloat16, "vector": torch.int64, "cube": torch.float16}


def whole():
    """The tensors of the checkpoint, the same on every rank."""
    state = {}
    for at, (name, shape) in enumerate(SHAPES.items()):
        generator = torch.Generator().manual_seed(at)
        dtype = DTYPES.get(name, torch.float32)
        state[name] = torch.randint(-1000, 1000, shape, generator=generator).to(dtype)
    return state


def layouts(world):
    """{case: (mesh, {name: placements})}"""
    flat = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    rows = {name: [Shard(0)] if shape else [Replicate()] for name, shape in SHAPES.items()}
    columns = {name: [Shard(len(shape) - 1)] if shape else [Replicate()] for name, shape in SHAPES.items()}
    cases = {"rows": (flat, rows), "columns": (flat, columns), "replicated": (flat, {name: [Replicate()] for name in SHAPES})}
    if world == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        cases["grid"] = grid, {**{name: [Replicate(), Replicate()] for name in SHAPES}, "even": [Shard(0), Shard(1)],
                               "uneven": [Shard(0), Shard(0)], "columns": [Replicate(), Shard(1)], "cube": [Shard(2), Shard(0)]}
        cases["strided"] = grid, {**{name: [Replicate(), Replicate()] for name in SHAPES},
                                  "even": [_StridedShard(0, split_factor=2), Shard(0)], "columns": [_StridedShard(1, split_factor=2), Shard(1)]}
    return cases


def scattered(world):
    """Shards whose rows do not lie together: to be loaded, and not what torch's writer can save."""
    flat = init_device_mesh("cpu", (world,))
    return flat, {"even": [_StridedShard(0, split_factor=3)], "uneven": [_StridedShard(0, split_factor=2)],
                  "columns": [_StridedShard(1, split_factor=4)], "empty.shards": [_StridedShard(0, split_factor=2)]}


def distributed(state, mesh, placements):
    return {name: distribute_tensor(state[name], mesh, how, src_data_rank=None) for name, how in placements.items()}


def blank(state):
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def assert_same(got, want, what):
    assert got.keys() == want.keys(), what
    for name, tensor in want.items():
        ours, theirs = got[name], tensor
        if isinstance(theirs, DTensor):
            assert ours.placements == theirs.placements, (what, name)
            ours, theirs = ours.to_local(), theirs.to_local()
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (what, name, ours, theirs)


class Block(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 12), nn.Linear(12, 8), nn.LayerNorm(8)
        self.register_buffer("table", torch.zeros(3))
        with torch.no_grad():
            for at, tensor in enumerate(self.state_dict().values()):
                tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(100 * seed + at)))


def model(world, kind, seed):
    module = Block(seed)
    if kind in ("tp", "fsdp+tp"):
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("fsdp", "tp"))
        parallelize_module(module, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if kind == "fsdp+tp":
            fully_shard(module, mesh=mesh["fsdp"])
    else:
        fully_shard(module, mesh=init_device_mesh("cpu", (world,)))
    return module


def models_of(world):
    return ["fsdp", "tp", "fsdp+tp"] if world == 4 else ["fsdp"]


def save(folder, state):
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(path=str(folder), save_distributed=True))


def save_all(folder, world):
    for case, (mesh, placements) in layouts(world).items():
        save(folder / f"{case}-{world}", distributed(whole(), mesh, placements))
    for kind in models_of(world):
        save(folder / f"model-{kind}-{world}", model(world, kind, seed=7).state_dict())
    if dist.get_rank() == 0:
        for name, state in (("plain", whole()), ("model-plain", Block(seed=7).state_dict())):
            (folder / f"{name}-{world}").mkdir()
            save_file(state, folder / f"{name}-{world}/model.safetensors")
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / f"saved-{world}").touch()


def wait_for(path):
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def is_worth_a_load(source, case, world):
    """What another world has saved goes into everything, what this one has saved into what it was."""
    return not source.endswith(f"-{world}") or source == f"{case}-{world}"


def load_layouts(folder, world, client):
    targets = {**layouts(world), "scattered": scattered(world)}
    for source in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("model-")):
        for case, (mesh, placements) in targets.items():
            if not is_worth_a_load(source.name, case, world):
                continue
            full = whole()
            want, got = distributed(full, mesh, placements), distributed(blank(full), mesh, placements)
            dcp.load(got, storage_reader=TensorcastReader(source, client=client))
            assert_same(got, want, f"{source.name} -> {case}-{world}")


def load_models(folder, world, client):
    """With load_state_dict of ours, by copy and by reference, and with dcp.load."""
    for source in sorted(folder.glob("model-*")):
        want = Block(seed=7).state_dict()
        for kind in models_of(world):
            if not is_worth_a_load(source.name, f"model-{kind}", world):
                continue
            what = f"{source.name} -> {kind}-{world}"
            for assign in (False, True):
                module = model(world, kind, seed=8)
                load_state_dict(module, client.artifact(f"disk:{source}"), assign=assign)
                got = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in module.state_dict().items()}
                assert_same(got, want, (what, assign))
            module = model(world, kind, seed=8)
            state = module.state_dict()
            dcp.load(state, storage_reader=TensorcastReader(client.artifact(f"disk:{source}")))
            module.load_state_dict(state)
            got = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in module.state_dict().items()}
            assert_same(got, want, what)


def load_on_some(folder, world, client):
    """Of a tensor on a mesh of the first two ranks the others load nothing."""
    mesh, module = DeviceMesh("cpu", [0, 1]), nn.Module()
    module.even = nn.Parameter(distribute_tensor(torch.zeros(16, 6), mesh, [Shard(0)], src_data_rank=None))
    for assign in (False, True):
        load_state_dict(module, client.artifact(f"disk:{folder}/plain-4"), strict=False, assign=assign)
        got = module.even.to_local()
        want = whole()["even"].chunk(2)[dist.get_rank()] if dist.get_rank() < 2 else torch.zeros(0)
        assert torch.equal(got.reshape(want.shape), want), (assign, got)
    state = {"even": distribute_tensor(torch.zeros(16, 6), mesh, [Shard(0)], src_data_rank=None)}
    dcp.load(state, storage_reader=TensorcastReader(folder / "plain-4", client=client))
    assert dist.get_rank() >= 2 or torch.equal(state["even"].to_local(), whole()["even"].chunk(2)[dist.get_rank()])


def complain(folder, client):
    """What the planner refuses is refused on every rank, and nothing is loaded."""
    reader = TensorcastReader(folder / "rows-4", client=client)
    for wrong, word in ({"nobody": torch.zeros(3)}, "Missing key"), ({"even": torch.zeros(16, 7)}, "Size mismatch"):
        try:
            dcp.load(wrong, storage_reader=reader)
        except dcp.api.CheckpointException as error:
            assert word in str(error), error
        else:
            raise AssertionError(word)
    part = {"even": torch.zeros(16, 6), "nobody": torch.zeros(3)}
    dcp.load(part, storage_reader=reader, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert torch.equal(part["even"], whole()["even"]) and not part["nobody"].any()
    other = {"even": torch.zeros(16, 6, dtype=torch.bfloat16)}  # converted, as torch's readers do
    dcp.load(other, storage_reader=reader)
    theirs = {"even": torch.zeros(16, 6, dtype=torch.bfloat16)}
    dcp.load(theirs, storage_reader=HuggingFaceStorageReader(str(folder / "rows-4")))
    assert torch.equal(other["even"], theirs["even"])


def run(folder, socket, worlds, world, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{world}", world_size=world, rank=rank)
    client = tc.connect(socket)
    save_all(folder, world)
    for other in worlds:
        wait_for(folder / f"saved-{other}")
    load_layouts(folder, world, client)
    load_models(folder, world, client)
    if world == 4:
        load_on_some(folder, world, client)
    complain(folder, client)
    dist.barrier()
    dist.destroy_process_group()


def start(log, *job):
    """The id of a process that does it."""
    child = os.fork()
    if child:
        return child
    out, code = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), 1
    os.dup2(out, 1)
    os.dup2(out, 2)
    try:
        run(*job)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main():
    folder, socket, worlds = Path(sys.argv[1]), sys.argv[2], [int(world) for world in sys.argv[3:]]
    ranks = [start(folder / f"log-{world}-{rank}", folder, socket, worlds, world, rank) for world in worlds for rank in range(world)]
    sys.exit(any([os.waitpid(rank, 0)[1] for rank in ranks]))


main()
