"""A model made on the spot, loaded once by its own load_weights from real tensors and once by tracing and filling."""
import torch
from tensorcast_vllm.attempts import trace
from tensorcast_vllm.fill import fill
from tensorcast_vllm.plan import Plan
from tensorcast_vllm.trace import Source

POISON = -77


class Model(torch.nn.Module):
    """Parameters by name and shape, and a load_weights that hands each checkpoint tensor to `take(model, name, tensor)`."""

    def __init__(self, take, parameters, dtype=torch.float32):
        super().__init__()
        self.take = take
        for name, shape in parameters.items():
            self.register_parameter(name, torch.nn.Parameter(torch.full(shape, POISON, dtype=dtype), requires_grad=False))

    def load_weights(self, weights):
        for name, tensor in weights:
            self.take(self, name, tensor)
        return {name for name, _ in self.named_parameters()}


class Outcome:
    """What became of a traced load."""

    def __init__(self, model, plan, filled, fetched):
        self.model, self.plan, self.filled, self.fetched = model, plan, filled, fetched


def counting(*shape, dtype=torch.float32):
    """A tensor whose elements are all different."""
    elements = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32)
    return elements.reshape(shape).to(dtype)


class Pieces(dict):
    """{name: tensor} over one memory, which spans over neighbours see."""

    def span(self, name, skip, count):
        first = self[name]
        return first.as_strided((count,), (1,), first.storage_offset() + skip)


def loaded_as_pieces(plan, checkpoint):
    """What the daemon would answer: the boxes of a request, one behind the other in one memory."""
    loaded = []
    for request in plan.requests:
        cut = {name: checkpoint[name][tuple(map(slice, box.start, box.stop))] for name, box in request.items()}
        memory = torch.empty(sum(-(-tensor.nbytes // 64) * 64 for tensor in cut.values()) + 64, dtype=torch.uint8)
        at, pieces = -memory.data_ptr() % 64, Pieces()
        for name, tensor in cut.items():
            piece = memory[at:at + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            pieces[name] = piece.copy_(tensor)
            at += -(-tensor.nbytes // 64) * 64
        loaded.append(pieces)
    return loaded


def load(make_model, checkpoint, adopt=True):
    """Traces and fills; asserts that every parameter is what the model makes of the real tensors."""
    fetched = []

    def fetch(name):
        fetched.append(name)
        return checkpoint[name].clone()

    sources = [Source(name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(checkpoint.items())]
    model, reference = make_model(), make_model()
    plan = Plan(trace(model, sources, fetch), sources)
    filled = fill(model, plan, loaded_as_pieces(plan, checkpoint), adopt)
    reference.load_weights((name, tensor.clone()) for name, tensor in sorted(checkpoint.items()))
    for (name, ours), (_, theirs) in zip(model.named_parameters(), reference.named_parameters()):
        assert torch.equal(ours, theirs), f"{name}: {ours} instead of {theirs}"
    return Outcome(model, plan, filled, fetched)
