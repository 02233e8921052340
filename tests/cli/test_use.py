"""`grapheme predict`, `evaluate` and `info`: a trained model at work."""

import json
import shutil

import pytest

from grapheme_nn.data import read_pairs
from grapheme_nn.evaluate import evaluate

USES = {"predict": ["predict", None], "evaluate": ["evaluate", None, "data.tsv"], "info": ["info", None]}


@pytest.fixture
def copy(model, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    return tmp_path / "copy"


def rows(result):
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_lines_come_in_and_tsv_goes_out(grapheme, model):
    found = rows(grapheme("predict", model, given="12\n345\n"))
    assert [row[0] for row in found] == ["12", "345"]
    assert {len(row) for row in found} == {2}


def test_a_file_is_read_as_the_standard_input_is(grapheme, model, numbers):
    plain = "".join(f"{pair.input}\n" for pair in read_pairs(numbers))
    assert grapheme("predict", model, numbers).stdout == grapheme("predict", model, "-", given=plain).stdout


def test_the_size_of_batches_changes_nothing(grapheme, model, numbers):
    assert grapheme("predict", model, numbers, "--batch-size", 7).stdout == grapheme("predict", model, numbers).stdout


def test_scores_are_probabilities_in_a_third_column(grapheme, model, numbers):
    found = rows(grapheme("predict", model, numbers, "--scores"))
    assert len(found) == 60
    assert all(0 <= float(score) <= 1 for _, _, score in found)


def test_several_models_vote(grapheme, model, numbers):
    alone = rows(grapheme("predict", model, numbers, "--scores"))
    assert rows(grapheme("predict", model, numbers, "--scores", "--with", model, "--with", model)) == alone


def test_models_that_do_not_fit_together_are_refused(grapheme, refused, model, featured):
    refused(grapheme("predict", model, "--with", featured, given="walk\n"), 1, "trained with features")


def test_characters_never_seen_pass_through(grapheme, model):
    found = rows(grapheme("predict", model, given="👩‍👩‍👧 ᚠᛇᚻ\nعربي\n𝔘𝔫𝔦\n"))
    assert [row[0] for row in found] == ["👩‍👩‍👧 ᚠᛇᚻ", "عربي", "𝔘𝔫𝔦"]


def test_a_tab_in_an_input_does_not_break_the_table(grapheme, model):
    found = rows(grapheme("predict", model, given=json.dumps({"input": "1\t2\n3"}) + "\n"))
    assert [row[0] for row in found] == ["1\\t2\\n3"]
    assert len(found[0]) == 2


def test_features_are_asked_for(grapheme, refused, featured, verbs):
    says = "was trained with features, but the standard input gives none: add a column and name it"
    refused(grapheme("predict", featured, given="walk\n"), 1, says)
    found = rows(grapheme("predict", featured, "--columns", "input,features", given="walk\tV;PST\n"))
    assert [row[0] for row in found] == ["walk"]
    refused(grapheme("evaluate", featured, verbs, "--columns", "input,_,target"), 1, "verbs.tsv gives none")
    assert grapheme("evaluate", featured, verbs, "--columns", "input,features,target").exit_code == 0


def test_features_that_change_nothing_are_warned_of(grapheme, model, verbs):
    result = grapheme("predict", model, verbs, "--columns", "input,features,target")
    assert result.exit_code == 0
    assert result.stderr.count("warning") == 1


def test_bad_lines_are_reported_after_the_good_ones_or_left_out(grapheme, model):
    result = grapheme("predict", model, given="1\n\n2\n")
    assert result.exit_code == 1
    assert "the standard input:2: the line is empty" in result.stderr
    assert [row[0] for row in rows(grapheme("predict", model, "--skip-bad-lines", given="1\n\n2\n"))] == ["1", "2"]


def test_an_empty_standard_input_is_refused(grapheme, refused, model):
    refused(grapheme("predict", model, given=""), 1, "the standard input is empty")


def test_a_line_is_answered_before_the_next_one_comes(process, model):
    running = process("predict", model)
    running.stdin.write(b"12\n")
    running.stdin.flush()
    assert running.stdout.readline().startswith(b"12\t")
    running.stdin.write(b"13\n")
    out, told = running.communicate(timeout=60)
    assert (running.returncode, told) == (0, b"")
    assert out.startswith(b"13\t")


def test_a_reader_that_goes_away_is_no_trouble(process, model, tmp_path):
    (tmp_path / "long.txt").write_text("12\n" * 50_000)
    running = process("predict", model, tmp_path / "long.txt")
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait(timeout=60) == 1


def test_figures_are_those_of_the_library(grapheme, model, numbers):
    pairs = read_pairs(numbers)
    predicted = [row[1] for row in rows(grapheme("predict", model, numbers))]
    figures = evaluate(predicted, [pair.target for pair in pairs])._asdict()
    found = json.loads(grapheme("evaluate", model, numbers, "--json").stdout)
    assert found == pytest.approx(figures)
    shown = grapheme("evaluate", model, numbers).stdout
    assert f"{found['symbol_error_rate']:.2%}" in shown
    assert "structural loss" in shown


def test_the_commonest_confusions_are_listed(grapheme, model, numbers):
    found = json.loads(grapheme("evaluate", model, numbers, "--json", "--errors", 3).stdout)["confusions"]
    assert len(found) == 3
    assert found[0]["times"] >= found[1]["times"] >= found[2]["times"]
    shown = grapheme("evaluate", model, numbers, "--errors", 3).stdout
    assert shown.count(" -> ") == 4
    assert "nothing" in shown


def test_info_tells_size_figures_and_settings(grapheme, model):
    shown = grapheme("info", model).stdout
    for words in ("parameters", " MB", "target unit", "epochs", "dev exact match  "):
        assert words in shown


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: shutil.rmtree(folder), "is not a model folder"),
        (lambda folder: (folder / "config.json").unlink(), "is not a model folder: it has no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "is not a model folder: it has no model.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json"),
        (lambda folder: (folder / "config.json").write_text('{"model": {"width": 7}}'), "the configuration of"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 99), "model.safetensors"),
        (lambda folder: _cut(folder / "model.safetensors"), "model.safetensors"),
    ],
)
def test_what_is_not_a_model_is_refused(grapheme, refused, copy, numbers, use, harm, says):
    harm(copy)
    words = [copy if word is None else numbers if word == "data.tsv" else word for word in USES[use]]
    result = grapheme(*words, given="1\n")
    refused(result, 1, says, str(copy))
    assert result.stderr.count("\n") == 1


def test_a_file_is_not_a_model_folder(grapheme, refused, numbers):
    refused(grapheme("info", numbers), 1, "is not a model folder")


def _cut(file):
    file.write_bytes(file.read_bytes()[:-1000])
