"""The command: what a person types, and what comes back when it is wrong."""

import json
import re
import subprocess
import sys

import pytest

from grapheme_nn import __version__
from grapheme_nn.data import generate, read_pairs

COMMANDS = ("train", "predict", "evaluate", "generate", "info", "check")


def test_version_is_printed(grapheme):
    result = grapheme("--version")
    assert result.exit_code == 0
    assert result.output.strip() == __version__


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["check", "--help"]])
def test_help_waits_for_nothing_heavy(words):
    assert light(words, code=0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["info", "nowhere"], "nowhere is not a model folder: there is no such folder"),
        (["predict", __file__], f"{__file__} is a file: give the folder of a model, as train writes it"),
        (["predict", "nowhere"], "nowhere is not a model folder"),
        (["predict", "MODEL", "--with", "nowhere"], "nowhere is not a model folder"),
        (["predict", "MODEL", "nothing.tsv"], "nothing.tsv does not exist"),
        (["predict", "MODEL", "-o", "nowhere/x.tsv"], "there is no folder nowhere"),
        (["evaluate", "nowhere", "nothing.tsv"], "nowhere is not a model folder"),
        (["evaluate", "MODEL", "nothing.tsv"], "nothing.tsv does not exist"),
        (["train", "nothing.tsv"], "nothing.tsv does not exist"),
    ],
)
def test_what_is_not_there_is_told_before_anything_heavy_is_loaded(words, says, model):
    assert says in light([str(model) if word == "MODEL" else word for word in words], code=1)


def light(words, code):
    """What the command prints; asserts its exit code, and that it loads nothing that takes seconds."""
    heavy = ("torch", "torch_geometric", "scipy", "sympy", "networkx", "accelerate")
    script = f"""
import sys
from grapheme_nn.cli import app
try:
    app({words!r})
except SystemExit as end:
    assert end.code == {code}, end.code
loaded = [name for name in {heavy!r} if name in sys.modules]
sys.exit(f"the command has loaded {{loaded}}" if loaded else 0)
"""
    found = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout + found.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(grapheme, command):
    result = grapheme(command, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Example: .*grapheme {command} ", result.stdout)


@pytest.mark.parametrize(
    ("command", "option"), [("generate", "--out"), ("predict", "--out"), ("evaluate", "--wrong"), ("check", "--plot")]
)
def test_help_says_of_every_file_that_is_written_that_it_replaces_one(grapheme, command, option):
    shown = " ".join(grapheme(command, "--help").stdout.replace("│", " ").split())
    assert "A file that is there is replaced." in shown.split("Options")[1].split(f" {option} ")[1].split(" --")[0]


def test_the_command_alone_shows_what_there_is(grapheme):
    result = grapheme()
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--colour"], "No such option: --colour"),
        (["trian"], "Did you mean 'train'?"),
        (["train"], "Missing argument 'DATA'"),
        (["train", "x.tsv", "--epoch"], "No such option: --epoch"),
        (["train", "x.tsv", "--epochs", "0"], "'--epochs'"),
        (["train", "x.tsv", "--epochs", "many"], "'--epochs'"),
        (["train", "x.tsv", "--batch-size", "0"], "'--batch-size'"),
        (["train", "x.tsv", "--preset", "huge"], "'--preset'"),
        (["train", "x.tsv", "--target-unit", "letter"], "'--target-unit'"),
        (["train", "x.tsv", "--resume", "--overwrite"], "choose one of them"),
        (["train", "x.tsv", "--minutes", "0"], "--minutes must be above 0"),
        (["train", "x.tsv", "--seed", str(2**70)], "'--seed'"),
        (["train", "x.tsv", "--columns", "in,out"], "the columns 'in,out' are not understood"),
        (["predict", "model", "--columns", "input,input"], "are not understood"),
        (["evaluate", "model", "x.tsv", "--errors", "-1"], "'--errors'"),
        (["predict", "model", "--batch-size", "0"], "'--batch-size'"),
        (["generate", "dates"], "Missing option '--out'"),
        (["generate", "weather", "-o", "x.tsv"], "unknown task 'weather': choose one of dates, numbers"),
        (["generate", "roman", "-o", "x.tsv", "--count", "4000"], "roman gives 1 to 3,999 different pairs"),
        (["generate", "roman", "-o", "x.tsv", "--count", "0"], "'--count'"),
        (["generate", "roman", "-o", "x.tsv", "--count", "9", "--level", "2"], "roman has no levels"),
        (["generate", "arithmetic", "-o", "x.tsv", "--level", "8"], "arithmetic has levels 1 to 7"),
        (["generate", "dates", "-o", "x.csv"], "must end in .tsv or .jsonl"),
        (["generate", "dates", "-o", "x.tsv", "--seed", "-7"], "'--seed'"),
        (["train", "-"], "the standard input has no name to call the folder of the model by: name one with --out"),
        (["train", "-", "--dev", "-", "--out", "x"], "the standard input is either DATA or --dev"),
        (["check"], "Missing argument"),
        (
            ["check", "everything"],
            "'everything' is not one of 'gradients', 'descent', 'determinism', 'threshold', 'all'",
        ),
        (["check", "descent", "--plot", "x.png"], "check descent has none"),
        (["check", "threshold", "--plot", "x.txt"], "must end in one of "),
        (
            ["check", "all", "--plot", "no/such/x.png"],
            "--plot no/such/x.png cannot be written: is there such a folder",
        ),
        (["check", "all", "--seed", "3"], "No such option: --seed"),
    ],
)
def test_wrong_words_are_met_by_one_sentence(grapheme, refused, words, says):
    result = grapheme(*words)
    refused(result, 2, says)
    assert result.stderr.count("\n") == 1


def test_generated_pairs_read_back(grapheme, tmp_path):
    result = grapheme("generate", "dates", "--count", 20, "--seed", 3, "-o", tmp_path / "dates.jsonl")
    assert result.exit_code == 0
    assert read_pairs(tmp_path / "dates.jsonl") == generate("dates", 20, 3)


def test_generating_into_no_folder_is_refused(grapheme, refused, tmp_path):
    refused(grapheme("generate", "qa", "--count", 2, "-o", tmp_path / "no" / "qa.tsv"), 1, "there is no folder")


BAD_FILES = {
    "empty": (b"", "is empty"),
    "one column": (b"abc\ndef\n", ":1: has 1 column, but there should be 2 (input,target)"),
    "binary": (b"\x7fELF\0\0\0", "looks like a binary file"),
    "latin 1": ("caf\u00e9\tb\n".encode("latin1"), ":1: not UTF-8"),
    "utf 16": ("a\tb\n".encode("utf-16"), "looks like UTF-16"),
}


@pytest.mark.parametrize("name", [*BAD_FILES, "missing", "folder"])
@pytest.mark.parametrize("command", ["train", "train --dev", "evaluate", "predict"])
def test_a_file_that_cannot_be_used_is_named(grapheme, refused, name, command, tmp_path, model, numbers):
    file = tmp_path / "data.tsv"
    content, says = BAD_FILES.get(name, (None, "does not exist: check the path"))
    if content is not None:
        file.write_bytes(content)
    if name == "folder":
        file.mkdir()
        says = "is a folder: give a file inside it" if command == "predict" else "is a folder without files that end in"
    words = {
        "train": ["train", file],
        "train --dev": ["train", numbers, "--dev", file],
        "evaluate": ["evaluate", model, file],
        "predict": ["predict", model, file],
    }[command]
    if command == "predict" and name == "one column":
        assert grapheme(*words).exit_code == 0
        return
    out = ["--out", tmp_path / "out"] if "train" in command else []
    refused(grapheme(*words, *out), 1, says, str(file))
    assert not (tmp_path / "out").exists()


def test_a_folder_of_files_of_every_format_is_learned_from_as_one(grapheme, model, numbers, tiny, tmp_path):
    pairs = [line.split("\t") for line in numbers.read_text().splitlines()]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text("word,form\n" + "".join(f"{a},{b}\n" for a, b in pairs[:20]))
    (tmp_path / "data" / "2.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs[20:40]))
    rows = [{"input_polish": a, "expected_result": int(b)} for a, b in pairs[40:50]]
    rows += [{"question": a, "answer": b} for a, b in pairs[50:55]] + [{"input": a, "target": b} for a, b in pairs[55:]]
    (tmp_path / "data" / "3.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = grapheme("train", tmp_path / "data", "--out", tmp_path / "out", "--config", tiny)
    assert result.exit_code == 0, result.output
    assert "1.csv:1: looks like a header (word, form)" in result.stderr
    weights = [(folder / "model.safetensors").read_bytes() for folder in (model, tmp_path / "out")]
    assert weights[0] == weights[1]
