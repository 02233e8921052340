"""The command: what a person types first."""

import subprocess
import sys

from typer.testing import CliRunner

from grapheme_nn import __version__
from grapheme_nn.cli import app


def test_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == __version__


def test_an_unknown_option_is_refused():
    result = CliRunner().invoke(app, ["--colour"])
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_help_does_not_wait_for_torch():
    loaded = "import sys, grapheme_nn.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
