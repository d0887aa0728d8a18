"""The C example, and the quickstart: twice, from anywhere, in a path with spaces. Python examples: tests/python."""
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from checkpoints import random_array, write
from stage import BUILD, ROOT, soon


@pytest.fixture
def served(daemon, models):
    rng = np.random.default_rng(1)
    arrays = write(models / "m", {"w": random_array(rng, np.float32, (8, 6)), "b": random_array(rng, np.int64, (5,))})
    return daemon, f"disk:{models}/m", arrays


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_c_example_prints_the_tensor_it_loaded(served):
    daemon, artifact, arrays = served
    out = run(BUILD / "examples/load_tensor", artifact, "b", env=daemon.cli.environment)
    assert f"I64 [5], {arrays['b'].nbytes} bytes" in out
    assert arrays["b"].tobytes()[:16].hex(" ") in out


def test_the_c_example_says_what_is_wrong(served):
    daemon, artifact, _ = served
    done = subprocess.run([BUILD / "examples/load_tensor", artifact, "nobody"], capture_output=True, text=True, env=daemon.cli.environment)
    assert done.returncode == 1 and "nobody" in done.stderr and done.stdout == ""


def quickstart(*arguments, cwd):
    return run("bash", ROOT / "examples/quickstart.sh", *arguments, cwd=cwd)


def running():
    """Command lines of all daemons of this clone that serve a quickstart."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline").read()
        except OSError:
            continue
        if line.startswith(str(ROOT / "build/tensorcastd")) and "/tmp/tensorcast-" in line:
            found.append(line)
    return found


def test_the_quickstart_loads_four_ranks_twice_and_leaves_nothing_running(tmp_path):
    place = tmp_path / "a place with späces"
    for attempt in range(2):
        out = quickstart("--size", "24MiB", "--dir", place, *["--verbose"] * attempt, cwd="/")
        rows = re.findall(r"^ +([0-3])  (generic_byte_range|tensor_batched_local) .* (\d+) tensors equal$", out, re.M)
        assert [r[0] for r in rows] == list("0123"), out
        total = re.search(r"^4 ranks got (2[4-9]\.\d) MiB in \d+ ms, [\d.]+ [KMG]iB/s; ", out, re.M)
        assert total and total.start() < out.index("rank  executor") and not re.search(r"\d [kMG]B", out), out
        assert ("event=load_done" in out) == bool(attempt), "the log is shown when it is asked for"
    assert os.listdir(place) == [] and soon(lambda: not running())


def test_a_kept_checkpoint_is_used_again(tmp_path):
    quickstart("--size", "8MiB", "--dir", tmp_path, "--keep", cwd=tmp_path)
    (index,) = tmp_path.glob("*/model.safetensors.index.json")
    written = index.stat().st_mtime_ns
    quickstart("--size", "8MiB", "--dir", tmp_path, cwd=tmp_path)
    assert index.stat().st_mtime_ns == written


def test_the_quickstart_refuses_an_unknown_option_and_a_bad_size(tmp_path):
    for arguments in (["--sise", "1GiB"], ["--size", "many", "--dir", tmp_path]):
        done = subprocess.run(["bash", ROOT / "examples/quickstart.sh", *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode != 0 and ("--sise" in done.stderr or "many" in done.stderr), done


def test_a_checkpoint_of_the_quickstart_has_every_promised_kind_of_tensor(daemon, models):
    run(sys.executable, ROOT / "examples/make_checkpoint.py", models / "m", "--size", "8MiB")
    described = daemon.cli.json("inspect", f"disk:{models}/m")
    kinds = {t["dtype"] for t in described["tensors"]}
    assert {"BF16", "F16", "F32", "F8_E4M3", "I64", "BOOL"} <= kinds
    shapes = [t["shape"] for t in described["tensors"]]
    assert [] in shapes and any(0 in shape for shape in shapes) and len(described["files"]) >= 3
    starts = [8 + int.from_bytes(p.read_bytes()[:8], "little") for p in (models / "m").glob("*.safetensors")]
    assert any(start % 8 for start in starts), "every data section is aligned"
