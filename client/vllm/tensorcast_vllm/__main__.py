"""tensorcast-vllm REFERENCE: fetches a model's configuration and tokenizer, prints the folder to give to vLLM.

    vllm serve "$(tensorcast-vllm gs://bucket/llama)" --load-format tensorcast

does what `vllm serve gs://bucket/llama` does by itself; on hosts that only run workers of another host's engine this has to
be done before.
"""
import argparse
import sys

import tensorcast_client as tc

from .model_folder import prepare
from .options import LoaderOptions


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tensorcast-vllm", description="Fetches the configuration and tokenizer of a model "
                                     "through the tensorcast daemon and prints the folder to give to vLLM.")
    parser.add_argument("reference", help="where the model is: gs://..., s3://..., hf://..., https://... or a path")
    parser.add_argument("--socket", help="the daemon; else $TENSORCAST_SOCKET, else /run/tensorcast/daemon.sock")
    parser.add_argument("--cache", help="where to keep the folders; else ~/.cache/tensorcast/vllm")
    parser.add_argument("--variant", metavar="RECIPE", help="as model_loader_extra_config will say it: a path or a built-in recipe")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a value of the recipe; any number of times")
    options = parser.parse_args(arguments)
    if any("=" not in pair for pair in options.set):
        parser.error("--set takes KEY=VALUE")
    loading = LoaderOptions(variant=options.variant, variant_set=dict(pair.split("=", 1) for pair in options.set))
    try:
        print(prepare(options.reference, options.socket, options.cache, loading))
    except (tc.TensorcastError, ValueError, OSError) as error:
        sys.exit(f"tensorcast-vllm: {error}")


if __name__ == "__main__":
    main()
