"""The small files beside an artifact's tensors: through the daemon and without it, from folders that try to trick either."""
import os
import time

import pytest

import checkpoints
from stage import MiB, soon

FILES = {"config.json": b'{"model_type": "llama"}', "empty.txt": b"", "tokenizer.json": os.urandom(3 * MiB + 17),
         "tokenizer.model": os.urandom(MiB)}


@pytest.fixture
def model(models):
    checkpoints.write(models / "m", {"w": checkpoints.blob(1, 1000)}, {"v": checkpoints.blob(2, 1000)})
    for name, content in FILES.items():
        (models / "m" / name).write_bytes(content)
    (models / "m" / ".hidden.json").write_text("{}")
    (models / "m" / "pytorch_model.bin").write_text("x")
    (models / "m" / "folder.json").mkdir()
    return models / "m"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_small_file_arrives_and_nothing_else(either, model, tmp_path):
    done = either.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "out", "--json")
    assert done.code == 0, done
    assert contents(tmp_path / "out") == FILES
    assert done.report == {"artifact": f"disk:{model}", "folder": str(tmp_path / "out"),
                           "sidecars": [{"name": name, "bytes": len(FILES[name])} for name in sorted(FILES)],
                           "total_bytes": sum(map(len, FILES.values()))}


def test_a_second_time_replaces_what_is_there(either, model, tmp_path):
    assert either.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "out").code == 0
    (model / "config.json").write_text("{}")
    (tmp_path / "out" / "mine").write_text("stays")
    done = either.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "out")
    assert done.code == 0 and "4 sidecars" in done.out, done
    assert contents(tmp_path / "out") == {**FILES, "config.json": b"{}", "mine": b"stays"}


def test_an_artifact_that_does_not_exist_is_not_found(either, models, tmp_path):
    done = either.run("fetch", f"disk:{models}/nobody", "--sidecars", tmp_path / "out")
    assert (done.code, done.status) == (1, "NOT_FOUND"), done


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(either, model, tmp_path):
    (tmp_path / "file").write_text("")
    done = either.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "file")
    assert done.code == 1 and "file" in done.err, done


def test_a_broken_checkpoint_still_has_its_sidecars(either, model, tmp_path):
    (model / "model-00001-of-00002.safetensors").write_bytes(b"broken")
    assert either.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "out").code == 0
    assert contents(tmp_path / "out") == FILES


def test_the_daemon_follows_no_link_out_of_its_roots(daemon, model, tmp_path):
    (tmp_path / "secret.json").write_text("secret")
    (model / "extra.json").symlink_to(tmp_path / "secret.json")
    done = daemon.cli.run("fetch", f"disk:{model}", "--sidecars", tmp_path / "out")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    done = daemon.cli.run("fetch", f"disk:{tmp_path}", "--sidecars", tmp_path / "out")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done


def test_a_client_that_leaves_costs_nothing(daemon, model, tmp_path):
    (model / "big.json").write_bytes(os.urandom(48 * MiB))
    daemon.cli.ok("fetch", f"disk:{model}", "--sidecars", tmp_path / "out")
    idle = daemon.descriptors()
    for _ in range(6):
        client = daemon.cli.spawn("fetch", f"disk:{model}", "--sidecars", tmp_path / "out")
        time.sleep(0.02)
        client.kill()
        client.communicate()
    assert soon(lambda: daemon.descriptors() <= idle + 1), "descriptors are left open"
    daemon.cli.ok("fetch", f"disk:{model}", "--sidecars", tmp_path / "again")
    assert contents(tmp_path / "again")["big.json"] == (model / "big.json").read_bytes()


def test_without_a_folder_it_is_the_last_part_of_the_reference(daemon, model, tmp_path):
    daemon.cli.ok("fetch", f"disk:{model}", cwd=tmp_path)
    assert contents(tmp_path / model.name)["config.json"] == (model / "config.json").read_bytes()
    again = daemon.cli.run("fetch", f"disk:{model}", cwd=tmp_path)
    assert (again.code, again.status) == (1, "ALREADY_EXISTS"), again


@pytest.fixture
def web(fake, model):
    """The same model behind a web server, which cannot list it."""
    fake.world.preload("web", "m", model)
    return f"{fake.url('web')}/m"


def test_a_web_server_is_asked_for_the_usual_names(either, web, model, tmp_path):
    (model / "extra.json").write_text("{}")  # a name that no rule tells
    done = either.run("fetch", web, "--sidecars", tmp_path / "out")
    assert done.code == 0, done
    assert contents(tmp_path / "out") == {name: FILES[name] for name in FILES if name != "empty.txt"}
