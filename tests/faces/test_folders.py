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
