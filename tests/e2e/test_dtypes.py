"""Casts of a whole model: --dtype of every command that makes something of tensors."""
import ml_dtypes
import numpy as np
import pytest

from checkpoints import digest, digests, write


@pytest.fixture
def arrays(models):
    made = {"w": np.linspace(-2, 2, 30, dtype=np.float32).reshape(5, 6), "n": np.arange(4, dtype=np.int64)}
    write(models / "m", made)
    return made


@pytest.mark.parametrize("name, dtype", [("float64", np.float64), ("torch.bfloat16", ml_dtypes.bfloat16), ("half", np.float16),
                                         ("F8_E5M2", ml_dtypes.float8_e5m2)])
@pytest.mark.parametrize("where", [[], ["--standalone"]], ids=["daemon", "standalone"])
def test_a_load_gives_floats_of_the_type_that_was_asked_for(daemon, models, arrays, name, dtype, where):
    told = daemon.cli.json("load", f"disk:{models}/m", "--dtype", name, "--digest", *where)
    assert digests(told) == {"w": digest(arrays["w"].astype(dtype)), "n": digest(arrays["n"])}


def test_every_spelling_of_a_type_shares_one_replica(daemon, models, arrays):
    reports = [daemon.cli.json("load", f"disk:{models}/m", "--dtype", name) for name in ("BF16", "bfloat16", "torch.bfloat16")]
    assert [report["from_replica"] for report in reports] == [False, True, True]
    daemon.cli.ok("prewarm", f"disk:{models}/m", "--dtype", "fp64")
    assert daemon.cli.json("load", f"disk:{models}/m", "--dtype", "double")["from_replica"]


def test_a_cast_is_the_last_step_of_a_variant(daemon, models, arrays, tmp_path):
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - rename: {w: v}\n")
    told = daemon.cli.json("load", f"disk:{models}/m", "--variant", tmp_path / "r.yaml", "--dtype", "fp16", "--tensor", "v", "--digest")
    assert digests(told) == {"v": digest(arrays["w"].astype(np.float16))}
    assert "v" in daemon.cli.ok("explain", f"disk:{models}/m", "--variant", tmp_path / "r.yaml", "--dtype", "fp16").out


def test_a_type_that_does_not_exist_is_refused_with_the_nearest(daemon, models, arrays):
    outcome = daemon.cli.run("load", f"disk:{models}/m", "--dtype", "floot32")
    assert outcome.code == 2 and "did you mean F32?" in outcome.err and "F8_E5M2FNUZ" in outcome.err
