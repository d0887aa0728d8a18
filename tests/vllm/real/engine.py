"""Starts a whole vLLM engine, lets it generate greedily, and prints the token ids as JSON.

    python engine.py '{"folder": "/model", "size": 2, "load_format": "tensorcast", "options": {}}'

"then" in the job: calls of its workers, [name, keywords], each followed by the same questions; "tokens" is a list of answers then,
"errors" of what went wrong with a call. "adapter": a LoRA adapter's folder, or, with "resolved", what a request would name it; "adapted"
has the answers with it then, one after each of "tokens". Lines "@TIME PROCESS first answer" and "@TIME PROCESS NAME took SECONDS s" (a
call) come before the JSON.
"""
import asyncio
import json
import os
import sys
import time

PROMPTS = [[1, 17, 23, 42, 99, 120], [1, 300, 7, 7, 256]]


def main():
    from vllm import LLM, SamplingParams, TokensPrompt
    job = json.loads(sys.argv[1])
    # a few blocks of the cache of keys and values: a GiB of them is cleared by each rank, and again after each sleep
    engine = LLM(model=job["folder"], tensor_parallel_size=job["size"], load_format=job["load_format"], enforce_eager=True,
                 skip_tokenizer_init=True, model_loader_extra_config=job["options"], max_model_len=64, num_gpu_blocks_override=16,
                 **({"enable_lora": True, "max_lora_rank": 8} if "adapter" in job else {}))
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)

    def ask(**more):
        engine.reset_prefix_cache()
        answers = engine.generate([TokensPrompt(prompt_token_ids=prompt) for prompt in PROMPTS], sampling, use_tqdm=False, **more)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    with_adapter = {"lora_request": adapter(job)} if "adapter" in job else None
    tokens, adapted, errors = [], [], []

    def ask_all():
        tokens.append(ask())
        if with_adapter:
            adapted.append(ask(**with_adapter))

    ask_all()
    note("first answer")
    for name, keywords in job.get("then", ()):
        begun = time.monotonic()
        try:
            engine.collective_rpc(name, kwargs=keywords)
            errors.append(None)
            note(f"{name} took {time.monotonic() - begun:.3f} s")
        except Exception as error:
            errors.append(str(error))
        ask_all()
    print("\n" + json.dumps({"adapted": adapted, "tokens": tokens if "then" in job else tokens[0], "errors": errors}), flush=True)


def note(text):
    print(f"\n@{time.time():.6f} {os.getpid()} {text}", flush=True)


def adapter(job):
    """The LoRARequest of the job's adapter, as vLLM's server makes one."""
    from vllm.lora.request import LoRARequest
    from vllm.lora.resolver import LoRAResolverRegistry
    if "resolved" not in job:
        return LoRARequest("plain", 1, job["adapter"])
    found = asyncio.run(LoRAResolverRegistry.get_resolver("tensorcast").resolve_lora(job["folder"], job["adapter"]))
    assert found, "no such adapter"
    return found


if __name__ == "__main__":
    main()
