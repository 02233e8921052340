"""The command as a function, and the check made once for all tests that look at what it says."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from grapheme_nn.check import gradients
from grapheme_nn.check.run import CHECKS
from grapheme_nn.check.table import Row
from grapheme_nn.cli import app


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="session")
def grapheme():
    return invoke


@pytest.fixture(scope="session")
def checked():
    """What `grapheme check all` finds, row by row; of each parameter the largest entry and all at once are compared.

    Gradients are checked here, the rest meanwhile in another process: there are two cores.
    """
    command = [sys.executable, "-m", "grapheme_nn", "check"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([*command, "descent", "--json"], env=environment, **pipes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "ENTRIES", 0)  # a sample of single entries more takes time
        result = invoke("check", "gradients", "--json")
    assert result.exit_code == 0, result.output
    found = {"gradients": json.loads(result.stdout)}
    others = {"descent": first}
    others |= {
        name: subprocess.Popen([*command, name, "--json"], env=environment, **pipes)
        for name in ("determinism", "threshold")
    }
    for name, process in others.items():
        said, told = process.communicate()
        assert process.returncode == 0, told
        found[name] = json.loads(said)
    assert all(each["passed"] is True for each in found.values())
    return [Row(**row) for name in CHECKS for row in found[name]["rows"]]
