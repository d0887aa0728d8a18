"""What the tests of GPUs stand on: environments in which daemon and clients find the fakes of tests/fake/cuda and nccl."""
import os

import pytest

from stage import BUILD

FAKE = BUILD / "fake" / "cuda"
FAKE_NCCL = BUILD / "fake" / "nccl"
PLUGIN = BUILD / "plugins" / "tensorcast-cuda.so"
ALL_UUIDS = [f"GPU-fa4e0000-0000-0000-0000-{number:012d}" for number in range(8)]
UUIDS = ALL_UUIDS[:2]

needs_plugin = pytest.mark.skipif(not PLUGIN.exists() or not FAKE.exists(),
                                  reason="the plugin is not built: no CUDA runtime of 12.5 or later to build against")
needs_nccl = pytest.mark.skipif(not (FAKE_NCCL / "libnccl.so.2").exists(),
                                reason="the plugin is built without NCCL: no nccl.h of 2.19 or later to build against")


def environment(**settings):
    """settings: fail="FUNCTION:NTH:CODE[:sticky]", devices=2, memory=bytes, delay_us=0, nccl_fail="FUNCTION:NTH:CODE"."""
    names = {name: name if name.startswith("nccl_") else f"cuda_{name}" for name in settings}
    return {"LD_LIBRARY_PATH": f"{FAKE}:{FAKE_NCCL}", "TENSORCAST_TEST_FAKE_CUDA": "1", "TENSORCAST_TEST_FAKE_NCCL": "1",
            **{f"TENSORCAST_TEST_FAKE_{names[name].upper()}": str(value) for name, value in settings.items()}}


def see_gpus(cli, **settings):
    """From now on this command line's processes have fake GPUs, too."""
    cli.environment.update(environment(**settings))
    return cli


def python(script, socket, *arguments, **settings):
    """Output of a Python client with fake GPUs."""
    import subprocess
    import sys
    from stage import ROOT
    package = ROOT / "client" / "python"
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], text=True, capture_output=True, timeout=120,
                          env={**os.environ, **environment(**settings), "TENSORCAST_SOCKET": str(socket),
                               "PYTHONPATH": str(package)})
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
