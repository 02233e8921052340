"""Every operator after every other: chains of morphs run, learn, remember where nodes came from, and stay DAGs."""

import pickle
from dataclasses import replace
from functools import reduce

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from grapheme_nn import is_acyclic
from grapheme_nn.morph import Lift, LocalPool, Merge, Morph, Rewire, SoftPool, Split, Tour, history

CHANNELS = 4
OPERATORS = {
    "merge_soft": lambda: Merge(0.6, estimator="soft", temperature=0.3),
    "merge_straight_through": lambda: Merge(0.6, temperature=0.3, ratio=0.5),
    "merge_gumbel": lambda: Merge(0.6, estimator="gumbel", temperature=0.3, candidates="window"),
    "merge_reinforce": lambda: Merge(0.6, estimator="reinforce", temperature=0.3, ratio=0.2, candidates="all"),
    "soft_pool": lambda: SoftPool(CHANNELS, 3),
    "local_pool": lambda: LocalPool(CHANNELS, 0.7),
    "split": lambda: Split(CHANNELS, 2),
    "rewire": lambda: Rewire(CHANNELS, 2),
    "tour": lambda: Tour(CHANNELS),
    "lift": lambda: Lift(CHANNELS),
}
UNDIRECTED = {
    "merge_soft": lambda: Merge(0.6, estimator="soft", temperature=0.3, acyclic=False),
    "merge_straight_through": lambda: Merge(0.6, temperature=0.3, acyclic=False),
    "merge_gumbel": lambda: Merge(0.6, estimator="gumbel", temperature=0.3, candidates="all", acyclic=False),
    "merge_reinforce": lambda: Merge(0.6, estimator="reinforce", temperature=0.3, acyclic=False),
    "soft_pool": lambda: SoftPool(CHANNELS, 3),
    "local_pool": lambda: LocalPool(CHANNELS, 0.7, acyclic=False),
    "split": lambda: Split(CHANNELS, 2, acyclic=False),
    "rewire": lambda: Rewire(CHANNELS, 2, acyclic=False),
    "lift": lambda: Lift(CHANNELS),
}
FIRST = [name for name in OPERATORS if name != "lift"]  # there must be a change that Lift takes back
HARD_IN_EVAL = {
    "merge_soft",
    "merge_straight_through",
    "merge_gumbel",
    "merge_reinforce",
    "split",
    "rewire",
    "tour",
    "lift",
}


def chain(n=7):
    return Data(x=features(n, 0), edge_index=torch.stack([torch.arange(n - 1), torch.arange(1, n)]))


def dag(n=8):
    """With shuffled numbers, an edge that occurs twice and a node without edges."""
    generator = torch.Generator().manual_seed(3)
    ends = torch.randint(0, n - 1, (2, 2 * n), generator=generator).sort(0).values
    ends = ends[:, ends[0] < ends[1]]
    return Data(x=features(n, 1), edge_index=torch.randperm(n, generator=generator)[torch.cat([ends, ends[:, :1]], 1)])


def features(n, seed):
    """Somewhat alike, so that some neighbours merge and others do not."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, CHANNELS, generator=generator, dtype=torch.float64) + 0.5


GRAPHS = {"chain": chain, "dag": dag, "batch": lambda: Batch.from_data_list([chain(), dag(), chain(1), chain(4)])}


def operators(*names, among=OPERATORS):
    torch.manual_seed(0)
    return [among[name]().double() for name in names]


def one_by_one(modules, data):
    """The graphs that a chain goes through."""
    graphs, graph = [], data
    for number, module in enumerate(modules):
        torch.manual_seed(number)
        graph = module(graph)
        graphs.append(graph)
    return graphs


class Seeded(nn.Module):
    """A module that begins with a seed of its own, so that what it samples is the same wherever it stands."""

    def __init__(self, module, seed):
        super().__init__()
        self.module, self.seed = module, seed

    def forward(self, graph):
        torch.manual_seed(self.seed)
        return self.module(graph)


def check(names, graph_name, training):
    modules = [module.train(training) for module in operators(*names)]
    data = GRAPHS[graph_name]()
    data.x.requires_grad_()
    result = nn.Sequential(*(Seeded(module, seed) for seed, module in enumerate(modules)))(data)
    steps = one_by_one(modules, data)

    assert isinstance(result, Morph)
    torch.testing.assert_close(result.x, steps[-1].x, rtol=0, atol=0)
    assert torch.equal(result.edge_index, steps[-1].edge_index)
    assert result.x.shape == (result.num_nodes, CHANNELS)
    assert result.x.isfinite().all()
    assert result.edge_weight.isfinite().all()
    assert result.edge_weight.shape == result.edge_index.shape[1:]

    product = reduce(torch.matmul, (step.assignment.dense().double() for step in steps))
    assert product.shape == (data.num_nodes, result.num_nodes)
    torch.testing.assert_close(result.history.dense().double(), product)
    torch.testing.assert_close(history(steps).dense().double(), product)
    members = reduce(torch.matmul, (step.assignment.dense_membership().double() for step in steps))
    torch.testing.assert_close(result.history.dense_membership().double(), members)

    check_sums(modules, steps, result)
    check_graphs(result, data, product)
    assert is_acyclic(result.structure_edges, result.num_nodes)
    if names[-1] == "rewire" or (not training and HARD_IN_EVAL.issuperset(names)):
        assert is_acyclic(result.edge_index, result.num_nodes)

    total = result.x.sin().sum() + result.edge_weight.square().sum() + sum(result.losses.values())
    total.backward()
    assert data.x.grad.isfinite().all()
    assert data.x.grad.any()


def check_sums(modules, steps, result):
    """Losses, and log-probabilities of what was sampled, add up over the chain."""
    own, before, log_probability = {}, None, 0
    for number, (module, step) in enumerate(zip(modules, steps, strict=True)):
        if before is not None:
            torch.manual_seed(number)
            step = module(replace(before, losses={}, log_probability=None))
        for name, value in step.losses.items():
            own[name] = own.get(name, 0) + value
        if step.log_probability is not None:
            log_probability = log_probability + step.log_probability
        before = steps[number]
    assert own.keys() == result.losses.keys()
    for name, value in own.items():
        torch.testing.assert_close(result.losses[name], value)
    if result.log_probability is None:
        assert isinstance(log_probability, int)
    else:
        torch.testing.assert_close(result.log_probability, log_probability)


def check_graphs(result, data, product):
    """Nodes come from their own graph, edges stay inside it, and what exists does so with a probability."""
    owner = data.batch if isinstance(data, Batch) else torch.zeros(data.num_nodes, dtype=torch.long)
    assert (result.batch is None) == (not isinstance(data, Batch))
    assert result.num_graphs == int(owner.max()) + 1
    near, far = result.edge_index
    assert torch.equal(result.owner[near], result.owner[far])
    sources, targets = product.nonzero(as_tuple=True)
    assert torch.equal(owner[sources], result.owner[targets])
    if result.existence is not None:
        assert result.existence.shape == (result.num_nodes,)
        assert ((result.existence >= 0) & (result.existence <= 1 + 1e-9)).all()
    if result.order is not None:
        assert result.order.sort().values.tolist() == list(range(result.num_nodes))
        assert (result.owner[result.order].diff() >= 0).all()


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("first", FIRST)
def test_every_operator_after_every_other_and_once_more(first, graph, training):
    for second in OPERATORS:
        check([first, second] * (2 if graph == "batch" else 1), graph, training)


def adjacency(graph):
    A = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    return A.index_put(tuple(graph.edge_index), graph.edge_weight.detach(), accumulate=True)


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("first", [name for name in UNDIRECTED if name != "lift"])
def test_every_operator_after_every_other_and_once_more_keeps_a_graph_undirected(first, training):
    for second in UNDIRECTED:
        data = GRAPHS["batch"]()
        data.edge_index = to_undirected(data.edge_index)
        data.x.requires_grad_()
        modules = [module.train(training) for module in operators(*[first, second] * 2, among=UNDIRECTED)]
        steps = one_by_one(modules, data)
        for step in steps:
            A = adjacency(step)
            torch.testing.assert_close(A, A.T)
        product = reduce(torch.matmul, (step.assignment.dense().double() for step in steps))
        check_graphs(steps[-1], data, product)
        (steps[-1].x.sin().sum() + steps[-1].edge_weight.square().sum()).backward()
        assert data.x.grad.isfinite().all()
        assert data.x.grad.any()


@pytest.mark.parametrize("name", ["merge_straight_through", "local_pool", "split", "rewire", "tour"])
def test_a_cycle_is_refused_always_whatever_the_features(name):
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    way_out = "takes DAGs alone: turn or remove an edge of it" + ("$" if name == "tour" else ", or set acyclic=False$")
    for training in (True, False):
        (module,) = operators(name)
        for seed in range(100):
            with pytest.raises(ValueError, match=way_out):
                module.train(training)(features(3, seed), path)


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_many_changes_in_a_row(training):
    names = ["merge_straight_through", "split", "rewire", "local_pool", "merge_soft", "rewire", "split", "soft_pool"]
    for graph in GRAPHS:
        check(names, graph, training)
        check([*names, *names[::-1]], graph, training)


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_chain_of_hard_changes_in_eval_is_a_dag_at_every_step(graph):
    names = ["rewire", "merge_straight_through", "split", "merge_gumbel", "lift", "rewire", "merge_soft", "split"]
    for step in one_by_one([module.eval() for module in operators(*names)], GRAPHS[graph]()):
        assert step.assignment.is_hard
        assert is_acyclic(step.edge_index, step.num_nodes)


def test_lift_takes_back_the_change_before_it_and_needs_one():
    merge, lift = operators("merge_straight_through", "lift")
    data = dag()
    lifted = lift(merge.eval()(data))
    assert torch.equal(lifted.edge_index, data.edge_index)
    assert lifted.main_nodes.tolist() == list(range(8))
    with pytest.raises(ValueError, match="there is no change to take back"):
        lift(data)


@pytest.mark.parametrize("graph", GRAPHS)
def test_each_lift_takes_back_one_change_more(graph):
    names = ["merge_straight_through", "local_pool", "split", "lift", "lift", "rewire", "lift", "lift"]
    data = GRAPHS[graph]()
    steps = one_by_one([module.eval() for module in operators(*names)], data)
    for lifted, fine in ((3, 1), (4, 0), (6, 4)):
        assert torch.equal(steps[lifted].edge_index, steps[fine].edge_index)
        assert steps[lifted].main_nodes.tolist() == steps[fine].main_nodes.tolist()
    assert torch.equal(steps[-1].edge_index, data.edge_index)
    assert steps[-1].main_nodes.tolist() == list(range(data.num_nodes))
    product = reduce(torch.matmul, (step.assignment.dense().double() for step in steps))
    torch.testing.assert_close(steps[-1].history.dense().double(), product)
    with pytest.raises(ValueError, match="there is no change to take back"):
        Lift(CHANNELS).double()(steps[-1])


def test_a_morph_shows_what_it_is_and_becomes_a_graph_of_pyg_again():
    data = GRAPHS["batch"]()
    result = nn.Sequential(*operators("merge_straight_through", "split"))(data)
    assert repr(result) == f"Morph({result.num_nodes} nodes, {result.edge_index.size(1)} edges, 4 channels, 4 graphs)"
    again = result.as_data()
    assert isinstance(again, Batch)
    assert again.num_graphs == 4
    parts = again.to_data_list()
    assert [part.num_nodes for part in parts] == torch.bincount(result.batch).tolist()
    for joined in (again, Batch.from_data_list(parts)):
        assert torch.equal(joined.ptr, again.ptr)
        assert torch.equal(joined.x, result.x)
        assert sorted(joined.edge_index.T.tolist()) == sorted(result.edge_index.T.tolist())
        torch.testing.assert_close(adjacency(joined), adjacency(result))
    torch.testing.assert_close(Split(CHANNELS, 1).double()(again).x.shape, result.x.shape)


def test_existence_travels_through_pyg_and_must_be_a_probability():
    data = chain()
    data.existence = torch.linspace(0, 1, 7).double()
    torch.testing.assert_close(Split(CHANNELS, 1).double()(data).as_data().existence, data.existence)
    data.existence[3] = 2
    with pytest.raises(ValueError, match=r"existence must lie in \[0, 1\], but ranges from 0.0 to 2.0"):
        Split(CHANNELS, 1).double()(data)


def test_weights_may_be_negative_since_operators_are_linear_in_them_but_must_be_finite():
    (merge,) = operators("merge_straight_through")
    weight = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, -6.0], dtype=torch.float64)
    one, other = (merge.eval()(features(7, 0), chain().edge_index, sign * weight) for sign in (1, -1))
    torch.testing.assert_close(one.edge_weight, -other.edge_weight)
    weight[2] = torch.nan
    with pytest.raises(ValueError, match="edge_weight must be finite, but is nan at edge 2"):
        merge(features(7, 0), chain().edge_index, weight)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_shows_its_settings_and_begins_anew(name):
    (module,) = operators(name)
    assert len(repr(module)) > len(type(module).__name__) + 2
    begun = [parameter.detach().clone() for parameter in module.parameters()]
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
    module.reset_parameters()
    assert all((parameter != 7).any() for parameter in module.parameters())
    assert [p.shape for p in module.parameters()] == [p.shape for p in begun]


def empty():
    return Data(x=features(0, 0), edge_index=torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("name", FIRST)
def test_empty_graphs_of_a_batch_are_graphs_wherever_they_stand(name, training):
    module, lift, pool = operators(name, "lift", "soft_pool")
    alone = module.train(training)(empty())
    for graphs in ([dag(), empty()], [empty(), dag(), empty(), empty()], [empty(), empty()]):
        batch = Batch.from_data_list(graphs)
        coarse = module(batch)
        for step in (coarse, lift(coarse), pool(coarse.as_data())):
            assert step.num_graphs == step.as_data().num_graphs == len(graphs)
            assert step.x.isfinite().all()
        assert (coarse.owner == len(graphs) - 1).sum() == alone.num_nodes
        if coarse.log_probability is not None:
            assert coarse.log_probability.shape == (len(graphs),)


def test_a_batch_that_has_more_graphs_than_it_says_is_answered_by_a_sentence():
    batch = GRAPHS["batch"]()
    batch.batch = batch.batch + 1
    with pytest.raises(ValueError, match="a node is in graph 4, but there are 4, from 0 on"):
        Split(CHANNELS, 2).double()(batch)


@pytest.mark.parametrize("name", FIRST)
def test_second_derivatives_are_right_or_refused(name):
    (module,), data = operators(name), chain()

    def gradient(x, **options):
        torch.manual_seed(0)
        morph = module(x, data.edge_index)
        # The gradient that a plain sum hands back has none itself.
        total = morph.x.sum() + morph.edge_weight.square().sum() + x.pow(3).sum() + sum(morph.losses.values())
        return torch.autograd.grad(total, x, **options)[0]

    x, direction = data.x.requires_grad_(), torch.randn_like(data.x)
    if name not in ("local_pool", "split", "tour"):
        with pytest.raises(RuntimeError, match="has no second derivative: leave out create_graph=True"):
            gradient(x, create_graph=True)
        return
    (found,) = torch.autograd.grad((gradient(x, create_graph=True) * direction).sum(), x)
    step = 1e-5 * direction
    torch.testing.assert_close(found, (gradient(x + step) - gradient(x - step)) / 2e-5, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("name", FIRST)
def test_features_that_are_not_finite_are_refused_or_handed_on_and_never_hidden(name, training, bad):
    (module,), data = operators(name), chain()
    edges = module.train(training)(data).edge_index.size(1)
    data.x[2] = bad
    if name.startswith("merge"):
        with pytest.raises(ValueError, match="x has values that are not finite"):
            module(data)
        return
    morph = module(data)
    assert not morph.x.isfinite().all()
    if name == "rewire":
        data.x[2] = torch.nan
        morph = module(data)
        assert morph.edge_index.size(1) >= edges
        assert morph.edge_weight[(morph.edge_index == 2).any(0)].isnan().all()


@pytest.mark.parametrize("name", ["edge_index", "edge_weight", "batch", "edge_type"])
def test_what_is_given_beside_a_graph_is_refused(name):
    data, split = chain(), Split(CHANNELS, 2).double()
    for graph, kind in ((data, "Data"), (split(data), "Morph"), (Batch.from_data_list([data]), "DataBatch")):
        with pytest.raises(TypeError, match=f"{name} is given beside a {kind}, which has its own: set it there"):
            split(graph, **{name: torch.ones(6)})


@pytest.mark.parametrize("name", FIRST)
def test_a_morph_can_be_pickled_with_its_history(name):
    morph = nn.Sequential(*operators(name, "lift"))(GRAPHS["batch"]())
    again = pickle.loads(pickle.dumps(morph))
    for field in ("x", "edge_index", "edge_weight", "batch"):
        assert torch.equal(getattr(again, field), getattr(morph, field))
    assert torch.equal(again.history.dense(), morph.history.dense())
    assert again.origin.num_nodes == 20


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("name", FIRST)
def test_operators_run_under_autocast_whatever_comes_before_and_after(name, training):
    half = nn.Linear(CHANNELS, CHANNELS)
    for before, after in ((nn.Identity(), "soft_pool"), (half, "soft_pool"), (half, "lift"), (nn.Identity(), "rewire")):
        chained, data = [module.float().train(training) for module in operators(name, after)], GRAPHS["batch"]()
        x = data.x.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            data.x = before(x)
            morph = nn.Sequential(*chained)(data)
            total = morph.x.float().sin().sum() + morph.edge_weight.float().square().sum()
        total.backward()
        assert x.grad.isfinite().all()
        assert x.grad.any()


@pytest.mark.parametrize(
    "make", [lambda: Lift(0), lambda: Split(8, True), lambda: SoftPool(8, 1.5), lambda: Merge(reach=0)]
)
def test_a_count_that_is_none_is_refused(make):
    with pytest.raises(ValueError, match="must be a whole number, at least 1, but is"):
        make()
