"""Every example in a docstring of the package runs as it stands, on the checkpoint disk:/models/tiny."""
import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tensorcast_client as tc

NEEDS = {"torch": "torch", "torch_tensors": "torch", "dtensor": "torch", "dcp": "torch", "module_fill": "torch", "module_region": "torch",
         "transformers": "transformers", "jax": "jax"}
LEAST = 30  # examples, lest none be found one day


@pytest.fixture
def tiny(fake, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", fake.socket)
    weight, bias = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4, dtype=np.float32)
    fake.put("disk:/models/tiny", {"head.weight": ("F32", weight.view(np.uint32)), "head.bias": ("F32", bias.view(np.uint32))})


def modules():
    yield tc
    for found in pkgutil.iter_modules(tc.__path__):
        try:
            yield importlib.import_module(f"tensorcast_client.{found.name}")
        except ModuleNotFoundError as error:
            assert error.name.partition(".")[0] == NEEDS.get(found.name), error
        except SystemExit:  # __main__ without a command
            pass


def test_examples_of_docstrings_run(tiny):
    results = [doctest.testmod(module, extraglobs={"tc": tc, "np": np}) for module in modules()]
    assert sum(result.failed for result in results) == 0 and sum(result.attempted for result in results) >= LEAST
