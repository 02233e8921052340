"""`gradient_report` says of every parameter of any network whether it can learn, and rightly."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from grapheme_nn import GraphTransformNet
from grapheme_nn.check import gradient_report
from grapheme_nn.check.nets import FEATURED, small_net
from grapheme_nn.check.parameters import batch_of
from grapheme_nn.config import ModelConfig
from grapheme_nn.registry import OBJECTIVES

BATCH = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def squares(model, batch):
    return model(batch).square()


def layers(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), *extra, nn.Linear(5, 2))


def test_any_module_with_a_loss_is_reported_on():
    report = gradient_report(layers(), BATCH, squares)
    assert report, str(report)
    assert [each.name for each in report.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [each.entries for each in report.parameters] == [9, 5, 9, 2]
    model = layers().double()
    squares(model, BATCH).sum().backward()
    for each, parameter in zip(report.parameters, model.parameters(), strict=True):
        assert each.norm == pytest.approx(parameter.grad.norm().item())
        assert each.error < 1e-8


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"x": x}, lambda x: Data(x=x)])
def test_a_batch_in_single_precision_is_converted(wrap):
    batch = wrap(BATCH.float())

    def loss(model, batch):
        x = batch if isinstance(batch, torch.Tensor) else batch[0] if isinstance(batch, list) else batch["x"]
        return model(x).square()

    assert gradient_report(layers(), batch, loss, entries=0)
    if isinstance(batch, Data):
        assert batch.x.dtype == torch.float32


def test_the_model_itself_is_left_as_it_was():
    model = layers()
    before = [parameter.clone() for parameter in model.parameters()]
    gradient_report(model, BATCH, squares)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(parameter.grad is None and parameter.dtype == torch.float32 for parameter in model.parameters())


def test_a_module_without_loss_is_asked_for_one():
    with pytest.raises(ValueError, match="a Sequential has no loss of its own: give loss"):
        gradient_report(layers(), BATCH)


def test_a_parameter_that_is_not_used_cannot_learn():
    model = layers()
    model.spare = nn.Parameter(torch.ones(2))
    report = gradient_report(model, BATCH, squares)
    failed = [each for each in report.parameters if not each.passed]
    assert [each.name for each in failed] == ["spare"]
    assert "cannot learn" in failed[0].note
    assert failed[0].zero_share == 1


def test_a_bias_that_softmax_takes_away_cannot_learn():
    """Its gradient is not exactly 0, but no more than rounding."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"score": nn.Linear(3, 4, bias=False), "same": nn.Linear(1, 1)})

    def loss(model, batch):
        return (model["score"](batch) + model["same"].bias + model["same"].weight[0]).softmax(1).square()

    report = gradient_report(model, BATCH, loss)
    assert [each.passed for each in report.parameters] == [True, False, False]
    assert all("cannot learn" in each.note for each in report.parameters[1:])


def test_a_part_of_a_parameter_that_has_no_influence_is_found():
    """In torch's attention one tensor holds the biases of queries, keys and values; softmax takes that of keys away."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(6, 2)
    nn.init.normal_(attention.in_proj_bias)
    report = gradient_report(attention, BATCH.view(4, 1, 3).repeat(1, 1, 2), lambda m, x: m(x, x, x)[0].square())
    (failed,) = [each for each in report.parameters if not each.passed]
    assert failed.name == "in_proj_bias"
    assert "entries have a gradient of rounding alone" in failed.note


def test_dropout_left_on_is_named():
    report = gradient_report(layers(nn.Dropout(0.5)).train(), BATCH, squares)
    assert not report
    assert [each.name for each in report.parameters] == ["2 (Dropout)"]
    assert "is dropout left on" in str(report)
    assert gradient_report(layers(nn.Dropout(0.5)).eval(), BATCH, squares)


def test_a_wrong_entry_is_found_even_where_it_is_not_sampled():
    class Forgetful(nn.Linear):
        def forward(self, x):
            weight = torch.cat([self.weight[:, :-1], self.weight[:, -1:].detach()], 1)
            return x @ weight.T + self.bias

    torch.manual_seed(0)
    report = gradient_report(Forgetful(3, 30), BATCH, squares, entries=0)
    assert [each.passed for each in report.parameters] == [False, True]


def ours(loss, **more):
    torch.manual_seed(0)
    shape = {"width": 8, "hidden": 4, "heads": 2, "layers": 1, "buckets": 4, "hashes": 2}
    return GraphTransformNet(ModelConfig(("a", "b", "x", "y"), loss=loss, **shape, **more)).eval()


@pytest.mark.parametrize("loss", list(OBJECTIVES))
def test_a_network_of_ours_needs_only_pairs(loss):
    report = gradient_report(ours(loss), [("abc", "ab"), ("xyz", "xy")], entries=0)
    assert report, str(report)


def test_pairs_and_what_they_become_are_the_same_batch():
    model = ours("monotone", features=("V", "PST", "N"))
    one, other = (gradient_report(model, batch, entries=0) for batch in (FEATURED, batch_of(model, FEATURED)))
    assert one == other
    assert one


def test_a_hard_decision_has_no_gradient_of_differences():
    report = gradient_report(small_net(FEATURED).train(), FEATURED, entries=0)
    wrong = [each.name for each in report.parameters if not each.passed]
    assert "morphs.0.0.theta" in wrong
    assert "relabel.label.weight" not in wrong  # what comes after the decision is exact


def test_chance_between_two_modules_is_found_there():
    report = gradient_report(layers(), BATCH, lambda model, batch: model(batch + torch.rand_like(batch)))
    assert [each.name for each in report.parameters] == ["on the way to 0 (Linear)"]


@pytest.mark.parametrize(
    ("model", "batch", "loss", "sentence"),
    [
        (nn.Tanh(), BATCH, squares, "no parameter of this Tanh requires a gradient"),
        (layers().requires_grad_(False), BATCH, squares, "no parameter of this Sequential requires a gradient"),
        (layers(), BATCH, lambda model, batch: None, "the loss returned no floats"),
        (layers(), BATCH, lambda model, batch: model(batch).detach(), "the loss depends on no parameter"),
        (layers(), BATCH, lambda model, batch: model(batch) / 0, "the loss is not finite"),
    ],
)
def test_what_cannot_be_reported_on_is_told_in_a_sentence(model, batch, loss, sentence):
    with pytest.raises(ValueError, match=sentence):
        gradient_report(model, batch, loss)


@pytest.mark.parametrize("batch", [[], None, 5, "abc", ("abc", "ab"), ["abc", "ab"], {"abc": "ab"}, [("abc",)]])
def test_a_batch_that_is_no_list_of_pairs_is_refused(batch):
    with pytest.raises(ValueError, match="must be a list of pairs"):
        gradient_report(small_net(FEATURED), batch)


def test_targets_that_cannot_be_spelled_are_told():
    with pytest.raises(ValueError, match="can spell none of these targets"):
        gradient_report(small_net(FEATURED), [("abc", "???")])
    with pytest.raises(ValueError, match="entries must not be negative, but is -1"):
        gradient_report(small_net(FEATURED), [("abc", "ab")], entries=-1)
