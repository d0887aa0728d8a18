"""vLLM's --load-format tensorcast. vLLM calls register() in each of its processes, perhaps more than once.

Nothing is imported before that, so that tracing and planning can be used, and tested, without vLLM.
"""

_registered = False


def register():
    """Makes the load format known to this process's vLLM."""
    global _registered
    if _registered:
        return
    from vllm.model_executor.model_loader import register_model_loader

    from .loader import TensorcastLoader
    register_model_loader("tensorcast")(TensorcastLoader)
    _registered = True
