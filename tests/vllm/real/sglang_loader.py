"""SGLang's real plugin, loader and weight updater classes with a small model, and no engine: this machine has no GPU, and PyPI no
SGLang for CPUs. Prints what came of it as JSON.

    python sglang_loader.py '{"old": "/model", "new": "gs://bucket/model", "new_folder": "/model/new", "bad": [...]}'
"""
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from safetensors.torch import load_file


class Model(torch.nn.Module):
    """Takes every tensor as it is."""

    def __init__(self, shapes):
        super().__init__()
        self.tensors = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}

    def load_weights(self, weights):
        for name, tensor in weights:
            self.tensors[name].copy_(tensor)


def main():
    job = json.loads(sys.argv[1])
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_executor.model_runner_components import weight_updater
    from sglang.srt.model_loader.loader import DefaultModelLoader, get_model_loader
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from tensorcast_sglang.loader import TensorcastLoader

    def weights_of(folder, load_format, model_config):
        loader = get_model_loader(LoadConfig(load_format=load_format), None)
        return type(loader), dict(loader._get_weights_iterator(DefaultModelLoader.Source(folder, None, model_config=model_config)))

    def config_of(path):
        return SimpleNamespace(model_path=path, revision=None, dtype=torch.bfloat16, hf_config=SimpleNamespace(architectures=["Fake"]))

    def equal(one, other):
        return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    config = config_of(job["old"])
    theirs = {path: {name: tensor for file in Path(path).glob("*.safetensors") for name, tensor in load_file(file).items()}
              for path in (job["old"], job["new_folder"])}
    kind, ours = weights_of(job["old"], "tensorcast", config)
    model = Model({name: (tensor.shape, tensor.dtype) for name, tensor in ours.items()})
    report = {"is_ours": kind is TensorcastLoader, "start": equal(ours, theirs[job["old"]]),
              "other_formats": type(get_model_loader(LoadConfig(load_format="auto"), None)).__name__}
    kind.load_weights_and_postprocess(model, iter(ours.items()), torch.device("cpu"))
    updater = mock.MagicMock(spec=weight_updater.WeightUpdater, device="cpu", gpu_id=0, model_config=config, get_model=lambda: model)
    update = weight_updater.WeightUpdater.update_weights_from_disk
    with mock.patch.multiple(weight_updater, get_available_gpu_memory=lambda *_, **__: 0, get_pp_stage_load_group=lambda: None,
                             _unsupported_derived_weight_cache_error=lambda model: None):
        report["updated"] = [*update(updater, job["new"], "tensorcast"), equal(model.tensors, theirs[job["new_folder"]])]
        report["refused"] = [[*update(updater, path, "tensorcast"), equal(model.tensors, theirs[job["new_folder"]])] for path in job["bad"]]
    print("\n" + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
