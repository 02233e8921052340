"""Two tiny models, and the command as a function."""

import os
import signal
import subprocess
import sys
from random import Random

import pytest
import torch
from typer.testing import CliRunner

from grapheme_nn.cli import app
from grapheme_nn.data import Pair, write_pairs

# Two threads that wait for each other are slow where other jobs run, and models this small need none.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

TINY = "epochs = 2\nwidth = 16\nhidden = 16\nlayers = 1\nheads = 2\nlearning_rate = 0.01\ndropout = 0.0\n"
# Numbers, each to be written with its first digit once more: two epochs teach enough for exit code 0, and not all.
NUMBERS = [Pair(number, number + number[0]) for number in map(str, Random(0).sample(range(100, 4000), 60))]


def invoke(*words, given=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=given)


@pytest.fixture(scope="session")
def grapheme():
    """The command in this process; its result has exit_code, stdout and stderr."""
    return invoke


@pytest.fixture(scope="session")
def process():
    """The command in a process of its own."""

    def start(*words, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A test run in the background ignores Ctrl-C, and what it starts would, too.
        heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        command = [sys.executable, "-m", "grapheme_nn", *map(str, words)]
        return subprocess.Popen(command, **(pipes | heeding | options))

    return start


@pytest.fixture(scope="session")
def refused():
    """Asserts that the command ended with this code and told why, without a traceback."""

    def check(result, code, *says):
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        assert result.stdout == ""
        for words in says:
            assert words in result.stderr

    return check


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def tiny(folder):
    file = folder / "tiny.toml"
    file.write_text(TINY)
    return file


@pytest.fixture(scope="session")
def numbers(folder):
    """Pairs without features."""
    file = folder / "numbers.tsv"
    write_pairs(NUMBERS, file)
    return file


@pytest.fixture(scope="session")
def verbs(folder):
    """Pairs with features, in another order."""
    file = folder / "verbs.tsv"
    words = ("walk", "talk", "play", "jump", "look", "call")
    forms = (("V;PST", "ed"), ("V;PRS;3;SG", "s"), ("V;V.PTCP;PRS", "ing"))
    file.write_text("".join(f"{word}\t{features}\t{word}{ending}\n" for word in words for features, ending in forms))
    return file


@pytest.fixture(scope="session")
def model(folder, numbers, tiny):
    out = folder / "model"
    result = invoke("train", numbers, "--out", out, "--config", tiny)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def featured(folder, verbs, tiny):
    out = folder / "featured"
    result = invoke(
        "train", verbs, "--out", out, "--config", tiny, "--epochs", 12, "--columns", "input,features,target"
    )
    assert result.exit_code == 0, result.output
    assert "with 6 different features" in result.stderr
    return out
