"""Soft pooling, dense and local: PyG as the referee, gradients, batches, hardened graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data
from torch_geometric.nn import dense_diff_pool
from torch_geometric.utils import to_dense_adj, to_dense_batch, to_undirected

from grapheme_nn import is_acyclic
from grapheme_nn.morph import LocalPool, SoftPool, soft_pool

# Directed, with an edge that occurs twice and a self-loop.
EDGES = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 0, 3], [1, 2, 3, 3, 4, 5, 5, 1, 3]])
DAG = EDGES[:, :-1]


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def call(module, x, edge_index, weight, batch=None):
    """A module as a function of everything it is differentiated in."""
    names = [name for name, _ in module.named_parameters()]

    def function(x, weight, *parameters):
        own = dict(zip(names, parameters, strict=True))
        morph = torch.func.functional_call(module, own, (x, edge_index, weight, batch))
        return (morph.x, morph.edge_weight, morph.assignment.weight, *morph.losses.values())

    return function, (x, weight, *(p.detach().clone().requires_grad_() for p in module.parameters()))


@pytest.fixture(params=["padded", "sparse"])
def path(request, monkeypatch):
    if request.param == "sparse":
        monkeypatch.setattr(soft_pool, "_SMALL", 0)
    return request.param


BATCH = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2])
BATCH_EDGES = torch.cat([EDGES, torch.tensor([[6, 8, 9, 9], [7, 9, 10, 10]])], dim=1)


@pytest.mark.parametrize("batched", [False, True])
def test_gradients_of_soft_pooling_are_exact(path, batched):
    torch.manual_seed(0)
    n = 11 if batched else 6
    edges = BATCH_EDGES if batched else EDGES
    pool = SoftPool(3, 2).double()
    function, inputs = call(pool, doubles(n, 3), edges, doubles(edges.size(1)), BATCH if batched else None)
    assert gradcheck(function, inputs)


def test_both_ways_to_pool_give_one_result(monkeypatch):
    torch.manual_seed(0)
    pool = SoftPool(3, 4).double()
    x, weight = doubles(11, 3), doubles(13)
    results = []
    for small in (64, 0):
        monkeypatch.setattr(soft_pool, "_SMALL", small)
        morph = pool(x, BATCH_EDGES, weight, BATCH)
        total = morph.x.sin().sum() + morph.edge_weight.square().sum() + sum(morph.losses.values())
        gradients = torch.autograd.grad(total, (x, weight, *pool.parameters()))
        results.append((morph.x, morph.edge_index, morph.edge_weight, *morph.losses.values(), *gradients))
    for padded, sparse in zip(*results, strict=True):
        torch.testing.assert_close(padded, sparse)


def test_a_batch_equals_its_graphs_one_by_one(path):
    torch.manual_seed(0)
    pool = SoftPool(3, 2).double()
    x, weight = doubles(11, 3), doubles(13)
    together = pool(x, BATCH_EDGES, weight, BATCH)
    total = together.x.sin().sum() + together.edge_weight.square().sum() + sum(together.losses.values())
    gradient = torch.autograd.grad(total, (x, weight))
    alone, summed, losses = [], 0, {"link": 0, "entropy": 0}
    for graph, first in ((0, 0), (1, 6), (2, 8)):
        inside = graph == BATCH
        edges = inside[BATCH_EDGES[0]]
        morph = pool(x[inside], BATCH_EDGES[:, edges] - first, weight[edges])
        alone.append(morph)
        summed = summed + morph.x.sin().sum() + morph.edge_weight.square().sum() + sum(morph.losses.values()) / 3
        losses = {name: value + morph.losses[name] / 3 for name, value in losses.items()}
    torch.testing.assert_close(together.x, torch.cat([morph.x for morph in alone]))
    torch.testing.assert_close(together.edge_weight, torch.cat([morph.edge_weight for morph in alone]))
    for name, value in losses.items():
        torch.testing.assert_close(together.losses[name], value)
    for ours, theirs in zip(gradient, torch.autograd.grad(summed, (x, weight)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_soft_pooling_agrees_with_pyg_on_directed_graphs(path):
    torch.manual_seed(0)
    pool = SoftPool(3, 2).double()
    x, weight = doubles(11, 3), doubles(13)
    morph = pool(x, BATCH_EDGES, weight, BATCH)
    dense, mask = to_dense_batch(x, BATCH)
    scores, _ = to_dense_batch(pool.score(x), BATCH)
    adjacency = to_dense_adj(BATCH_EDGES, BATCH, weight)
    features, coarse, _, _ = dense_diff_pool(dense, adjacency, scores, mask)
    torch.testing.assert_close(morph.x, features.view(6, 3))
    torch.testing.assert_close(morph.edge_weight, coarse[:, [0, 1], [1, 0]].flatten())
    assert morph.edge_index.tolist() == [[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]]
    one = pool(x[:6], EDGES, weight[:9])
    _, _, link, entropy = dense_diff_pool(x[None, :6], adjacency[:1], pool.score(x[:6])[None])
    torch.testing.assert_close(one.losses["link"], (link * 36).square() / 36)  # PyG: norm / n^2, ours: norm^2 / n^2
    torch.testing.assert_close(one.losses["entropy"], entropy, rtol=1e-9, atol=1e-9)
    theirs = torch.autograd.grad((link * 36).square() / 36 + entropy + features.sum(), x, retain_graph=True)[0]
    ours = torch.autograd.grad(sum(one.losses.values()) + pool(x, BATCH_EDGES, weight, BATCH).x.sum(), x)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_a_perfect_fit_has_a_link_loss_of_zero_and_a_gradient(path):
    pool = SoftPool(2, 2)
    with torch.no_grad():
        pool.score.weight.copy_(100 * torch.eye(2))
        pool.score.bias.zero_()
    x = torch.eye(2)[[0, 0, 1, 1]].requires_grad_()
    edge_index = torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 2, 3, 2, 3]])
    morph = pool(x, edge_index)
    assert abs(morph.losses["link"].item()) < 1e-6
    morph.losses["link"].backward()
    assert x.grad.isfinite().all()


def test_hardening_gives_the_quotient_graph(path):
    torch.manual_seed(0)
    morph = SoftPool(3, 4)(torch.randn(6, 3), EDGES)
    hard = morph.assignment.harden()
    assert hard.clusters().tolist() == morph.assignment.dense().argmax(dim=1).tolist()
    torch.testing.assert_close(morph.assignment.dense().sum(dim=1), torch.ones(6))


def test_graphs_of_very_different_sizes_do_not_pad_each_other():
    torch.manual_seed(0)
    pool = SoftPool(3, 2).double()
    batch = torch.cat([torch.zeros(60), torch.arange(1, 30)]).long()
    x = torch.randn(89, 3, dtype=torch.float64)
    edge_index = torch.stack([torch.arange(59), torch.arange(1, 60)])
    morph = pool(x, edge_index, None, batch)
    torch.testing.assert_close(morph.x[:2], pool(x[:60], edge_index).x)
    torch.testing.assert_close(morph.x[2:4], pool(x[60:61], edge_index[:, :0]).x)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("reach", [1, 2, 3])
def test_gradients_of_local_pooling_are_exact(batched, reach):
    torch.manual_seed(2)
    edges = torch.cat([DAG, BATCH_EDGES[:, 9:]], dim=1) if batched else DAG
    n = 11 if batched else 6
    pool = LocalPool(3, 0.5, reach).double()
    function, inputs = call(pool, doubles(n, 3), edges, doubles(edges.size(1)), BATCH if batched else None)
    assert gradcheck(function, inputs)


def test_a_batch_is_pooled_locally_as_its_graphs_one_by_one():
    torch.manual_seed(2)
    pool = LocalPool(3, 0.5).double()
    edges = torch.cat([DAG, BATCH_EDGES[:, 9:]], dim=1)
    x, weight = doubles(11, 3), doubles(12)
    together = pool(x, edges, weight, BATCH)
    gradient = torch.autograd.grad(together.x.sin().sum() + together.edge_weight.square().sum(), (x, weight))
    parts, total = [], 0
    for graph, first in ((0, 0), (1, 6), (2, 8)):
        inside = graph == BATCH
        own = inside[edges[0]]
        morph = pool(x[inside], edges[:, own] - first, weight[own])
        parts.append(morph)
        total = total + morph.x.sin().sum() + morph.edge_weight.square().sum()
    torch.testing.assert_close(together.x, torch.cat([morph.x for morph in parts]))
    torch.testing.assert_close(together.edge_weight, torch.cat([morph.edge_weight for morph in parts]))
    assert together.batch.tolist() == [0, 0, 0, 1, 2, 2]
    for ours, theirs in zip(gradient, torch.autograd.grad(total, (x, weight)), strict=True):
        torch.testing.assert_close(ours, theirs)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 5]), st.sampled_from([0.1, 0.34, 0.5, 0.9, 1.0]))
@settings(max_examples=150, deadline=None)
def test_local_pooling_hardened_keeps_a_dag_acyclic(seed, reach, ratio):
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 20, (), generator=generator))
    name = torch.randperm(n, generator=generator)
    ends = torch.randint(0, n, (2, 3 * n), generator=generator).sort(dim=0).values
    edge_index = name[ends[:, ends[0] < ends[1]]]
    torch.manual_seed(seed)
    pool = LocalPool(2, ratio, reach)
    torch.nn.init.normal_(pool.step.weight, std=5)  # steps of very different lengths
    morph = pool(torch.randn(n, 2, generator=generator), edge_index)
    S = morph.assignment.dense_membership()
    torch.testing.assert_close(S.sum(dim=1), torch.ones(n))
    assert ((S > 0).sum(dim=1) <= reach).all()
    hard = morph.assignment.harden()
    edges, _ = hard.connect(edge_index)
    assert is_acyclic(edges, hard.num_targets)
    assert (edges[0] < edges[1]).all()


def test_an_undirected_path_is_pooled_locally_as_the_chain_that_it_is():
    torch.manual_seed(0)
    x, chain = torch.randn(7, 3, dtype=torch.float64), torch.stack([torch.arange(6), torch.arange(1, 7)])
    directed, both_ways = LocalPool(3).double(), LocalPool(3, acyclic=False).double()
    both_ways.load_state_dict(directed.state_dict())
    number = torch.tensor([4, 0, 2, 6, 1, 5, 3])  # of the nodes along the path; its far end is 3, seen from 0
    shuffled = torch.empty_like(x).index_copy(0, number, x)
    one, other = directed(x, chain), both_ways(shuffled, number[torch.cat([chain, chain.flip(0)], dim=1)])
    torch.testing.assert_close(other.x, one.x)
    torch.testing.assert_close(other.assignment.dense()[number], one.assignment.dense())


def test_undirected_graphs_are_pooled_locally_as_one_by_one():
    torch.manual_seed(0)
    graphs = [
        Data(x=torch.randn(n, 3).double(), edge_index=to_undirected(torch.randint(0, n, (2, n)), num_nodes=n))
        for n in (6, 1, 5, 8)
    ]
    pool = LocalPool(3, acyclic=False).double()
    together = pool(Batch.from_data_list(graphs))
    torch.testing.assert_close(together.x, torch.cat([pool(graph).x for graph in graphs]))


def test_a_cluster_is_a_mean_so_constant_features_stay_constant():
    morph = LocalPool(2, 0.4)(torch.ones(10, 2), torch.stack([torch.arange(9), torch.arange(1, 10)]))
    torch.testing.assert_close(morph.x, torch.ones(4, 2))


@pytest.mark.parametrize("pool", [SoftPool(3, 2), LocalPool(3), LocalPool(3, acyclic=False)])
def test_empty_graphs_are_pooled(pool):
    x = torch.zeros(0, 3, requires_grad=True)
    morph = pool(x, torch.zeros(2, 0, dtype=torch.long))
    (morph.x.sum() + sum(morph.losses.values())).backward()
    assert x.grad.shape == (0, 3)
    pool(x, torch.zeros(2, 0, dtype=torch.long), None, torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize(
    ("sentence", "call"),
    [
        ("clusters must be a whole number, at least 1, but is 0", lambda: SoftPool(3, 0)),
        (r"ratio must lie in \(0, 1\], but is 1.5", lambda: LocalPool(3, 1.5)),
        ("x has 2 channels, but this operator was made for 3", lambda: SoftPool(3, 2)(torch.ones(6, 2), EDGES)),
        ("batch must be sorted", lambda: SoftPool(3, 2)(torch.ones(3, 3), EDGES[:, :0], None, torch.tensor([1, 0, 1]))),
        ("has a cycle", lambda: LocalPool(3)(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]]))),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_sentence(sentence, call):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_one_soft_cluster_is_the_sum_of_all_nodes_without_edges():
    x = torch.randn(5, 3)
    morph = SoftPool(3, 1)(x, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))
    torch.testing.assert_close(morph.x, x.sum(0, keepdim=True))
    assert morph.edge_index.shape == (2, 0)
