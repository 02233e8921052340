"""The check can fail: each way to be wrong turns the command red, and is named. The mutations live here alone."""

import pytest
import torch

from grapheme_nn import GraphTransformNet, assignment
from grapheme_nn.check import descent, determinism, estimators, gradients
from grapheme_nn.check.subjects import subjects
from grapheme_nn.check.table import Row
from grapheme_nn.loss.padded import Edges
from grapheme_nn.morph import Merge, merge
from grapheme_nn.nn import aggregation
from grapheme_nn.nn.encoder import Encoder
from grapheme_nn.trainer import Trainer


@pytest.fixture
def red(grapheme, monkeypatch):
    """Runs `grapheme check gradients` on some subjects, asserts that it is red and names this, and says what failed.

    Without a mutation all rows are green: `checked` sees to that, in test_rows.py.
    """

    def run(parts, *culprits, nets=(), promises=()):
        chosen = [subject for subject in subjects() if any(part in f"{subject.group} {subject.name}" for part in parts)]
        monkeypatch.setattr(gradients, "subjects", lambda: chosen)
        monkeypatch.setattr(gradients, "OBJECTIVES", nets)
        monkeypatch.setattr(gradients, "ENTRIES", 0)
        monkeypatch.setattr(estimators, "PROMISES", promises)
        result = grapheme("check", "gradients")
        assert result.exit_code == 1, result.output
        for culprit in culprits:
            assert f"FAIL gradients: {culprit}" in result.stderr
        return [line.split(": ", 1)[1] for line in result.stderr.splitlines()]

    return run


def first_members(clusters):
    """Whether each node is the first of its cluster, [n, 1]."""
    first = torch.zeros(clusters.numel(), 1)
    first[[clusters.tolist().index(cluster) for cluster in set(clusters.tolist())]] = 1
    return first


def test_a_merge_that_sends_its_gradient_to_the_first_member_only(red, monkeypatch):
    reducing, straight = assignment._WeightedSum.backward, merge._StraightThrough.backward

    def reduce_backward(ctx, *gradients):
        for_x, *rest = reducing(ctx, *gradients)
        if ctx.reduces and ctx.assignment.is_hard and for_x is not None:
            for_x = for_x * first_members(ctx.assignment.clusters())
        return for_x, *rest

    def straight_backward(ctx, gradient):
        for_x, *rest = straight(ctx, gradient)
        return for_x * first_members(ctx.assignment.clusters()), *rest

    monkeypatch.setattr(assignment._WeightedSum, "backward", staticmethod(reduce_backward))
    monkeypatch.setattr(merge._StraightThrough, "backward", staticmethod(straight_backward))
    failed = red(
        ["Merge", "Assignment"],
        "Assignment reduce, hard: x",
        "Merge eval: x",
        "Merge straight_through, chain: x",
        "Merge gumbel, graph: x",
    )
    assert not any("theta" in name or "soft" in name for name in failed)


@pytest.mark.parametrize("among", ["all", "equals"])
def test_a_maximum_that_splits_its_gradient(red, monkeypatch, among):
    right = aggregation.aggregate

    def split(message, index, num_nodes, how="sum"):
        if how != "max":
            return right(message, index, num_nodes, how)
        if among == "all":
            mean = right(message, index, num_nodes, "mean")
            return right(message, index, num_nodes, how).detach() + mean - mean.detach()
        nothing = message.new_zeros(num_nodes, message.size(1))  # torch's own splits among equals
        return nothing.scatter_reduce(0, index[:, None].expand_as(message), message, "amax", include_self=False)

    monkeypatch.setattr(aggregation, "aggregate", split)
    failed = red(["aggregate"], "aggregate max, of equals: message")
    assert [name.split(":")[0] for name in failed] == (["aggregate max"] if among == "all" else []) + [
        "aggregate max, of equals"
    ]


def test_a_plan_that_is_detached_in_the_structural_loss(red, monkeypatch):
    right = Edges.overlap
    monkeypatch.setattr(Edges, "overlap", lambda x, y, plan: right(x, y, plan.detach()))
    failed = red(
        ["StructuralLoss node, chains", "StructuralLoss edge", "StructuralLoss total, chains"],
        "StructuralLoss edge, chains: activation",
        "StructuralLoss edge, graphs: label_log_prob",
        "StructuralLoss total, chains: activation",
    )
    assert not any("node" in name for name in failed)


def test_a_threshold_whose_gradient_is_negated(red, monkeypatch):
    negated = property(lambda self: 2 * self.theta.detach().sigmoid() - self.theta.sigmoid())
    monkeypatch.setattr(Merge, "threshold", negated)
    failed = red(
        ["Merge"],
        "Merge soft, chain: theta",
        "Merge straight_through, graph: theta",
        "Merge gumbel, chain: theta",
        "Merge reinforce, one sample: theta",
        "Merge ratio: theta",
    )
    assert all("theta" in name for name in failed)


def test_estimators_whose_threshold_goes_the_wrong_way(red, monkeypatch):
    right = estimators._estimate

    def negated(problem, estimator):
        found = right(problem, estimator)
        return torch.cat([-found[:1], found[1:]])

    monkeypatch.setattr(estimators, "_estimate", negated)
    promises = estimators.PROMISES
    failed = red([], *(f"truth, {each.estimator}, {each.kind}: " for each in promises), promises=promises)
    assert len(failed) == len(promises)


def test_dropout_that_is_left_on(red, monkeypatch):
    dropout = torch.nn.functional.dropout
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, *rest: dropout(x, 0.2, True))
    failed = red(
        ["Layer, with features"],
        "layers Layer, with features: x",
        "net, monotone encoder.dropout (Dropout)",
        nets=("monotone",),
    )
    assert any("is dropout left on" in name for name in failed)


def test_dropout_that_does_not_ask_whether_it_is_in_training(red, monkeypatch):
    encode = Encoder.forward

    def dropping(self, batch):
        graph = encode(self, batch)
        return graph.with_dense(torch.nn.functional.dropout(graph.dense, 0.3, True))

    monkeypatch.setattr(Encoder, "forward", dropping)
    failed = red([], "net, path encoder (Encoder)", nets=("path",))
    assert len(failed) == 1


def test_a_network_that_does_not_leave_training_to_predict(grapheme, monkeypatch):
    elsewhere = determinism.digests(determinism.SEED)
    monkeypatch.setattr(determinism, "_child", lambda seed, threads: None)
    monkeypatch.setattr(determinism, "_answer", lambda child: [elsewhere, elsewhere])
    monkeypatch.setattr(GraphTransformNet, "eval", lambda self: self)
    result = grapheme("check", "determinism")
    assert result.exit_code == 1
    assert "FAIL determinism: texts: not as it should be: again" in result.stderr
    assert "FAIL determinism: morphs" not in result.stderr


@pytest.mark.parametrize("frozen", [True, False])
def test_what_no_optimiser_moves(red, monkeypatch, frozen):
    init = GraphTransformNet.__init__

    def rigid(self, config):
        init(self, config)
        if frozen:
            self.relabel.label.bias.requires_grad_(False)
        else:
            del self.relabel.label.bias
            self.relabel.label.bias = torch.zeros(2 + len(config.labels), dtype=torch.float64)

    monkeypatch.setattr(GraphTransformNet, "__init__", rigid)
    failed = red([], "net, ctc relabel.label.bias: it is", nets=("ctc",))
    assert len(failed) == 1


def test_a_threshold_that_no_gradient_reaches(red, monkeypatch):
    logits = Merge.logits
    monkeypatch.setattr(
        Merge, "logits", lambda self, similarity: logits(self, similarity.clone()).detach() + similarity * 0
    )
    red(
        ["Merge"],
        "Merge soft, chain: theta: its gradient is zero everywhere",
        "truth, soft, readout",
        promises=estimators.PROMISES[:1],
    )


def test_training_that_goes_uphill(grapheme, monkeypatch):
    step = Trainer.step

    def stepping(self, *arguments):
        for parameter in self.network.parameters():
            if not parameter._backward_hooks:
                parameter.register_hook(torch.neg)
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", stepping)
    monkeypatch.setattr(descent, "SEEDS", 0)
    monkeypatch.setattr(descent, "converging", lambda *arguments: Row("descent", "", "", True, {}))
    result = grapheme("check", "descent")
    assert result.exit_code == 1
    assert "FAIL descent: as shipped, monotone:" in result.stderr
    assert "FAIL descent: as shipped, structural, merging:" in result.stderr


def test_a_parameter_that_is_not_used(red, monkeypatch):
    init = GraphTransformNet.__init__

    def with_spare(self, config):
        init(self, config)
        self.spare = torch.nn.Parameter(torch.ones(3))

    monkeypatch.setattr(GraphTransformNet, "__init__", with_spare)
    failed = red([], "net, path spare: its gradient is zero everywhere: it cannot learn", nets=("path",))
    assert len(failed) == 1


def test_an_operator_that_breaks_is_a_row_that_failed(red, monkeypatch):
    def broken(self, graph):
        raise RuntimeError("no pairs today")

    monkeypatch.setattr(Merge, "pairs", broken)
    red(["Merge"], "Merge eval: it could not be checked: RuntimeError: no pairs today")
