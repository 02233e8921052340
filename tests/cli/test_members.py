"""`grapheme train --members`: several models from one command, and one folder that all other commands take."""

import json
import os
import shutil
import signal

import pytest

from grapheme_nn import load
from grapheme_nn.cli.progress import Report
from grapheme_nn.data import read_pairs
from grapheme_nn.training import Progress


@pytest.fixture
def one_core(monkeypatch):
    """Members are trained in this process, one after the other."""
    monkeypatch.setattr("grapheme_nn.members._cores", lambda: 1)


@pytest.fixture(scope="session")
def both(folder, numbers, tiny, grapheme):
    """Two members that vote, trained side by side where there are two cores."""
    result = grapheme("train", numbers, "--config", tiny, "--epochs", 6, "--members", 2, "--out", folder / "both")
    assert result.exit_code == 0, result.output
    return folder / "both", result.stderr


def rows(result):
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_training_of_members_says_how_each_and_the_vote_did(both):
    out, told = both
    for words in ("member 1 of 2: epoch 1/6  loss", "member 2 of 2: epoch 6/6  loss", "all 2 members are trained; dev"):
        assert words in told
    assert " by the vote of 2 (" in told
    assert f"the model is in {out}" in told
    assert f"grapheme predict {out}" in told
    assert len(json.loads((out / "config.json").read_text())["data"]["files"]["numbers.tsv"]) == 64


def test_all_commands_take_the_folder_as_that_of_a_model(grapheme, both, numbers):
    out, _ = both
    ensemble, pairs = load(out), read_pairs(numbers)
    inputs = [pair.input for pair in pairs]
    outputs, scores = ensemble.transform(inputs, return_scores=True)
    found = rows(grapheme("predict", out, numbers, "--scores"))
    wanted = [[*row, ""] for row in zip(inputs, outputs, (f"{score:.4f}" for score in scores), strict=True)]
    assert found == wanted
    answer = json.loads(grapheme("predict", out, "--scores", "--json", given="12ß\n").stdout)
    assert answer["unlike_training"] == "unseen 'ß'"
    right = sum(made == pair.target for made, pair in zip(outputs, pairs, strict=True))
    figures = json.loads(grapheme("evaluate", out, numbers, "--json").stdout)
    assert figures["exact_match"] == pytest.approx(right / 60)
    shown = grapheme("info", out).stdout
    for words in ("models that vote", " by vote", "of each", "path monotone", "0 1", "all 2 members are trained"):
        assert words in shown


def test_an_ensemble_votes_with_other_models(grapheme, both, model, numbers):
    out, _ = both
    words = ["predict", out / "members" / "1", numbers, "--with", out / "members" / "2", "--with", model, "--scores"]
    assert grapheme("predict", out, numbers, "--with", model, "--scores").stdout == grapheme(*words).stdout
    found = rows(grapheme("predict", model, "--with", out, "--scores", given="12ß\n"))
    assert found[0][3] == "unlike training: unseen 'ß'"


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: shutil.rmtree(folder / "members" / "2"), "2 is not a model folder: there is no such folder"),
        (lambda folder: shutil.rmtree(folder / "members"), "is not a model folder: it has no model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "is not a model folder: it has no config.json"),
        (
            lambda folder: (folder / "config.json").write_text('{"members": ["../both"]}'),
            "config.json is damaged: a member must be members/1 or the like, but is '../both'",
        ),
    ],
)
def test_a_damaged_ensemble_is_refused(grapheme, refused, both, numbers, tmp_path, command, harm, says):
    shutil.copytree(both[0], tmp_path / "copy")
    harm(tmp_path / "copy")
    result = grapheme(command, tmp_path / "copy", *([numbers] if command == "evaluate" else []), given="1\n")
    refused(result, 1, says)
    assert result.stderr.count("\n") == 1


def test_features_are_asked_for_and_used(grapheme, refused, verbs, tiny, tmp_path, one_core):
    result = grapheme("train", verbs, "--config", tiny, "--epochs", 12, "--members", 2, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    refused(grapheme("predict", tmp_path / "model", given="walk\n"), 1, "was trained with features, but")
    (found,) = rows(
        grapheme("predict", tmp_path / "model", "--scores", "--columns", "input,features", given="walk\tNEW\n")
    )
    assert found[3] == "unlike training: unseen 'NEW'"


def test_words_without_answers_teach_one_model_of_five_members(grapheme, numbers, tiny, tmp_path, one_core):
    (tmp_path / "words.txt").write_text("".join(f"{number}\n" for number in range(5000, 5040)) + "\n")
    words = ["--config", tiny, "--epochs", 6, "--words", tmp_path / "words.txt", "--out", tmp_path / "model"]
    result = grapheme("train", numbers, *words)
    assert result.exit_code == 0, result.output
    for told in (
        "words.txt: 41 inputs without answers",
        "member 5 of 5: epoch 1/6",
        "5 members vote on ",
        "distilled model: epoch 1/6",
    ):
        assert told in result.stderr
    assert "vote  " not in result.stderr
    data = json.loads((tmp_path / "model" / "config.json").read_text())["data"]
    assert data["distilled_from"] == 5
    assert data["files"].keys() == {"numbers.tsv", "words.txt"}
    assert rows(grapheme("predict", tmp_path / "model", given="12\n"))[0][0] == "12"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--members", "1"], 2, "'--members'"),
        (["--words", "nowhere.txt"], 1, "nowhere.txt does not exist"),
        (["--distil", "--overwrite", "--resume"], 2, "choose one of them"),
    ],
)
def test_wrong_words_are_met_by_one_sentence(grapheme, refused, numbers, tmp_path, words, code, says):
    refused(grapheme("train", numbers, "--out", tmp_path / "out", *words), code, says)
    assert not (tmp_path / "out").exists()


def test_graphs_are_not_distilled(grapheme, refused, tmp_path):
    graph = '{"nodes": ["x"]}'
    (tmp_path / "graphs.jsonl").write_text(f'{{"input": {graph}, "target": {graph}}}\n' * 3)
    result = grapheme("train", tmp_path / "graphs.jsonl", "--distil", "--out", tmp_path / "out")
    refused(result, 1, "these settings do not work: only texts can be distilled, but there are graphs")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_stops_all_and_resuming_goes_on(
    process, grapheme, refused, numbers, tiny, tmp_path, number, code
):
    """A terminal sends Ctrl-C to every process that it runs, and a scheduler SIGTERM."""
    words = ["train", numbers, "--config", tiny, "--epochs", 4000, "--members", 2, "--out", tmp_path / "model"]
    running = process(*words, start_new_session=True)
    seen = b""
    for line in running.stderr:
        seen += line
        if b"member 1 of 2: epoch" in seen and (b"member 2 of 2: epoch" in seen or os.cpu_count() == 1):
            break
    os.killpg(running.pid, number)
    _, told = running.communicate(timeout=120)
    assert running.returncode == code, told.decode()
    assert b"Traceback" not in told
    assert b"stopped: the same command with --resume continues from what is in" in told
    assert (tmp_path / "model" / "unfinished" / "1" / "checkpoint.safetensors").exists()
    refused(grapheme(*words), 1, "holds a training that was stopped: continue it (--resume")
    refused(grapheme(*words[:-4], "--out", tmp_path / "model", "--resume"), 1, "continue it by --members")
    refused(grapheme(*words, "--seed", 3, "--resume"), 1, "was begun with other seed")
    again = process(*words, "--resume", start_new_session=True)
    first = next(line for line in again.stderr if line.startswith(b"member 1 of 2: epoch "))
    os.killpg(again.pid, signal.SIGKILL)
    again.communicate()
    assert b"epoch 1/" not in first


@pytest.mark.parametrize("terminal", ["", "1"])
def test_every_member_has_a_line_of_its_own(capsys, monkeypatch, terminal):
    monkeypatch.setenv("FORCE_COLOR", terminal)
    with Report() as report:
        for member in ("member 1 of 2", "member 2 of 2"):
            report(Progress(1, 3, 8, 8, 0.5, 0.25, 0.5, 9.0, 1.0, (), member))
    shown = capsys.readouterr().err
    for member in ("member 1 of 2", "member 2 of 2"):
        assert f"{member}: epoch 1/3" in shown
    assert shown.count("0:01 left") >= 2
