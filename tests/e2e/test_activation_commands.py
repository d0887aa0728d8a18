"""`tensorcast activations`: what looks at stores, and shares out the work for them."""
import itertools
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorcast_client as tc

from activation_scene import holds, sample
from stage import soon


@pytest.fixture
def daemon(start, models):
    return start(activations={"roots": [str(models)]})


def fill(daemon, acts, ids, host, **options):
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=host, **options) as store:
        for i in ids:
            store.append(i, sample(i))


def test_status_verify_and_merge_tell_what_hosts_have(daemon, acts):
    fill(daemon, acts, range(9), 0, segment_bytes="2KiB")
    fill(daemon, acts, range(20, 24), 7)
    hosts = daemon.cli.json("activations", "status", acts)["hosts"]
    assert [(h["host"], h["samples"], h["last_sample"]) for h in hosts] == [(0, 9, 8), (7, 4, 23)]
    assert hosts[0]["uploads"] == {"pending": 0, "done": 0, "failed": 0, "error": ""}
    assert daemon.cli.json("activations", "verify", acts)["hosts"] == 2
    daemon.cli.ok("activations", "merge", acts)
    merged = json.loads((acts / "manifest.json").read_text())
    assert merged["samples"] == 13 and {s["host"] for s in merged["segments"]} == {0, 7}
    daemon.stop()
    assert len(daemon.cli.json("activations", "status", acts)["hosts"]) == 2  # a folder tells it, too
    shutil.copytree(acts / "host_007", acts / "host_008")
    manifest = acts / "host_008/manifest.json"
    manifest.write_text(manifest.read_text().replace('"host": 7', '"host": 8'))
    outcome = daemon.cli.run("activations", "merge", acts)
    assert outcome.status == "FAILED_PRECONDITION" and all(word in outcome.err for word in ("20", "host_007", "host_008"))


def test_a_store_that_is_written_to_is_verified_without_a_false_alarm(daemon, acts):
    begun, is_over = threading.Event(), threading.Event()

    def write():
        with tc.connect(daemon.socket).activation_store(acts, host=0, segment_bytes="2KiB") as store:
            for i in itertools.count():
                store.append(i, sample(i))
                begun.set()
                if is_over.is_set():
                    return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(30)
        for _ in range(8):
            for command in ("verify", "status", "merge"):
                daemon.cli.ok("activations", command, acts)
    finally:
        is_over.set()
        thread.join()
    daemon.cli.ok("activations", "verify", acts)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "stranger", "manifest"])
def test_verify_names_the_file_that_is_not_as_it_was_sealed(daemon, acts, damage):
    fill(daemon, acts, range(9), 0, segment_bytes="2KiB")
    victim = acts / "host_000/segment_000002.safetensors"
    raw = bytearray(victim.read_bytes())
    raw[len(raw) // 2] ^= 1
    if damage == "flip":
        victim.write_bytes(raw)
    elif damage == "cut":
        os.truncate(victim, len(raw) - 1)
    elif damage == "gone":
        victim.unlink()
    elif damage == "stranger":
        victim = victim.rename(victim.with_name("segment_000077.safetensors"))
        shutil.copy(victim, acts / "host_000/segment_000002.safetensors")
    else:
        manifest = acts / "host_000/manifest.json"
        manifest.write_text(manifest.read_text().replace('"samples":[0', '"samples":[99', 1))
        victim = acts / "host_000/segment_000001.safetensors"
    outcome = daemon.cli.run("activations", "verify", acts)
    assert outcome.status == "DATA_LOSS" and f"host_000/{victim.name}" in outcome.err, outcome


def test_units_are_claimed_once_given_back_by_time_and_done_by_their_owner(daemon, acts):
    acts.mkdir()
    claim = lambda owner, *more: daemon.cli.json("activations", "claim", acts, "--owner", owner, *more)["unit"]  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda k: [claim(f"w{k}", "--units", 12, "--lease", "1h") for _ in range(2)], range(8)))
    units = [unit for mine in got for unit in mine]
    assert sorted(unit for unit in units if unit is not None) == list(range(12)) and units.count(None) == 4
    for lease in ("0", "277778h", f"{2**64 - 1}ms"):
        assert daemon.cli.run("activations", "claim", acts, "--owner", "late", "--units", 13, "--lease", lease).code == 2
    assert claim("late", "--units", 13, "--lease", "1ms") == 12
    assert claim("thief", "--units", 13, "--lease", "277777h") == 12, "a lease of a millisecond is over"
    assert daemon.cli.run("activations", "claim", acts, "--owner", "late", "--done", 12).status == "FAILED_PRECONDITION"
    assert claim("thief", "--done", 12) == 12 and claim("x", "--units", 13) is None
    assert daemon.cli.run("activations", "claim", acts, "--owner", "x", "--done", 99).status == "NOT_FOUND"


@pytest.mark.parametrize("order, want", [("nested", [4, 20, 36]), ("flat", [1, 17, 33])])
def test_lines_of_a_file_are_parted_in_both_orders(daemon, models, order, want):
    file = models / "lines"
    file.write_text("".join(f"{n}\n" for n in range(47)) + "47")
    words = ["--machines", 4, "--machine", 0, "--hosts", 4, "--host", 1, "--order", order]
    assert daemon.cli.json("activations", "partition", file, *words) == {"lines": want, "total": 48}
    assert daemon.cli.ok("activations", "partition", file, *words).out == "".join(f"{n}\n" for n in want)


def test_an_estimate_is_arithmetic(daemon):
    words = ["--layers", 14, "--seq", 2048, "--hidden", 3584, "--samples", 80000]
    told = daemon.cli.json("activations", "estimate", *words, "--price", "0.02", "--ratio", 10)
    assert (told["bytes_per_sample"], told["stored_bytes"]) == (411_041_792, 3_288_334_336_000)
    assert told["price_per_month"] == pytest.approx(65.76668672)
    assert daemon.cli.json("activations", "estimate", *words, "--dtype", "BF16")["price_per_month"] is None
    outcome = daemon.cli.run("activations", "estimate", "--layers", 10**15, "--seq", 10**15, "--hidden", 1, "--samples", 1)
    assert outcome.status == "INVALID_ARGUMENT"
    words = "estimate --layers 1 --seq 1000000000 --hidden 1000000 --samples 1000".split()
    assert daemon.cli.run("activations", *words, "--ratio", "0.0000000001").status == "INVALID_ARGUMENT"
    assert daemon.cli.json("activations", *words, "--ratio", "100000000000000000000000000")["stored_bytes"] == 0


@pytest.mark.parametrize("words", [[], ["state"], ["status"], ["status", "/a", "/b"], ["claim", "/a"], ["claim", "/a", "--units", "3"],
                                   ["claim", "/a", "--owner", "x"], ["claim", "/a", "--owner", "x", "--units", "-1"], ["estimate"],
                                   ["partition", "/f", "--machines", "2"], ["status", "/a", "--units", "3"], ["import", "/a"],
                                   ["export", "/a"], ["estimate", "--layers"], ["status", "/a", "--jsn"], ["--owner", "x", "status", "/a"]])
def test_wrong_words_are_told_and_nothing_is_done(daemon, words):
    outcome = daemon.cli.run("activations", *words)
    assert outcome.code == 2 and outcome.err.startswith("tensorcast: "), outcome


def test_help_tells_of_every_command(daemon):
    out = daemon.cli.ok("activations", "--help").out
    assert all(f"  {name} " in out for name in ("status", "verify", "merge", "estimate", "partition", "claim", "import", "export"))
    assert "activations" in daemon.cli.ok("--help").out


def test_element_types_have_their_usual_names_and_a_name_of_two_is_refused(daemon):
    words = ["--layers", 28, "--seq", 1024, "--hidden", 3584, "--samples", 1, "--dtype"]
    for name, size in {"float32": 4, "F32": 4, "f32": 4, "bfloat16": 2, "torch.float16": 2, "float8_e4m3fn": 1, "f2": 2, "I8": 1}.items():
        assert daemon.cli.json("activations", "estimate", *words, name)["bytes_per_sample"] == 411041792 // 4 * size, name
    for name in ("f4", "f8", "i8", "u8"):  # other types in safetensors than in NumPy
        outcome = daemon.cli.run("activations", "estimate", *words, name)
        assert outcome.code == 2 and f"'{name}'" in outcome.err, outcome


def test_a_hundred_million_units_are_claimed_and_an_owner_of_a_claim_of_8191_bytes_and_no_more(daemon, acts):
    claim = lambda owner, units: daemon.cli.run("activations", "claim", acts, "--owner", owner, "--units", units)  # noqa: E731
    assert claim("x", 10**8).out == "0\n"
    outcome = claim("x", 10**8 + 1)
    assert outcome.status == "INVALID_ARGUMENT" and "--units is at most 100000000" in outcome.err
    longest = 8191 - (acts / "claims/unit_00000000").stat().st_size + 1
    assert claim("y" * longest, 2).out == "1\n"
    assert (acts / "claims/unit_00000001").stat().st_size == 8191
    outcome = claim("y" * (longest + 1), 3)
    assert outcome.status == "INVALID_ARGUMENT" and "--owner is too long" in outcome.err
    assert not (acts / "claims/unit_00000002").exists()


def test_work_is_claimed_before_anything_is_appended_and_a_store_that_is_not_there_is_not_made(daemon, acts):
    assert daemon.cli.json("activations", "claim", acts, "--units", 2, "--owner", "me") == {"unit": 0}
    shutil.rmtree(acts)
    assert daemon.cli.run("activations", "claim", acts / "a/b", "--units", 2, "--owner", "me").status == "NOT_FOUND"
    assert daemon.cli.run("activations", "claim", acts / "typo", "--owner", "me", "--done", 0).status == "NOT_FOUND"
    acts.mkdir(exist_ok=True)
    assert daemon.cli.run("activations", "claim", acts, "--owner", "me", "--done", 0).status == "NOT_FOUND"
    assert not list(acts.iterdir())


@pytest.mark.parametrize("gone", ["journal", "open"])
def test_a_removed_journal_is_reported_by_the_daemon_by_verify_and_by_open(daemon, acts, gone):
    store = tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3)
    for i in range(4):
        store.append(i, sample(i))
    store.commit()
    daemon.cli.ok("activations", "verify", acts)
    daemon.kill()
    lost = acts / f"host_003/segment_000001.{gone}"
    kept = lost.rename(acts.parent / "aside")
    daemon.start()
    assert soon(lambda: "activations_not_recovered" in daemon.log() and lost.name in daemon.log())
    outcome = daemon.cli.run("activations", "verify", acts)
    assert outcome.status == "DATA_LOSS" and "host_003" in outcome.err and lost.name in outcome.err
    with pytest.raises(tc.TensorcastError, match=lost.name) as caught:
        tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3)
    assert caught.value.code.name == "DATA_LOSS"
    kept.rename(lost)
    tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3).close()
    holds(acts / "host_003", range(4))


def test_what_every_command_takes_may_stand_before_the_command_as_well(daemon, acts):
    fill(daemon, acts, range(3), 0)
    wanted = daemon.cli.ok("activations", "status", acts, "--json").out
    assert json.loads(wanted)["hosts"]
    for words in (["--json", "activations", "status", acts], ["activations", "--json", "status", acts]):
        assert daemon.cli.ok(*words).out == wanted
    for words in (["-q", "activations", "verify", acts], ["activations", "verify", acts, "-q"], ["--quiet", "activations", "verify", acts]):
        assert daemon.cli.ok(*words).out == ""
    told = daemon.cli.run("--json", "activations", "status", acts / "none").report["error"]
    assert told["code"] == "NOT_FOUND" and "none" in told["message"]


def test_a_time_limit_holds_for_what_is_done_without_the_daemon_too(daemon, acts, tmp_path):
    large = np.random.default_rng(1).standard_normal((1 << 10, 1 << 11), np.float32)
    with tc.connect(daemon.socket).activation_store(acts, host=0) as store:
        store.append(1, {1: large})
    late = lambda *words: daemon.cli.run("--timeout", "1ms", "activations", *words)  # noqa: E731
    assert late("export", acts, "--out", tmp_path / "late").status == "DEADLINE_EXCEEDED"
    daemon.cli.ok("activations", "export", acts, "--out", tmp_path / "out")
    shutil.copy(tmp_path / "out/host_000/shard_0001.pkl.gz", tmp_path / "out/host_000/shard_0002.pkl.gz")
    outcome = late("import", acts, tmp_path / "out/host_000", "--host", 5)
    assert outcome.status == "DEADLINE_EXCEEDED" and outcome.code == 124 and not (acts / "host_005").exists()
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n" * 1_000_000)
    assert late("partition", lines, *"--machines 1 --machine 0 --hosts 1 --host 0 --json".split()).status == "DEADLINE_EXCEEDED"


def test_a_claim_that_cannot_be_read_is_not_shown_as_free(daemon, acts):
    (acts / "claims/unit_00000000").mkdir(parents=True)
    outcome = daemon.cli.run("activations", "claim", acts, "--owner", "a", "--done", 0)
    assert outcome.failed and outcome.status != "NOT_FOUND" and "unit_00000000" in outcome.err


def test_a_store_of_several_folders_is_fetched_folder_by_folder(daemon, acts, tmp_path):
    fill(daemon, acts, range(3), 0)
    refused = daemon.cli.run("fetch", acts, tmp_path / "all", "--all")
    assert refused.status == "UNIMPLEMENTED" and "host_000/segment_000001.safetensors; name one of these folders" in refused.err
    daemon.cli.ok("fetch", acts / "host_000", tmp_path / "one", "--all")
    assert (tmp_path / "one/segment_000001.safetensors").read_bytes() == (acts / "host_000/segment_000001.safetensors").read_bytes()
