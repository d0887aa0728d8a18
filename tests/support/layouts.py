"""The same tensors in every layout, written with NumPy and the safetensors package alone: plain files, topology.json, and the shards
of torch.distributed.checkpoint."""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def cut(array, parts, dim):
    """[(offsets, piece)] by the rounded-up share; the last ones may be smaller or empty."""
    share = -(-array.shape[dim] // parts)
    bounds = [(min(part * share, array.shape[dim]), min((part + 1) * share, array.shape[dim])) for part in range(parts)]
    pieces = [np.ascontiguousarray(array[(slice(None),) * dim + (slice(*bound),)]) for bound in bounds]
    return [([bound[0] if d == dim else 0 for d in range(array.ndim)], piece) for bound, piece in zip(bounds, pieces)]


def pieces_of(arrays, ranks):
    """{name: [(rank, offsets, piece)]}: matrices are cut by rows and columns in turn, what has one dimension or none is one rank's."""
    pieces = {}
    for at, (name, array) in enumerate(arrays.items()):
        if array.ndim < 2:
            pieces[name] = [(at % ranks, [0] * array.ndim, array)]
        else:
            pieces[name] = [(rank, *piece) for rank, piece in enumerate(cut(array, ranks, at % 2))]
    return pieces


def write_plain(folder, arrays, ranks=1):
    folder.mkdir(parents=True)
    save_file(arrays, folder / "model.safetensors")


def write_dcp(folder, arrays, ranks=4):
    """As HuggingFaceStorageWriter(save_distributed=True) does: a shard with a 0 extent is written once."""
    folder.mkdir(parents=True)
    parts, offsets = [{} for _ in range(ranks)], [{} for _ in range(ranks)]
    for name, pieces in pieces_of(arrays, ranks).items():
        seen = set()
        for rank, offset, piece in pieces:
            if tuple(offset) not in seen:
                parts[rank][name], offsets[rank][name] = piece, {"saved_offsets": offset}
                seen.add(tuple(offset))
    for rank in range(ranks):
        save_file(parts[rank], folder / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors",
                  metadata={"DCP_SHARDING_INFO": json.dumps(offsets[rank]), "DCP_VERSION": "1.0", "format": "pt"})


def dtype_of(path, name):
    content = path.read_bytes()
    return json.loads(content[8:8 + int.from_bytes(content[:8], "little")])[name]["dtype"]


def write_topology(folder, arrays, ranks=4):
    """Matrices distributed, the others shared by all ranks."""
    folder.mkdir(parents=True)
    pieces = pieces_of(arrays, ranks)
    paths = [folder / f"rank{rank}.safetensors" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        save_file({name: piece for name, several in pieces.items() for at, _, piece in several if at == rank or len(several) == 1}, path)
    tensors = {}
    for name, several in pieces.items():
        shared = len(several) == 1
        tensors[name] = {"type": "Shared" if shared else "Distributed", "shape": list(arrays[name].shape), "dtype": dtype_of(paths[0], name)}
        if shared:
            tensors[name]["filename_indices"] = list(range(ranks))
        else:
            tensors[name]["chunks"] = [{"offsets": offset, "shape": list(piece.shape), "filename_index": rank} for rank, offset, piece in several]
    document = {"tensors": tensors, "filenames": [path.name for path in paths], "world_size": ranks}
    (folder / "topology.json").write_text(json.dumps(document, indent=2))


WRITERS = {"plain": write_plain, "topology": write_topology, "dcp": write_dcp}


def write(folder, layout, arrays, ranks=4):
    WRITERS[layout](Path(folder), arrays, ranks)
    return f"disk:{folder}"
