"""SGLang's --load-format tensorcast. SGLang calls register() in each of its processes (entry point sglang.srt.plugins).

SGLang has no table of loaders: its load formats are a closed enumeration, but its loader may be a class in place of a format. So
`tensorcast` becomes a choice of the command line, and the class where a LoadConfig is made.
"""
import logging

logger = logging.getLogger(__name__)

LOAD_FORMAT = "tensorcast"
KNOWN = "0.5.23"
_CONFIG = "sglang.srt.configs.load_config.LoadConfig._verify_load_format"


def register():
    """Hooks this process's SGLang; one that is made otherwise is left alone, and said so."""
    try:
        from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
        if not callable(LoadConfig._verify_load_format):
            raise AttributeError("LoadConfig._verify_load_format")
    except (ImportError, AttributeError) as error:
        logger.warning("tensorcast: this SGLang has no place for --load-format tensorcast (%s). SGLang %s is known; its other load "
                       "formats are as ever", error, KNOWN)
        return False
    if LOAD_FORMAT not in LOAD_FORMAT_CHOICES:
        LOAD_FORMAT_CHOICES.append(LOAD_FORMAT)
        HookRegistry.register(_CONFIG, _verify_load_format, HookType.AROUND)
    return True


def _verify_load_format(original, config):
    if str(config.load_format).lower() != LOAD_FORMAT:
        return original(config)
    from .loader import TensorcastLoader
    config.load_format = TensorcastLoader
    return None
