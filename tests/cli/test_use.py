"""`grapheme predict`, `evaluate` and `info`: a trained model at work."""

import json
import os
import shutil
from random import Random
from types import SimpleNamespace

import pytest
import torch

from grapheme_nn import GraphTransformNet
from grapheme_nn.data import read_pairs
from grapheme_nn.evaluate import evaluate
from grapheme_nn.model_folder import ModelError

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
    assert all(0 <= float(score) <= 1 and unlike == "" for _, _, score, unlike in found)


def test_beside_a_score_stands_what_is_unlike_training(grapheme, model):
    found = rows(grapheme("predict", model, "--scores", given="123\n12ß\n\n12345678\n"))
    unlike = ["", "unlike training: unseen 'ß'", "", "unlike training: 8 nodes, at most 4 in training"]
    assert [row[3] for row in found] == unlike
    (found,) = (json.loads(grapheme("predict", model, "--scores", "--json", given="12ß\n").stdout),)
    assert found["unlike_training"] == "unseen 'ß'"


def test_a_line_too_long_is_named_and_with_skip_bad_lines_left_out(grapheme, model, monkeypatch):
    monkeypatch.setattr("grapheme_nn.model.LONGEST", 50)
    given = f"12\n{'3' * 51}\n45\n"
    result = grapheme("predict", model, given=given)
    assert result.exit_code == 1
    assert result.stdout.startswith("12\t")
    assert "the standard input:2: the input has 51 nodes, but 50 are the most: cut it into pieces" in result.stderr
    assert [row[0] for row in rows(grapheme("predict", model, "--skip-bad-lines", given=given))] == given.split()


def test_several_models_vote(grapheme, model, numbers):
    alone = rows(grapheme("predict", model, numbers, "--scores"))
    assert rows(grapheme("predict", model, numbers, "--scores", "--with", model, "--with", model)) == alone


@pytest.fixture
def letters(copy):
    """The same model, but with letters in place of digits."""
    config = json.loads((copy / "config.json").read_text())
    for name in ("labels", "input_units"):
        config["model"][name] = [chr(ord("a") + place) for place, _ in enumerate(config["model"][name])]
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_models_of_two_languages_that_vote_are_warned_of_once(grapheme, model, letters):
    result = grapheme("predict", model, "--with", letters, "--with", letters, "--with", model, given="12\n13\n")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {model} and {letters} share 0 of ")
    assert result.stderr.count("\n") == 1
    assert grapheme("predict", model, "--with", model, given="12\n").stderr == ""


def test_what_is_unlike_training_is_said_of_every_model(grapheme, model, letters):
    result = grapheme("predict", model, "--scores", "--with", letters, given="12\nba\n1ß\nßß\n")
    assert [row[3] for row in rows(result)] == [
        f"unlike training: {letters}: unseen '1', '2'",
        f"unlike training: {model}: unseen 'b', 'a'",
        f"unlike training: {model}: unseen 'ß'; {letters}: unseen '1', 'ß'",
        "unlike training: unseen 'ß'",
    ]


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


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_features_in_the_second_column_are_found_and_told(grapheme, featured, verbs, command):
    found, named = (
        grapheme(command, featured, verbs, *words) for words in ([], ["--columns", "input,features,target"])
    )
    assert found.exit_code == 0
    assert found.stdout == named.stdout
    assert "verbs.tsv:1: the second column looks like features" in found.stderr
    assert named.stderr == ""


def test_features_that_change_nothing_are_warned_of(grapheme, model, verbs):
    result = grapheme("predict", model, verbs, "--columns", "input,features,target")
    assert result.exit_code == 0
    assert result.stderr.count("warning") == 1


def test_a_bad_line_ends_the_run_after_what_came_before_it_was_answered(grapheme, model):
    result = grapheme("predict", model, given=b"1\n\n2\n\xff\n3\n")
    assert result.exit_code == 1
    assert "the standard input:4: not UTF-8" in result.stderr
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["1", "", "2"]


# Each kind of line, and what its answer begins with.
GOOD = {
    b"12": "12",
    b"345\ttarget": "345",
    b"": "",
    b"\tno input": "",
    b'{"input": "67"}': "67",
    b'{"input": ""}': "",
    b"{no json": "{no json",
}
BAD = {
    b"\xff89": "\\xff89",
    b"a\tb\tc\td": "a\\tb\\tc\\td",
    b'{"text": "1"}': '{"text": "1"}',
    b'{"nodes": ["x"]}': '{"nodes": ["x"]}',
    b"1\0": "1\0",
}
LINES = GOOD | BAD


@pytest.mark.parametrize("options", [[], ["--scores"], ["--json"]])
def test_line_k_of_the_output_belongs_to_line_k_of_the_input(grapheme, model, options):
    given = [b"12", *Random(0).choices(list(LINES), k=300), b"", b""]
    result = grapheme(
        "predict", model, "--skip-bad-lines", "--batch-size", 7, *options, given=b"\n".join(given) + b"\n"
    )
    assert result.exit_code == 0, result.stderr
    found = result.stdout.split("\n")[:-1]
    assert len(found) == len(given)
    for line, answer in zip(given, found, strict=True):
        if "--json" in options:
            row = json.loads(answer)
            assert ("error" in row, "output" in row) == (line in BAD, line in GOOD)
            assert line in BAD or row["input"] == LINES[line]
        else:
            columns = answer.split("\t")
            assert len(columns) == 2 + 2 * len(options)
            assert columns[0] == LINES[line]
            assert bool(columns[1]) == (line in GOOD and LINES[line] != "")
    assert "not UTF-8" in result.stderr


def test_json_goes_out_whatever_comes_in(grapheme, model):
    given = '12\n345\tx\n{"id": 7, "input": "12", "target": "121", "features": []}\n'
    found = [json.loads(line) for line in grapheme("predict", model, "--json", given=given).stdout.splitlines()]
    outputs = [row[1] for row in rows(grapheme("predict", model, given=given))]
    given = [{"input": "12"}, {"input": "345"}, {"id": 7, "input": "12", "target": "121", "features": []}]
    assert found == [row | {"output": output} for row, output in zip(given, outputs, strict=True)]


def test_a_file_to_write_has_all_answers_or_is_not_there(grapheme, model, numbers, tmp_path):
    out = tmp_path / "out.tsv"
    assert grapheme("predict", model, numbers, "-o", out).stdout == ""
    assert out.read_text() == grapheme("predict", model, numbers).stdout
    result = grapheme("predict", model, "-o", tmp_path / "other.tsv", given=b"1\n\xff\n")
    assert result.exit_code == 1
    assert f"{tmp_path / 'other.tsv'} was not written" in result.stderr
    assert os.listdir(tmp_path) == ["out.tsv"]


def test_the_file_that_is_read_is_not_written(grapheme, process, refused, model, tmp_path):
    file, link, folder = tmp_path / "a.tsv", tmp_path / "link.tsv", tmp_path / "folder"
    file.write_text("12\t121\n")
    link.symlink_to(file)
    folder.mkdir()
    (folder / "b.tsv").hardlink_to(file)
    for words in (["predict", model, file, "-o"], ["evaluate", model, file, "--wrong"]):
        refused(grapheme(*words, file), 2, "is the file that is read: name another")
        refused(grapheme(*words, link), 2, f"{link} is the file that is read")
    refused(grapheme("evaluate", model, folder, "--wrong", folder / "b.tsv"), 2, "is the file that is read")
    for words in (["predict", model, "-o", file], ["evaluate", model, "-", "--wrong", file]):
        with file.open() as given:
            running = process(*words, stdin=given)
            assert b"is the file that is read" in running.communicate(timeout=60)[1]
        assert running.returncode == 2
    assert file.read_text() == "12\t121\n"


def test_a_pipe_to_write_to_stays_a_pipe(grapheme, model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert grapheme("predict", model, "-o", pipe, given="12\n").exit_code == 0
    assert pipe.is_fifo()
    assert os.read(reader, 100).startswith(b"12\t")
    os.close(reader)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_device_that_is_not_there_is_refused(grapheme, refused, model, numbers, command):
    says = "--device cuda:99 is not there: this machine has cpu"
    refused(grapheme(command, model, numbers, "--device", "cuda:99"), 1, says)
    refused(grapheme(command, model, numbers, "--device", "abacus"), 2, "--device abacus is no device: give cpu, cuda")
    assert grapheme(command, model, numbers, "--device", "cpu").exit_code == 0


def test_a_header_is_answered_by_nothing_and_named(grapheme, model):
    result = grapheme("predict", model, given="id\tword\n7\t12\n")
    assert [row[0] for row in rows(result)] == ["id\\tword", "12"]
    assert "the standard input:1: looks like a header (id, word)" in result.stderr


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
    assert running.wait(timeout=60) == 0


def test_figures_are_those_of_the_library(grapheme, model, numbers):
    pairs = read_pairs(numbers)
    predicted = [row[1] for row in rows(grapheme("predict", model, numbers))]
    figures = evaluate(predicted, [pair.target for pair in pairs])._asdict()
    found = json.loads(grapheme("evaluate", model, numbers, "--json").stdout)
    assert found == pytest.approx(figures)
    shown = grapheme("evaluate", model, numbers).stdout
    assert f"{found['symbol_error_rate']:.2%}" in shown
    assert "structural loss" in shown


def test_empty_targets_are_told_where_figures_are_given(grapheme, model, tmp_path):
    (tmp_path / "half.tsv").write_text("12\t121\n13\t\n")
    assert "half.tsv: 1 of 2 targets are empty" in grapheme("evaluate", model, tmp_path / "half.tsv").stderr


def test_pairs_are_evaluated_from_the_standard_input(grapheme, refused, model, numbers, tmp_path):
    plain, piped = grapheme("evaluate", model, numbers), grapheme("evaluate", model, "-", given=numbers.read_bytes())
    assert piped.stdout == plain.stdout
    refused(grapheme("evaluate", model, "-", given="12\n"), 1, "the standard input:1: has 1 column")
    given = '{"input": "12", "target": {"nodes": ["x"]}}\n'
    refused(grapheme("evaluate", model, "-", given=given), 1, "the standard input: ", "makes texts")


def test_an_input_with_several_targets_is_told_with_the_count(grapheme, model, featured, verbs, tmp_path):
    given = "12\t121\n12\t122\n12\t122\n13\t131\n13\t131\n14\te\u0301\n14\té\n"
    told = grapheme("evaluate", model, "-", "--json", given=given).stderr
    says = "share their input with another target, of which one alone can come out right"
    assert told == f"the standard input: 3 of 7 pairs {says}\n"  # two forms of é are one target
    assert says not in grapheme("evaluate", featured, verbs).stderr  # other features, another question


def test_the_commonest_confusions_are_listed(grapheme, model, numbers):
    found = json.loads(grapheme("evaluate", model, numbers, "--json", "--errors", 3).stdout)["confusions"]
    assert len(found) == 3
    assert found[0]["times"] >= found[1]["times"] >= found[2]["times"]
    shown = grapheme("evaluate", model, numbers, "--errors", 3).stdout
    assert shown.count(" -> ") == 4
    assert "nothing" in shown


def test_wrong_predictions_are_written_the_surest_first(grapheme, model, numbers, tmp_path):
    exact = json.loads(grapheme("evaluate", model, numbers, "--json", "--wrong", tmp_path / "wrong.tsv").stdout)
    found = [line.split("\t") for line in (tmp_path / "wrong.tsv").read_text().splitlines()]
    assert len(found) == 60 - round(60 * exact["exact_match"]) > 0
    scores = [float(row[3]) for row in found]
    assert scores == sorted(scores, reverse=True)
    known = {pair.input: pair.target for pair in read_pairs(numbers)}
    made = {row[0]: row[1:] for row in rows(grapheme("predict", model, numbers, "--scores"))}
    for given, target, prediction, score in found:
        assert known[given] == target != prediction
        assert made[given] == [prediction, score, ""]


def test_wrong_predictions_go_to_the_standard_output_and_figures_elsewhere(grapheme, model, numbers, tmp_path):
    plain = grapheme("evaluate", model, numbers)
    result = grapheme("evaluate", model, numbers, "--wrong", "-")
    assert result.stderr == plain.stdout
    grapheme("evaluate", model, numbers, "--wrong", tmp_path / "wrong.tsv")
    assert result.stdout == (tmp_path / "wrong.tsv").read_text()
    listed = json.loads(grapheme("evaluate", model, numbers, "--wrong", "-", "--json").stdout)["wrong"]
    assert [row["prediction"] for row in listed] == [row[2] for row in rows(result)]


def test_wrong_predictions_that_cannot_be_written_cost_no_work(grapheme, refused, model, numbers, monkeypatch):
    monkeypatch.setattr("grapheme_nn.model.GraphTransformNet.load", None)
    refused(grapheme("evaluate", model, numbers, "--wrong", "no/such/x.tsv"), 1, "there is no folder no/such")


def test_a_folder_is_evaluated_file_by_file_as_one(grapheme, model, numbers, tmp_path):
    lines = numbers.read_text().splitlines(keepends=True)
    (tmp_path / "a.tsv").write_text("".join(lines[:20]))
    (tmp_path / "b.csv").write_text("input,target\n" + "".join(lines[20:]).replace("\t", ","))
    result = grapheme("evaluate", model, tmp_path)
    assert result.stdout == grapheme("evaluate", model, numbers).stdout
    assert f"{tmp_path / 'a.tsv'}: 20 pairs\n{tmp_path / 'b.csv'}: 40 pairs" in result.stderr
    assert "b.csv:1: looks like a header (input, target)" in result.stderr


def test_a_loss_of_nothing_has_no_sign(grapheme, model, tmp_path, monkeypatch):
    """Rounding may leave a little less than nothing."""
    total = torch.tensor([-1e-9])
    monkeypatch.setattr("grapheme_nn.evaluate.StructuralLoss", lambda: lambda *_: SimpleNamespace(total=total))
    (tmp_path / "pair.tsv").write_text("12\t121\n")
    assert "structural loss      0.0000" in grapheme("evaluate", model, tmp_path / "pair.tsv").stdout


def test_what_is_shown_of_data_is_short(grapheme, model, copy, tmp_path):
    long = "x" * 10**5
    config = json.loads((copy / "config.json").read_text())
    config["training"]["labels"] = [long] * 3
    (copy / "config.json").write_text(json.dumps(config))
    (tmp_path / "long.jsonl").write_text(json.dumps({"input": "a", "target": {"nodes": [long]}}) + "\n")
    for words in (["info", copy], ["evaluate", model, tmp_path / "long.jsonl"]):
        assert max(map(len, grapheme(*words).output.splitlines())) < 500


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


def test_a_file_is_not_a_model_folder(grapheme, refused, model, numbers):
    says = "is a file: give the folder of a model, as train writes it"
    for file in (numbers, model / "config.json"):
        refused(grapheme("info", file), 1, f"{file} {says}")
        with pytest.raises(ModelError, match=f"{file} {says}"):
            GraphTransformNet.load(file)


def _cut(file):
    file.write_bytes(file.read_bytes()[:-1000])


def test_a_text_before_json_is_answered_however_many_lines_come_with_it(grapheme, model):
    given = '12\n{"input": "34"}\n{"input": "56"}\n'
    assert [row[0] for row in rows(grapheme("predict", model, given=given))] == ["12", "34", "56"]
