"""Starts an engine whose draft model is the model itself, and prints as JSON the token ids and the share of drafted tokens that the
model accepted: at the start, with a reloaded model, and when the draft is reloaded, too.

    python draft.py '{"folder": "/model", "new": "gs://bucket/model", "load_format": "tensorcast"}'

A draft with the model's own weights is right nearly every time, one with others hardly ever: the share shows what neither an error
nor the tokens would.
"""
import json
import sys

from engine import PROMPTS


def reload_draft(worker, folder):
    """In each worker, as code that synchronizes weights would: vLLM itself reloads the model only."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader
    config = worker.vllm_config
    draft = config.speculative_config.draft_model_config
    draft.model = folder
    with set_current_vllm_config(config):
        get_model_loader(config.load_config).load_weights(worker.model_runner.drafter.model, draft)


def main():
    from vllm import LLM, SamplingParams, TokensPrompt
    job = json.loads(sys.argv[1])
    engine = LLM(model=job["folder"], load_format=job["load_format"], enforce_eager=True, skip_tokenizer_init=True, max_model_len=64,
                 num_gpu_blocks_override=16, disable_log_stats=False,
                 speculative_config={"model": job["folder"], "method": "draft_model", "num_speculative_tokens": 3})
    sampling, counted = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False), [0, 0]

    def ask():
        """(tokens, accepted per drafted)"""
        engine.reset_prefix_cache()
        answers = engine.generate([TokensPrompt(prompt_token_ids=prompt) for prompt in PROMPTS], sampling, use_tqdm=False)
        before = list(counted)
        for metric in engine.get_metrics():
            for at, what in enumerate(("accepted", "draft")):
                if metric.name == f"vllm:spec_decode_num_{what}_tokens":
                    counted[at] = metric.value
        accepted, drafted = (now - then for now, then in zip(counted, before))
        return [list(answer.outputs[0].token_ids) for answer in answers], accepted / drafted

    said = [ask()]
    if "new" in job:
        engine.collective_rpc("reload_weights", kwargs={"weights_path": job["new"]})
        said.append(ask())
        engine.collective_rpc(reload_draft, args=(job["new"],))
        said.append(ask())
    print("\n" + json.dumps({"tokens": [tokens for tokens, _ in said], "accepted": [share for _, share in said]}), flush=True)


if __name__ == "__main__":
    main()
