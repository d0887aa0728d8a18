"""Figures about the daemon alone: what a resident replica, a huge request and a narrow slice cost."""
import json
import time

import grpc

import machine
from contest import GIB, Service

SERVICE = "/tensorcast.daemon.v1.StoreDaemon/Materialize"


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def materialize_request(artifact, name):
    """MaterializeRequest{load{artifact, view{names}}} by hand: field numbers 1, (1, 2), 1."""
    def field(number, payload):
        return bytes([number << 3 | 2]) + varint(len(payload)) + payload
    return field(1, field(1, artifact.encode()) + field(2, field(1, name.encode())))


def resident_replica(bench, llama, calls):
    """A second client of a replica of the whole checkpoint, and Materialize alone over the socket."""
    service = Service(bench)
    try:
        artifact = f"disk:{llama}"
        service.call("prewarm", artifact)
        before = machine.cpu_seconds(service.process.pid)
        second = [service.json("load", artifact) for _ in range(5)]
        assert all(r["from_replica"] and r["bytes"]["read"] == r["bytes"]["copied"] == 0 for r in second)
        service.call("prewarm", artifact, "--tensor", "model.norm.weight")
        request, times = materialize_request(artifact, "model.norm.weight"), []
        with grpc.insecure_channel(f"unix:{service.socket}") as channel:
            call = channel.unary_stream(SERVICE)
            for _ in range(calls + 50):
                start = time.perf_counter()
                list(call(request))
                times.append((time.perf_counter() - start) * 1e3)
        times = sorted(times[50:])
        return {"second_client_ms": [r["ms"]["total"] for r in second], "materialize_p50_ms": times[len(times) // 2],
                "materialize_p99_ms": times[int(len(times) * 0.99)], "cpu_s": machine.cpu_seconds(service.process.pid) - before}
    finally:
        service.end()


def many_tensors(bench, small, few, rounds):
    """100,000 tensors: headers read for the first time, resolve and plan afterwards, execution against ten big ones."""
    cold, warm, execute_many, execute_few = [], [], [], []
    for _ in range(rounds):
        machine.make_hot([*small.glob("*.safetensors"), *few.glob("*.safetensors")])
        service = Service(bench)
        try:
            first = service.json("load", f"disk:{small}")
            cold.append(first["ms"]["resolve"])
            execute_few.append(service.json("load", f"disk:{few}")["ms"]["execute"])
            execute_many.append(first["ms"]["execute"])
            for _ in range(3):
                service.call("release", "--all")
                again = service.json("load", f"disk:{small}")
                warm.append(again["ms"]["resolve"] + again["ms"]["plan"])
        finally:
            service.end()
    return {"header_ms": cold, "resolve_plan_ms": warm, "execute_many_ms": execute_many, "execute_few_ms": execute_few}


def inner_slices(bench, wide, columns, rounds, temperature):
    """Inner-dimension slices of several widths: AUTO against each executor on its own. {width: {executor: [ms]}}"""
    widths = [w for w in (64, 512, 2048, columns // 4, columns // 2, columns - 64) if w < columns]
    files, result = sorted(wide.glob("*.safetensors")), {}
    for width in dict.fromkeys(widths):
        times = {"auto": [], "generic": [], "local": []}
        for _ in range(rounds):
            for executor in times:
                service = Service(bench)
                try:
                    service.call("inspect", f"disk:{wide}")
                    bench.backed.take(GIB)
                    (machine.make_cold if temperature == "cold" else machine.make_hot)(files)
                    bench.backed.give()
                    view = json.dumps({"tensors": [{"name": "w", "slices": [None, [64, 64 + width]]}]})
                    report = service.json("load", f"disk:{wide}", "--view", "-", "--executor", executor, stdin=view)
                    times[executor].append(report["ms"]["execute"])
                finally:
                    service.end()
        result[width] = times
    return result
