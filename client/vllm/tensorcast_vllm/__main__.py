"""tensorcast-vllm REFERENCE: fetches a model's configuration and tokenizer, prints the folder to give to vLLM.

    vllm serve "$(tensorcast-vllm gs://bucket/llama)" --load-format tensorcast

does what `vllm serve gs://bucket/llama` does by itself; on hosts that only run workers of another host's engine this has to
be done before.
"""
import argparse
import sys

import tensorcast_client as tc

from .model_folder import prepare


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tensorcast-vllm", description="Fetches the configuration and tokenizer of a model "
                                     "through the tensorcast daemon and prints the folder to give to vLLM.")
    parser.add_argument("reference", help="where the model is: gs://..., s3://..., hf://..., https://... or disk:/...")
    parser.add_argument("--socket", help="the daemon; else $TENSORCAST_SOCKET, else /run/tensorcast/daemon.sock")
    parser.add_argument("--cache", help="where to keep the folders; else ~/.cache/tensorcast/vllm")
    options = parser.parse_args(arguments)
    try:
        print(prepare(options.reference, options.socket, options.cache))
    except (tc.TensorcastError, ValueError, OSError) as error:
        sys.exit(f"tensorcast-vllm: {error}")


if __name__ == "__main__":
    main()
