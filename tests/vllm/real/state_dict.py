"""Loads a checkpoint with transformers, from its files and through StateDict, and prints how the two compare as JSON.

    python state_dict.py '{"folder": "/model"}'
"""
import json
import sys


def main():
    import tensorcast_client as tc
    import torch
    import transformers
    from tensorcast_client.torch import StateDict
    folder = json.loads(sys.argv[1])["folder"]
    config = transformers.AutoConfig.from_pretrained(folder)
    family = getattr(transformers, config.architectures[0])
    state = StateDict(tc.connect().artifact(f"disk:{folder}"))
    ours = dict(family.from_pretrained(None, config=config, state_dict=state, dtype=torch.bfloat16).named_parameters())
    theirs = dict(family.from_pretrained(folder, dtype=torch.bfloat16).named_parameters())
    memory = {tensor.untyped_storage().data_ptr() for tensor in state.values()}
    print(json.dumps({"differ": [name for name in theirs if not torch.equal(ours[name], theirs[name])],
                      "compared": len(theirs), "missing": sorted(theirs.keys() ^ ours.keys()),
                      "shared": sum(tensor.untyped_storage().data_ptr() in memory for tensor in ours.values())}))


if __name__ == "__main__":
    main()
