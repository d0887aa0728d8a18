"""Two tensor-parallel ranks of transformers: each reads its own part."""
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402

WAYS = ["reference", "patched"]


@pytest.fixture(scope="module")
def answers(start, daemon, models):
    """{way: what both ranks say}"""
    daemon.release()
    port = free_port()
    running = [start("one_rank.py", models.folder / "llama", "plain", *WAYS, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for rank in (0, 1)]
    said = [answer for finish in running for answer in finish()]
    return {way: [answer for answer in said if answer["way"] == way] for way in ("plain", *WAYS)}


@pytest.mark.parametrize("way", WAYS)
def test_each_rank_has_its_part_and_reads_nothing_else(answers, models, way):
    assert [rank["digest"] for rank in answers[way]] == [rank["digest"] for rank in answers["plain"]]
    assert answers["plain"][0]["sharded"] > 10 and answers["plain"][0]["read"] == 0
    need = sum(rank["need"] for rank in answers[way])
    assert 0.9 * models.bytes_of("llama") < answers[way][0]["read"] <= 1.05 * need < 1.2 * models.bytes_of("llama")


def test_a_launcher_runs_it_as_the_module_of_each_rank(start, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import json, os, safetensors\nprint(json.dumps({os.environ['RANK']: safetensors.safe_open.__mro__[1].__module__}) + '\\n', "
                       "end='', flush=True)\n")
    said = start("-m", "torch.distributed.run", "--nproc-per-node", 2, "-m", "tensorcast_client", "run", program)()
    assert sorted(map(str, said)) == [str({rank: "tensorcast_client.safetensors.handle"}) for rank in ("0", "1")]
