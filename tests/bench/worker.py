"""One rank of a timed load from Python: prepares, waits for the start, loads, touches every byte, reports, is checked.

usage: worker.py LOADER JOB_JSON LIBRARY WARM_UP_FOLDER       stdin: a line to start, a line to check, a line to end
"""
import ctypes
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from loaders import LOADERS, Job
from store_loaders import STORE_LOADERS


def rows_of(tensor):
    """(address, bytes per row, rows, stride) of a tensor that is contiguous or a stack of contiguous rows."""
    width = tensor.element_size()
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.numel() * width, 1, 0
    if tensor.dim() != 2 or tensor.stride(1) != 1:
        raise RuntimeError(f"cannot walk strides {tensor.stride()}")
    return tensor.data_ptr(), tensor.shape[1] * width, tensor.shape[0], tensor.stride(0) * width


def used_cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def differences(job, tensors):
    """Names of tensors that are not what the files say; every byte is compared."""
    wrong, seen = [], 0
    for path in job.files():
        raw = np.memmap(path, np.uint8, "r")
        begin = 8 + int.from_bytes(raw[:8].tobytes(), "little")
        for name, entry in json.loads(raw[8:begin].tobytes()).items():
            if name == "__metadata__":
                continue
            start, stop = entry["data_offsets"]
            want, shape = raw[begin + start:begin + stop], entry["shape"]
            cut = job.cut(name, shape)
            if cut and cut[0] == 0:
                row = (stop - start) // shape[0]
                want = want[cut[1] * row:cut[2] * row]
            elif cut:
                width = (stop - start) // (shape[0] * shape[1])
                want = want.reshape(shape[0], shape[1] * width)[:, cut[1] * width:cut[2] * width]
            address, row_bytes, n_rows, stride = rows_of(tensors[name])
            seen += 1
            if row_bytes * n_rows == 0:
                same = want.size == 0
            else:
                span = (ctypes.c_uint8 * ((n_rows - 1) * stride + row_bytes)).from_address(address)
                got = np.lib.stride_tricks.as_strided(np.frombuffer(span, np.uint8), (n_rows, row_bytes), (stride or row_bytes, 1))
                same = np.array_equal(got.reshape(-1), want.reshape(-1))
            if not same:
                wrong.append(name)
    return wrong if seen == len(tensors) else [*wrong, f"{len(tensors)} tensors instead of {seen}"]


def main():
    loader, job, library = {**LOADERS, **STORE_LOADERS}[sys.argv[1]](), Job(**json.loads(sys.argv[2])), ctypes.CDLL(sys.argv[3])
    library.touch_rows.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
    library.touch_rows.restype = ctypes.c_uint64
    loader.prepare()
    if job.socket or job.group:
        loader.connect(job)
    tiny = job.reference and f"{job.reference.rpartition('/')[0]}/{Path(sys.argv[4]).name}"
    list(loader.load(Job(sys.argv[4], 0, 1, job.socket, tiny)).values())  # some make tensors when they are asked for
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = used_cpu()
    tensors = loader.load(job)
    loaded, loaded_cpu = time.monotonic(), used_cpu() - cpu
    for tensor in tensors.values():
        library.touch_rows(*rows_of(tensor))
    touched = time.monotonic()
    diagnostics = getattr(tensors, "diagnostics", {})
    print(json.dumps({"loaded": loaded, "touched": touched, "cpu": used_cpu() - cpu, "loaded_cpu": loaded_cpu,
                      "report": {k: v for k, v in diagnostics.items() if k != "tensors"}}), flush=True)
    if sys.stdin.readline().strip() == "check":
        print(json.dumps(differences(job, tensors)[:5]), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
