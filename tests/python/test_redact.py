"""References in messages and logs of the client: the same texts as in tests/unit/test_redact.c, with the same outcome."""
import re
from pathlib import Path

import pytest
from tensorcast_client.redact import shown

TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
TABLES = (Path(__file__).resolve().parents[1] / "unit" / "test_redact.c").read_text()


def table(beginning):
    texts = TEXT.findall(TABLES.partition(beginning)[2].partition("};")[0])
    assert len(texts) > 20
    return [text.encode().decode("unicode_escape") for text in texts]


@pytest.mark.parametrize("form", table("forms[] = {"))
def test_no_form_of_a_reference_shows_a_secret(form):
    assert "SECRET" in form and "SECRET" not in shown(form)


def test_host_and_path_stay():
    texts = table("cases[][2] = {")
    pairs = [pair for pair in zip(texts[::2], texts[1::2]) if "\n" not in pair[0]]  # what is not ASCII is for the daemon to escape
    assert [shown(before) for before, _ in pairs] == [after for _, after in pairs]
