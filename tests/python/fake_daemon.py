"""A stand-in for tensorcastd inside the test process: real gRPC, real protobuf, a real hand-off socket with a memfd, or with
files where `file_of` says for a tensor which one it lies in.

Artifacts are dictionaries {name: (safetensors dtype, NumPy array of unsigned integers)}; NumPy does the slicing. Tests
change `fail`, `progress`, `pause` and `mangle` to make it misbehave, and look at `requests`, `leases` and `tokens`.
Of targets it checks nothing: it writes what NumPy writes there.
"""
import mmap
import os
import secrets
import socket
import struct
import threading
import time
from concurrent import futures

import grpc
import numpy as np

import reference
from tensorcast_client.dtypes import NAMES
from tensorcast_client.messages import OPEN_END, SERVICE

Resolve, Explain = reference.message("ResolveRequest"), reference.message("ExplainRequest")
Materialize = reference.message("MaterializeRequest")


class Refused(Exception):
    """An error status with a google.rpc.ErrorInfo, as the daemon sends it."""

    def __init__(self, code, message, reason="", **metadata):
        super().__init__(message)
        self.code, self.message, self.reason, self.metadata = code, message, reason, metadata


def status_details(refused):
    info = reference.message("ErrorInfo")(reason=refused.reason, domain="tensorcast", metadata=refused.metadata)
    packed = {"type_url": "type.googleapis.com/google.rpc.ErrorInfo", "value": info.SerializeToString()}
    other = {"type_url": "type.googleapis.com/google.rpc.Help", "value": b"\x12\x00"}
    return reference.message("Status")(code=refused.code.value[0], message=refused.message,
                                       details=[other, packed]).SerializeToString()


class FakeDaemon:
    def __init__(self, folder):
        self.socket, self.handoff = f"{folder}/daemon.sock", f"{folder}/daemon.handoff"
        self.artifacts, self.versions = {}, {}
        self.requests, self.leases, self.tokens = [], 0, {}
        self.regions = {}  # token: (memfd, the offer's connection), from offers that no load has taken
        self.fail, self.progress, self.pause, self.mangle = None, [], None, lambda result: None
        self.sidecars = []  # what FetchSidecars sends: ("list", {name: bytes}) or ("chunk", file, offset, data)
        self.answer = None  # replaces the hand-off's answer: fn(connection, header, fd)
        self.file_of, self.pad = None, 5  # fn(name) -> number; bytes before the first tensor of a file
        self.batch = 64  # descriptors in a message
        self.knows_leading = True  # View.leading
        self.metadata = {}  # of the last unary call
        self.folder = folder
        self._changed = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", -1),
                                                                            ("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {
            "Resolve": grpc.unary_unary_rpc_method_handler(self._checked(self._resolve)),
            "Status": grpc.unary_unary_rpc_method_handler(self._checked(self._status)),
            "Explain": grpc.unary_unary_rpc_method_handler(self._checked(self._explain)),
            "FetchSidecars": grpc.unary_stream_rpc_method_handler(self._fetch_sidecars),
            "Materialize": grpc.unary_stream_rpc_method_handler(self._materialize)})])
        self._server.add_insecure_port("unix:" + self.socket.replace("%", "%25").replace(" ", "%20"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.handoff)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        self._server.start()

    def stop(self):
        """Any number of times."""
        self._server.stop(0).wait()
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def put(self, reference, tensors):
        self.artifacts[reference] = tensors
        self.versions[reference] = self.versions.get(reference, 0) + 1

    def wait_until(self, condition, timeout=60.0):
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def wait_for_leases(self, count):
        return self.wait_until(lambda: self.leases == count)

    def asked(self, kind):
        return [request for name, request in self.requests if name == kind]

    # --- methods ---
    def _checked(self, method):
        def handle(data, context):
            self.metadata = dict(context.invocation_metadata())
            try:
                return method(data).SerializeToString()
            except Refused as refused:
                self._refuse(context, refused)
        return handle

    def _refuse(self, context, refused):
        if refused.reason:
            context.set_trailing_metadata([("grpc-status-details-bin", status_details(refused))])
        context.abort(refused.code, refused.message)

    def _artifact(self, name):
        if self.fail:
            raise self.fail
        if name not in self.artifacts:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"{name} does not exist", "NO_SUCH_FILE")
        return self.artifacts[name]

    def identity(self, name):
        return f"{name}#{self.versions[name]}"

    def _status(self, data):
        waits = [{"method": "Resolve", "waiting_for": "the store"}] if self.pause else []
        return reference.message("StatusResponse")(handoff_socket=self.handoff, requests=waits)

    def _resolve(self, data):
        request = Resolve.FromString(data)
        self._remember("Resolve", request)
        if self.pause:
            self.pause.wait(120)
        tensors = self._artifact(request.artifact)
        answer = reference.message("ResolveResponse")(artifact=request.artifact, identity=self.identity(request.artifact))
        if request.known_identity == answer.identity:
            answer.unchanged = True
            return answer
        answer.files.add(name="model.safetensors", bytes=sum(bits.nbytes for _, bits in tensors.values()))
        answer.total_bytes = answer.files[0].bytes
        answer.names.extend(tensors)
        answer.dtypes.extend(NAMES.index(dtype) for dtype, _ in tensors.values())
        answer.ranks.extend(bits.ndim for _, bits in tensors.values())
        answer.file_indexes.extend(0 for _ in tensors)
        answer.sizes.extend(bits.nbytes for _, bits in tensors.values())
        for _, bits in tensors.values():
            answer.dims.extend(bits.shape)
        return answer

    def _selected(self, load):
        """[(name, dtype, array)] of a LoadRequest."""
        tensors, view = self._artifact(load.artifact), load.view
        if not load.HasField("view") or load.view.whole:
            return [(name, dtype, bits) for name, (dtype, bits) in tensors.items()]
        if not view.names or len(set(view.names)) != len(view.names):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "an empty view or a name twice", "BAD_VIEW")
        chosen, at = [], 0
        for i, name in enumerate(view.names):
            if name not in tensors:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"tensor {name} is not in {load.artifact}", "TENSOR_NOT_FOUND")
            dtype, bits = tensors[name]
            rank = view.n_slices[i] if view.n_slices else 0
            if rank not in (0, bits.ndim) and not (self.knows_leading and view.leading and rank < bits.ndim):
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{rank} slices of tensor {name}", "BAD_SLICE")
            parts = tuple(slice(start, None if stop == OPEN_END else stop)
                          for start, stop in zip(view.starts[at:at + rank], view.stops[at:at + rank]))
            at += rank
            chosen.append((name, dtype, bits[parts] if parts else bits))
        return chosen

    def _report(self, load, selected):
        report = reference.message("LoadReport")(
            load_id="l1", artifact=load.artifact, identity=self.identity(load.artifact), executor="generic_byte_range",
            selection_reason="only one", view_bytes=sum(bits.nbytes for *_, bits in selected), memory="4k", total_ms=1.5)
        report.peer_bytes, report.hosts.choice, report.hosts.alive, report.hosts.hedged_bytes = 7, "owner_peers", 3, 2
        report.hosts.from_hosts.add(host="h1", bytes=4)
        report.hosts.from_hosts.add(host="h2", bytes=3)
        report.candidates.add(executor="generic_byte_range", eligible=True, reason="always", requests=2, estimated_ms=.5)
        return report

    def _explain(self, data):
        request = Explain.FromString(data)
        self._remember("Explain", request)
        report = self._report(request.load, self._selected(request.load))
        return reference.message("ExplainResponse")(report=report, text="a table")

    def _materialize(self, data, context):
        request = Materialize.FromString(data)
        self._remember("Materialize", request)
        Event = reference.message("MaterializeEvent")
        if self.pause:
            self.pause.wait(120)
        try:
            selected = self._selected(request.load)
        except Refused as refused:
            self._refuse(context, refused)
        report = self._report(request.load, selected)
        yield Event(accepted=reference.message("Accepted")(plan=report)).SerializeToString()
        for done in self.progress:
            time.sleep(0.005)
            yield Event(progress=reference.message("Progress")(stage="read", done_bytes=done,
                                                               total_bytes=report.view_bytes)).SerializeToString()
        if request.load.HasField("targets"):
            result = self._fill(request.load, report, selected)
        else:
            result = self._result(request.load, report, selected)
        self.mangle(result)
        yield Event(result=result).SerializeToString()

    def _fetch_sidecars(self, data, context):
        request = reference.message("FetchSidecarsRequest").FromString(data)
        self._remember("FetchSidecars", request)
        for kind, *what in self.sidecars[:1] if request.list_only else self.sidecars:
            event = reference.message("SidecarEvent")()
            if kind == "list":
                event.list.SetInParent()
                for name, size in what[0].items():
                    event.list.files.add(name=name, bytes=size)
            else:
                event.chunk.file, event.chunk.offset, event.chunk.data = what
                event.chunk.SetInParent()
            yield event.SerializeToString()
        if self.fail:
            self._refuse(context, self.fail)

    def _file_result(self, load, report, selected):
        """As the daemon answers with the files' own pages."""
        report.memory = "mapped"
        report.mapped.possible, report.mapped.proof = True, "immutable_root"
        result = reference.message("LoadResult")(report=report, handoff_socket=self.handoff)
        layout, contents, starts = result.layout, {}, {}
        if not load.HasField("view") or load.view.whole:
            layout.names.extend(name for name, *_ in selected)
        for name, (_, bits) in self.artifacts[load.artifact].items():
            content = contents.setdefault(self.file_of(name), bytearray(b"h" * self.pad))
            starts[name] = len(content)
            content += bits.tobytes()
        used = sorted({self.file_of(name) for name, _, bits in selected if bits.size})
        for name, dtype, bits in selected:
            whole = self.artifacts[load.artifact][name][1]
            layout.dtypes.append(NAMES.index(dtype))
            layout.ranks.append(bits.ndim)
            layout.dims.extend(bits.shape)
            layout.strides.extend(bits.strides if bits.size else [0] * bits.ndim)
            layout.offsets.append(starts[name] + bits.ctypes.data - whole.ctypes.data if bits.size else 0)
            layout.sizes.append(bits.nbytes)
            layout.file_indexes.append(used.index(self.file_of(name)) if bits.size else 0)
        fds = []
        for number in used:
            path = f"{self.folder}/part-{number}"
            with open(path, "wb") as file:
                file.write(contents[number])
            fds.append((os.open(path, os.O_RDONLY), len(contents[number])))
            result.files.add(name=f"part-{number}", bytes=len(contents[number]))
        if fds:
            result.handoff_token = secrets.token_bytes(32)
            self.tokens[result.handoff_token] = fds
        return result

    def _result(self, load, report, selected):
        if self.file_of and load.memory in (1, 3):
            return self._file_result(load, report, selected)
        result = reference.message("LoadResult")(report=report, handoff_socket=self.handoff)
        layout, align = result.layout, load.view.align_bytes or 64
        if not load.HasField("view") or load.view.whole:
            layout.names.extend(name for name, *_ in selected)
        end = 0
        for _, dtype, bits in selected:
            offset = -(-end // align) * align
            layout.dtypes.append(NAMES.index(dtype))
            layout.ranks.append(bits.ndim)
            layout.dims.extend(bits.shape)
            layout.offsets.append(offset)
            layout.sizes.append(bits.nbytes)
            end = offset + bits.nbytes
        if end:
            result.memory_bytes = -(-end // 4096) * 4096
            result.handoff_token = secrets.token_bytes(32)
            self.tokens[result.handoff_token] = self._memory(result, selected)
        return result

    def _fill(self, load, report, selected):
        """Writes tensors and fills into the regions that the request names, as NumPy does."""
        targets, at = load.targets, 0
        lent = [self.regions.pop(token) for token in targets.regions]
        values = [bits for *_, bits in selected]
        values += [np.frombuffer(value, f"u{len(value)}")[0] for value in targets.fill_values]
        for i, value in enumerate(values):
            rank = targets.ranks[i]
            dims, strides = targets.dims[at:at + rank], targets.strides[at:at + rank]
            at += rank
            memory = mmap.mmap(lent[targets.region_indexes[i]][0], 0)
            np.ndarray(dims, value.dtype, memory, targets.offsets[i], strides)[...] = value
            report.target_bytes += int(np.prod(dims)) * value.itemsize
        for fd, peer in lent:
            os.close(fd)
            peer.shutdown(socket.SHUT_RDWR)
        report.into.dominant_executor, report.into.committed_bytes = "generic_byte_range", report.target_bytes
        return reference.message("LoadResult")(report=report, layout=reference.message("Layout")())

    def _memory(self, result, selected):
        fd = os.memfd_create("fake")
        os.ftruncate(fd, result.memory_bytes)
        for offset, (_, _, bits) in zip(result.layout.offsets, selected):
            os.pwrite(fd, np.ascontiguousarray(bits).tobytes(), offset)
        return fd, result.memory_bytes

    # --- hand-off ---
    def _accept(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        token, fds, *_ = socket.recv_fds(peer, 4096, 1)
        if token.startswith(b"TCRG"):
            name = secrets.token_bytes(32)
            self.regions[name] = fds[0], peer
            with peer:
                peer.send(name)
                while peer.recv(64):
                    pass
            fd, _ = self.regions.pop(name, (None, None))
            if fd is not None:
                os.close(fd)
            return
        with peer:
            if token not in self.tokens:
                return
            granted = self.tokens.pop(token)
            self._count(+1)
            try:
                if isinstance(granted, list):
                    self._send_files(peer, granted)
                else:
                    fd, size = granted
                    header = struct.pack("<4sIQIIQ", b"TCHO", 1, size, 2, 1, 0)
                    (self.answer or self._send)(peer, header, fd)
                    os.close(fd)
                while peer.recv(64):
                    pass
            except OSError:
                pass
            self._count(-1)

    def _send_files(self, peer, files):
        for at in range(0, len(files), self.batch):
            fds, sizes = zip(*files[at:at + self.batch])
            (self.answer or self._send_some)(peer, struct.pack("<4sIQIIQ", b"TCHO", 1, sum(sizes), 4, len(fds), 0), fds)
            for fd in fds:
                os.close(fd)

    @staticmethod
    def _send_some(peer, header, fds):
        socket.send_fds(peer, [header], fds)

    @staticmethod
    def _send(peer, header, fd):
        socket.send_fds(peer, [header], [fd])

    def _remember(self, name, request):
        with self._changed:
            self.requests.append((name, request))
            self._changed.notify_all()

    def _count(self, step):
        with self._changed:
            self.leases += step
            self._changed.notify_all()
