"""Programs as they are: `python -m tensorcast_client run` loads their weights through the daemon, and the bytes are the same."""
import pytest

# what the daemon reads for a question: the files of these models. Of what it holds already it reads nothing again.
READ = {"llama": ["llama"], "llama-shards": ["llama-shards"], "llama in bfloat16": ["llama"], "adapter": ["llama", "adapter"], "unet": ["unet"],
        "accelerate": ["llama-shards"], "net": ["net"]}


@pytest.fixture(scope="module")
def answers(models, daemon, start):
    daemon.release()
    said = start("-m", "tensorcast_client", "run", "programs.py", models.folder)()
    return {answer["question"]: answer for answer in said}


@pytest.mark.parametrize("question", READ)
def test_a_program_gets_its_weights_from_the_daemon(answers, models, question):
    want = models.digests["llama-shards" if question == "accelerate" else question]
    assert answers[question]["digest"] == want
    assert answers[question]["read"] <= 1.05 * sum(map(models.bytes_of, READ[question]))


def test_the_bytes_come_through_the_daemon(answers, models):
    for question in ("llama", "llama-shards", "unet", "net"):
        assert answers[question]["read"] >= 0.95 * models.bytes_of(question), question
