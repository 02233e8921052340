"""Plans that edges take part in."""

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
import torch
from torch_geometric.data import Batch, Data

from grapheme_nn.candidates import CandidateEdges
from grapheme_nn.objective.edges import edge_terms, value_at
from grapheme_nn.objective.monotone import Monotone
from grapheme_nn.objective.structural import Structural
from grapheme_nn.predicted import Targets

TYPES = torch.tensor([0, 1])


def certain(predict, labels, operands, forward=(), sure=9.0):
    """A predicted graph that is all but sure: labels of slots (0: void), operands (slot, operand, type)."""
    n = len(labels)
    label = torch.full((1, n, 5), -sure).index_put(
        (torch.zeros(n, dtype=torch.long), torch.arange(n), torch.tensor(labels)), torch.tensor(sure)
    )
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    score = torch.full((len(pairs), 3), -sure)
    none = torch.full((n, 3), 0.0)
    for slot, operand, kind in [*operands, *((*each, 2) for each in forward)]:
        score[pairs.index((slot, operand)), kind] = sure
    first, second = torch.tensor(pairs).t()
    candidates = CandidateEdges.of("operands", first, second, score, none, TYPES)
    return replace(predict(label.log_softmax(2), [n]), candidates=candidates)


def target(labels, edges):
    index = torch.tensor([edge[:2] for edge in edges], dtype=torch.long).view(-1, 2).t()
    return Data(
        x=torch.tensor(labels) + 95, edge_index=index, edge_type=torch.tensor([edge[2] for edge in edges]).long()
    )


# a - b in slots 0 to 2, of which slot 3 is void: labels 2, 3 and 4 (the minus)
SLOTS = ([2, 3, 4, 0], [(2, 0, 0), (2, 1, 1)])


@pytest.mark.parametrize("objective", [Structural(), Monotone()])
def test_the_right_target_costs_next_to_nothing_and_one_with_operands_exchanged_much(predict, objective):
    predicted = certain(predict, *SLOTS)
    right = objective(predicted, Batch.from_data_list([target([2, 3, 4], [(0, 2, 0), (1, 2, 1)])]))
    wrong = objective(predicted, Batch.from_data_list([target([2, 3, 4], [(1, 2, 0), (0, 2, 1)])]))
    assert float(right.value) < 0.1
    assert float(wrong.value) > 10


def test_isomorphic_targets_have_the_same_value(predict):
    predicted = certain(predict, [2, 2, 4, 4, 3], [(2, 0, 0), (2, 1, 1), (3, 2, 0), (3, 4, 1)], sure=3.0)
    labels, edges = [2, 2, 4, 4, 3], [(0, 2, 0), (1, 2, 1), (2, 3, 0), (4, 3, 1)]
    values = []
    for order in list(permutations(range(5)))[::13]:
        named = [0] * 5
        for old, new in enumerate(order):
            named[new] = labels[old]
        moved = [(order[s], order[t], kind) for s, t, kind in edges]
        Random(0).shuffle(moved)
        values.append(float(Structural()(predicted, Batch.from_data_list([target(named, moved)])).value))
    assert max(values) - min(values) < 1e-4
    assert max(values) < 2.0


def test_edges_tell_nodes_of_the_same_label_apart(predict):
    # sin(a) + a: the two a differ by their consumer alone
    predicted = certain(predict, [2, 3, 2, 4], [(1, 0, 0), (3, 1, 0), (3, 2, 1)])
    found = Structural()(predicted, Batch.from_data_list([target([2, 2, 3, 4], [(1, 2, 0), (2, 3, 0), (0, 3, 1)])]))
    assert found.plan[0].argmax(1).tolist() == [1, 2, 0, 3]
    assert float(found.value) < 0.1


def test_an_edge_may_lead_through_slots_that_are_void(predict):
    # slots: a, a void that a stands in for, another void that the first stands in for, sin of the second
    predicted = certain(predict, [2, 0, 0, 3], [(3, 2, 0)], forward=[(1, 0), (2, 1)])
    right = Structural()(predicted, Batch.from_data_list([target([2, 3], [(0, 1, 0)])]))
    assert float(right.value) < 0.1
    without = certain(predict, [2, 0, 0, 3], [(3, 2, 0)], forward=[(1, 0)])
    assert float(Structural()(without, Batch.from_data_list([target([2, 3], [(0, 1, 0)])])).value) > 5


def test_the_value_is_that_of_the_plan_summed_by_hand(predict):
    torch.manual_seed(0)
    predicted = certain(predict, *SLOTS, sure=1.0)
    wanted = Batch.from_data_list([target([2, 3, 4], [(0, 2, 0), (1, 2, 1)])])
    targets = Targets.of(wanted)
    plan = torch.rand(1, 4, 3) * 0.3
    terms = edge_terms(predicted, targets, 1 - plan.sum(2))
    by_hand = sum(
        float(plan[0, i, j] * plan[0, k, m] * terms.cost[0, t, i, k] * terms.target[0, t, j, m])
        for t in range(terms.cost.size(1))
        for i in range(4)
        for k in range(4)
        for j in range(3)
        for m in range(3)
    ) + float((plan * terms.node).sum())
    assert float(terms.value(plan)) == pytest.approx(by_hand, rel=1e-4)
    assert value_at(plan, predicted, targets, 20.0).isfinite().all()


def test_crossed_is_the_gradient_of_the_edge_term(predict):
    predicted = certain(predict, *SLOTS, sure=1.0)
    targets = Targets.of(Batch.from_data_list([target([2, 3, 4], [(0, 2, 0), (1, 2, 1)])]))
    plan = (torch.rand(1, 4, 3) * 0.3).requires_grad_()
    terms = edge_terms(predicted, targets, torch.full((1, 4), 0.5))
    (gradient,) = torch.autograd.grad(terms.value(plan).sum(), plan)
    assert torch.allclose(gradient, terms.crossed(plan.detach()), atol=1e-4)


def test_of_slots_that_are_nearly_alike_one_is_taken(predict):
    predicted = certain(predict, [2, 2, 2], [], sure=0.5)
    better = predicted.label_log_prob + torch.tensor([0.3, 0.0, 0.0])[None, :, None] * torch.eye(5)[2]
    predicted = replace(predicted, label_log_prob=better.log_softmax(2))
    found = Structural()(predicted, Batch.from_data_list([target([2], [])]))
    assert found.plan[0, :, 0].argmax() == 0
    assert float(found.plan[0, 0, 0]) > 0.6
