"""References in place of a model's folder, as vLLM's arguments have them."""
from dataclasses import dataclass, field
from typing import Optional

import pytest
from grpc import StatusCode
from tensorcast_client import errors
from tensorcast_vllm import references

GS = "gs://bucket/llama"


def arguments_class():
    """As vLLM's, whose plugins are loaded by the first __post_init__."""
    @dataclass
    class EngineArgs:
        model: str
        load_format: str = "tensorcast"
        tokenizer: Optional[str] = None
        served_model_name: Optional[str] = None
        speculative_config: Optional[dict] = None
        model_loader_extra_config: dict = field(default_factory=dict)

        def __post_init__(self):
            self.seen = self.model

        def create_engine_config(self, usage=None):
            return usage, self.model

    return EngineArgs


@pytest.fixture
def prepared(monkeypatch):
    made = []

    def prepare(reference, socket=None, options=None):
        made.append((reference, socket))
        return f"/cache/{reference.rpartition('/')[2]}"

    monkeypatch.setattr(references, "prepare", prepare)
    return made


@pytest.fixture
def EngineArgs(prepared):
    made = arguments_class()
    references.install(made)
    return made


def test_a_reference_becomes_a_folder_before_vllm_looks_at_it(EngineArgs, prepared):
    arguments = EngineArgs(GS, model_loader_extra_config={"socket": "/x.sock"})
    assert arguments.seen == "/cache/llama" and arguments.create_engine_config("here") == ("here", "/cache/llama")
    assert arguments.served_model_name == GS and prepared == [(GS, "/x.sock")]


def test_arguments_that_were_made_before_the_plugin_came_are_in_time(prepared):
    early = arguments_class()
    arguments = early(GS)
    references.install(early)
    assert arguments.seen == GS and arguments.create_engine_config()[1] == "/cache/llama"


def test_only_the_model_itself_is_a_variant(EngineArgs, monkeypatch):
    made = []
    monkeypatch.setattr(references, "prepare", lambda reference, socket=None, options=None: made.append((reference, options and options.variant)))
    EngineArgs(GS, tokenizer="gs://bucket/words", speculative_config={"model": "gs://bucket/draft"},
               model_loader_extra_config={"variant": "moe-upcycle"})
    assert made == [("gs://bucket/draft", None), ("gs://bucket/words", None), (GS, "moe-upcycle")]


def test_a_folder_with_a_variant_gets_a_configuration_that_is_true_of_it(EngineArgs, prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(references, "_check", lambda arguments: None)
    recipe = {"variant": "fp8-block-to-bf16"}
    assert EngineArgs(str(tmp_path), model_loader_extra_config=recipe).model == f"/cache/{tmp_path.name}"
    assert prepared == [(f"disk:{tmp_path}", None)] and EngineArgs(str(tmp_path)).model == str(tmp_path)
    (tmp_path / references.NOTE).write_text("{}")  # made by tensorcast-vllm
    assert EngineArgs(str(tmp_path), model_loader_extra_config=recipe).model == str(tmp_path)


def test_a_name_that_was_given_stays(EngineArgs):
    assert EngineArgs(GS, served_model_name="mine").served_model_name == "mine"


def test_a_tokenizer_and_a_draft_model_may_be_references_too(EngineArgs):
    arguments = EngineArgs("/models/llama", tokenizer="hf://org/tokens",
                           speculative_config={"model": "s3://b/draft", "num_speculative_tokens": 2})
    assert arguments.tokenizer == "/cache/tokens" and arguments.served_model_name is None
    assert arguments.speculative_config == {"model": "/cache/draft", "num_speculative_tokens": 2}


@pytest.mark.parametrize("model", ["meta-llama/Llama-3-8B", "/models/llama", "models/llama", "./x:y"])
def test_what_is_no_reference_is_left_alone(EngineArgs, prepared, model):
    assert EngineArgs(model).create_engine_config()[1] == model and not prepared


def test_other_load_formats_are_left_alone(EngineArgs, prepared):
    assert EngineArgs(GS, load_format="runai_streamer").create_engine_config()[1] == GS and not prepared


def test_options_that_are_wrong_are_refused_before_anything_is_fetched(EngineArgs, prepared):
    with pytest.raises(ValueError, match="do you mean 'socket'"):
        EngineArgs(GS, model_loader_extra_config={"sockett": "/x"})
    assert not prepared


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of a model, where no daemon answers."""
    monkeypatch.setattr(references, "_checked", set())
    monkeypatch.setenv("TENSORCAST_SOCKET", str(tmp_path / "nobody.sock"))
    (tmp_path / "model").mkdir()
    return str(tmp_path / "model")


def test_without_a_daemon_the_arguments_say_so_before_an_engine_starts(EngineArgs, folder):
    with pytest.raises(ValueError, match="nobody.sock.*fallback") as refused:
        EngineArgs(folder).create_engine_config()
    assert "\n" not in str(refused.value) and folder in str(refused.value)


def test_without_a_daemon_an_engine_that_may_fall_back_starts(EngineArgs, folder):
    arguments = EngineArgs(folder, model_loader_extra_config={"fallback": "if_unavailable"})
    assert arguments.create_engine_config()[1] == folder


def test_a_reference_that_cannot_be_had_is_refused_in_one_line(EngineArgs, monkeypatch):
    def prepare(reference, socket=None, options=None):
        raise errors.make(StatusCode.NOT_FOUND, f"{reference}: no such object", "NO_ARTIFACT")

    monkeypatch.setattr(references, "prepare", prepare)
    with pytest.raises(ValueError, match="cannot load gs://bucket/llama: .*no such object"):
        EngineArgs(GS)
