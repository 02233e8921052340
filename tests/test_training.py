"""Training learns, stops, goes on after a kill, and says what it could not use."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from hashlib import sha256
from random import Random
from unicodedata import normalize

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from grapheme_nn import GraphTransformNet, __version__
from grapheme_nn.calibration import Calibration
from grapheme_nn.config import PRESETS, Resolved, TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.data.examples import Examples, choose_parts, labels_in
from grapheme_nn.model import ModelError
from grapheme_nn.registry import OBJECTIVES
from grapheme_nn.trainer import Run, Trainer
from grapheme_nn.training import _learning_rate, train

LOSSES = tuple(OBJECTIVES)

TINY = TrainConfig(width=32, hidden=16, heads=2, layers=1, dropout=0.1, batch_size=16, learning_rate=5e-3, patience=0)

KNOWN = {"loss": "monotone", "parts": 1, "reach": 8, "epochs": 1, "input_unit": "codepoint", "target_unit": "codepoint"}

NEVER = Pair("a", "never right")  # keeps a run from ending early because all is right


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def words(count: int, seed: int = 0, letters: str = "abcdefgh") -> list[str]:
    random = Random(seed)
    return ["".join(random.choices(letters, k=random.randint(2, 6))) for _ in range(count)]


def copies(count: int) -> list[Pair]:
    return [Pair(word, word) for word in words(count)]


def upper(count: int) -> list[Pair]:
    return [Pair(word, word.upper()) for word in words(count)]


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_learns_a_small_task_and_the_best_model_is_in_the_folder(loss, tmp_path):
    pairs = upper(400)
    result = train(pairs[:360], pairs[360:], replace(TINY, loss=loss, epochs=12), tmp_path)
    assert result.best_dev_exact_match >= 0.9
    model = GraphTransformNet.load(tmp_path)
    dev = pairs[360:]
    right = sum(o == p.target for o, p in zip(model.transform([p.input for p in dev]), dev, strict=True))
    assert right / len(dev) == result.best_dev_exact_match
    assert result.warnings == ()


@pytest.mark.parametrize("loss", LOSSES)
def test_characters_never_seen_are_copied_after_training_on_copies(loss, tmp_path):
    train(copies(600), copies(50), replace(TINY, loss=loss, epochs=12, unseen=0.1), tmp_path)
    unseen = ["ab☃cd", "Жук", "한a글", "d👩e"]
    assert GraphTransformNet.load(tmp_path).transform(unseen) == unseen


def test_features_are_used(tmp_path):
    pairs = [Pair(w, w + ("s" if f == "PL" else "d"), (f,)) for w in words(300) for f in ("PL", "PST")]
    train(pairs[:500], pairs[500:], replace(TINY, epochs=10), tmp_path)
    model = GraphTransformNet.load(tmp_path)
    assert model.transform(["abc", "abc"], features=[("PL",), ("PST",)]) == ["abcs", "abcd"]
    assert len(model.transform(["abc"], features=[("NEVER", "SEEN")])) == 1


def test_a_falling_loss_and_every_epoch_are_in_the_metrics(tmp_path):
    seen = []
    pairs = upper(200)
    train(pairs[:180], [*pairs[180:], NEVER], replace(TINY, epochs=4), tmp_path, progress=seen.append)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert [p.dev_exact_match for p in seen if p.step == p.steps] == [row["dev_exact_match"] for row in rows]
    assert [p.epoch for p in seen if p.step == p.steps] == [1, 2, 3, 4]
    assert seen[-1].seconds_left == 0


def weights(folder):
    return load_file(folder / "model.safetensors")


def figures(folder):
    """What the metrics say, but for the time it took."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("seconds", "examples_per_second")} for row in rows]


def assert_same_run(one, other):
    """The same bits, in the best epoch by the weights and in all by the figures."""
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert figures(one) == figures(other)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path):
    pairs = upper(100)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(pairs[:80], pairs[80:], replace(TINY, epochs=2, seed=seed), tmp_path / name)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert not torch.equal(*(weights(tmp_path / name)["relabel.label.weight"] for name in "ac"))


class Stop(Exception):
    pass


def test_a_run_stopped_in_mid_epoch_and_resumed_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    monkeypatch.setattr("grapheme_nn.training.STEPS_BETWEEN_CHECKPOINTS", 7)
    pairs, config = copies(120), replace(TINY, epochs=4, unseen=0.2)  # 7 steps an epoch
    dev = [*pairs[100:], NEVER]
    train(pairs[:100], dev, config, tmp_path / "whole")

    def stop(progress):
        if (progress.epoch, progress.step) == (3, 4):
            raise Stop

    with pytest.raises(Stop):
        train(pairs[:100], dev, config, tmp_path / "stopped", progress=stop)
    torch.manual_seed(99)
    result = train(pairs[:100], dev, config, tmp_path / "stopped", resume=True)
    assert result.epochs == 4
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_stopped_while_it_was_judged_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr("grapheme_nn.training.STEPS_BETWEEN_CHECKPOINTS", 2)  # the last of the epoch is one of them
    pairs, evaluate = upper(32), Trainer.evaluate

    def stop(self):
        monkeypatch.setattr(Trainer, "evaluate", evaluate)
        raise Stop

    monkeypatch.setattr(Trainer, "evaluate", stop)
    config = replace(TINY, epochs=2, batch_size=4)
    with pytest.raises(Stop):
        train(pairs, [NEVER], config, tmp_path / "stopped")
    train(pairs, [NEVER], config, tmp_path / "stopped", resume=True)
    train(pairs, [NEVER], config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


KILLED = """
import os, signal, sys, torch
from dataclasses import replace
from pathlib import Path
from grapheme_nn.data import Pair
import grapheme_nn.training as t
from grapheme_nn.config import TrainConfig
torch.set_num_threads(1)
t.STEPS_BETWEEN_CHECKPOINTS = 3
def kill(progress):
    if (progress.epoch, progress.step) == (2, 5):
        os.kill(os.getpid(), signal.SIGKILL)
words = sys.argv[2].split()
config = TrainConfig(width=32, hidden=16, heads=2, layers=1, batch_size=16, epochs=3)
t.train([Pair(w, w.upper()) for w in words], [Pair("ab", "AB")], config, Path(sys.argv[1]), progress=kill)
"""


def test_a_killed_process_is_resumed_bit_for_bit(tmp_path):
    some = words(512)
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), " ".join(some)], check=False, env=os.environ
    )
    assert run.returncode == -signal.SIGKILL
    config = TrainConfig(width=32, hidden=16, heads=2, layers=1, batch_size=16, epochs=3)
    pairs, dev = [Pair(w, w.upper()) for w in some], [Pair("ab", "AB")]
    train(pairs, dev, config, tmp_path / "killed", resume=True)
    train(pairs, dev, config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_resuming_with_other_pairs_or_options_is_refused(tmp_path):
    pairs = upper(60)

    def stop(progress):
        raise Stop

    with pytest.raises(Stop):
        train(pairs, pairs[:9], replace(TINY, epochs=1), tmp_path, progress=stop)
    for other, dev, epochs in ((pairs[1:], pairs[:9], 1), (pairs, pairs[:8], 1), (pairs, pairs[:9], 2)):
        with pytest.raises(ModelError, match="was made with other"):
            train(other, dev, replace(TINY, epochs=epochs), tmp_path, resume=True)
    with pytest.raises(ModelError, match="another model"):
        train(pairs, pairs[:9], replace(TINY, epochs=1, width=16), tmp_path, resume=True)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match="damaged"):
        train(pairs, pairs[:9], replace(TINY, epochs=1), tmp_path, resume=True)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_resuming_nothing_begins_and_resuming_what_has_ended_is_refused(tmp_path):
    pairs = upper(60)
    train(pairs, pairs[:9], replace(TINY, epochs=2), tmp_path, resume=True)
    before = contents(tmp_path)
    assert "checkpoint.safetensors" not in before
    with pytest.raises(ModelError, match=r"has ended \(all epochs are done\), so there is nothing to resume"):
        train(pairs, pairs[:9], replace(TINY, epochs=2), tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_a_model_or_a_stopped_training_is_replaced_only_when_asked_for(tmp_path):
    pairs, config = upper(60), replace(TINY, epochs=1)

    def stop(progress):
        if progress.step:
            raise Stop

    with pytest.raises(Stop):
        train(pairs, pairs[:9], config, tmp_path, progress=stop)
    with pytest.raises(ModelError, match="holds a training that was stopped: continue it"):
        train(pairs, pairs[:9], config, tmp_path)
    train(pairs, pairs[:9], config, tmp_path, overwrite=True)
    before = contents(tmp_path)
    with pytest.raises(ModelError, match=r"holds a model already: .*overwrite=True"):
        train(pairs, pairs[:9], config, tmp_path)
    with pytest.raises(ValueError, match="choose one of them"):
        train(pairs, pairs[:9], config, tmp_path, resume=True, overwrite=True)
    with pytest.raises(ValueError, match="no pairs"):
        train([], [], config, tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="heads"):
        train(pairs, pairs[:9], replace(config, heads=3), tmp_path, overwrite=True)
    assert contents(tmp_path) == before
    with pytest.raises(Stop):  # in the first epoch: the old model and its figures are still there
        train(pairs, pairs[:9], replace(config, seed=1), tmp_path, overwrite=True, progress=stop)
    assert {name: contents(tmp_path)[name] for name in before} == before
    train(pairs, pairs[:9], replace(config, seed=1), tmp_path, overwrite=True)
    assert contents(tmp_path)["model.safetensors"] != before["model.safetensors"]
    assert len(figures(tmp_path)) == 1


def test_parts_are_the_fewest_that_cover_nearly_all_pairs_and_the_others_are_counted(tmp_path):
    pairs = [Pair(word, word + word) for word in words(399)] + [Pair("a", "abcdefgh")]
    seen = []
    result = train(pairs, pairs[:9], replace(TINY, loss="monotone", epochs=1), tmp_path, progress=seen.append)
    assert (result.parts, result.not_covered) == (2, 1)
    longer = "its target is more than 2 times as long as its input"
    assert seen[0].notes == (f"1 pair teaches nothing, for {longer}: 'a' -> 'abcdefgh'",)
    assert GraphTransformNet.load(tmp_path).config.parts == 2


def test_needed_parts_count_the_voids_between_equal_neighbours():
    examples = Examples.of(
        [Pair("ab", "xx"), Pair("ab", "xyz"), Pair("abc", "")], "codepoint", "codepoint", with_features=False
    )
    assert examples.needed_parts(OBJECTIVES["path"]()).tolist() == [1, 2, 0]
    assert examples.needed_parts(OBJECTIVES["ctc"]()).tolist() == [2, 2, 0]
    assert choose_parts(np.array([0])) == 1
    assert choose_parts(np.array([1] * 995 + [7] * 5)) == 1
    assert choose_parts(np.array([1] * 994 + [7] * 6)) == 7


def test_labels_are_the_units_of_targets():
    assert labels_in(["t͡ʃ a", "a b"], "symbol") == ("a", "b", "t͡ʃ")


def test_a_character_made_unseen_is_so_in_input_and_target():
    examples = Examples.of([Pair("abcb", "xbbc")], "codepoint", "codepoint", with_features=False)
    inputs, targets = examples.batch([0], unseen=0.999, random=Random(0))
    old = {ord(c) for c in "abcx"}
    new = set(inputs.x.tolist()) - old
    assert len(new) == 1
    assert new == set(targets.x.tolist()) - old
    assert ord("a") in inputs.x
    assert ord("x") in targets.x


def test_outputs_that_are_all_alike_are_warned_of(tmp_path):
    pairs = [Pair(word, "z") for word in words(60)]
    result = train(pairs, upper(40), replace(TINY, epochs=2), tmp_path)
    assert "collapsed" in result.warnings[0]
    assert result.learned_nothing


def test_a_run_that_gets_something_right_has_learned_something(tmp_path, monkeypatch):
    told = iter([(0.0, -9.0, "collapsed"), (0.1, -8.0, "collapsed")])
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(told))
    pairs = upper(32)
    assert not train(pairs, pairs, replace(TINY, epochs=2), tmp_path).learned_nothing
    monkeypatch.setattr(Trainer, "evaluate", lambda self: (0.0, -9.0, ""))  # nothing right yet, but no collapse either
    assert not train(pairs, pairs, replace(TINY, epochs=2), tmp_path, overwrite=True).learned_nothing


def test_where_dev_pairs_are_few_the_mean_of_some_epochs_chooses(tmp_path, monkeypatch):
    exact = [0.5, 0.9, 0.1, 0.6, 0.7, 0.7, 0.6, 0.2]
    told = iter([(value, -1.0, "") for value in exact])
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(told))
    monkeypatch.setattr("grapheme_nn.trainer.ENOUGH_JUDGED", 96)
    pairs = upper(32)  # of which three epochs have 96
    result = train(pairs, pairs, replace(TINY, epochs=8), tmp_path)
    assert (result.best_epoch, result.best_dev_exact_match) == (6, 0.7)  # by 0.6, 0.7 and 0.7
    assert json.loads((tmp_path / "config.json").read_text())["result"]["best_epoch"] == 6


@pytest.mark.parametrize(("dev", "epochs"), [(1, 9), (80, 7), (100, 5), (400, 2), (500, 1), (5000, 1)])
def test_how_many_epochs_are_judged_together(dev, epochs):
    pairs = upper(4)
    trainer = Trainer(pairs, (pairs * (dev // 4 + 1))[:dev], TINY)
    assert trainer.judged_together == epochs


def test_of_equal_exact_matches_the_higher_log_probability_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("grapheme_nn.trainer.ENOUGH_JUDGED", 1)  # one epoch by itself
    judged = [(0.5, -3.0, ""), (0.5, -2.0, ""), (0.5, -2.5, ""), (0.25, -0.1, ""), (0.5, -2.0, "")]
    told, saved = iter(judged), []
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(told))
    save = Trainer.save_model
    monkeypatch.setattr(Trainer, "save_model", lambda self, run, out: (saved.append(run.epoch), save(self, run, out)))
    pairs = upper(32)
    result = train(pairs, pairs, replace(TINY, epochs=5), tmp_path)
    assert saved == [1, 2]
    assert (result.best_epoch, result.best_dev_exact_match) == (2, 0.5)
    card = (tmp_path / "README.md").read_text()
    assert (
        "50.00% of 32 pairs that it learned from, for none was held out, are exactly right (epoch 2, the best of 5; training ended: all epochs"
        in card
    )


def test_the_dev_log_probability_is_that_of_the_targets_under_the_averaged_weights():
    pairs = upper(12)
    trainer = Trainer(pairs, pairs, TINY)
    trainer.step([[0, 1, 2]], 3e-3, Random(0))
    _, found, _ = trainer.evaluate()
    judged = trainer.average.module.log_probabilities([p.input for p in pairs], [p.target for p in pairs])
    assert found == pytest.approx(sum(judged) / 12, rel=1e-5)
    unspellable = Trainer(pairs, [*pairs, NEVER], TINY).evaluate()[1]
    assert np.isfinite(unspellable)


@pytest.mark.parametrize(
    ("dev", "epochs", "ended"),
    [
        (0.5, 4, "no better dev exact match for 3 epochs (patience)"),
        (1.0, 3, "all dev pairs were right in 3 epochs in a row"),
        (0.0, 6, "all epochs are done"),
    ],
)
def test_training_stops_when_nothing_improves_or_all_is_right_but_not_before_anything_is(
    dev, epochs, ended, tmp_path, monkeypatch
):
    monkeypatch.setattr(Trainer, "evaluate", lambda self: (dev, -1.0, ""))
    monkeypatch.setattr("grapheme_nn.trainer.ENOUGH_JUDGED", 1)  # one epoch by itself
    pairs = upper(32)
    result = train(pairs, pairs, replace(TINY, epochs=6, patience=3), tmp_path)
    assert (result.epochs, result.ended) == (epochs, ended)
    assert json.loads((tmp_path / "config.json").read_text())["result"] == {
        "best_dev_exact_match": dev,
        "best_epoch": 1,
        "epochs_run": epochs,
        "ended": ended,
    }


def test_a_time_limit_has_room_for_the_last_evaluation_and_for_fitting_scores(tmp_path, monkeypatch):
    now, evaluate, step = [0.0], Trainer.evaluate, Trainer.step

    def takes(seconds, method):
        def timed(*arguments):
            now[0] += seconds
            return method(*arguments)

        return timed

    monkeypatch.setattr("grapheme_nn.training.perf_counter", lambda: now[0])
    monkeypatch.setattr(Trainer, "evaluate", takes(10, evaluate))
    monkeypatch.setattr(Trainer, "step", takes(1, step))
    result = train(upper(64), [NEVER], replace(TINY, epochs=1000, batch_size=8, time_limit=1.0), tmp_path)
    assert result.epochs > 1
    assert 45 < now[0] <= 60 - 10  # fitting takes as long as an evaluation


def test_a_time_limit_is_kept_and_its_last_epoch_is_told_of(tmp_path):
    seen = []
    config = replace(TINY, epochs=1000, time_limit=0.02)
    result = train(upper(300), [*upper(20), NEVER], config, tmp_path, progress=seen.append)
    assert result.epochs < 1000
    assert result.ended == "the time limit of 0.02 min is reached"
    assert (tmp_path / "model.safetensors").is_file()
    assert [now.epoch for now in seen if now.step == now.steps] == list(range(1, result.epochs + 1))
    assert seen[-1].done == 1


def test_a_run_whose_time_was_up_when_it_was_stopped_is_judged_when_it_is_resumed(tmp_path, monkeypatch):
    def stop(progress):
        if progress.step:
            raise Stop

    config = replace(TINY, epochs=9, time_limit=1.0)
    monkeypatch.setattr("grapheme_nn.training._time_used", lambda run, config: float(run.total_steps))
    with pytest.raises(Stop):
        train(upper(64), upper(9), config, tmp_path, progress=stop)
    result = train(upper(64), upper(9), config, tmp_path, resume=True)
    assert (result.epochs, result.ended) == (1, "the time limit of 1 min is reached")
    assert (tmp_path / "model.safetensors").is_file()


def test_all_schedules_go_by_the_share_of_the_time_where_there_is_a_limit(tmp_path, monkeypatch):
    by_steps, by_time = (replace(Resolved(**asdict(TINY) | KNOWN), time_limit=limit) for limit in (None, 1.0))
    for share in (0.0, 0.05, 0.1, 0.5, 0.99):
        steps, seconds = Run(total_steps=round(share * 10_000)), Run(total_steps=1, total_seconds=share * 60)
        assert _learning_rate(seconds, by_time, 10_000) == pytest.approx(
            _learning_rate(steps, by_steps, 10_000), abs=1e-5
        )
    told, step = [], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self, *given: (told.append(given[-1]), step(self, *given))[1])
    train(upper(64), [NEVER], replace(TINY, epochs=1000, time_limit=0.01), tmp_path)
    assert told[0] == 0  # plans with edges begin soft
    assert 0.8 < told[-1] < 1


def test_outputs_that_collapse_and_recover_are_told_of_once_each(tmp_path, monkeypatch):
    warned = ["", "collapsed: 1", "collapsed: 2", "", ""]
    told, seen = iter([(0.0, -9.0, warning) for warning in warned]), []
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(told))
    train(upper(32), upper(32), replace(TINY, epochs=5), tmp_path, progress=seen.append)
    notes = [now.notes for now in seen if now.step == now.steps]
    assert notes == [(), ("warning: collapsed: 1",), (), ("the outputs are no longer collapsed",), ()]


def test_a_loss_that_is_no_number_stops_the_run_and_the_last_model_stays(tmp_path, monkeypatch):
    def spoil(progress):
        if (progress.epoch, progress.step) == (2, 1):
            monkeypatch.setattr("grapheme_nn.trainer.isfinite", lambda value: False)

    says = r"in epoch 2, step 2, the loss .* lower the learning rate, which is 0.005 .*; the model of epoch 1 is kept"
    with pytest.raises(FloatingPointError, match=says):
        train(upper(64), upper(9), replace(TINY, epochs=3), tmp_path, progress=spoil)
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path).values())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_learning_rate_that_is_far_too_high_ends_in_a_sentence(loss, tmp_path):
    with pytest.raises(FloatingPointError, match=r"in epoch \d+, step \d+, .*lower the learning rate"):
        train(upper(64), upper(9), replace(TINY, loss=loss, epochs=3, learning_rate=1e30, warmup=0), tmp_path)


HOLDS = """
import sys
from pathlib import Path
from grapheme_nn.folder_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_training_into_a_folder_is_refused_until_the_first_is_gone(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], **pipes) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(ModelError, match="another training is writing into"):
            train(upper(32), [], replace(TINY, epochs=1), tmp_path)
        first.kill()
    train(upper(32), [], replace(TINY, epochs=1), tmp_path)


def test_a_model_says_what_it_was_made_from_and_by(tmp_path):
    train(upper(32), upper(9), replace(TINY, epochs=1), tmp_path, files={"upper.tsv": "abc"})
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["format"], config["library"]) == (1, __version__)
    data = config["data"]
    assert (data["files"], data["pairs"], data["dev_pairs"], len(data["sha256"])) == ({"upper.tsv": "abc"}, 32, 9, 64)
    assert config["weights"] == sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize(("given", "other"), [("NFC", "NFD"), ("NFD", "NFC")])
@pytest.mark.parametrize("unit", [None, "decomposed"])
def test_texts_in_another_normalization_form_than_that_of_the_training_are_the_same_texts(given, other, unit, tmp_path):
    plain = words(300, letters="éàabcd")
    pairs = [Pair(normalize(given, word), normalize(given, word + "é")) for word in plain]
    config = replace(TINY, epochs=10, input_unit=unit, target_unit=unit)
    assert train(pairs[:280], pairs[280:], config, tmp_path).best_dev_exact_match > 0.8
    model, dev = GraphTransformNet.load(tmp_path), pairs[280:]
    inputs, targets = [p.input for p in dev], [p.target for p in dev]
    outputs = model.transform(inputs)
    assert sum(a == b for a, b in zip(outputs, targets, strict=True)) > 16  # in the form that the targets have
    others = [[normalize(other, text) for text in side] for side in (inputs, targets)]
    assert model.transform(others[0]) == outputs
    assert model.log_probabilities(*others) == model.log_probabilities(inputs, targets)
    assert model.as_targets(others[1]) == targets


def test_accumulated_small_batches_learn_too(tmp_path):
    pairs = upper(300)
    result = train(pairs[:270], pairs[270:], replace(TINY, epochs=12, batch_size=8, accumulate=2), tmp_path)
    assert result.best_dev_exact_match >= 0.8


def test_few_pairs_are_seen_often_and_many_seldom():
    few, many = ([Pair(str(i), str(i)) for i in range(count)] for count in (10, 60_000))
    assert Trainer(few, few, PRESETS["small"]).config.epochs == 334
    assert Trainer(many, few, PRESETS["base"]).config.epochs == 4


@pytest.mark.parametrize(
    "option", [{"batch_size": 0}, {"dropout": 1.0}, {"patience": -1}, {"preset": "huge"}, {"time_limit": 0}]
)
def test_impossible_options_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        replace(PRESETS["small"], **option)


def test_no_pairs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no pairs"):
        train([], [], TINY, tmp_path)


def test_scores_are_fitted_on_dev_pairs_that_were_not_learned_from(tmp_path):
    random = Random(0)
    words = ["".join(random.choice("abcd") for _ in range(6)) for _ in range(400)]
    pairs = [Pair(word, word if random.random() < 0.7 else word[::-1]) for word in dict.fromkeys(words)]
    train(pairs[:200], pairs[200:], replace(TINY, epochs=8), tmp_path / "noisy")
    model = GraphTransformNet.load(tmp_path / "noisy")
    assert model.calibration != Calibration()
    assert model.config.input_units == ("a", "b", "c", "d")
    assert model.config.longest_input == 6
    train(pairs[:200], pairs[:200], replace(TINY, epochs=1), tmp_path / "same")
    assert GraphTransformNet.load(tmp_path / "same").calibration == Calibration()


def test_plain_tuples_are_pairs_and_what_is_none_is_named(tmp_path):
    pairs = [tuple(pair) for pair in copies(60)]
    assert train([pair[:2] for pair in pairs], pairs, replace(TINY, epochs=1), tmp_path / "model").epochs == 1
    with pytest.raises(TypeError, match=r"pair 1 must be a Pair.*, but is 'abc'"):
        train([*pairs[:1], "abc"], [], TINY, tmp_path / "none")
    with pytest.raises(TypeError, match=r"the target of pair 1 must be a str.*, but is NoneType None"):
        train([*pairs[:1], ("abc", None)], [], TINY, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_run_is_continued_with_more_time_and_other_changes_are_named(tmp_path):
    def stop(progress):
        if progress.step:
            raise KeyboardInterrupt

    pairs = copies(60)
    with pytest.raises(KeyboardInterrupt):
        train(pairs, pairs, replace(TINY, epochs=2, time_limit=1.0), tmp_path, progress=stop)
    for config, given, what in (
        (replace(TINY, epochs=2, ema=0.5), pairs, "ema"),
        (replace(TINY, epochs=2), pairs[1:], "pairs"),
    ):
        with pytest.raises(ModelError, match=f"was made with other {what}: give the same to continue it"):
            train(given, pairs, config, tmp_path, resume=True)
    assert train(pairs, pairs, replace(TINY, epochs=2, time_limit=9.0), tmp_path, resume=True).epochs == 2


@pytest.mark.parametrize("name", ["README.md", "config.json", "metrics.jsonl"])
def test_files_that_are_no_models_are_not_replaced_without_a_wish(tmp_path, name):
    (tmp_path / name).write_text("my own")
    with pytest.raises(ModelError, match=f"has a {name} that would be replaced"):
        train(copies(60), [], TINY, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "my own"


def test_a_model_that_nothing_was_held_out_from_says_so(tmp_path):
    pairs = copies(40)
    result = train(pairs, pairs, replace(TINY, epochs=1), tmp_path)
    assert not result.scores_fitted
    assert (
        "of 40 pairs that it learned from, for none was held out, are exactly right"
        in (tmp_path / "README.md").read_text()
    )
    assert json.loads((tmp_path / "config.json").read_text())["data"]["held_out"] == 0


def test_a_callback_that_loads_a_model_changes_nothing_and_random_numbers_stay_the_callers(tmp_path):
    pairs, config = copies(60), replace(TINY, epochs=2)
    train(pairs, pairs, config, str(tmp_path / "one"))
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    train(pairs, pairs, config, tmp_path / "two", progress=lambda _: GraphTransformNet.load(tmp_path / "one"))
    assert torch.rand(1) == wanted
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", "3"), ("epochs", 1.5), ("seed", -1), ("seed", "1"), ("clip", "x"), ("width", True)]
)
def test_a_setting_of_another_kind_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a"):
        TrainConfig(**{name: value})


def test_an_empty_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="the input of pair 1 is empty"):
        train([Pair("a", "b"), Pair("", "b")], [], TINY, tmp_path / "none")
    assert not (tmp_path / "none").exists()
