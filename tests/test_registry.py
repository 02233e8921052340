"""What can be added to is added in one place: a class in a test becomes a loss or a morph of the command."""

import json
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import grapheme_nn
from grapheme_nn import (
    MORPHS,
    OBJECTIVES,
    Comparison,
    GraphTransformNet,
    ModelConfig,
    Objective,
    Operator,
    morph,
    objective,
    texts_to_batch,
)
from grapheme_nn.assignment import Assignment
from grapheme_nn.check import gradient_report
from grapheme_nn.cli import app
from grapheme_nn.data import Pair
from grapheme_nn.registry import Registry

ROOT = Path(__file__).parents[1]
TINY = "epochs = 2\nwidth = 16\nhidden = 16\nlayers = 1\nheads = 2\nlearning_rate = 0.01\n"


def grapheme(*words, given=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=given)


@pytest.fixture
def mine():
    """A loss and a morph that the library does not have, for as long as a test takes."""

    @OBJECTIVES.register("in_place")
    class InPlace(Objective):
        """Slot j is target node j, all further slots are void: the mean of what that costs."""

        def align(self, predicted, targets):
            label, void = predicted.match(targets), predicted.label_log_prob[:, :, 0]
            slots, nodes = label.shape[1:]
            plan = torch.eye(slots, nodes).expand_as(label) * targets.mask[:, None, :] * predicted.mask[:, :, None]
            cost = -(label * plan).sum((1, 2)) - (void * (1 - plan.sum(2)) * predicted.mask).sum(1)
            missing = plan.sum((1, 2)) < targets.length
            return Comparison(torch.where(missing, torch.inf, cost / predicted.mask.sum(1)), plan)

    @MORPHS.register("gate")
    class Gate(Operator):
        """Each node keeps a learned share of each channel."""

        def __init__(self, config):
            super().__init__()
            self.channels, self.score = config.width, nn.Linear(config.width, config.width)

        def change(self, graph):
            same = Assignment.identity(graph.num_nodes)
            x = graph.x * self.score(graph.x).sigmoid()
            return graph.changed(x, graph.edge_index, graph.edge_weight, graph.batch, same, order=graph.order)

    yield
    del OBJECTIVES["in_place"]
    del MORPHS["gate"]


@pytest.fixture
def files(tmp_path):
    numbers = list(map(str, Random(0).sample(range(100, 4000), 60)))
    (tmp_path / "pairs.tsv").write_text("".join(f"{number}\t{number}\n" for number in numbers))
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def test_a_new_loss_and_a_new_morph_train_and_predict_through_the_command_by_name(mine, files):
    out = files / "model"
    words = ["--loss", "in_place", "--morph", "split,gate", "--epochs", 2, "--config", files / "tiny.toml"]
    result = grapheme("train", files / "pairs.tsv", *words, "--out", out)
    assert result.exit_code == 0, result.output
    config = json.loads((out / "config.json").read_text())["model"]
    assert (config["loss"], config["morphs"]) == ("in_place", ["split", "gate"])
    losses = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert losses[1] < losses[0]
    said = grapheme("predict", out, "--scores", given="123\n45\n")
    assert said.exit_code == 0, said.output
    assert [line.split("\t")[0] for line in said.stdout.splitlines()] == ["123", "45"]
    assert grapheme("evaluate", out, files / "pairs.tsv").exit_code == 0
    assert "in_place" in grapheme("info", out).stdout
    model = GraphTransformNet.load(out)
    assert [type(morph).__name__ for morph in model.morphs] == ["Split", "Gate"]


def test_a_new_loss_and_a_new_morph_have_right_gradients_by_the_same_check(mine):
    torch.manual_seed(0)
    shape = {"width": 8, "hidden": 4, "heads": 2, "layers": 1, "buckets": 4, "hashes": 2, "dropout": 0.0}
    config = ModelConfig(("a", "b"), loss="in_place", morphs=("split", "gate"), **shape)
    report = gradient_report(GraphTransformNet(config), [("abb", "ab"), ("ba", "b")], entries=0)
    assert report, str(report)
    assert "morphs.1.score.weight" in [each.name for each in report.parameters]


def test_a_model_whose_loss_nobody_registered_is_refused_in_a_sentence(files, mine):
    out = files / "model"
    words = ["--loss", "in_place", "--config", files / "tiny.toml", "--out", out]
    assert grapheme("train", files / "pairs.tsv", *words).exit_code == 0
    entry = OBJECTIVES["in_place"]
    del OBJECTIVES["in_place"]
    try:
        result = grapheme("predict", out, given="12\n")
        assert result.exit_code == 1
        assert "unknown loss 'in_place': choose one of monotone, structural, path, ctc; if" in result.stderr
        assert "if 'in_place' is your own, import the module that registers it first" in result.stderr
    finally:
        OBJECTIVES.register("in_place")(entry)


def test_help_lists_what_is_built_in():
    shown = " ".join(grapheme("train", "--help").stdout.replace("│", " ").split())
    assert ", ".join(OBJECTIVES) in shown
    assert ", ".join(MORPHS) in shown


def defined(package, kind):
    """The classes of a kind that the modules of a package define, by name."""
    modules = [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]
    own = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {each.__name__: each for each in own if issubclass(each, kind) and each is not kind}


def unnamed():
    """Where an objective or an operator, or the name of one, is missing: place and name."""
    operators, objectives = defined(morph, Operator), defined(objective, Objective)
    config = ModelConfig(("a",), width=8, hidden=4, heads=2)
    made = {type(part).__name__ for name in MORPHS for part in MORPHS[name](config).modules()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = {row.split("`")[1]: row for row in readme.splitlines() if row.startswith("| `")}
    chosen = readme.split("`--morph` takes names")[1].split("docs/morphs.md")[0]
    pages = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("objectives", "morphs")}
    typed = re.split("if TYPE_CHECKING:|__version__", (ROOT / "src/grapheme_nn/__init__.py").read_text())[1]
    places = {
        "MORPHS": operators.keys() - made,
        "morph.__all__": operators.keys() - morph.__all__,
        "root": operators.keys() - grapheme_nn.__all__,
        "root, for type checkers": {name for name in grapheme_nn.__all__ if not re.search(rf"\b{name}\b", typed)},
        "README, modules": {name for name in operators if f"`{name}`" not in table["morph/"]},
        "README, --morph": {name for name in MORPHS if f"`{name}`" not in chosen},
        "docs/morphs.md": {name for name in MORPHS if f"| `{name}` |" not in pages["morphs"]},
        "docs/morphs.md, operators": {name for name in operators if f"| `{name}` |" not in pages["morphs"]},
        "OBJECTIVES": objectives.keys() - {OBJECTIVES[name].__name__ for name in OBJECTIVES},
        "objective.__all__": objectives.keys() - objective.__all__,
        "README, objectives": OBJECTIVES.keys() - table.keys(),
        "README, objective/": {name for name in OBJECTIVES if f"`{name}`" not in table["objective/"]},
        "docs/objectives.md": {name for name in OBJECTIVES if f"| `{name}` |" not in pages["objectives"]},
    }
    return {(place, name) for place, names in places.items() for name in names}


def test_every_objective_and_every_operator_is_named_wherever_the_others_are():
    assert unnamed() == set()


def test_an_objective_and_an_operator_that_are_not_named_are_missed_everywhere(monkeypatch, mine):
    for module in ("morph.merge", "objective.path"):
        monkeypatch.setattr(f"grapheme_nn.{module}.Unnamed", type("Unnamed", KINDS[module], {}), raising=False)
    classes = ("MORPHS", "morph.__all__", "root", "README, modules", "docs/morphs.md, operators")
    names = {
        "gate": ("README, --morph", "docs/morphs.md"),
        "in_place": ("README, objectives", "README, objective/", "docs/objectives.md"),
        "Unnamed": (*classes, "OBJECTIVES", "objective.__all__"),
    }
    assert unnamed() == {(place, name) for name, places in names.items() for place in places}


KINDS = {"morph.merge": (Operator,), "objective.path": (Objective,)}


def tiny(**names):
    shape = {"width": 8, "hidden": 4, "heads": 2, "layers": 1, "buckets": 4, "hashes": 2, "dropout": 0.0}
    return GraphTransformNet(ModelConfig(("a", "b"), **shape, **names))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda predicted, targets: predicted.x, r"but returned a Tensor"),
        (
            lambda predicted, targets: Comparison(predicted.x.sum(), predicted.match(targets)),
            r"here \[1, 4, 2\], but returned value \[\] and plan \[1, 4, 2\]",
        ),
        (
            lambda predicted, targets: Comparison(predicted.x.sum((1, 2)), predicted.x),
            r"here \[1, 4, 2\], but returned value \[1\] and plan \[1, 4, 8\]",
        ),
        (lambda predicted, targets: Comparison(0.0, None), r"here \[1, 4, 2\], but returned value \[\] and plan \[\]"),
    ],
)
def test_an_objective_that_aligns_to_something_else_is_told_what_to_return(mine, monkeypatch, made, says):
    monkeypatch.setattr(OBJECTIVES["in_place"], "align", lambda self, *given: made(*given))
    model, target = tiny(loss="in_place"), texts_to_batch(["ab"])
    predicted = model(texts_to_batch(["ab"]))
    wanted = r"InPlace.align must return a Comparison of value \[B\] and plan \[B, s, m\], "
    for compare in (model.objective, model.objective.value):
        with pytest.raises(TypeError, match=wanted + says):
            compare(predicted, target)


def test_an_operator_that_changes_to_something_else_is_told_what_to_return(mine, monkeypatch):
    monkeypatch.setattr(MORPHS["gate"], "change", lambda self, graph: graph.x)
    says = r"Gate.change must return a Morph, as graph.changed\(...\) makes one, but returned a Tensor"
    with pytest.raises(TypeError, match=says):
        tiny(morphs=("split", "gate"))(texts_to_batch(["ab"]))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (lambda config: torch.ones(3), "the morph 'odd' must make a module of a ModelConfig, but made a Tensor"),
        (lambda config: Batches(), "the morph 'odd' must give a Morph, but gave a Tensor"),
    ],
)
def test_a_morph_that_makes_something_else_is_told_what_to_make(monkeypatch, entry, says):
    monkeypatch.setitem(MORPHS, "odd", entry)
    with pytest.raises(TypeError, match=says):
        tiny(morphs=("split", "odd"))(texts_to_batch(["ab"]))


class Batches(nn.Module):
    def forward(self, graph):
        return graph.x


@pytest.mark.parametrize("entry", [len, int, "objective.path:Path", Batches()])
def test_what_is_no_objective_is_not_registered_as_one(entry):
    with pytest.raises(TypeError, match="the loss 'odd' must be a class derived from Objective, but is "):
        OBJECTIVES.register("odd")(entry)
    assert "odd" not in OBJECTIVES


@pytest.mark.parametrize("entry", [3, "nn.stages:merge", Batches()])
def test_what_makes_no_morph_is_not_registered_as_one(entry):
    with pytest.raises(TypeError, match="the morph 'odd' must be a class or a function, but is "):
        MORPHS.register("odd")(entry)
    assert "odd" not in MORPHS


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--loss", "mse"],
            "unknown loss 'mse': choose one of monotone, structural, path, ctc, in_place; if 'mse' is your own, import "
            "the module that registers it first",
        ),
        (
            ["--morph", "split,fold"],
            "unknown morph 'fold': choose one of merge, lift, tour, split, rewire, local_pool, soft_pool, gate; if 'fold' "
            "is your own, import the module that registers it first",
        ),
    ],
)
def test_unknown_names_are_refused_in_a_sentence_that_lists_the_registered_ones(mine, files, words, says):
    result = grapheme("train", files / "pairs.tsv", *words, "--out", files / "model")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == says
    assert not (files / "model").exists()


def test_a_name_stands_for_one_thing_and_is_imported_when_asked_for():
    registry = Registry("shape", pair="data.pairs:Pair")
    assert list(registry) == ["pair"]
    assert registry["pair"] is Pair
    with pytest.raises(ValueError, match="there is a shape named 'pair' already: choose another name"):
        registry.register("pair")
    registry.register("mine")(int)
    assert registry["mine"] is int
    del registry["mine"]
    assert "mine" not in registry
    with pytest.raises(ValueError, match="unknown shape 'mine': choose one of pair"):
        registry["mine"]


@pytest.mark.parametrize("name", [object, "", "a,b", 3])
def test_a_decorator_without_a_name_is_refused(name):
    with pytest.raises(
        TypeError, match=r'register takes a name without commas, such as @OBJECTIVES.register\("mine"\)'
    ):
        OBJECTIVES.register(name)
