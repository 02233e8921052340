"""What can be added to is added in one place: a class in a test becomes a loss or a morph of the command."""

import json
from pathlib import Path
from random import Random

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

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
)
from grapheme_nn.assignment import Assignment
from grapheme_nn.check import gradient_report
from grapheme_nn.cli import app
from grapheme_nn.data import Pair
from grapheme_nn.registry import Registry

DOCS = Path(__file__).parents[1] / "docs"
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
        assert "unknown loss 'in_place': choose one of monotone, structural, path, ctc" in result.stderr
    finally:
        OBJECTIVES.register("in_place")(entry)


def test_help_lists_what_is_built_in():
    shown = " ".join(grapheme("train", "--help").stdout.replace("│", " ").split())
    assert ", ".join(OBJECTIVES) in shown
    assert ", ".join(MORPHS) in shown


def test_every_objective_and_every_operator_has_a_name_and_its_line_in_the_docs():
    assert exported(objective, Objective) <= {OBJECTIVES[name] for name in OBJECTIVES}
    config = ModelConfig(("a",), width=8, hidden=4, heads=2)
    assert exported(morph, Operator) <= {type(part) for name in MORPHS for part in MORPHS[name](config).modules()}
    for registry, page in ((OBJECTIVES, "objectives.md"), (MORPHS, "morphs.md")):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert [name for name in registry if f"| `{name}` |" not in text] == []


def exported(package, kind):
    """The classes of a kind that a package offers."""
    own = (each for each in vars(package).values() if isinstance(each, type) and issubclass(each, kind))
    return set(own) - {kind}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--loss", "mse"], "unknown loss 'mse': choose one of monotone, structural, path, ctc, in_place"),
        (
            ["--morph", "split,fold"],
            "unknown morph 'fold': choose one of merge, lift, tour, split, rewire, local_pool, soft_pool, gate",
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
