"""The recipes that come with the program against torch: what torchtitan and the upcycling tools compute, computed by torch."""
import json
import re
import subprocess

import pytest

import tensorcast_client as tc
from stage import CLI
from tensorcast_client import builtin_recipes

torch = pytest.importorskip("torch", reason="torch is not installed")
from safetensors.torch import save_file  # noqa: E402

HEADS, KV_HEADS, DIM, FFN, LAYERS = 6, 2, 24, 20, 3
TO_TITAN = {"model.embed_tokens.weight": "tok_embeddings.weight", "model.norm.weight": "norm.weight", "lm_head.weight": "output.weight",
            "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
            "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}


def save(folder, tensors, **config):
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return f"disk:{folder}"


def load(daemon, reference, *variants):
    with tc.connect(daemon.socket) as client:
        artifact = client.artifact(reference)
        for name, values in variants:
            artifact = artifact.variant(name, set=values)
        with artifact.tensor_dict(framework="torch") as loaded:
            return {name: tensor.clone() for name, tensor in loaded.items()}


def same(got, wanted):
    assert set(got) == set(wanted)
    for name, tensor in wanted.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert torch.equal(got[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), name


def llama(tied):
    torch.manual_seed(1)
    hd = DIM // HEADS
    tensors = {"model.embed_tokens.weight": torch.randn(32, DIM), "model.norm.weight": torch.randn(DIM)}
    if not tied:
        tensors["lm_head.weight"] = torch.randn(32, DIM)
    for i in range(LAYERS):
        shapes = {"self_attn.q_proj": (DIM, DIM), "self_attn.k_proj": (KV_HEADS * hd, DIM), "self_attn.v_proj": (KV_HEADS * hd, DIM),
                  "self_attn.o_proj": (DIM, DIM), "mlp.gate_proj": (FFN, DIM), "mlp.up_proj": (FFN, DIM), "mlp.down_proj": (DIM, FFN),
                  "input_layernorm": (DIM,), "post_attention_layernorm": (DIM,)}
        tensors.update({f"model.layers.{i}.{name}.weight": torch.randn(shape).bfloat16() for name, shape in shapes.items()})
    return tensors


def titan(tensors):
    """As torchtitan's adapter: view, transpose, reshape."""
    def reverse_permute(w, heads):
        return w.view(heads, 2, w.shape[0] // heads // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    def renamed(name):
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.weight", name)
        return f"layers.{layer[1]}.{TO_TITAN[layer[2]]}.weight" if layer else TO_TITAN[name]
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}
    return {renamed(name): next((reverse_permute(w, n) for part, n in heads.items() if part in name), w) for name, w in tensors.items()}


@pytest.mark.parametrize("tied", [False, True])
def test_llama_becomes_torchtitans_and_comes_back(daemon, models, tied):
    tensors, config = llama(tied), {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "tie_word_embeddings": tied}
    reference = save(models / "hf", {**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}, **config)
    same(load(daemon, reference, ("hf-llama-to-torchtitan", None)), titan(tensors))
    same(load(daemon, reference, ("hf-llama-to-torchtitan", None), ("torchtitan-to-hf-llama", None)), tensors)
    back = save(models / "titan", titan(tensors), **config)
    same(load(daemon, back, ("torchtitan-to-hf-llama", None)), tensors)
    same(load(daemon, back, ("torchtitan-to-hf-llama", None), ("hf-llama-to-torchtitan", None)), titan(tensors))


@pytest.mark.parametrize("seed", [None, 42, 7])
@pytest.mark.parametrize("experts, inter_dim", [(8, 6), (4, 6), (6, 12), (3, 24)])
def test_experts_are_copies_and_shuffles_of_the_dense_layer(daemon, models, experts, inter_dim, seed):
    torch.manual_seed(2)
    hidden, dim = 24, 10
    groups = hidden // inter_dim
    if experts % groups:
        pytest.skip("not an upcycling")
    tensors = {f"layers.{i}.moe.experts.{name}": torch.randn((dim, hidden) if name == "w2" else (hidden, dim)).bfloat16()
               for i in range(2) for name in ("w1", "w2", "w3")}
    other = {"layers.0.attention.wq": torch.randn(4, 4), "norm": torch.randn(3)}
    wanted = dict(other)
    for name, w in tensors.items():
        orders = [torch.arange(hidden)] * (experts // groups)
        if seed is not None:
            torch.manual_seed(seed)  # anew for each tensor
            orders = orders[:1] + [torch.randperm(hidden) for _ in orders[1:]]
        rows = [orders[e // groups][e % groups * inter_dim:(e % groups + 1) * inter_dim] for e in range(experts)]
        wanted[name] = torch.stack([w[:, at] if name.endswith("w2") else w[at] for at in rows])
    reference = save(models / "dense", {**tensors, **other})
    values = {"experts": experts, "inter_dim": inter_dim, **({} if seed is None else {"shuffle_seed": seed})}
    same(load(daemon, reference, ("moe-upcycle", values)), wanted)


@pytest.mark.parametrize("shape", [(128, 128), (256, 384), (130, 257), (5, 7), (1, 300)])
def test_blocks_of_fp8_are_expanded_as_by_torch(daemon, models, shape):
    torch.manual_seed(3)
    rows, columns = shape
    weight = (torch.randn(shape) * 100).to(torch.float8_e4m3fn)
    scale = torch.rand(-(-rows // 128), -(-columns // 128)) * 1e-2
    other = {"norm.weight": torch.randn(5).bfloat16(), "bias": torch.randn(3)}
    spread = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    reference = save(models / "fp8", {"x.weight": weight, "x.weight_scale_inv": scale, **other})
    same(load(daemon, reference, ("fp8-block-to-bf16", None)), {"x.weight": (weight.float() * spread).bfloat16(), **other})


def test_python_has_the_recipes_of_the_command():
    told = json.loads(subprocess.run([CLI, "variants", "--json"], check=True, capture_output=True, text=True).stdout)
    assert sorted(entry["name"] for entry in told["variants"]) == sorted(builtin_recipes.RECIPES)


RECIPES = {
    "cut.yaml": "version: 1\nsteps:\n- rename: {'model.layers.{}.mlp.${which}_proj.weight': 'l.{}.ffn'}\n"
                "- slice: {tensors: ['l.{}.ffn'], slices: [[0, '${num_attention_heads}'], [1, -1]]}\n- select: ['l.*']\n",
    "expect.json": json.dumps({"version": 1, "steps": [{"expect": "shapes.json", "allow_extra": True}, {"drop": ["*_layernorm*"]}]}),
}


@pytest.mark.parametrize("recipe, values", [("cut.yaml", {"which": "up"}), ("cut.yaml", {"which": "gate", "num_attention_heads": 3}),
                                            ("expect.json", {}), ("hf-llama-to-torchtitan", {}),
                                            ("hf-llama-to-torchtitan", {"num_key_value_heads": 1}), ("torchtitan-to-hf-llama", {}),
                                            ("moe-upcycle", {"experts": 2, "inter_dim": 12}), ("fp8-block-to-bf16", {})])
def test_python_reads_recipes_as_the_command_does(daemon, models, tmp_path, recipe, values):
    tensors = llama(False)
    reference = save(models / "hf", tensors, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
    for name, text in RECIPES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "shapes.json").write_text('{"model.norm.weight": {"shape": [24], "dtype": "F32"}}')
    given = str(tmp_path / recipe) if recipe in RECIPES else recipe
    command = ["inspect", reference, "--variant", given, "--json", *(word for pair in values.items() for word in ("--set", "=".join(map(str, pair))))]
    told = daemon.cli.run(*command)
    with tc.connect(daemon.socket) as client:
        variant = client.artifact(reference).variant(given, set=values)
        if told.code:  # torchtitan's tensors, experts and FP8 are not there
            with pytest.raises(tc.InvalidRequestError) as caught:
                variant.describe()
            assert caught.value.message.replace("'", "") in told.err.replace("'", "")
            return
        assert variant.describe() == told.report


def test_a_variant_is_an_artifact_for_torch_and_for_later_clients(daemon, models):
    from tensorcast_client.dcp import TensorcastReader
    from tensorcast_client.torch import load_state_dict
    tensors = llama(False)
    reference = save(models / "hf", tensors, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
    wanted = titan(tensors)
    state = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in wanted.items()}
    with tc.connect(daemon.socket) as client:
        titanic = client.artifact(reference).variant("hf-llama-to-torchtitan")
        assert not titanic.prewarm()["from_replica"]
        reader = TensorcastReader(reference, variant="hf-llama-to-torchtitan", client=client)
        torch.distributed.checkpoint.load(state, storage_reader=reader, no_dist=True)
        same(state, wanted)
        module = torch.nn.Linear(DIM, 32, bias=False)
        variant = client.artifact(reference).variant({"version": 1, "steps": [{"select": ["lm_head.weight"]},
                                                                              {"rename": {"lm_head.weight": "weight"}}]})
        load_state_dict(module, variant)
        assert torch.equal(module.weight, tensors["lm_head.weight"])
        with titanic.tensor_dict(framework="torch") as loaded:
            assert loaded.diagnostics["from_replica"]
        with client.artifact(reference).tensor_dict(framework="torch") as loaded:  # its bytes are others
            assert not loaded.diagnostics["from_replica"]
        part = titanic.shard(mesh={"tp": 2}, mesh_rank=1, spec={"*": "tp"})
        with part.tensor_dict(framework="torch") as loaded:
            same(dict(loaded), {name: tensor.chunk(2)[1] for name, tensor in wanted.items()})
        assert part.explain()["bytes"]["view"] == sum(tensor.nbytes for tensor in wanted.values()) // 2
