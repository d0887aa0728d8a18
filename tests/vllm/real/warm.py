"""A process that has imported vLLM and forks to run scripts, as importing takes longer than most of what they do.

    python warm.py SOCKET

runs for every connection to SOCKET the script that the first line says, {"script": path, "arguments": [...], "environment": {...},
"stdout": path, "stderr": path}, in a process group of its own; answers with its id when it has begun and its exit status when it
has ended, a line each. Processes that a script spawns are forked, too. Ends with its standard input.

Plugins of vLLM are not loaded here: each process that needs them does that itself, as in a program that was just started.
"""
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import socket
import sys
from unittest import mock

# what an engine, its workers and the other scripts of this folder import, and vLLM only when it is needed
MODELS = ("LlamaForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "Qwen3MoeForCausalLM", "Mamba2ForCausalLM", "MiMoForCausalLM",
          "MiMoMTPModel", "EagleLlamaForCausalLM", "Eagle3LlamaForCausalLM", "MedusaModel")
MODULES = ["vllm", "vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker",
           "torch.distributed.fsdp", "torch.distributed.checkpoint.hf_storage", "torch.distributed.tensor.parallel", "vllm.lora.resolver", "grpc"]
_get_context = multiprocessing.get_context


def main():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    for name in MODULES:
        importlib.import_module(name)
    multiprocessing.get_context = lambda method=None: _get_context("fork")
    inspect_models()
    gc.collect()
    gc.freeze()  # so that no collection touches, and thereby copies, what all have
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return attend(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def inspect_models():
    """Has vLLM note in its cache what it wants to know of model classes, which it else finds out in a new process for each."""
    from vllm.model_executor.models import registry
    with mock.patch.object(registry, "_run_in_subprocess", lambda inspect: inspect()):
        for name in MODELS:
            registry.ModelRegistry.models[name].inspect_model_cls()


def attend(connection):
    """Runs what a connection asks for in a process of its own; that process returns from here when it has ended."""
    stream = connection.makefile("rw")
    job = json.loads(stream.readline())
    child = os.fork()
    if child == 0:
        stream.close()
        connection.close()
        return run(job)
    stream.write(f"{child}\n")
    stream.flush()
    _, status = os.waitpid(child, 0)
    stream.write(f"{os.waitstatus_to_exitcode(status)}\n")
    stream.flush()
    os._exit(0)


def run(job):
    os.setsid()
    for number, path in ((0, os.devnull), (1, job["stdout"]), (2, job["stderr"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.update(job["environment"])
    sys.argv = [job["script"], *job["arguments"]]
    sys.path[:1] = [os.path.dirname(job["script"]), *filter(None, job["environment"].get("PYTHONPATH", "").split(os.pathsep))]
    runpy.run_path(job["script"], run_name="__main__")


if __name__ == "__main__":
    main()
