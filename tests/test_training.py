"""Training learns, stops, goes on after a kill, and says what it could not use."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from grapheme_nn import GraphTransformNet
from grapheme_nn.config import PRESETS, TrainConfig
from grapheme_nn.data import Pair
from grapheme_nn.data.examples import Examples, choose_parts, labels_in
from grapheme_nn.model import ModelError
from grapheme_nn.registry import OBJECTIVES
from grapheme_nn.trainer import Trainer
from grapheme_nn.training import train

LOSSES = tuple(OBJECTIVES)

TINY = TrainConfig(width=32, hidden=16, heads=2, layers=1, dropout=0.1, batch_size=16, learning_rate=5e-3, patience=0)

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
    return load_file(folder / "model.safetensors"), load_file(folder / "checkpoint.safetensors")


def assert_same_weights(one, other):
    for a, b in zip(weights(one), weights(other), strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path):
    pairs = upper(100)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(pairs[:80], pairs[80:], replace(TINY, epochs=2, seed=seed), tmp_path / name)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert not torch.equal(
        weights(tmp_path / "a")[0]["relabel.label.weight"], weights(tmp_path / "c")[0]["relabel.label.weight"]
    )


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
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")
    logs = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "stopped")
    ]
    timed = {"seconds", "examples_per_second"}
    assert [{k: v for k, v in row.items() if k not in timed} for row in logs[0]] == [
        {k: v for k, v in row.items() if k not in timed} for row in logs[1]
    ]


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
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")


def test_resuming_with_other_pairs_or_options_is_refused(tmp_path):
    pairs = upper(60)
    train(pairs, pairs[:9], replace(TINY, epochs=1), tmp_path)
    for other, config in ((pairs[1:], replace(TINY, epochs=1)), (pairs, replace(TINY, epochs=2))):
        with pytest.raises(ModelError, match="train without resuming"):
            train(other, pairs[:9], config, tmp_path, resume=True)
    with pytest.raises(ModelError, match="another model"):
        train(pairs, pairs[:9], replace(TINY, epochs=1, width=16), tmp_path, resume=True)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match="damaged"):
        train(pairs, pairs[:9], replace(TINY, epochs=1), tmp_path, resume=True)


def test_resuming_a_finished_run_changes_nothing_and_resuming_nothing_begins(tmp_path):
    pairs = upper(60)
    first = train(pairs, pairs[:9], replace(TINY, epochs=2), tmp_path, resume=True)
    before = weights(tmp_path)
    again = train(pairs, pairs[:9], replace(TINY, epochs=2), tmp_path, resume=True)
    assert all(torch.equal(before[0][name], weights(tmp_path)[0][name]) for name in before[0])
    assert (again.best_dev_exact_match, again.epochs) == (first.best_dev_exact_match, first.epochs)


def test_parts_are_the_fewest_that_cover_nearly_all_pairs_and_the_others_are_counted(tmp_path):
    pairs = [Pair(word, word + word) for word in words(399)] + [Pair("a", "abcdefgh")]
    result = train(pairs, pairs[:9], replace(TINY, loss="monotone", epochs=1), tmp_path)
    assert (result.parts, result.not_covered) == (2, 1)
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
    assert labels_in([Pair("q", "t͡ʃ a"), Pair("q", "a b")], "symbol") == ("a", "b", "t͡ʃ")


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
    assert not train(pairs, pairs, replace(TINY, epochs=2), tmp_path).learned_nothing


def test_of_equal_exact_matches_the_higher_log_probability_is_kept(tmp_path, monkeypatch):
    judged = [(0.5, -3.0, ""), (0.5, -2.0, ""), (0.5, -2.5, ""), (0.25, -0.1, ""), (0.5, -2.0, "")]
    told, saved = iter(judged), []
    monkeypatch.setattr(Trainer, "evaluate", lambda self: next(told))
    monkeypatch.setattr(Trainer, "save_model", lambda self, run, out: saved.append(run.epoch))
    pairs = upper(32)
    result = train(pairs, pairs, replace(TINY, epochs=5), tmp_path)
    assert saved == [1, 2]
    assert (result.best_epoch, result.best_dev_exact_match) == (2, 0.5)


def test_the_dev_log_probability_is_that_of_the_targets_under_the_averaged_weights():
    pairs = upper(12)
    trainer = Trainer(pairs, pairs, TINY)
    trainer.step([[0, 1, 2]], 3e-3, Random(0))
    _, found, _ = trainer.evaluate()
    judged = trainer.average.module.log_probabilities([p.input for p in pairs], [p.target for p in pairs])
    assert found == pytest.approx(sum(judged) / 12, rel=1e-5)
    unspellable = Trainer(pairs, [*pairs, NEVER], TINY).evaluate()[1]
    assert np.isfinite(unspellable)


@pytest.mark.parametrize(("dev", "epochs"), [(0.5, 4), (1.0, 3), (0.0, 6)])
def test_training_stops_when_nothing_improves_or_all_is_right_but_not_before_anything_is(
    dev, epochs, tmp_path, monkeypatch
):
    monkeypatch.setattr(Trainer, "evaluate", lambda self: (dev, -1.0, ""))
    pairs = upper(32)
    assert train(pairs, pairs, replace(TINY, epochs=6, patience=3), tmp_path).epochs == epochs


def test_a_time_limit_is_kept(tmp_path):
    result = train(upper(300), upper(20), replace(TINY, epochs=1000, time_limit=0.02), tmp_path)
    assert result.epochs < 1000
    assert (tmp_path / "model.safetensors").is_file()


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
