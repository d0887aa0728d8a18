"""T12: how long a whole checkpoint takes from the page cache until its bytes are in GPU memory, beside what users would otherwise pick:
safetensors' load_file(device=...) and safe_open, and torch's own copy of memory that is pinned already, which is the least that it
can take. Each runs in turn, in every round. In the daemon: fresh, again while it is resident, into
parameters that are there (load_state_dict), the same from a host replica.

usage: peers.py CHECKPOINT DEVICE. A table, and one line as the last."""
import statistics
import sys
import time

import tensorcast_client as tc

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file
    from tensorcast_client.safetensors.torch import load_file as ours
except ImportError as missing:
    print(missing)
    sys.exit(77)
if not torch.cuda.is_available():
    print("this torch sees no GPU")
    sys.exit(77)

N_ROUNDS = 5
path, device = sys.argv[1], sys.argv[2]
client = tc.connect()
artifact = client.artifact(f"disk:{path}")
gpu = torch.device(device)


def timed(load):
    """Seconds until everything that `load` returns is on the GPU."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    kept = load()
    torch.cuda.synchronize()
    return time.perf_counter() - start, kept


def daemon_fresh():
    return artifact.tensor_dict(device=device, framework="torch")


def safetensors():
    return load_file(path, device=device)


def ours_in_place_of_safetensors():
    return ours(path, device=device)


def safe_open_in_turn():
    with safe_open(path, framework="pt", device=device) as f:
        return {name: f.get_tensor(name) for name in f.keys()}


parameters = {name: torch.empty(tensor.shape, dtype=tensor.dtype, device=gpu) for name, tensor in load_file(path).items()}
size = sum(tensor.nbytes for tensor in parameters.values())
pinned = torch.empty(min(size, 1 << 30), dtype=torch.uint8, pin_memory=True)
flat = torch.empty(pinned.nbytes, dtype=torch.uint8, device=gpu)


def pinned_copy():
    for _ in range(-(-size // pinned.nbytes)):
        flat.copy_(pinned, non_blocking=True)


def into_parameters():
    artifact.load_into(parameters)


def settle():
    client.release()
    for _ in range(200):
        if not client.status()["replicas"]:
            return
        time.sleep(0.02)


times = {}


def note(name, seconds):
    times.setdefault(name, []).append(seconds)


contenders = {"safetensors load_file": safetensors, "safetensors safe_open": safe_open_in_turn, "copy of pinned memory": pinned_copy,
              "load_file of tensorcast": ours_in_place_of_safetensors, "tensorcast, fresh": daemon_fresh,
              "tensorcast, into parameters": into_parameters}
for round_number in range(N_ROUNDS + 1):  # the first is for caches, contexts and pinning
    for name, load in contenders.items():
        settle()
        seconds, kept = timed(load)
        if round_number:
            note(name, seconds)
        if name == "tensorcast, fresh":
            again, more = timed(daemon_fresh)
            if round_number:
                note("tensorcast, resident", again)
                print("stages in ms:", dict(kept.diagnostics["ms"]))
            del more
        del kept
for name, seconds in times.items():
    middle = statistics.median(seconds)
    print(f"{name:30} {middle * 1e3:9.1f} ms ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f}), {size / middle / 1e9:.1f} GB/s")
middle = {name: statistics.median(seconds) for name, seconds in times.items()}
print(f"{size / 1e9:.1f} GB: fresh {middle['tensorcast, fresh']:.3f} s, into parameters {middle['tensorcast, into parameters']:.3f} s, resident "
      f"{middle['tensorcast, resident'] * 1e3:.1f} ms; safetensors {middle['safetensors load_file']:.3f} s, a copy of pinned memory "
      f"{middle['copy of pinned memory']:.3f} s")
