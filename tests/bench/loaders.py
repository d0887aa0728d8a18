"""The contenders that run in Python. A loader gets a Job and returns {name: tensor}; one class each, nothing shared but
the names. What differs between them is the point: views of a mapped file, copies, whole tensors that are cut afterwards,
a streaming reader, the daemon."""
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from compare_ranks import SPLIT_ON  # noqa: E402


@dataclass
class Job:
    folder: str
    rank: int = 0
    ranks: int = 1
    socket: str = ""
    reference: str = ""  # where the folder lies in a store; empty: it is loaded from the disk
    view_lines: list | None = None  # for the C worker: what to load, instead of what the ranks of a model do
    share: float = 0  # each rank's part of a split tensor, windows that overlap; 0: one of `ranks` equal parts
    splits_all: bool = False  # every tensor by its rows, not only those that tensor parallelism splits
    group: str = ""  # for the C worker: the ranks load together under this name; for torch.distributed: the file where they meet

    def files(self):
        return sorted(Path(self.folder).glob("*.safetensors"))

    def cut(self, name, shape):
        """(dimension, start, stop) of what this rank wants, or None for the whole tensor."""
        if self.is_whole():
            return None
        dimension = 0 if self.splits_all else next((d for part, d in SPLIT_ON.items() if f"{part}.weight" in name), None)
        if dimension is None:
            return None
        width = int(shape[dimension] * self.share) if self.share else shape[dimension] // self.ranks
        start = self.rank * (shape[dimension] - width) // (self.ranks - 1)
        return dimension, start, start + width

    def is_whole(self):
        return self.ranks == 1 or self.share == 1


def shapes_in(files):
    """{name: shape} of the tensors in safetensors files, as they lie there."""
    shapes = {}
    for path in files:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes.update({name: entry["shape"] for name, entry in header.items() if name != "__metadata__"})
    return shapes


class Views:
    """safetensors: mapped views, nothing copied."""

    def prepare(self):
        import torch  # noqa: F401
        from safetensors import safe_open
        self.safe_open = safe_open

    def load(self, job):
        tensors = {}
        for path in job.files():
            file = self.safe_open(path, "pt")
            for name in file.keys():
                part = file.get_slice(name)
                cut = job.cut(name, part.get_shape())
                if cut is None:
                    tensors[name] = file.get_tensor(name)
                else:
                    dimension, start, stop = cut
                    tensors[name] = part[start:stop] if dimension == 0 else part[:, start:stop]
        return tensors


class Copies(Views):
    """safetensors: the same, into memory of its own."""

    def load(self, job):
        return {name: tensor.clone() for name, tensor in super().load(job).items()}


class WholeThenNarrow:
    """As vLLM loads by default: every rank gets whole tensors, cuts out its part and copies it into a parameter."""

    def prepare(self):
        import torch
        from safetensors import safe_open
        self.torch, self.safe_open = torch, safe_open

    def keep(self, job, name, whole):
        cut = job.cut(name, list(whole.shape))
        part = whole if cut is None else whole.narrow(cut[0], cut[1], cut[2] - cut[1])
        return self.torch.empty(part.shape, dtype=part.dtype).copy_(part)

    def load(self, job):
        tensors = {}
        for path in job.files():
            with self.safe_open(path, "pt") as file:
                for name in file.keys():
                    tensors[name] = self.keep(job, name, file.get_tensor(name))
        return tensors


class Streamer(WholeThenNarrow):
    """Run:ai model streamer: every rank streams all files and keeps its part."""

    def prepare(self):
        super().prepare()
        from runai_model_streamer import SafetensorsStreamer
        self.streamer = SafetensorsStreamer

    def load(self, job):
        tensors = {}
        with self.streamer() as streamer:
            streamer.stream_files([str(path) for path in job.files()])
            for name, whole in streamer.get_tensors():
                tensors[name] = self.keep(job, name, whole)
        return tensors


class Tensorcast:
    """The daemon, through the Python client."""

    def prepare(self):
        import torch  # noqa: F401
        import tensorcast_client
        self.client_module = tensorcast_client

    def connect(self, job):
        self.client = self.client_module.connect(f"unix:{job.socket}", timeout=60.0)

        if not job.reference:  # a rank knows its model: names and shapes, before it loads
            self.known = {name: job.cut(name, shape) for name, shape in shapes_in(job.files()).items()}

    def load(self, job):
        artifact = self.client.artifact(job.reference or f"disk:{job.folder}")
        if job.ranks == 1:
            view = artifact.view()
        else:
            cuts = self.known if not job.reference else {t["name"]: job.cut(t["name"], t["shape"]) for t in artifact.describe()["tensors"]}
            slices = {name: (cut[0], slice(cut[1], cut[2])) for name, cut in cuts.items() if cut}
            view = artifact.subset(list(cuts)).view(slices=slices)
        return view.tensor_dict(device="cpu", framework="torch", options=self.options())

    def options(self):
        return self.client_module.Options(memory="copied")


class TensorcastMapped(Tensorcast):
    """The same in the files' own pages."""

    def options(self):
        return self.client_module.Options(memory="mapped")


class TorchReader:
    """torch.distributed.checkpoint on gloo ranks, which hold DTensors, with torch's own reader."""

    def prepare(self):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from safetensors import safe_open
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard
        self.torch, self.dist, self.dcp, self.safe_open = torch, dist, dcp, safe_open
        self.mesh_of, self.DTensor, self.Replicate, self.Shard = init_device_mesh, DTensor, Replicate, Shard

    def connect(self, job):
        self.dist.init_process_group("gloo", init_method=f"file://{job.group}", world_size=job.ranks, rank=job.rank)
        self.mesh, self.shapes, self.rank = self.mesh_of("cpu", (job.ranks,)), self.shapes_of(job), job.rank
        self.dist.barrier()

    def shapes_of(self, job):
        return {name: file.get_slice(name).get_shape() for path in job.files()
                for file in [self.safe_open(path, "pt")] for name in file.keys()}

    def reader(self, job):
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        return HuggingFaceStorageReader((job.reference or job.folder).removeprefix("disk:"))

    def empty(self, job, name, shape):
        cut = job.cut(name, shape)
        local = [cut[2] - cut[1] if cut and dim == cut[0] else extent for dim, extent in enumerate(shape)]
        tensor = self.torch.empty(local, dtype=self.torch.bfloat16)
        return self.DTensor.from_local(tensor, self.mesh, [self.Shard(cut[0]) if cut else self.Replicate()], run_check=False)

    def load(self, job):
        warms_up = job.ranks == 1  # with all ranks, so that all that torch imports late is there
        job = replace(job, rank=self.rank, ranks=self.mesh.size()) if warms_up else job
        state = {name: self.empty(job, name, shape) for name, shape in (self.shapes_of(job) if warms_up else self.shapes).items()}
        self.dcp.load(state, storage_reader=self.reader(job))
        return {name: tensor.to_local() for name, tensor in state.items()}


class OurReader(TorchReader):
    """The same with ours."""

    def connect(self, job):
        import tensorcast_client
        super().connect(job)
        self.client = tensorcast_client.connect(f"unix:{job.socket}", timeout=60.0)

    def reader(self, job):
        from tensorcast_client.dcp import TensorcastReader
        return TensorcastReader(job.reference or f"disk:{job.folder}", client=self.client)


LOADERS = {"safetensors views": Views, "safetensors copies": Copies, "vLLM default": WholeThenNarrow,
           "Run:ai streamer": Streamer, "tensorcast Python": Tensorcast, "tensorcast mapped": TensorcastMapped,
           "HuggingFaceStorageReader": TorchReader, "TensorcastReader": OurReader}
