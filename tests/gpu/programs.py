"""T11: what programs do with GPU memory, each compared with what torch or the official package makes of the same file: modules
filled in place, targets with strides and fills, variants, DCP's reader, safetensors' functions, transformers, CuPy, JAX, two
processes with slices of their own.

usage: programs.py FOLDER DEVICE; FOLDER is inside a trusted root. One line for each case, a summary as the last; exit 1 when a case
failed. A case whose package is missing is skipped, and said."""
import contextlib
import importlib
import json
import multiprocessing
import os
import random
import sys
import threading
import time
import traceback
from pathlib import Path

import tensorcast_client as tc

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)
if not torch.cuda.is_available():
    print("this torch sees no GPU")
    sys.exit(77)

CASES = []
MIB = 1 << 20


def case(function):
    CASES.append(function)
    return function


def equal(got, want, what=""):
    assert got.is_cuda and got.dtype == want.dtype and got.shape == want.shape, (what, got.device, got.dtype, got.shape)
    assert torch.equal(got.contiguous().view(torch.uint8).cpu(), want.contiguous().view(torch.uint8).cpu()), f"{what} differs"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(1024, 4096, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(4096, 1024, dtype=torch.bfloat16)
        self.norm = torch.nn.LayerNorm(1024)


def checkpoint(folder):
    torch.manual_seed(1)
    made = {f"{i}.{name}": tensor for i in range(8) for name, tensor in Block().state_dict().items()}
    made["half"] = torch.randn(777, 511)
    save_file(made, folder / "blocks.safetensors")
    return made


@case
def modules_are_filled_where_their_parameters_are(client, folder, made):
    module = torch.nn.Sequential(*(Block() for _ in range(8))).to(DEVICE)
    places = {name: tensor.data_ptr() for name, tensor in module.state_dict().items()}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    from tensorcast_client.torch import load_state_dict
    load_state_dict(module, client.artifact(f"disk:{folder}/blocks.safetensors").subset([n for n in made if n != "half"]))
    assert torch.cuda.max_memory_allocated() == before, "torch allocated memory beside the parameters"
    for name, tensor in module.state_dict().items():
        assert tensor.data_ptr() == places[name], f"{name} has moved"
        equal(tensor, made[name], name)


@contextlib.contextmanager
def _least_free(most_used):
    """Fails when less of the device's memory was free meanwhile than that many bytes below what was free before, whichever process used it."""
    before, lowest, ended = torch.cuda.mem_get_info()[0], [], threading.Event()

    def watch():
        torch.cuda.set_device(DEVICE)
        while not ended.is_set():
            lowest.append(torch.cuda.mem_get_info()[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    print(f"memory of the device: {len(lowest)} looks, at most {(before - min(lowest)) >> 20} MiB more in use than before", flush=True)
    assert len(lowest) > 20 and before - min(lowest) <= most_used


@case
def nothing_else_lies_on_the_gpu_while_parameters_are_filled(client, folder, made):
    """Whole tensors and columns of them, 1.5 GiB: the second load, when the contexts are there."""
    large = {f"{i}": torch.randint(0, 256, (16384, 16384), dtype=torch.uint8) for i in range(6)}
    save_file(large, folder / "large.safetensors")
    view = client.artifact(f"disk:{folder}/large.safetensors")
    columns = {name: (1, slice(4096, 12288)) for name in ("4", "5")}
    for wanted, cuts in ((view.subset(["0", "1", "2", "3"]), {}), (view.subset(["4", "5"]).view(columns), columns)):
        names = ["4", "5"] if cuts else ["0", "1", "2", "3"]
        want = {name: large[name][:, 4096:12288] if cuts else large[name] for name in names}
        parameters = {name: torch.empty_like(tensor, device=DEVICE) for name, tensor in want.items()}
        wanted.load_into(parameters)
        for tensor in parameters.values():
            tensor.zero_()
        torch.cuda.synchronize()
        with _least_free(4 * MIB):
            wanted.load_into(parameters)
        for name, tensor in parameters.items():
            equal(tensor, want[name], name)
    (folder / "large.safetensors").unlink()


@case
def targets_with_strides_and_fills(client, folder, made):
    fused = torch.full((8192 + 5, 2 * 1024), 7, dtype=torch.bfloat16, device=DEVICE)
    turned = torch.zeros(511, 777, device=DEVICE)
    view = client.artifact(f"disk:{folder}/blocks.safetensors").subset(["0.up.weight", "1.up.weight", "half"])
    view.load_into({"0.up.weight": fused[:4096, :1024], "1.up.weight": fused[4096:8192, 1024:], "half": turned.T,
                    "pad": fused[8192:]}, fills={"pad": 0.5})
    equal(fused[:4096, :1024], made["0.up.weight"])
    equal(fused[4096:8192, 1024:], made["1.up.weight"])
    equal(turned, made["half"].T)
    assert bool((fused[8192:] == 0.5).all()) and bool((fused[:4096, 1024:] == 7).all()) and bool((fused[4096:8192, :1024] == 7).all())


@case
def variants_cast_turn_and_dequantize(client, folder, made):
    weight = torch.randn(512, 640).to(torch.float8_e4m3fn)
    scale = torch.rand(4, 5) + 0.5
    save_file({"w": weight, "w_scale_inv": scale}, folder / "fp8.safetensors")
    recipe = {"version": 1, "steps": [{"transpose": {"tensors": ["half"], "dims": [1, 0]}}, {"cast": {"tensors": ["half"], "dtype": "BF16"}}]}
    view = client.artifact(f"disk:{folder}/blocks.safetensors").variant(recipe).subset(["half", "0.down.weight"])
    got = view.tensor_dict(device=DEVICE, framework="torch")
    equal(got["half"], made["half"].T.to(torch.bfloat16))
    equal(got["0.down.weight"], made["0.down.weight"])
    got = client.artifact(f"disk:{folder}/fp8.safetensors").variant("fp8-block-to-bf16").tensor_dict(device=DEVICE, framework="torch")
    blocks = scale.repeat_interleave(128, 0)[:512].repeat_interleave(128, 1)[:, :640]
    equal(got["w"], (weight.float() * blocks).to(torch.bfloat16))


@case
def torch_distributed_checkpoint_reads_into_the_gpu(client, folder, made):
    import torch.distributed.checkpoint as dcp
    from tensorcast_client.dcp import TensorcastReader
    state = {name: torch.zeros_like(tensor, device=DEVICE) for name, tensor in made.items()}
    places = {name: tensor.data_ptr() for name, tensor in state.items()}
    dcp.load(state, storage_reader=TensorcastReader(f"disk:{folder}/blocks.safetensors", client=client), no_dist=True)
    for name, tensor in state.items():
        assert tensor.data_ptr() == places[name]
        equal(tensor, made[name], name)


@case
def safetensors_functions_put_tensors_on_the_gpu(client, folder, made):
    from tensorcast_client.safetensors import safe_open
    from tensorcast_client.safetensors.torch import load_file as ours
    os.environ["TENSORCAST_REQUIRED"] = "1"
    replicas = len(client.status()["replicas"])
    for name, tensor in ours(folder / "blocks.safetensors", device=DEVICE).items():
        equal(tensor, made[name], name)
    assert len(client.status()["replicas"]) == replicas, "it went by way of host memory"
    with safe_open(folder / "blocks.safetensors", framework="pt", device=DEVICE) as f:
        equal(f.get_slice("half")[3:, 100:], made["half"][3:, 100:])


@case
def transformers_loads_onto_the_gpu(client, folder, made):
    transformers = importlib.import_module("transformers")
    config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=1000)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "llama")
    words = torch.arange(20, device=DEVICE)[None]

    def logits():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama", device_map=DEVICE, dtype=torch.bfloat16)
        assert {p.device.type for p in model.parameters()} == {"cuda"}
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}, model(words).logits

    want, answer = logits()
    os.environ["TENSORCAST_REQUIRED"] = "1"
    with tc.patch():
        got, ours = logits()
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        equal(got[name], tensor, name)
    assert torch.equal(answer, ours)


@case
def cupy_and_jax_take_the_memory_without_a_copy(client, folder, made):
    cupy = importlib.import_module("cupy")
    view = client.artifact(f"disk:{folder}/blocks.safetensors").subset(["half"])
    tensors = view.tensor_dict(device=DEVICE, framework="dlpack")
    array = cupy.from_dlpack(tensors["half"])
    assert array.data.ptr == tensors["half"].data_ptr and (cupy.asnumpy(array) == made["half"].numpy()).all()
    mine = cupy.zeros((777, 511), "float32")
    view.load_into({"half": mine})
    assert (cupy.asnumpy(mine) == made["half"].numpy()).all()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    jax = importlib.import_module("jax")
    numpy = importlib.import_module("numpy")
    shared = jax.dlpack.from_dlpack(tensors["half"])
    assert shared.platform() == "gpu" if hasattr(shared, "platform") else True
    assert (numpy.asarray(shared) == made["half"].numpy()).all()
    from tensorcast_client.jax import load
    from jax.sharding import SingleDeviceSharding
    gpu = jax.devices("gpu")[0]
    loaded = load(view, SingleDeviceSharding(gpu))["half"]
    assert loaded.devices() == {gpu} and (numpy.asarray(loaded) == made["half"].numpy()).all()


def _rank(folder, rank, answers):
    try:
        made = load_file(folder / "blocks.safetensors")
        with tc.connect() as client:
            options = tc.Options(group=tc.CollectiveLoadGroup("gpu-programs", rank, 2), source_locality="shared_source")
            view = client.artifact(f"disk:{folder}/blocks.safetensors").subset(["0.up.weight", "0.down.weight"]).view(
                {"0.up.weight": slice(2048 * rank, 2048 * (rank + 1)), "0.down.weight": (1, slice(2048 * rank, 2048 * (rank + 1)))})
            got = view.tensor_dict(device=DEVICE, framework="torch", options=options)
            part = slice(2048 * rank, 2048 * (rank + 1))
            equal(got["0.up.weight"], made["0.up.weight"][part])
            equal(got["0.down.weight"], made["0.down.weight"][:, part])
            answers.put("")
    except BaseException:
        answers.put(traceback.format_exc())


@case
def two_processes_of_a_group_get_slices_of_their_own_on_one_gpu(client, folder, made):
    _beside_each_other(_rank, folder, 2)


def _random_views(folder, seed, answers):
    try:
        made, dice = load_file(folder / "blocks.safetensors"), random.Random(seed)
        with tc.connect() as client:
            for _ in range(40):
                names = dice.sample(sorted(made), dice.randint(1, 12))
                cuts = {}
                for name in names:
                    edges = [sorted((dice.randint(0, extent), dice.randint(0, extent))) for extent in made[name].shape]
                    cuts[name] = tuple(slice(None) if dice.random() < 0.3 else slice(*edge) for edge in edges)
                view = client.artifact(f"disk:{folder}/blocks.safetensors").subset(names).view({n: list(enumerate(cut)) for n, cut in cuts.items()})
                if dice.random() < 0.5:
                    got = {name: torch.full(made[name][cuts[name]].shape, 3, dtype=made[name].dtype, device=DEVICE) for name in names}
                    view.load_into(got)
                else:
                    got = view.tensor_dict(device=DEVICE, framework="torch")
                for name in names:
                    equal(got[name], made[name][cuts[name]], f"{name}{cuts[name]} of seed {seed}")
        answers.put("")
    except BaseException:
        answers.put(traceback.format_exc())


def _beside_each_other(function, folder, n):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=function, args=(folder, number, answers)) for number in range(n)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(20)
    assert told == [""] * n, "\n".join(told)


@case
def random_views_of_four_processes_at_a_time(client, folder, made):
    _beside_each_other(_random_views, folder, 4)


@case
def memory_outlives_the_client_and_is_given_back(client, folder, made):
    with tc.connect() as other:
        tensors = other.artifact(f"disk:{folder}/blocks.safetensors").subset(["half"]).tensor_dict(device=DEVICE, framework="torch")
        half = tensors["half"]
    client.release()
    equal(half, made["half"])
    del tensors, half
    for _ in range(200):
        status = client.status()
        if not status["leases"]:
            return
        time.sleep(0.02)
    raise AssertionError("the lease stays: " + json.dumps(status["replicas"]))


def main():
    global DEVICE
    folder, DEVICE = Path(sys.argv[1]), sys.argv[2]
    made, failed, skipped = checkpoint(folder), 0, 0
    with tc.connect() as client:
        for function in CASES:
            name = function.__name__.replace("_", " ")
            try:
                function(client, folder, made)
                print(f"passed  {name}", flush=True)
            except ImportError as error:
                skipped += 1
                print(f"skipped {name}: {error}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(CASES) - failed - skipped} of {len(CASES)} kinds of programs got the right bytes, {skipped} skipped")
    return failed > 0


DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cuda:0"
if __name__ == "__main__":
    sys.exit(main())
