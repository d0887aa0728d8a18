"""The checkpoint, as the daemon has it: what tensors there are, whole ones, and the pieces that a plan asks for."""
from __future__ import annotations

import time

import tensorcast_client as tc
import torch
from tensorcast_client.dtypes import DTYPES, of_torch
from tensorcast_client.redact import shown
from tensorcast_client.words import size_of

from .trace import Source

_PROGRESS_S = 1.0
_SMALL_BYTES = 1 << 20
# what the client or the daemon says when memory of a device cannot be written to; whatever else it means comes again without
_WITHOUT_DEVICE = ("FAILED_PRECONDITION", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")
_UNREACHABLE = ("NOT_DEVICE_MEMORY", "REGION_TOO_SMALL", "REGION_OUTSIDE", "REGION_ELSEWHERE", "REGION_REFUSED")
_TORCH = {dtype.name: of_torch(number) for number, dtype in enumerate(DTYPES, 1)
          if dtype.bits >= 8 and hasattr(torch, dtype.torch)}


class Checkpoint:
    """An artifact (tc.Artifact) and how to load of it. options_of(number of a plan's request, None for a whole tensor) gives the
    client's Options, `log` is told what is happening, once a second at most. No number comes twice, also when a request was
    refused: ranks that load together do so in their first request, and another one of that number would be taken for it."""

    def __init__(self, artifact, options_of, log):
        self._artifact, self._options_of, self._log = artifact, options_of, log
        self._small, self.identity = {}, None  # identity: from sources() on
        self.whole_bytes, self._asked = 0, 0

    def sources(self):
        """Every tensor, sorted by name: vLLM takes the tensors of a layer together only when they follow each other."""
        sources, described = [], self._artifact.describe()
        self.identity = described["identity"]
        for tensor in described["tensors"]:
            if tensor["dtype"] not in _TORCH:
                raise ValueError(f"tensor {tensor['name']} is {tensor['dtype']}, which --load-format tensorcast cannot load "
                                 "yet; use --load-format auto")
            sources.append(Source(tensor["name"], tuple(tensor["shape"]), _TORCH[tensor["dtype"]]))
        return sorted(sources)

    def fetch(self, name):
        """A whole tensor, which may be written to."""
        if name in self._small:
            return self._small[name].clone()
        with self._artifact.subset([name]).tensor_dict(framework="torch", options=self._options_of(None)) as tensors:
            self._check_same(tensors.diagnostics)
            tensor = tensors[name].clone()
        self.whole_bytes += tensor.nbytes
        if tensor.nbytes <= _SMALL_BYTES:
            self._small[name] = tensor.clone()
        return tensor

    def whole(self):
        """{name: tensor} of everything, as tensors over the daemon's memory that may be written to."""
        loaded = self._artifact.tensor_dict(framework="torch", options=self._options_of(None), writable=True, progress=self._teller(0, 1))
        self._check_same(loaded.diagnostics)
        return loaded

    def _next_options(self):
        self._asked += 1
        return self._options_of(self._asked - 1)

    def load(self, plan, writable):
        """For each request of a plan its pieces, as tensors over the daemon's memory."""
        loaded = []
        for request, boxes in enumerate(plan.requests):
            # in the order of the boxes, so that the parts of a fused parameter follow each other and can become it
            view = self._artifact.subset(list(boxes)).view(plan.slices(request), placement="packed" if writable else None)
            loaded.append(view.tensor_dict(framework="torch", options=self._next_options(), writable=writable,
                                           progress=self._teller(request, len(plan.requests))))
            self._check_same(loaded[-1].diagnostics)
        return loaded

    def load_into(self, plan, asked, warn):
        """Has the daemon write pieces to where they belong, and returns the reports. asked: for each request ({name: Box},
        {name: tensor}). None: it cannot write there, which warn() is told; the content of the tensors is undefined then."""
        reports = []
        for request, (boxes, tensors) in enumerate(asked):
            view = self._artifact.subset(list(boxes)).view(plan.slices_of(boxes))
            try:
                reports.append(view.load_into(tensors, options=self._next_options(), progress=self._teller(request, len(asked))))
            except tc.TensorcastError as error:
                if error.reason == "REGION_IN_USE" or not (error.code.name in _WITHOUT_DEVICE or error.reason in _UNREACHABLE):
                    raise
                warn(f"THE DAEMON CANNOT WRITE TO THE PARAMETERS, tensors take the longer way through host memory: {error}")
                return None
            self._check_same(reports[-1])
        return reports

    def _check_same(self, report):
        if report["identity"] != self.identity:
            raise RuntimeError(f"{shown(self._artifact.reference)} was changed while it was loaded; load again")

    def _teller(self, request, n_requests):
        start = told = time.monotonic()

        def tell(stage, done_bytes, total_bytes):
            nonlocal told
            now = time.monotonic()
            if now - told >= _PROGRESS_S and total_bytes:
                told = now
                rate = done_bytes / (now - start)
                left = f", {(total_bytes - done_bytes) / rate:.0f} s left" if 0 < done_bytes < total_bytes else ""
                self._log(f"request {request + 1} of {n_requests}: {stage}, {size_of(done_bytes)} of {size_of(total_bytes)} "
                          f"after {now - start:.0f} s, {size_of(rate)}/s{left}")

        return tell


def unavailable(error):
    """Whether an error says that there is no daemon, rather than that it refuses."""
    return isinstance(error, tc.TensorcastError) and error.code.name == "UNAVAILABLE"


def bytes_equal(one, other):
    """Whether two tensors have the same type, shape and bytes, NaN or not."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(*(tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))
