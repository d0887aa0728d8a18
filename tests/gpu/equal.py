"""T9: a checkpoint through the daemon into GPU memory, compared with what safetensors reads: whole tensors, an inner slice of
every matrix, and into a tensor of torch's own.

usage: equal.py CHECKPOINT DEVICE. Prints one line; exit 1 when bytes differ, 77 when something that is needed is missing."""
import sys

import tensorcast_client as tc

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(error)
    sys.exit(77)
if not torch.cuda.is_available():
    print("this torch sees no GPU")
    sys.exit(77)

path, device = sys.argv[1:]
view = tc.connect().artifact(f"disk:{path}")
expected = load_file(path)
matrices = [name for name, tensor in expected.items() if tensor.dim() == 2]
middle = {name: expected[name].shape[1] // 2 for name in matrices}


def compare(got, want, what):
    assert got.device.type == "cuda" and got.dtype == want.dtype and got.shape == want.shape, what
    if not torch.equal(got.contiguous().view(torch.uint8).cpu(), want.contiguous().view(torch.uint8)):
        print(f"{what} differs")
        sys.exit(1)


tensors = view.tensor_dict(device=device, framework="torch")
for name, tensor in expected.items():
    compare(tensors[name], tensor, f"tensor {name}")
halves = view.subset(matrices).view({name: (1, slice(middle[name], None)) for name in matrices})
sliced = halves.tensor_dict(device=device, framework="torch")
for name in matrices:
    compare(sliced[name], expected[name][:, middle[name]:], f"an inner slice of {name}")
own = torch.empty(sum(tensor.nbytes + 64 for tensor in expected.values()), dtype=torch.uint8, device=device)
filled = view.tensor_dict(device=device, framework="torch", into=own)
for name, tensor in expected.items():
    compare(filled[name], tensor, f"tensor {name} in torch's memory")
assert own.data_ptr() <= filled[name].data_ptr() < own.data_ptr() + own.nbytes
print(f"{len(expected)} tensors, {len(matrices)} inner slices, and all of it in torch's own memory are equal")
