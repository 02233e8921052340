"""What `grapheme check all` finds in the library as it is: everything right, and what it promises to look at looked at."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

import grapheme_nn
from grapheme_nn.check import descent, determinism, threshold
from grapheme_nn.check.nets import FEATURED, exact_net
from grapheme_nn.check.parameters import gradient_report
from grapheme_nn.check.run import CHECKS
from grapheme_nn.check.subjects import subjects
from grapheme_nn.check.table import WIDTH, render
from grapheme_nn.nn import HOWS
from grapheme_nn.registry import OBJECTIVES

README = Path(__file__).parents[2] / "README.md"


def of(rows, check, group=""):
    return [row for row in rows if row.check == check and row.group.startswith(group)]


def test_everything_is_right(checked):
    assert all(row.passed and not row.note for row in checked)
    assert list(dict.fromkeys(row.check for row in checked)) == list(CHECKS)


def test_operators_and_losses_are_right_to_a_millionth_and_networks_to_a_ten_thousandth(checked):
    measured = [row for row in of(checked, "gradients") if "worst error" in row.figures]
    limits = {row.full_name: 1e-4 if row.group.startswith("net") else 1e-6 for row in measured}
    assert [name for row in measured if row.figures["worst error"] > limits[name := row.full_name] / 10] == []
    assert all(row.figures["compared"] > row.figures["zero"] for row in measured if not row.group.startswith("net"))


def test_every_subject_and_every_parameter_has_its_rows(checked):
    names = [row.full_name for row in checked]
    assert all(any(name.startswith(f"{s.group} {s.name}".strip()) for name in names) for s in subjects())
    assert all(f"aggregate {how}: message" in names for how in HOWS)
    parts = {"encoder.embedding.table", "encoder.feature_embedding.table", "morphs.0.0.theta", "morphs.1.linear.weight"}
    for loss in OBJECTIVES:
        assert parts | {"morphs.2.children_of.weight", "relabel.label.weight"} <= {
            row.name for row in of(checked, "gradients", f"net, {loss}")
        }
        assert any(name.startswith(f"objectives {loss}, graphs") for name in names)
    assert "net, path next.query.weight" in names


def differentiable():
    """The operators, layers and losses of the library, and its hand-written adjoints, by name."""
    packages = ("morph", "nn", "loss", "objective")
    modules = [m.name for m in walk_packages(grapheme_nn.__path__, "grapheme_nn.") if m.name.split(".")[1] in packages]
    found = {}
    for module in map(import_module, modules):
        kinds = (
            each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__
        )
        found |= {each.__name__: each for each in kinds if issubclass(each, nn.Module | torch.autograd.Function)}
    del found["Operator"]  # what they have in common
    return found


def unproved(monkeypatch):
    """Of what has a gradient, what no row of `check gradients` comes by."""
    wanted, run = differentiable(), set()

    def seen(name, forward):
        def record(*arguments):
            run.add(name)
            return forward(*arguments)

        return staticmethod(record)

    for name, kind in wanted.items():
        if issubclass(kind, torch.autograd.Function):
            monkeypatch.setattr(kind, "forward", seen(name, kind.forward))
    hook = register_module_forward_hook(lambda module, *_: run.add(type(module).__name__))
    try:
        for subject in subjects():
            torch.manual_seed(0)
            case = subject.make()
            case.fn(**case.inputs)
        gradient_report(exact_net("monotone"), FEATURED, entries=0)
    finally:
        hook.remove()
    return sorted(wanted.keys() - run)


def test_nothing_that_has_a_gradient_is_without_a_row(monkeypatch):
    assert unproved(monkeypatch) == []


def test_an_operator_without_a_row_is_found(monkeypatch):
    class Unproved(grapheme_nn.Operator):
        __module__ = "grapheme_nn.morph.merge"

    monkeypatch.setattr("grapheme_nn.morph.merge.Unproved", Unproved, raising=False)
    assert unproved(monkeypatch) == ["Unproved"]


def test_the_loss_falls_at_every_step_for_20_seeds_of_20_and_then_the_texts_come_out(checked):
    rows = [*of(checked, "descent", "monotone, merging"), *of(checked, "descent", "structural, merging")]
    assert len(rows) == 40
    assert all(row.figures["rises"] == 0 and row.figures["right after"] < 100 for row in rows)
    assert all(row.figures["after 20"] < row.figures["first loss"] for row in rows)


def test_a_step_too_large_is_a_rise(monkeypatch):
    monkeypatch.setattr(descent, "RATE", 1.0)
    monkeypatch.setattr(descent, "MOST_EPOCHS", 21)
    row = descent.falling(0)
    assert not row.passed
    assert "the loss did not fall at" in row.note


def test_texts_that_do_not_come_out_are_told(monkeypatch):
    monkeypatch.setattr(descent, "RATE", 1e-4)
    monkeypatch.setattr(descent, "MOST_EPOCHS", 21)
    row = descent.falling(0)
    assert not row.passed
    assert row.figures["rises"] == 0
    assert "after 21 epochs" in row.note
    assert "of 3 texts are wrong" in row.note


def test_over_150_epochs_qa_and_arithmetic_converge(checked):
    for group in ("qa", "arithmetic, level 1"):
        (row,) = of(checked, "descent", group)
        assert row.figures["last tenth"] < row.figures["first loss"] / 2


def test_learning_nothing_does_not_converge(monkeypatch):
    monkeypatch.setattr(descent, "LONG_RATE", 0.0)
    monkeypatch.setattr(descent, "LONG", 10)
    row = descent.converging("three", descent.PAIRS)
    assert not row.passed
    assert "0 of 3 texts are right" in row.note


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(checked):
    rows = of(checked, "determinism")
    assert [row.group for row in rows] == ["forward pass", "morphs", "loss", "texts", "gradient", "10 training steps"]
    assert {row.figures["other process"] for row in rows} == {"same bits"}


def canned(seed):
    """What a seed leads to, where all is well: the real ones take seconds, and `checked` has seen them."""
    return {name: f"{name} of {seed}" for name in (*determinism.PROMISED, "gradient", "10 training steps")}


def test_chance_without_a_seed_is_found(monkeypatch):
    right, times = canned, []

    def unseeded(seed):
        times.append(seed)
        return right(seed) | {"morphs": str(len(times))}

    monkeypatch.setattr(determinism, "digests", unseeded)
    monkeypatch.setattr(determinism, "_child", lambda seed, threads: None)
    monkeypatch.setattr(determinism, "_answer", lambda child: [right(0), right(0)])
    failed = [row for row in determinism.rows() if not row.passed]
    assert [row.group for row in failed] == ["morphs"]
    assert failed[0].figures["again"] == "WRONG"


def test_a_seed_without_influence_is_found(monkeypatch):
    right = canned(0)
    monkeypatch.setattr(determinism, "digests", lambda seed: right)
    monkeypatch.setattr(determinism, "_child", lambda seed, threads: None)
    monkeypatch.setattr(determinism, "_answer", lambda child: [right, right])
    assert all("other seed" in row.note for row in determinism.rows())


def test_the_threshold_moves_and_settles(checked):
    row = of(checked, "threshold", "threshold")[0]
    assert row.figures["range"] >= 0.005
    assert row.figures["last tenth"] <= 0.07 * row.figures["range"]


def test_a_threshold_that_stays_or_does_not_settle_or_a_loss_that_stays_is_told():
    still, drift = [0.8] * 100, [0.8 + 0.001 * at for at in range(100)]

    def notes(**changes):
        settled = [min(value, 0.85) for value in drift]
        course = {"threshold": settled, "merges": [1] * 100, "loss": [1 - 0.009 * at for at in range(100)], "right": 12}
        return [row.note for row in threshold.rows(threshold.Trajectory(**(course | changes))) if not row.passed]

    assert notes() == []
    assert "at least 0.005 is wanted" in notes(threshold=still)[0]
    assert "in the last tenth" in notes(threshold=drift)[0]
    assert "to be below half" in notes(loss=still)[0]
    assert "11 of 12 texts are right" in notes(right=11)[0]
    assert notes(merges=[0] * 100) == ["nothing was ever merged"]


def shown(rows):
    """What `check all` prints of each, but for the last line."""
    return [line for check in CHECKS for line in render(of(rows, check), grouped=True).splitlines()]


def test_all_is_one_screen_of_100_columns(checked):
    lines = shown(checked)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= WIDTH
    assert not any("..." in line for line in lines)
    assert all(len(line) <= WIDTH for check in CHECKS for line in render(of(checked, check)).splitlines())


def test_the_readme_shows_what_comes_out(checked):
    """The names and the verdicts; figures differ from machine to machine."""
    block = re.search(r"    \$ grapheme check all\n((?:    .*\n)+)", README.read_text(encoding="utf-8"))[1]
    readme = [line[4:] for line in block.splitlines()]
    assert [line[:36] for line in readme[:-1]] == [line[:36] for line in shown(checked)]
    assert max(map(len, readme)) <= WIDTH
    assert re.fullmatch(rf"{len(checked)} rows, all ok, \d+ s", readme[-1])
