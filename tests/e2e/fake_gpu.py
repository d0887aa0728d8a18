"""What the tests of GPUs stand on: environments in which daemon and clients find the fake CUDA of tests/fake/cuda."""
import os

import pytest

from stage import BUILD

FAKE = BUILD / "fake" / "cuda"
PLUGIN = BUILD / "plugins" / "tensorcast-cuda.so"
UUIDS = [f"GPU-fa4e0000-0000-0000-0000-{number:012d}" for number in range(2)]

needs_plugin = pytest.mark.skipif(not PLUGIN.exists() or not FAKE.exists(),
                                  reason="the plugin is not built: no CUDA runtime of 12.5 or later to build against")


def environment(**settings):
    """settings: fail="FUNCTION:NTH:CODE[:sticky]", devices=2, memory=bytes, delay_us=0."""
    return {"LD_LIBRARY_PATH": str(FAKE), "TENSORCAST_TEST_FAKE_CUDA": "1",
            **{f"TENSORCAST_TEST_FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}}


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
