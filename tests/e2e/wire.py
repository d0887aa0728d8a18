"""Speaks the daemon's protocol as a stranger would: the message classes come from its own server reflection."""
import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

SERVICE = "tensorcast.daemon.v1.StoreDaemon"


class Wire:
    def __init__(self, channel, service=SERVICE):
        self.channel = channel
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
        (answer,) = ask(iter([request]), timeout=10)
        self.pool = descriptor_pool.DescriptorPool()
        files = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in answer.file_descriptor_response.file_descriptor_proto]
        self.add_in_order(files)
        self.service = self.pool.FindServiceByName(service)

    def add_in_order(self, files):
        """A file can be added once the files it imports are there."""
        waiting = {f.name: f for f in files}
        while waiting:
            name = next(n for n, f in waiting.items() if not any(d in waiting for d in f.dependency))
            self.pool.Add(waiting.pop(name))

    def message(self, name, **fields):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"tensorcast.daemon.v1.{name}"))(**fields)

    def call(self, method, request, timeout=60):
        """A unary answer, or an iterator over a stream."""
        described = self.service.methods_by_name[method]
        answer = message_factory.GetMessageClass(described.output_type)
        kind = self.channel.unary_stream if described.server_streaming else self.channel.unary_unary
        stub = kind(f"/{self.service.full_name}/{method}", request_serializer=lambda m: m.SerializeToString(),
                    response_deserializer=answer.FromString)
        return stub(request, timeout=timeout)

    def load_request(self, artifact, names=()):
        load = self.message("LoadRequest", artifact=artifact)
        if names:
            load.view.names.extend(names)
        return load


def code_of(error):
    return error.code() if isinstance(error, grpc.RpcError) else None
