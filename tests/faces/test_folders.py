"""A folder by reference is what transformers reads of it, whatever else lies there."""
import re
from pathlib import Path

import pytest

CASES = re.findall(r'"([a-z ]+)": \(', (Path(__file__).parent / "folders.py").read_text())


@pytest.fixture(scope="module")
def answers(models, start):
    return {answer.pop("question"): answer for answer in start("folders.py", models.folder)()}


@pytest.mark.parametrize("case", CASES)
def test_a_model_by_reference_is_the_one_that_transformers_reads(answers, case):
    assert answers[case]["got"] == answers[case]["want"]


def test_weights_that_transformers_reads_from_a_pickle_are_not_replaced_by_others(answers):
    assert "transformers reads pytorch_model.bin there" in answers["pickled"]["error"]
