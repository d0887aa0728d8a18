"""Ranks that load a small model as a group: a daemon's settings, the ranks' views, and what they are to receive."""
import json
import re

import ml_dtypes
import numpy as np
import pytest

from checkpoints import digest, random_array, write
from stage import soon

COUNTERS = ("unique_source_bytes", "peer_transfer_bytes", "peak_temporary_bytes", "batch_count", "dedup_saving_bytes")
ROWS, COLUMNS, WORLD = 1024, 2048, 4


def strategy(engine=(), **changes):
    keys = {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": "1KiB",
            "owner_file_collective_batch_bytes": "4MiB", "owner_file_collective_group_assemble_timeout": "60s", **changes}
    return {"engine": {"materialization_strategy": keys, **dict(engine)}, "logging": {"level": "debug"}}


@pytest.fixture
def arrays(models):
    rng = np.random.default_rng(4)
    parts = [{f"l{i}.row": random_array(rng, ml_dtypes.bfloat16, (ROWS, COLUMNS)),
              f"l{i}.column": random_array(rng, ml_dtypes.bfloat16, (ROWS, COLUMNS)),
              f"l{i}.norm": random_array(rng, np.float32, (COLUMNS,))} for i in range(4)]
    return write(models / "m", *parts)


def group(rank, *more, name="g", world=WORLD, locality="shared_source"):
    return ["--group", name, "--rank", rank, "--world-size", world, "--source-locality", locality, *more]


def slices(rank):
    """A norm whole, a quarter of the rows, a quarter of the columns; of every layer."""
    rows, columns = ROWS // WORLD, COLUMNS // WORLD
    per_layer = [["--tensor", f"l{i}.norm", "--slice", f"l{i}.row[{rank * rows}:{(rank + 1) * rows}, :]",
                  "--slice", f"l{i}.column[:, {rank * columns}:{(rank + 1) * columns}]"] for i in range(4)]
    return sum(per_layer, [])


def expected(arrays, rank):
    rows, columns = ROWS // WORLD, COLUMNS // WORLD
    cut = {"row": lambda a: a[rank * rows:(rank + 1) * rows], "column": lambda a: a[:, rank * columns:(rank + 1) * columns],
           "norm": lambda a: a}
    return {name: digest(cut[name.split(".")[1]](array)) for name, array in arrays.items()}


class Load:
    """A `tensorcast load` in the background."""

    def __init__(self, daemon, models, *arguments):
        artifact = models if isinstance(models, str) else f"disk:{models}/m"
        self.process = daemon.cli.spawn("load", artifact, *arguments, "--json", "--digest")

    def end(self, timeout=120):
        out, err = self.process.communicate(timeout=timeout)
        self.code, self.err = self.process.returncode, err
        self.status = (re.search(r"^tensorcast: ([A-Z_]+): ", err, re.M) or [None, None])[1]
        self.report = json.loads(out) if self.code == 0 else None
        return self

    def report_ok(self):
        assert self.end().code == 0, self.err
        return self.report

    def skipped(self):
        """Why it did not load as part of its group."""
        return self.report_ok()["collective"]["skip_reason"]


def load_all(daemon, models, arguments):
    return [load.report_ok() for load in [Load(daemon, models, *a) for a in arguments]]


def joined(daemon, count):
    return soon(lambda: daemon.log().count("action=join") >= count)
