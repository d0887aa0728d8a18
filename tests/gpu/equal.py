"""T9 and T10: a checkpoint in the page cache, through the daemon into GPU memory, compared with what safetensors reads, and
timed: all of it, and an inner half of every matrix.

usage: equal.py CHECKPOINT DEVICE [best GB/s of a pinned copy]. Prints one line per check; exit 1 when bytes differ, 2 when
only the speed is missing, 77 when something that is needed is missing."""
import sys
import time

import tensorcast_client as tc

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: this torch sees no GPU")
    sys.exit(77)

path, device, *best = sys.argv[1:]
N_ROUNDS, LEAST_SHARE, MOST_TIME_OF_ROWS = 3, 0.90, 1.3  # the goals of docs/gpu.md
client = tc.connect()
view = client.artifact(f"disk:{path}")
expected = load_file(path)
matrices = [name for name, tensor in expected.items() if tensor.dim() == 2]
middle = {name: expected[name].shape[1] // 2 for name in matrices}
halves = view.subset(matrices).view({name: (1, slice(middle[name], None)) for name in matrices})


def load(wanted):
    """(tensors, GB/s of their bytes in the daemon): the best of some rounds, each of them really copied."""
    best_rate = 0
    for _ in range(N_ROUNDS):
        tensors = None
        client.release()
        tensors = wanted.tensor_dict(device=device, framework="torch")
        facts = tensors.diagnostics
        assert not facts["from_replica"]
        best_rate = max(best_rate, facts["bytes"]["view"] / 1e9 / max(1e-9, facts["ms"]["execute"] / 1e3))
    return tensors, best_rate


start = time.monotonic()
tensors, rate = load(view)
seconds = time.monotonic() - start
for name, tensor in expected.items():
    got = tensors[name]
    assert got.device.type == "cuda" and got.dtype == tensor.dtype and got.shape == tensor.shape, name
    if not torch.equal(got.view(torch.uint8).cpu(), tensor.view(torch.uint8)):
        print(f"tensor {name} differs")
        sys.exit(1)
del got, tensors
sliced, rows_rate = load(halves)
for name in matrices:
    if not torch.equal(sliced[name].cpu(), expected[name][:, middle[name]:]):
        print(f"an inner slice of {name} differs")
        sys.exit(1)
share = rate / float(best[0]) if best else None
told = f" ({100 * share:.0f} % of a pinned copy, wanted {100 * LEAST_SHARE:.0f} %)" if best else ""
print(f"{len(expected)} tensors and {len(matrices)} inner slices equal; {rate:.1f} GB/s in the daemon{told}, inner slices "
      f"{rows_rate:.1f} GB/s ({rate / rows_rate:.2f} times as long per byte, wanted {MOST_TIME_OF_ROWS}); "
      f"{seconds:.2f} s for {N_ROUNDS} loads of the client")
if share is not None and (share < LEAST_SHARE or rate / rows_rate > MOST_TIME_OF_ROWS):
    sys.exit(2)
