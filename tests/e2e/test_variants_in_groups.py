"""Ranks of one group that want something else each: the artifact as it is stored, and what variants make of it."""
import json

import numpy as np
import pytest

from checkpoints import digest, digests
from group_scene import arrays, group, load_all, strategy  # noqa: F401

RECIPES = [[], [{"cast": {"tensors": ["*"], "dtype": "F32"}}],
           [{"transpose": {"tensors": ["*.row", "*.column"], "dims": [1, 0]}}],
           [{"alias": {"again.{}": "l{}.row"}}, {"permute_rope": {"tensors": ["l{}.column"], "heads": 16, "to": "interleaved"}}]]


def interleaved(array, heads):
    return array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)


def made(arrays, rank):
    if rank == 1:
        return {name: array.astype(np.float32) for name, array in arrays.items()}
    if rank == 2:
        return {name: array.T if array.ndim == 2 else array for name, array in arrays.items()}
    if rank == 3:
        again = {f"again.{i}": arrays[f"l{i}.row"] for i in range(4)}
        return again | {name: interleaved(array, 16) if name.endswith("column") else array for name, array in arrays.items()}
    return arrays


def options(tmp_path, rank):
    path = tmp_path / f"{rank}.yaml"
    path.write_text(json.dumps({"version": 1, "steps": RECIPES[rank]}))
    return ["--variant", path] if RECIPES[rank] else []


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_with_variants_of_their_own_read_every_byte_once(start, models, arrays, tmp_path, world):
    daemon = start(**strategy())
    reports = load_all(daemon, models, [group(rank, "--collective", "required", *options(tmp_path, rank), world=world)
                                        for rank in range(world)])
    once = sum(array.nbytes for array in arrays.values())
    for rank, report in enumerate(reports):
        assert digests(report) == {name: digest(array) for name, array in made(arrays, rank).items()}, rank
        assert report["executor"] == "owner_file_collective"
        assert report["collective"]["collective_unique_source_bytes"] == once
        assert abs(report["collective"]["collective_dedup_saving_bytes"] - (world - 1) * once) < 1000, "in bytes of the source"
