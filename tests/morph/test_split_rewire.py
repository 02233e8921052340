"""Splitting and rewiring: what comes out, acyclic, with exact gradients."""

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch_geometric.utils import is_undirected, to_undirected

from grapheme_nn import is_acyclic, text_to_graph
from grapheme_nn.morph import Merge, Morph, Rewire, Split, history

DAG = torch.tensor([[0, 0, 1, 2, 0], [1, 2, 3, 3, 1]])


def call(module, edge_index, batch=None):
    names = [name for name, _ in module.named_parameters()]

    def function(x, weight, *parameters):
        own = dict(zip(names, parameters, strict=True))
        morph = torch.func.functional_call(module, own, (x, edge_index, weight, batch))
        return morph.x, morph.edge_weight

    return function, tuple(p.detach().clone().requires_grad_() for p in module.parameters())


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_a_node_becomes_its_children_in_order():
    graph = text_to_graph("ab")
    morph = Split(2, 3)(torch.randn(2, 2), graph.edge_index, torch.tensor([5.0]), torch.tensor([0, 0]))
    edges = {
        tuple(edge): weight
        for edge, weight in zip(morph.edge_index.T.tolist(), morph.edge_weight.tolist(), strict=True)
    }
    assert edges == {(0, 1): 1, (1, 2): 1, (3, 4): 1, (4, 5): 1, (2, 3): 5}
    assert morph.batch.tolist() == [0] * 6
    assert [morph.assignment.contributors(child)[0].tolist() for child in range(6)] == [[0]] * 3 + [[1]] * 3


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_splitting_a_dag_gives_a_dag_with_exact_gradients(parts):
    torch.manual_seed(0)
    split = Split(3, parts).double()
    function, parameters = call(split, DAG)
    assert gradcheck(function, (doubles(4, 3), doubles(5), *parameters))
    morph = split(doubles(4, 3), DAG)
    assert is_acyclic(morph.edge_index, 4 * parts)


def test_a_batch_is_split_as_its_graphs_one_by_one():
    split = Split(3, 2)
    x = torch.randn(6, 3)
    together = split(x, torch.tensor([[0, 4], [1, 5]]), None, torch.tensor([0, 0, 0, 0, 1, 1]))
    alone = split(x[4:], torch.tensor([[0], [1]]))
    torch.testing.assert_close(together.x[8:], alone.x)
    assert together.batch.tolist() == [0] * 8 + [1] * 4


def test_history_goes_through_merge_and_split():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    merged = Merge(0.9).eval()(x, text_to_graph("abc").edge_index)
    total = history([merged, Split(2, 2)(merged.x, merged.edge_index)])
    assert [t.tolist() for t in total.contributors(1)] == [[0, 1], [0.5, 0.5]]
    assert [t.tolist() for t in total.contributors(2)] == [[2], [1.0]]
    with pytest.raises(ValueError, match="at least one"):
        history([])


def test_children_of_an_undirected_graph_are_linked_both_ways():
    morph = Split(2, 2, acyclic=False)(torch.randn(2, 2), torch.tensor([[0, 1], [1, 0]]), torch.tensor([5.0, 5.0]))
    edges = dict(zip(map(tuple, morph.edge_index.T.tolist()), morph.edge_weight.tolist(), strict=True))
    assert edges == {(0, 2): 5, (2, 0): 5, (0, 1): 1, (1, 0): 1, (2, 3): 1, (3, 2): 1}


@given(st.integers(0, 10**6), st.integers(0, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rewiring_an_undirected_graph_links_nodes_near_by_both_ways(seed, reach, training):
    graph = nx.gnp_random_graph(7, 0.3, seed=seed)
    edges = to_undirected(torch.tensor(list(graph.edges), dtype=torch.long).view(-1, 2).T, num_nodes=7)
    torch.manual_seed(seed)
    rewire = Rewire(2, reach, acyclic=False).train(training)
    torch.nn.init.zeros_(rewire.bias)
    morph = rewire(torch.randn(7, 2), edges)
    assert is_undirected(morph.edge_index, morph.edge_weight, num_nodes=7)
    near = {(i, j) for i, far in nx.all_pairs_shortest_path_length(graph, reach) for j in far if i != j}
    found = set(map(tuple, morph.edge_index.T.tolist()))
    existing = set(map(tuple, edges.T.tolist()))
    assert found == near | existing if training else found <= near | existing


@given(st.integers(0, 10**6), st.integers(0, 3), st.booleans())
@settings(max_examples=100, deadline=None)
def test_rewiring_keeps_a_dag_acyclic_and_edges_within_reach(seed, reach, training):
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 10, (), generator=generator))
    ends = torch.randint(0, n, (2, 2 * n), generator=generator).sort(dim=0).values
    edge_index = torch.randperm(n, generator=generator)[ends[:, ends[0] < ends[1]]]
    torch.manual_seed(seed)
    rewire = Rewire(2, reach).train(training)
    torch.nn.init.zeros_(rewire.bias)  # so that half of all gates are open
    batch = (torch.arange(n) >= n // 2).long()
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    morph = rewire(torch.randn(n, 2, generator=generator), edge_index, None, batch)
    assert is_acyclic(morph.edge_index, n)
    assert (batch[morph.edge_index[0]] == batch[morph.edge_index[1]]).all()
    existing, new = {tuple(e) for e in edge_index.T.tolist()}, [tuple(e) for e in morph.edge_index.T.tolist()]
    fresh = [edge for edge in new if edge not in existing]
    assert len(fresh) == len(set(fresh)) <= n * reach
    if training:
        assert set(morph.edge_weight.tolist()) <= {0.0, 1.0}
        assert existing <= set(new)
    else:
        assert set(morph.edge_weight.tolist()) <= {1.0}


def test_at_first_every_edge_stays_and_none_is_new():
    x = torch.randn(4, 3) * 0.1
    morph = Rewire(3).eval()(x, DAG, torch.arange(1.0, 6.0))
    assert torch.equal(morph.edge_index, DAG)
    assert morph.edge_weight.tolist() == [1, 2, 3, 4, 5]


def test_gradients_of_rewiring_are_those_of_the_soft_gates():
    """With the decisions held fixed, the gradient is exactly that of weight x gate."""
    torch.manual_seed(0)
    rewire = Rewire(3, 2).double()
    x, weight = doubles(4, 3), doubles(5)
    morph = rewire(x, DAG, weight)
    near, far = morph.edge_index
    is_new = torch.arange(near.numel()) >= 5

    def soft(x, weight, bias, query, key):
        score = ((x @ query.T)[near] * (x @ key.T)[far]).sum(dim=1) / 3**0.5 + bias[is_new.long()]
        return score.sigmoid()

    parameters = (rewire.bias, rewire.query.weight, rewire.key.weight)
    assert gradcheck(soft, (x, weight, *(p.detach().clone().requires_grad_() for p in parameters)))
    gate = soft(x, weight, *parameters)
    hard = (gate > 0.5).double()
    own = torch.cat([weight, torch.ones(near.numel() - 5, dtype=torch.float64)])
    sent = torch.randn_like(gate)
    ours = torch.autograd.grad(morph.edge_weight, (x, weight, *parameters), sent)
    theirs = torch.autograd.grad(own * (hard + gate - gate.detach()), (x, weight, *parameters), sent)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_rewiring_learns_to_insert_and_to_delete():
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    rewire = Rewire(8, 2)
    optimiser = torch.optim.Adam(rewire.parameters(), lr=0.05)
    wanted = {(0, 2), (1, 2), (2, 3)}
    edge_index = text_to_graph("abcd").edge_index
    for _ in range(100):
        morph = rewire(x, edge_index)
        target = torch.tensor([float(tuple(edge) in wanted) for edge in morph.edge_index.T.tolist()])
        optimiser.zero_grad()
        (morph.edge_weight - target).square().sum().backward()
        optimiser.step()
    assert {tuple(edge) for edge in rewire.eval()(x, edge_index).edge_index.T.tolist()} == wanted


@pytest.mark.parametrize(
    ("sentence", "call"),
    [
        ("parts must be a whole number, at least 1, but is 0", lambda: Split(3, 0)),
        ("reach must be a whole number, at least 0, but is -1", lambda: Rewire(3, -1)),
        ("x has 2 channels", lambda: Split(3, 2)(torch.ones(4, 2), DAG)),
        ("has a cycle", lambda: Rewire(3)(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]]))),
        ("edge_index is on meta", lambda: Split(3, 2)(torch.ones(4, 3), DAG.to("meta"))),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_sentence(sentence, call):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_what_else_is_in_the_batch_does_not_change_the_order():
    forward = torch.tensor([[0, 0, 1], [1, 2, 3]])  # by levels 3 would come after 1 and 2 as well, but 2 is no later
    backward = torch.tensor([[5, 6], [4, 4]])
    batch = torch.tensor([0] * 4 + [1] * 3)
    graph = Morph.start(torch.zeros(7, 1), torch.cat([forward, backward], dim=1), batch=batch)
    assert graph.in_order.tolist() == [0, 1, 2, 3, 5, 6, 4]
    assert Morph.start(torch.zeros(4, 1), torch.tensor([[0, 2, 0], [1, 3, 3]])).in_order is None
