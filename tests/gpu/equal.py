"""T9 and T10: a checkpoint in the page cache, through the daemon into GPU memory, compared with what safetensors reads.

usage: equal.py CHECKPOINT DEVICE [best GB/s of a pinned copy]. Prints one line per check; exit 1 when bytes differ, 77 when
something that is needed is missing."""
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
view = tc.connect().artifact(f"disk:{path}")
expected = load_file(path)
start = time.monotonic()
tensors = view.tensor_dict(device=device, framework="torch")
seconds = time.monotonic() - start
for name, tensor in expected.items():
    got = tensors[name]
    assert got.device.type == "cuda" and got.dtype == tensor.dtype and got.shape == tensor.shape, name
    if not torch.equal(got.view(torch.uint8).cpu(), tensor.view(torch.uint8)):
        print(f"tensor {name} differs")
        sys.exit(1)
matrix = next(name for name, tensor in expected.items() if tensor.dim() == 2)
half = expected[matrix].shape[1] // 2
sliced = view.subset([matrix]).view({matrix: (1, slice(half, None))}).tensor_dict(device=device, framework="torch")[matrix]
if not torch.equal(sliced.cpu(), expected[matrix][:, half:]):
    print(f"an inner slice of {matrix} differs")
    sys.exit(1)
rate = tensors.diagnostics["bytes"]["view"] / 1e9 / max(1e-9, tensors.diagnostics["ms"]["execute"] / 1e3)
share = f", {100 * rate / float(best[0]):.0f} % of a pinned copy" if best else ""
print(f"{len(expected)} tensors equal; {rate:.1f} GB/s in the daemon{share}; {seconds:.2f} s for the client")
