"""vLLM's --load-format tensorcast. vLLM calls register() in each of its processes, perhaps more than once.

Nothing is imported before that, so that tracing and planning can be used, and tested, without vLLM.
"""
import sys

_registered = False


def register():
    """Makes the load format known to this process's vLLM."""
    global _registered
    if _registered:
        return
    from vllm.model_executor.model_loader import register_model_loader

    from .loader import TensorcastLoader
    from .references import LOAD_FORMAT, install
    register_model_loader(LOAD_FORMAT)(TensorcastLoader)
    arg_utils = sys.modules.get("vllm.engine.arg_utils")
    if arg_utils:  # else this process is a worker, which gets its configuration made
        install(arg_utils.EngineArgs)
    _registered = True
