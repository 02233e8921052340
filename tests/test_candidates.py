"""Candidate edges: probabilities, the DAG that is chosen among them, and voids that hand on."""

from random import Random

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grapheme_nn.candidates import EDGE_KINDS, CandidateEdges
from grapheme_nn.dag import is_acyclic

TYPES = torch.tensor([0, 1])


def candidates(kind, slots, pairs, score=None, none=None):
    """Candidates among `slots` for (first, second) pairs; scores [c, T'] and [slots, T' or 1], 0 by default."""
    columns = 3 if kind == "operands" else 2
    first, second = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    score = torch.zeros(len(pairs), columns) if score is None else torch.as_tensor(score, dtype=torch.float32)
    if none is None:
        none = torch.zeros(slots, {"operands": 3, "consumer": 1}.get(kind, 0))
    return CandidateEdges.of(kind, first, second, score, torch.as_tensor(none, dtype=torch.float32), TYPES)


def all_pairs(n):
    return [(i, j) for i in range(n) for j in range(n) if i != j]


def test_the_operands_of_each_type_and_none_sum_to_one():
    found = candidates("operands", 4, all_pairs(4), torch.randn(12, 3), torch.randn(4, 3))
    total = found.none.exp().index_add(0, found.first, found.log_prob.exp())
    assert torch.allclose(total, torch.ones(4, 3), atol=1e-6)


def test_the_consumers_of_all_types_and_none_sum_to_one():
    found = candidates("consumer", 4, all_pairs(4), torch.randn(12, 2), torch.randn(4, 1))
    total = found.none[:, 0].exp().index_add(0, found.first, found.log_prob.exp().sum(1))
    assert torch.allclose(total, torch.ones(4), atol=1e-6)


def test_the_types_of_an_independent_edge_and_no_edge_sum_to_one():
    found = candidates("independent", 4, all_pairs(4), torch.randn(12, 2))
    assert torch.allclose(found.log_prob.exp().sum(1) + found.none[:, 0].exp(), torch.ones(12), atol=1e-6)


def test_an_operand_that_is_void_is_replaced_by_what_stands_in_for_it():
    # x * 1 + 0 under sin: slots x=0, *=1 (void, stands in: 0), +=2 (void, stands in: 1), sin=3 (operand 0: slot 2)
    pairs = [(1, 0), (2, 1), (3, 2)]
    score = [[-9, -9, 9], [-9, -9, 9], [9, -9, -9]]
    found = candidates("operands", 4, pairs, score)
    exists = torch.tensor([True, False, False, True])
    edges, kind = found.choose(exists, torch.arange(4))
    assert edges.tolist() == [[0], [3]]
    assert kind.tolist() == [0]


def test_what_points_at_a_void_that_nothing_stands_in_for_has_no_operand():
    found = candidates("operands", 2, [(1, 0)], [[9, -9, -9]])
    edges, _ = found.choose(torch.tensor([False, True]), torch.arange(2))
    assert edges.numel() == 0


def test_the_most_probable_edges_are_chosen_where_they_close_no_cycle():
    pairs = [(1, 0), (2, 0), (2, 1)]
    found = candidates("operands", 3, pairs, [[5, -9, -9], [1, 4, -9], [3, 1, -9]])
    edges, kind = found.choose(torch.ones(3, dtype=torch.bool), torch.arange(3))
    assert sorted(zip(*edges.tolist(), kind.tolist(), strict=True)) == [(0, 1, 0), (0, 2, 1), (1, 2, 0)]


def test_a_cycle_loses_the_edge_that_points_back():
    found = candidates("consumer", 2, [(0, 1), (1, 0)], [[4, -9], [4, -9]])
    edges, _ = found.choose(torch.ones(2, dtype=torch.bool), torch.arange(2))
    assert edges.tolist() == [[0], [1]]
    edges, _ = found.choose(torch.ones(2, dtype=torch.bool), torch.tensor([1, 0]))
    assert edges.tolist() == [[1], [0]]


@settings(max_examples=300)
@given(st.integers(1, 12), st.sampled_from(EDGE_KINDS), st.integers(0, 10**9))
def test_what_is_chosen_is_always_acyclic(slots, kind, seed):
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    pairs = [pair for pair in all_pairs(slots) if random.random() < 0.6]
    found = candidates(
        kind,
        slots,
        pairs,
        4 * torch.randn(len(pairs), 3 if kind == "operands" else 2, generator=generator),
        torch.randn(slots, {"operands": 3, "consumer": 1}.get(kind, 0), generator=generator),
    )
    exists = torch.rand(slots, generator=generator) < 0.7
    edges, types = found.choose(exists, torch.randperm(slots, generator=generator))
    assert is_acyclic(edges, slots)
    assert exists[edges].all()
    assert types.numel() == edges.size(1)
    assert bool((types < 2).all())
    if kind == "operands":
        assert len({(int(t), int(k)) for t, k in zip(edges[1], types, strict=True)}) == types.numel()
    if kind == "consumer":
        assert edges[0].unique().numel() == edges.size(1)


def test_of_chunks_only_what_may_be_chosen_stays_and_the_choice_is_the_same():
    torch.manual_seed(0)
    whole = candidates("operands", 8, all_pairs(8), 3 * torch.randn(56, 3), torch.randn(8, 3))
    likely = whole.likely()
    assert 0 < likely.first.numel() < whole.first.numel()
    exists = torch.rand(8) < 0.8
    place = torch.arange(8)
    chosen = [found._best(exists, torch.ones_like(found.first, dtype=torch.bool)) for found in (whole, likely)]
    for one, other in zip(*chosen, strict=True):
        assert torch.equal(one, other)
    assert is_acyclic(likely.choose(exists, place)[0], 8)


@pytest.mark.parametrize("n", [2, 5])
def test_a_ring_of_pointers_becomes_a_path(n):
    ring = [(i, (i + 1) % n) for i in range(n)]
    found = candidates("consumer", n, ring, [[9, -9]] * n)
    edges, _ = found.choose(torch.ones(n, dtype=torch.bool), torch.arange(n))
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges.t().tolist()))
    assert edges.size(1) == n - 1
