"""The structural objective: its plan, its edge term, its value and gradient, on chains and on DAGs of any numbering."""

from itertools import combinations, pairwise, permutations
from math import comb

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from grapheme_nn.objective.structural import Structural, closure, mean_monotone_plan, reachability
from grapheme_nn.predicted import Targets

INF = float("inf")
DIAMOND = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
TREE = torch.tensor([[0, 0, 0], [1, 2, 3]])


def converged(**changes):
    """The objective with so many rounds that its plan no longer moves."""
    objective = Structural()
    objective.rounds, objective.iterations = 60, 400
    for name, value in changes.items():
        setattr(objective, name, value)
    return objective


def random_labels(seed, batch, slots, labels=3, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(batch, slots, 2 + labels, generator=generator, dtype=torch.float64)).log_softmax(2)


def random_dag(seed, n):
    generator = torch.Generator().manual_seed(seed)
    pairs = [pair for pair in combinations(range(n), 2) if torch.rand((), generator=generator) < 0.4]
    name = torch.randperm(n, generator=generator)
    return name[torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T]


@given(seed=st.integers(0, 999), n=st.integers(2, 12), m=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_a_plan_shares_each_slot_between_targets_and_void(predict, wanted, seed, n, m):
    slots, rows = [n, n - 1, 1], [[2 + j % 3 for j in range(m)], [3] * max(m - 1, 0), [4] * min(m, 1)]
    objective = Structural()
    objective.iterations = 200
    found = objective(predict(random_labels(seed, 3, n), slots), wanted(rows))
    assert found.value.isfinite().all()  # what has no slot is inserted
    assert (found.plan >= 0).all()
    assert (found.plan.sum(1) <= 1 + 1e-9).all()
    for item in range(3):
        assert found.plan[item, slots[item] :].eq(0).all()
        assert found.plan[item, :, len(rows[item]) :].eq(0).all()
        if 2 * len(rows[item]) <= slots[item]:  # elsewhere Sinkhorn takes longer, or some have to be inserted
            assert (found.plan[item].sum(1) <= 1 + 1e-3).all()
            column = found.plan[item].sum(0)[: len(rows[item])]
            torch.testing.assert_close(column, torch.ones_like(column), rtol=0, atol=0.01)


def test_the_edge_term_puts_a_plan_in_order(predict, wanted):
    # Slots say a or b with equal probability: only order tells that the first spells a and the second b.
    labels = torch.tensor([[[1e-9, 1e-9, 0.5, 0.5], [1e-9, 1e-9, 0.5, 0.5]]], dtype=torch.float64).log()
    ordered = Structural()(predict(labels, [2]), wanted([[2, 3]])).plan[0]
    free = Structural()
    free.weight = 0.0
    anyhow = free(predict(labels, [2]), wanted([[2, 3]])).plan[0]
    torch.testing.assert_close(ordered, torch.eye(2, dtype=torch.float64), rtol=0, atol=0.05)
    torch.testing.assert_close(anyhow, torch.full((2, 2), 0.5, dtype=torch.float64), rtol=0, atol=0.01)


def test_the_edge_term_puts_a_plan_on_the_branch_where_it_belongs(predict, wanted):
    # A diamond with two equal middles would fit, but the target is a chain: one middle, and the other is inserted.
    sure = torch.full((1, 4, 5), 1e-6, dtype=torch.float64)
    for slot, label in enumerate([2, 3, 3, 4]):
        sure[0, slot, label] = 1
    predicted = predict(sure.log().log_softmax(2), [4], edges=[DIAMOND])
    as_diamond = Structural()(predicted, wanted([[2, 3, 3, 4]], edges=[DIAMOND])).value
    as_chain = Structural()(predicted, wanted([[2, 3, 3, 4]])).value
    assert as_diamond < 0.1
    assert as_chain > as_diamond + 1


def primal(objective, labels, target, ways, unreachable, plan):
    """What the plan minimises, written out entry by entry, for one graph; labels are columns of `labels` [s, V]."""
    T, (s, m) = objective.temperature, plan.shape
    deleted, inserted = (1 - plan.sum(1)).clamp_min(0), (1 - plan.sum(0)).clamp_min(0)
    total = s + 0.0
    for i in range(s):
        total += float(deleted[i] * -labels[i, 0] / T + torch.xlogy(deleted[i], deleted[i]) - deleted[i])
        for j in range(m):
            p = plan[i, j]
            total += float(p * -labels[i, target[j]] / T + torch.xlogy(p, p) - p)
    for j in range(m):
        total += float(inserted[j] * objective.insertion / T + torch.xlogy(inserted[j], inserted[j]) - inserted[j])
    for a, b in ways.nonzero().tolist():
        for i in range(s):
            for k in range(s):
                total += float(objective.weight / T * plan[i, a] * plan[k, b] * unreachable[i, k])
    return T * total


@pytest.mark.parametrize("slot_edges", [None, torch.tensor([[0, 0, 1, 2, 3, 3, 4], [1, 2, 3, 3, 4, 5, 6]])])
@pytest.mark.parametrize("target_edges", [None, TREE, DIAMOND])
def test_at_convergence_the_value_is_what_the_plan_minimises_and_its_gradient_is_the_plan(
    predict, wanted, slot_edges, target_edges
):
    labels, target = random_labels(4, 1, 7).requires_grad_(), [2, 3, 3, 4]
    objective = converged(weight=1.0)
    predicted = predict(labels, [7], edges=None if slot_edges is None else [slot_edges])
    goal = wanted([target], edges=None if target_edges is None else [target_edges])
    found = objective(predicted, goal)
    unreachable = 1 - reachability(predicted)[0].double()
    ways = closure(Targets.of(goal).adjacency)[0]
    by_hand = primal(objective, labels.detach()[0], target, ways, unreachable, found.plan[0])
    assert found.value.item() == pytest.approx(by_hand, abs=1e-6)
    (gradient,) = torch.autograd.grad(found.value.sum(), labels)
    expected = torch.zeros_like(labels[0])
    for j, label in enumerate(target):
        expected[:, label] -= found.plan[0, :, j]
    expected[:, 0] -= 1 - found.plan[0].sum(1)
    torch.testing.assert_close(gradient[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["chains", "graphs"])
@pytest.mark.parametrize(("n", "m"), [(5, 3), (4, 4), (1, 1), (2, 4), (3, 0)])
def test_gradients_are_those_of_this_very_computation(predict, wanted, kind, n, m):
    labels = random_labels(n + m, 2, n).requires_grad_()
    slot_edges = None if kind == "chains" else [random_dag(1, n).sort(0).values, random_dag(2, n).sort(0).values]
    target_edges = None if kind == "chains" else [random_dag(3, m), random_dag(4, min(m, 1))]
    goal = wanted([[2 + j % 2 for j in range(m)], [4] * min(m, 1)], edges=target_edges)
    assert gradcheck(
        lambda x: Structural()(predict(x.log_softmax(2), [n, n], edges=slot_edges), goal).value, (labels,), atol=1e-6
    )


def test_padding_and_batch_change_nothing(predict, wanted):
    slots, rows = [5, 3, 1], [[2, 4, 4], [3, 2], [4]]
    labels = random_labels(3, 3, 5)
    wide = labels.clone().requires_grad_()
    together = Structural()(predict(wide, slots), wanted(rows))
    together.value.sum().backward()
    assert wide.grad[1, 3:].eq(0).all()
    for item, (count, row) in enumerate(zip(slots, rows, strict=True)):
        own = labels[item : item + 1, :count].clone().requires_grad_()
        alone = Structural()(predict(own, [count]), wanted([row]))
        alone.value.sum().backward()
        torch.testing.assert_close(alone.value[0], together.value[item], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone.plan[0], together.plan[item, :count, : len(row)], rtol=0, atol=1e-9)
        torch.testing.assert_close(own.grad[0], wide.grad[item, :count], rtol=0, atol=1e-9)


@given(seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_the_numbering_of_a_target_does_not_matter(predict, wanted, seed):
    generator = torch.Generator().manual_seed(seed)
    edges, number = random_dag(seed, 5), torch.randperm(5, generator=generator)
    row = torch.tensor([2, 3, 4, 2, 3])
    renumbered = torch.empty_like(row).index_copy_(0, number, row)
    predicted = predict(random_labels(seed, 1, 7), [7])
    one = Structural()(predicted, wanted([row.tolist()], edges=[edges]))
    other = Structural()(predicted, wanted([renumbered.tolist()], edges=[number[edges]]))
    torch.testing.assert_close(one.value, other.value, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(one.plan[0], other.plan[0][:, number], rtol=1e-5, atol=1e-5)


def test_the_numbering_of_slots_does_not_matter(predict, wanted):
    labels = random_labels(2, 1, 4)
    goal = wanted([[2, 3, 3, 4]], edges=[DIAMOND])
    one = Structural()(predict(labels, [4], edges=[DIAMOND]), goal)
    other = Structural()(predict(labels, [4], edges=[torch.tensor([3, 1, 2, 0])[DIAMOND]]), goal)
    torch.testing.assert_close(one.value, other.value)  # rows are in topological order, whatever the numbers


def test_what_is_certain_and_right_costs_next_to_nothing_and_what_is_wrong_costs_more(predict, wanted):
    row, edges = [2, 3, 4, 5], DIAMOND
    sure = torch.full((1, 6, 6), 1e-9, dtype=torch.float64)
    for slot, label in enumerate([2, 3, 4, 5, 0, 0]):
        sure[0, slot, label] = 1
    wide = torch.cat([DIAMOND, torch.tensor([[3, 4], [4, 5]])], 1)
    predicted = predict(sure.log().log_softmax(2), [6], edges=[wide])
    right = Structural()(predicted, wanted([row], edges=[edges]))
    assert abs(right.value.item()) < 1e-3
    torch.testing.assert_close(right.plan[0, :4], torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-3)
    assert Structural()(predicted, wanted([[2, 3, 4, 4]], edges=[edges])).value > 5
    assert Structural()(predicted, wanted([row], edges=[edges.flip(0)])).value > 1


def test_a_target_with_more_nodes_than_slots_has_insertions(predict, wanted):
    labels = random_labels(0, 1, 2).requires_grad_()
    values = [Structural()(predict(labels, [2]), wanted([[2] * m])).value for m in (2, 3, 4)]
    assert values[0].isfinite()
    for fewer, more in pairwise(values):
        assert (more - fewer).item() > Structural.insertion / 2
    values[2].sum().backward()
    assert labels.grad.isfinite().all()
    assert labels.grad.ne(0).any()


def test_a_long_suffix_may_grow_at_the_end(predict, wanted):
    # The first two slots are sure of a and b; the other twenty know that they are c, d, ... or void.
    sure = torch.full((1, 22, 10), 1e-4, dtype=torch.float64)
    for slot, label in [(0, 2), (1, 3), *((15 + j, 4 + j) for j in range(6))]:
        sure[0, slot, label] = 1
    sure[0, 2:15, 0] = sure[0, 21, 0] = 1
    plan = Structural()(predict(sure.log().log_softmax(2), [22]), wanted([list(range(2, 10))])).plan[0]
    assert plan.argmax(0).tolist() == [0, 1, 15, 16, 17, 18, 19, 20]


@pytest.mark.parametrize("temperature", [0.7, 1e-2])
@pytest.mark.parametrize("sharpness", [1.0, 1e3])
def test_extremes_stay_finite(predict, wanted, temperature, sharpness):
    labels = random_labels(6, 3, 6, sharpness=sharpness)
    labels[0, 2:, 2] = -INF
    labels[1, :, 0] = -INF
    labels = labels.float().requires_grad_()
    objective = Structural()
    objective.temperature = temperature
    found = objective(predict(labels, [6, 5, 1]), wanted([[2, 3, 4], [3, 3], [2]]))
    assert not found.value.isnan().any()
    assert found.plan.isfinite().all()
    found.mean.backward()
    assert labels.grad.isfinite().all()


@given(st.integers(0, 999), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_closure_is_that_of_networkx(seed, n):
    edges = random_dag(seed, n)
    adjacency = torch.zeros(1, n, n)
    adjacency[0, edges[0], edges[1]] = 1
    graph = nx.DiGraph(edges.T.tolist())
    graph.add_nodes_from(range(n))
    expected = nx.to_numpy_array(nx.transitive_closure_dag(graph), nodelist=range(n)) > 0
    assert closure(adjacency)[0].tolist() == expected.tolist()


def test_an_edge_of_weight_zero_leads_nowhere(predict):
    predicted = predict(torch.zeros(1, 3, 4), [3])
    predicted.graph.edge_weight[1] = 0
    assert reachability(predicted)[0].tolist() == [[False, True, False], [False] * 3, [False] * 3]


@pytest.mark.parametrize(("slots", "nodes"), [(5, 3), (4, 4), (6, 1), (3, 2)])
def test_the_first_plan_is_the_mean_of_all_that_keep_the_order(wanted, slots, nodes):
    expected = torch.zeros(slots, nodes)
    for chosen in combinations(range(slots), nodes):
        expected[list(chosen), range(nodes)] += 1 / comb(slots, nodes)
    mask = torch.ones(1, slots, dtype=torch.bool)
    targets = Targets.of(wanted([[2] * nodes]))
    torch.testing.assert_close(mean_monotone_plan(mask, targets, closure(targets.adjacency))[0], expected)


def test_the_first_plan_of_a_dag_puts_ancestors_before_descendants_whatever_their_numbers(wanted):
    mask = torch.ones(1, 8, dtype=torch.bool)
    place = torch.arange(8.0)
    for number in permutations(range(4)):
        targets = Targets.of(wanted([[2] * 4], edges=[torch.tensor(number)[DIAMOND]]))
        plan = mean_monotone_plan(mask, targets, closure(targets.adjacency))[0]
        first, one, other, last = (place @ plan)[list(number)].tolist()
        assert one == pytest.approx(other)
        assert first < one < last


def test_a_batch_of_nothing_is_fine(predict, wanted):
    assert Structural()(predict(torch.zeros(2, 0, 4), [0, 0]), wanted([[], []])).value.tolist() == [0, 0]
    inserted = Structural()(predict(torch.zeros(1, 0, 4), [0]), wanted([[2]])).value
    assert inserted.item() == pytest.approx(Structural.insertion - Structural.temperature, abs=1e-4)
