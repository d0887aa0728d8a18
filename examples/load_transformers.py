#!/usr/bin/env python3
"""Loads a model of the transformers library from any reference and says something with it.

    examples/load_transformers.py gs://bucket/llama --prompt "The sky is"

Without a tokenizer beside the weights the prompt is numbers of tokens: --prompt "1 2 3".
"""
import argparse
import sys

import torch
from tensorcast_client.transformers import from_pretrained
from transformers import AutoModelForCausalLM, AutoTokenizer

import tensorcast_client as tc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", help="such as gs://bucket/llama, hf://org/name or a path")
    parser.add_argument("--prompt", default="1 2 3")
    parser.add_argument("--tokens", type=int, default=8, help="how many to say")
    args = parser.parse_args()

    model = from_pretrained(AutoModelForCausalLM, args.reference, dtype="auto")
    names = {sidecar.name for sidecar in tc.artifact(args.reference).sidecars()}
    tokenizer = from_pretrained(AutoTokenizer, args.reference) if "tokenizer_config.json" in names else None
    numbers = tokenizer(args.prompt)["input_ids"] if tokenizer else [int(word) for word in args.prompt.split()]
    said = model.generate(torch.tensor([numbers]), max_new_tokens=args.tokens, do_sample=False)[0].tolist()
    print(f"{type(model).__name__}, {sum(p.numel() for p in model.parameters())} parameters, {model.dtype}")
    print(tokenizer.decode(said) if tokenizer else said)


if __name__ == "__main__":
    try:
        main()
    except tc.TensorcastError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
