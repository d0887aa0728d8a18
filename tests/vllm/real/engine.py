"""Starts a whole vLLM engine, lets it generate greedily, and prints the token ids as JSON.

    python engine.py '{"folder": "/model", "size": 2, "load_format": "tensorcast", "options": {}}'

"then" in the job: calls of its workers, [name, keywords], each followed by the same questions; "tokens" is a list of answers then,
"errors" of what went wrong with a call.
"""
import json
import sys

PROMPTS = [[1, 17, 23, 42, 99, 120], [1, 300, 7, 7, 256]]


def main():
    from vllm import LLM, SamplingParams, TokensPrompt
    job = json.loads(sys.argv[1])
    engine = LLM(model=job["folder"], tensor_parallel_size=job["size"], load_format=job["load_format"], enforce_eager=True,
                 skip_tokenizer_init=True, model_loader_extra_config=job["options"], max_model_len=64)
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)

    def ask():
        engine.reset_prefix_cache()
        answers = engine.generate([TokensPrompt(prompt_token_ids=prompt) for prompt in PROMPTS], sampling, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    tokens, errors = [ask()], []
    for name, keywords in job.get("then", ()):
        try:
            engine.collective_rpc(name, kwargs=keywords)
            errors.append(None)
        except Exception as error:
            errors.append(str(error))
        tokens.append(ask())
    print("\n" + json.dumps({"tokens": tokens if "then" in job else tokens[0], "errors": errors}), flush=True)


if __name__ == "__main__":
    main()
