"""Short Python: load_file(), artifact(), lazy tensors, what things show of themselves, and the bar."""
import os
import sys
import threading

import numpy as np
import pytest

import tensorcast_client as tc

REF = "disk:/models/m"


@pytest.fixture
def tensors(fake, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", fake.socket)
    rng = np.random.default_rng(1)
    fake.put(REF, {"w": ("F32", rng.integers(0, 1 << 30, (6, 4, 3), np.uint32)), "s": ("I64", np.array(7, np.uint64)),
                   "b": ("BF16", np.arange(10, dtype=np.uint16)), "e": ("F16", np.zeros((0, 3), np.uint16))})
    return {name: bits for name, (_, bits) in fake.artifacts[REF].items()}


def test_one_call_gives_a_dict_in_artifact_order(fake, tensors):
    got = tc.load_file(REF, framework="numpy")
    assert type(got) is dict and list(got) == list(tensors) and all(got[name].tobytes() == tensors[name].tobytes() for name in got)
    with pytest.raises(ValueError, match="read-only"):
        got["w"][0] = 0
    kept = got.pop("w")
    del got
    assert fake.leases == 1
    del kept
    assert fake.wait_for_leases(0)


def test_one_call_gives_torch_tensors_that_may_be_changed(fake, tensors):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    first = tc.load_file(REF)
    first["w"].zero_()
    first["s"].add_(1)
    assert isinstance(first["b"], torch.Tensor) and first["s"] == 8 and tc.load_file(REF)["s"] == 7
    assert tc.load_file(REF)["w"].view(torch.int32).numpy().tobytes() == tensors["w"].tobytes()


def test_the_client_is_made_once_for_each_daemon(fake, tensors, monkeypatch):
    clients = []
    threads = [threading.Thread(target=lambda: clients.append(tc.artifact(REF).view().client)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(set(map(id, clients))) == 1
    monkeypatch.setenv("TENSORCAST_SOCKET", "/nowhere/else.sock")
    assert tc.artifact(REF).view().client is not clients[0]


def test_a_forked_child_uses_it_too(tensors, python):
    assert python("""
import os, sys, tensorcast_client as tc
lazy = tc.artifact(sys.argv[1])["s"]
assert lazy[...] == 7
pid = os.fork()
if pid == 0:
    os._exit(0 if lazy[...] == 7 and tc.load_file(sys.argv[1], framework="numpy")["s"] == 7 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))""", REF) == "0"


def test_an_artifact_is_a_mapping_of_lazy_tensors(fake, tensors):
    art = tc.artifact(REF)
    assert art and art == art and art != tc.artifact(REF) and not fake.asked("Resolve")
    assert len(art) == 4 and list(art) == list(tensors) and "w" in art and "nobody" not in art and 3 not in art
    assert {name: (lazy.dtype, lazy.shape) for name, lazy in art.items()} == {
        "w": ("F32", (6, 4, 3)), "s": ("I64", ()), "b": ("BF16", (10,)), "e": ("F16", (0, 3))}
    assert (art["w"].ndim, art["w"].size, art["w"].nbytes, len(art["w"])) == (3, 72, 288, 6)
    with pytest.raises(KeyError, match="nobody"):
        art["nobody"]
    for wrong in (lambda: art["ww"], lambda: art.view().only(["ww"])):
        with pytest.raises(KeyError, match="; did you mean w[?]"):
            wrong()
    assert {"has_align", "load_lent", "facts"}.isdisjoint([*dir(art), *dir(art.view())])
    assert art.get("nobody") is None
    with pytest.raises(TypeError):
        len(art["s"])
    assert len(fake.asked("Resolve")) == 1 and not fake.asked("Materialize")


@pytest.mark.parametrize("index", [
    np.s_[...], np.s_[:], np.s_[2], np.s_[-1], np.s_[1:3], np.s_[-2:], np.s_[3:1], np.s_[:99], np.s_[1, 2], np.s_[1, 2, 0],
    np.s_[..., 1], np.s_[2, ...], np.s_[:, -1], np.s_[1:3, ..., :2], np.s_[::1, 1:2, -1], np.s_[1, ..., 2],
    np.s_[:, :, :, ...], (), np.int64(3), np.s_[np.int8(1):np.uint8(4)]])
def test_an_index_means_what_it_means_for_numpy(fake, tensors, index):
    got, want = np.asarray(tc.artifact(REF)["w"][index]), tensors["w"][index]
    assert got.dtype == np.float32 and got.shape == want.shape and got.tobytes() == want.tobytes()
    (request,) = fake.asked("Materialize")
    assert list(request.load.view.names) == ["w"]


def test_random_indexes_are_numpys_and_cost_their_own_bytes(fake, tensors):
    rng = np.random.default_rng(3)
    lazy = tc.artifact(REF)["w"]
    for _ in range(60):
        steps = [None, None, 1, 2, 3, 9]
        parts = [int(rng.integers(-n, n)) if rng.random() < .4 else
                 slice(*(None if rng.random() < .3 else int(rng.integers(-8, 8)) for _ in "ab"), steps[rng.integers(len(steps))])
                 for n in lazy.shape[:rng.integers(0, 4)]]
        if rng.random() < .4:
            parts.insert(int(rng.integers(0, len(parts) + 1)), ...)
        try:
            want = tensors["w"][tuple(parts)]
        except IndexError:
            continue
        got = np.asarray(lazy[tuple(parts)])
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), parts


@pytest.mark.parametrize("index, error", [
    *((index, IndexError) for index in (np.s_[6], np.s_[-7], np.s_[0, 0, 0, 0], np.s_[..., ...])),
    *((index, ValueError) for index in (np.s_[::-1], np.s_[::0], None, [0, 1], True, 1.0, "w", np.s_[0.0:1], np.s_[0, None]))])
def test_what_cannot_be_loaded_is_refused_before_the_daemon_is_asked(fake, tensors, index, error):
    with pytest.raises(error, match="w|ellipsis"):
        tc.artifact(REF)["w"][index]
    assert not fake.asked("Materialize")


def test_a_step_holds_no_memory_of_the_rows_between(fake, tensors):
    kept = tc.artifact(REF)["w"][::4]
    assert kept.tobytes() == tensors["w"][::4].tobytes() and kept.base is None and fake.wait_for_leases(0)


def test_a_tensor_of_one_element_is_a_number(tensors):
    art = tc.artifact(REF)
    assert (int(art["s"]), float(art["s"]), type(float(art["s"]))) == (7, 7.0, float)
    with pytest.raises(TypeError):
        float(art["w"])


def test_numpy_takes_lazy_tensors(fake, tensors):
    art = tc.artifact(REF)
    assert np.asarray(art["w"]).tobytes() == tensors["w"].tobytes() and np.asarray(art["s"], np.float64) == 7.0
    assert np.array(art["s"]).flags.writeable and art["s"][()] == 7 and bool(art["s"])
    assert str(np.asarray(art["b"][2:4]).dtype) == "bfloat16" and np.asarray(art["e"]).shape == (0, 3)
    fake.requests.clear()
    assert [row.tobytes() for row in art["w"]] == [row.tobytes() for row in tensors["w"]] and len(fake.asked("Materialize")) == 1


def test_what_things_say_of_themselves(fake, tensors):
    art = tc.artifact(REF)
    assert repr(art) == f"<Artifact {REF}>" and not fake.asked("Resolve")
    assert repr(art["w"]) == f"<LazyTensor w: F32 [6, 4, 3], 288 B, of {REF}>"
    assert repr(art) == f"<Artifact {REF}: 4 tensors, 316 B, F32, BF16, I64 and 1 more>"
    assert repr(art.view().client) == f"<Client of {fake.socket}>"
    with art.subset(["w"]).tensor_dict(framework="numpy") as got:
        assert repr(got) == f"<Tensors of {REF}: 1 tensor, 288 B, F32>"
    assert repr(got) == f"<Tensors of {REF}: 1 tensor, 288 B, closed, F32>"
    html = art._repr_html_()
    assert "<td>w</td><td>F32</td><td>[6, 4, 3]</td><td>288 B</td>" in html
    fake.put(REF, {"<b>": ("U8", np.zeros(1, np.uint8))})
    assert "<b>" not in tc.artifact(REF)._repr_html_() and "no such" not in tc.artifact("disk:/gone")._repr_html_()


def test_completion_shows_what_is_for_users():
    assert sorted(name for name in dir(tc) if not name.startswith("__")) == sorted(set(tc.__all__) - {"__version__"})
    assert not {"ask", "resolve", "channel"} & set(dir(tc.connect("/a.sock"))) and "artifact" in dir(tc.connect("/a.sock"))
    assert not {"of", "policy", "topology"} & set(dir(tc.Options())) and "deadline" in dir(tc.Options())
    assert callable(tc.artifact) and callable(tc.load_file)


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_a_bar_goes_to_standard_error(fake, tensors, capsys, monkeypatch, with_tqdm):
    bars = []
    if with_tqdm:
        class Bar:
            def __init__(self, total, **how):
                self.total, self.n, self.closed = total, 0, False
                bars.append(self)

            def set_description(self, text, refresh):
                pass

            def update(self, n):
                self.n += n

            def close(self):
                self.closed = True

        module = type(sys)("tqdm.auto")
        module.tqdm = Bar
        monkeypatch.setitem(sys.modules, "tqdm", type(sys)("tqdm"))
        monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    fake.progress = [0, 100]
    tc.artifact(REF).tensor_dict(framework="numpy", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    if with_tqdm:
        (bar,) = bars
        assert (bar.n, bar.total, bar.closed) == (316, 316, True)
    else:
        assert err.splitlines()[-1].startswith("done") and "100%  316 B of 316 B" in err
    fake.pause, fake.progress = threading.Event(), [100]
    with pytest.raises(tc.DeadlineExceededError):
        tc.load_file(REF, framework="numpy", progress=True, options=tc.Options(deadline=0.3))
    fake.pause.set()
    assert not with_tqdm or all(bar.closed for bar in bars)


def test_a_terminal_that_does_not_know_its_size_gets_no_empty_line(monkeypatch):
    from tensorcast_client import progress_bar
    ours, other = os.openpty()
    with os.fdopen(other, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        given = []
        bar = progress_bar._Tqdm(lambda **how: given.append(how))
        with pytest.raises(AttributeError):  # there is no bar
            bar("done", 100, 100)
    os.close(ours)
    assert (given[0]["ncols"], given[0]["nrows"]) == (80, 24)


def test_a_terminal_gets_one_line_that_is_written_over(monkeypatch):
    from tensorcast_client import progress_bar

    class Terminal:
        text = ""
        isatty, flush = (lambda self: True), (lambda self: None)

        def write(self, text):
            self.text += text

    terminal = Terminal()
    bar = progress_bar._Plain(terminal)
    bar("read", 50, 100)
    bar("done", 100, 100)
    bar.close()
    assert terminal.text.count("\r") == 2 and terminal.text.count("\n") == 1 and "[############............]" in terminal.text


@pytest.mark.parametrize("last, lines", [("done", ["done"]), ("export", ["export"])])
def test_a_file_gets_one_line_at_the_end_whatever_the_last_stage_is(last, lines):
    import io

    from tensorcast_client import progress_bar

    file = io.StringIO()
    bar = progress_bar._Plain(file)
    bar("read", 50, 100)
    bar(last, 100, 100)
    bar.close()
    assert [line.split()[0] for line in file.getvalue().splitlines()] == lines and "100%" in file.getvalue()


def test_frameworks_that_have_a_module_of_their_own_are_named(tensors):
    with pytest.raises(ValueError, match=r"tensorcast_client\.jax\.load"):
        tc.load_file(REF, framework="jax")


def test_memory_that_may_not_be_private_is_read_only(python, tensors):
    """As with RLIMIT_DATA, which counts private memory that was not written to."""
    pytest.importorskip("torch", reason="torch is not installed")
    assert python("""
import sys, tensorcast_client as tc, torch
from tensorcast_client import memory
real = memory.map_aligned
def no_private(fd, size, protection, flags):
    if protection & 2:
        raise OSError(12, "Cannot allocate memory")
    return real(fd, size, protection, flags)
memory.map_aligned = no_private
print(tc.load_file(sys.argv[1])["s"].item())
try:
    tc.artifact(sys.argv[1]).tensor_dict(framework="torch", writable=True)
except tc.TensorcastError as error:
    print(error.code.name)""", REF).split() == ["7", "UNAVAILABLE"]


def test_tensors_of_torch_may_be_written_to_privately(python, tensors):
    pytest.importorskip("torch", reason="torch is not installed")
    assert python("""
import sys, tensorcast_client as tc
t = tc.connect().artifact(sys.argv[1]).subset(["s", "w"]).view().tensor_dict(framework="torch")
t["s"].fill_(2)
print(t["s"].item(), tc.load_file(sys.argv[1])["s"].item())""", REF) == "2 7"




def test_a_lazy_tensor_is_of_one_version(fake, tensors):
    art = tc.artifact(REF)
    lazy = art["b"]
    assert lazy[1].view(np.uint16) == 1
    fake.put(REF, {"b": ("U8", np.full((2, 3), 7, np.uint8))})
    with pytest.raises(tc.TensorcastError, match="replaced") as caught:
        lazy[0]
    assert caught.value.reason == "SOURCE_CHANGED" and art["b"].shape == (2, 3) and art["b"][0, 0] == 7


@pytest.mark.parametrize("patterns, found", [("l.*.w", ["l.0.w", "l.10.w", "l.2.w"]), (["b", "l.?.w"], ["b", "l.0.w", "l.2.w"]),
                                             (["l.[02].*"], ["l.0.w", "l.2.w"]),
                                             (["l.2.w", "l.*.w"], ["l.2.w", "l.0.w", "l.10.w"]), ("x*y", ["x*y"]), (["a[0]"], ["a[0]"])])
def test_a_pattern_stands_for_the_names_that_match_and_a_name_for_itself(fake, tensors, patterns, found):
    fake.put(REF, {name: ("U8", np.zeros(1, np.uint8)) for name in ("l.0.w", "l.10.w", "l.2.w", "b", "x*y", "xzy", "a[0]", "a0")})
    art = tc.artifact(REF)
    assert art.subset(patterns).tensor_names == art.view().only(patterns).tensor_names == found
    assert list(art.subset(patterns).tensor_dict(framework="numpy")) == found


def test_a_pattern_that_matches_nothing_is_a_key_error(tensors):
    with pytest.raises(KeyError, match=r"no tensor of .* matches layer\.\*"):
        tc.artifact(REF).subset("layer.*")
    with pytest.raises(KeyError, match=r"no tensor of this view of .* matches b\*"):
        tc.artifact(REF).subset(["w"]).only("b*")


@pytest.mark.parametrize("method", ["tensor_dict", "load_into", "shard", "explain"])
def test_the_signatures_of_an_artifact_are_those_of_its_view(method):
    import inspect
    mine, views = (list(inspect.signature(getattr(kind, method)).parameters) for kind in (tc.Artifact, tc.View))
    assert mine == views and "args" not in mine


def test_keys_are_completed_and_an_artifact_without_a_daemon_has_none(tensors):
    art = tc.artifact(REF)
    assert art._ipython_key_completions_() == art.tensor_dict(framework="numpy")._ipython_key_completions_() == list(tensors)
    assert tc.connect("/nowhere.sock").artifact(REF)._ipython_key_completions_() == []


def test_views_and_tensors_are_tables_in_a_notebook(fake, tensors):
    view = tc.artifact(REF).view({"w": slice(0, 2)})
    loaded = view.tensor_dict(framework="numpy")
    for table in (view._repr_html_(), loaded._repr_html_()):
        assert "<td>w</td><td>F32</td><td>[2, 4, 3]</td><td>96 B</td>" in table and table.count("<tr>") == 5
    loaded.close()
    assert "closed" in loaded._repr_html_() and "nobody" in tc.artifact("disk:/nobody").subset(["x"])._repr_html_()


def test_a_bare_relative_path_is_taken_where_it_is_there(fake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/llama").mkdir(parents=True)
    (tmp_path / "one.safetensors").touch()
    client = tc.connect(fake.socket)
    assert client.artifact("models/llama").reference == f"disk:{tmp_path.resolve()}/models/llama"
    assert client.artifact("one.safetensors").reference == f"disk:{tmp_path.resolve()}/one.safetensors"
    (tmp_path / "huggingface.co/org/model").mkdir(parents=True)
    assert client.artifact("huggingface.co/org/model").reference == f"disk:{tmp_path.resolve()}/huggingface.co/org/model"
    for missing in ("models/other", "", "llama\0"):
        with pytest.raises(ValueError, match="an artifact is a path that begins with"):
            client.artifact(missing)


def test_sizes_are_binary_as_those_of_the_command():
    from tensorcast_client.words import size_of
    assert [size_of(n) for n in (0, 1023, 1024, 1536, 10 * 1024, 1023 << 10, (1 << 20) - 1, 5 << 30)] == [
        "0 B", "1023 B", "1.00 KiB", "1.50 KiB", "10.0 KiB", "1023 KiB", "1.00 MiB", "5.00 GiB"]
