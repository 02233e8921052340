"""Every example runs, with settings so small that it takes seconds, and shows what it promises."""

import importlib.util
import re
from pathlib import Path

import pytest

from grapheme_nn import Graph, TrainConfig
from grapheme_nn.data import generate

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Imports an example by its name; what it writes goes elsewhere."""
    monkeypatch.chdir(tmp_path)

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_every_example_has_a_test():
    tested = set(re.findall(r'example\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert tested == {file.stem for file in EXAMPLES.glob("*.py")}


def test_the_demo_trains_and_judges_and_fails_when_it_does_not_reach_its_promise(example, capsys):
    demo = example("demo")
    with pytest.raises(SystemExit, match="below the 99% that this demo promises"):
        demo.main(count=100, config=TrainConfig(epochs=1, width=16, hidden=8, layers=1, heads=0))
    assert "exact match on 1,000 dates never seen in training" in capsys.readouterr().out
    assert (demo.FOLDER / "model.safetensors").exists()


def test_derivatives_are_learned_and_checked_by_numbers(example, capsys):
    derivative = example("derivative")
    with pytest.raises(SystemExit, match="below the 90% that this demo promises"):
        derivative.main(count=40, config=TrainConfig(epochs=1, width=16, hidden=8, layers=1), depth=4)
    shown = capsys.readouterr().out
    assert re.search(r"learning from \d+ expressions of depth 3, such as .*x", shown)
    assert re.search(r"\d+ of 50 derivatives of expressions of depth 4 have the right values", shown)
    assert shown.count("d/dx  ") == 5
    assert (derivative.FOLDER / "model.safetensors").exists()


def test_a_derivative_is_told_from_what_is_none(example):
    derivative = example("derivative")
    (pair,) = generate("derivative", 1, seed=5, depth=4)
    assert derivative.is_derivative(pair.target, pair.input)
    assert not derivative.is_derivative(pair.input, pair.input)
    for wrong in (Graph(("x", "x"), ()), Graph(("x", "+"), ((0, 1, 0),)), Graph(("+",), ()), Graph((), ())):
        assert not derivative.is_derivative(wrong, derivative.PRODUCT)
    assert derivative.infix(derivative.PRODUCT) == "x * sin(x)"
    assert derivative.infix(Graph(("x", "x"), ())).startswith("no expression: an expression has one root")


def test_the_history_leads_from_each_letter_to_those_it_was_made_of(example, capsys):
    assert example("history").main(count=300) == "bbaalllloooonn"
    shown = capsys.readouterr().out
    assert re.search(r"split +│ 14 +│ 13 ", shown)
    letters = re.findall(r"│ (\w) +│ \d+ +│ \d:(\w) +│ ([^│]+)│", shown)
    assert "".join(letter for letter, _, _ in letters) == "bbaalllloooonn"
    assert all(letter == copied and f":{letter}" in made_of for letter, copied, made_of in letters)


def test_a_classifier_with_merge_and_soft_pool_learns_a_motif(example, capsys):
    assert example("classify_graphs").main(graphs=400, epochs=10) > 0.8
    assert re.search(r"4,\d\d\d nodes became 3,\d\d\d by merging, then 1,500 clusters", capsys.readouterr().out)


def test_an_autoencoder_learns_graphs_by_the_structural_loss(example, capsys):
    before, after = example("graph_autoencoder").main(graphs=10, steps=100)
    assert after < before / 4
    edits = [float(found) for found in re.findall(r"([\d.]+) edits", capsys.readouterr().out)]
    assert edits[1] < edits[0] / 2
