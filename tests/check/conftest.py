"""The command as a function, and the check made once for all tests that look at what it says."""

import json

import pytest
from typer.testing import CliRunner

from grapheme_nn.check import gradients
from grapheme_nn.check.table import Row
from grapheme_nn.cli import app


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="session")
def grapheme():
    return invoke


@pytest.fixture(scope="session")
def checked():
    """What `grapheme check all` finds, row by row; of each parameter the largest entry and all at once are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "ENTRIES", 0)  # a sample of single entries more takes time
        result = invoke("check", "all", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"] is True
    return [Row(**row) for row in found["rows"]]
