"""Merging: what merges, that a DAG stays one, where gradients go, and the estimators against the enumerated truth."""

import math
from itertools import product

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.utils import is_undirected, to_undirected

from grapheme_nn import is_acyclic, texts_to_batch
from grapheme_nn.check.truth import expected_loss, random_problem
from grapheme_nn.morph import Merge, Morph, history, reinforce
from grapheme_nn.morph.heads import memberships
from grapheme_nn.morph.similarity import pair_cosines

CHAIN = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def chain_features():
    """Six nodes: 0 and 1 alike, 3, 4 and 5 alike, 2 like nobody."""
    angle = torch.tensor([0.0, 0.1, 2.0, 4.0, 4.1, 4.2], dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


@st.composite
def dags(draw, max_nodes=9):
    """A DAG whose numbers do not tell its order, features of few directions (so that many pairs tie), two graphs."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    sizes = [draw(st.integers(1, max_nodes)), draw(st.integers(0, 4))]
    edges, first = [], 0
    for size in sizes:
        name = (torch.randperm(size, generator=generator) + first).tolist()
        share = draw(st.sampled_from([0.2, 0.5, 0.9]))
        for i in range(size):
            for j in range(i + 1, size):
                if torch.rand((), generator=generator) < share:
                    edges += [(name[i], name[j])] * draw(st.sampled_from([1, 1, 2]))
        first += size
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    batch = torch.repeat_interleave(torch.tensor(sizes))
    if draw(st.booleans()):
        x = torch.randn(first, 3, generator=generator, dtype=torch.float64)
    else:
        x = torch.eye(3, dtype=torch.float64)[torch.randint(0, 3, (first,), generator=generator)]
    return x, edge_index, batch


def slow_merge(x, edge_index, batch, threshold, candidates, window):
    """The rule as the issue tells it, one refusal at a time. Returns each node's cluster, numbered by first node."""
    n = x.size(0)
    place = {}
    for graph in batch.unique().tolist():
        nodes = (batch == graph).nonzero()[:, 0].tolist()
        inside = nx.DiGraph([(a, b) for a, b in edge_index.T.tolist() if a in nodes])
        inside.add_nodes_from(nodes)
        forward = all(a < b for a, b in inside.edges)
        generations = nx.topological_generations(inside)
        order = nodes if forward else [node for level in generations for node in sorted(level)]
        place |= {node: at for at, node in enumerate(order)}
    linked = {(min(a, b), max(a, b)) for a, b in edge_index.T.tolist()}
    accepted = []
    for i in range(n):
        for j in range(i + 1, n):
            if batch[i] != batch[j]:
                continue
            near = abs(place[i] - place[j]) <= window
            if candidates == "all" or (near if candidates == "window" else (i, j) in linked):
                similarity = float(pair_cosines(x, torch.tensor([[i], [j]])))
                if similarity >= threshold:
                    accepted.append((similarity, i, j))
    while True:
        alike = nx.Graph((i, j) for _, i, j in accepted)
        alike.add_nodes_from(range(n))
        cluster = {node: min(group) for group in nx.connected_components(alike) for node in group}
        quotient = nx.DiGraph((cluster[a], cluster[b]) for a, b in edge_index.T.tolist() if cluster[a] != cluster[b])
        tangles = [group for group in nx.strongly_connected_components(quotient) if len(group) > 1]
        if not tangles:
            numbers = {first: number for number, first in enumerate(sorted(set(cluster.values())))}
            return [numbers[cluster[node]] for node in range(n)], accepted
        for tangle in tangles:
            accepted.remove(min(pair for pair in accepted if cluster[pair[1]] in tangle))


@pytest.mark.parametrize("candidates", ["edges", "window", "all"])
@given(graph=dags(), threshold=st.sampled_from([0.05, 0.3, 0.6, 0.9, 0.999]))
@settings(max_examples=80, deadline=None)
def test_merging_gives_what_the_slow_rule_gives_and_keeps_a_dag_acyclic(candidates, graph, threshold):
    x, edge_index, batch = graph
    merge = Merge(threshold, candidates=candidates).eval()
    morph = merge(x, edge_index, None, batch)
    cluster = morph.assignment.clusters()
    expected, accepted = slow_merge(x, edge_index, batch, merge.threshold.item(), candidates, merge.window)
    assert cluster.tolist() == expected
    assert is_acyclic(morph.edge_index, morph.x.size(0))
    assert (cluster >= 0).all()  # every node in a cluster, and by being a vector in exactly one
    inside = nx.Graph((i, j) for _, i, j in accepted)
    inside.add_nodes_from(range(x.size(0)))
    for number in range(morph.x.size(0)):
        members = (cluster == number).nonzero()[:, 0].tolist()
        assert nx.is_connected(inside.subgraph(members))
        assert len({int(batch[node]) for node in members}) == 1
        assert int(morph.batch[number]) == int(batch[members[0]])
        assert torch.allclose(morph.x[number], x[members].mean(dim=0))


@pytest.mark.parametrize("candidates", ["edges", "all"])
@given(graph=dags(), threshold=st.sampled_from([0.05, 0.3, 0.6, 0.9, 0.999]))
@settings(max_examples=40, deadline=None)
def test_merging_an_undirected_graph_gives_the_components_of_alike_pairs(candidates, graph, threshold):
    x, edge_index, batch = graph
    edge_index = to_undirected(edge_index, num_nodes=x.size(0))
    merge = Merge(threshold, candidates=candidates, acyclic=False).eval()
    morph = merge(x, edge_index, None, batch)
    linked = set(map(tuple, edge_index.T.tolist()))
    pairs = [(i, j) for i in range(x.size(0)) for j in range(i) if batch[i] == batch[j]]
    alike = nx.Graph()
    alike.add_nodes_from(range(x.size(0)))
    for pair in pairs:
        similarity = float(pair_cosines(x, torch.tensor(pair)[:, None]))
        if similarity >= merge.threshold.item() and (candidates == "all" or pair in linked):
            alike.add_edge(*pair)
    clusters = [[] for _ in range(morph.num_nodes)]
    for node, cluster in enumerate(morph.assignment.clusters().tolist()):
        clusters[cluster].append(node)
    assert sorted(clusters) == sorted(sorted(group) for group in nx.connected_components(alike))
    assert is_undirected(morph.edge_index, morph.edge_weight, num_nodes=morph.num_nodes)


def test_merging_learns_between_layers_of_pyg_on_undirected_graphs():
    torch.manual_seed(0)
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    graphs = Batch.from_data_list([Data(x=torch.randn(6, 4), edge_index=to_undirected(ring)) for _ in range(3)])
    before, merge, after = GCNConv(4, 8), Merge(0.5, acyclic=False), GCNConv(8, 8)
    x = before(graphs.x, graphs.edge_index).tanh()
    coarse = merge(x, graphs.edge_index, None, graphs.batch).as_data()
    assert coarse.num_nodes < graphs.num_nodes
    out = global_mean_pool(after(coarse.x, coarse.edge_index, coarse.edge_weight), coarse.batch)
    assert out.shape == (3, 8)
    out.square().sum().backward()
    for parameter in (*before.parameters(), merge.theta, *after.parameters()):
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


@given(graph=dags(), seed=st.integers(0, 1000), estimator=st.sampled_from(["straight_through", "gumbel", "reinforce"]))
@settings(max_examples=60, deadline=None)
def test_nested_merges_in_training_keep_a_dag_acyclic(graph, seed, estimator):
    x, edge_index, batch = graph
    torch.manual_seed(seed)
    first = Merge(0.3, candidates="window", estimator=estimator)(x, edge_index, None, batch)
    assert is_acyclic(first.edge_index, first.x.size(0))
    second = Merge(0.2, candidates="all", estimator=estimator)(
        first.x, first.edge_index, first.edge_weight, first.batch
    )
    assert is_acyclic(second.edge_index, second.x.size(0))
    assert history([first, second]).is_hard


def test_the_pair_that_would_close_a_cycle_is_refused():
    edge_index = torch.tensor([[0, 1, 0], [1, 2, 2]])
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert Merge(0.5).eval()(x, edge_index).assignment.clusters().tolist() == [0, 1, 2]
    x = torch.tensor([[1.0, 0.0], [0.9, 0.5], [1.0, 0.0]])  # all three may merge together
    assert Merge(0.5).eval()(x, edge_index).assignment.clusters().tolist() == [0, 0, 0]


def test_alike_neighbours_merge_and_edges_keep_their_weight():
    morph = Merge(0.9).eval()(chain_features(), CHAIN, torch.arange(1.0, 6.0))
    assert morph.assignment.clusters().tolist() == [0, 0, 1, 2, 2, 2]
    assert morph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert morph.edge_weight.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("estimator", ["soft", "straight_through", "gumbel", "reinforce"])
def test_eval_is_hard_and_without_chance(estimator):
    merge = Merge(0.9, estimator=estimator).eval()
    morphs = [merge(chain_features(), CHAIN) for _ in range(2)]
    assert torch.equal(morphs[0].x, morphs[1].x)
    assert torch.equal(
        morphs[0].assignment.clusters(), Merge(0.9).eval()(chain_features(), CHAIN).assignment.clusters()
    )


def test_straight_through_looks_in_training_as_it_will_in_eval():
    merge = Merge(0.9)
    assert torch.equal(merge(chain_features(), CHAIN).x, merge.eval()(chain_features(), CHAIN).x)


def test_the_way_through_chains_and_the_way_through_graphs_agree():
    batch = texts_to_batch(["abcdef", "gh", "", "i"])
    x = torch.randn(batch.num_nodes, 3, dtype=torch.float64)
    merge = Merge(0.4)
    results = []
    for edge_index in (batch.edge_index, batch.edge_index.flip(1)):  # the same edges, but not in order
        own = x.clone().requires_grad_()
        morph = merge(own, edge_index, None, batch.batch)
        merge.zero_grad()
        (morph.x**2).sum().backward()
        results.append((morph.x, morph.edge_index, morph.assignment.clusters(), own.grad, merge.theta.grad.clone()))
    for chain, graph in zip(*results, strict=True):
        torch.testing.assert_close(chain, graph)


@pytest.mark.parametrize("estimator", ["soft", "straight_through", "reinforce"])
@pytest.mark.parametrize("candidates", ["edges", "all"])
def test_a_batch_equals_its_graphs_one_by_one(estimator, candidates):
    torch.manual_seed(3)
    first = torch.randn(5, 3, dtype=torch.float64), torch.tensor([[0, 0, 2, 0, 3], [1, 2, 1, 1, 2]])
    second = torch.randn(4, 3, dtype=torch.float64), torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]])
    weights = torch.rand(5, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    merge = Merge(0.4, candidates=candidates, estimator=estimator)
    x = torch.cat([first[0], second[0]]).requires_grad_()
    edge_index = torch.cat([first[1], second[1] + 5], dim=1)
    batch = torch.tensor([0] * 5 + [1] * 4)
    if estimator == "reinforce":
        merge.eval()  # what is sampled differs from call to call
    together = merge(x, edge_index, torch.cat(weights), batch)
    (together.x.sin().sum() + together.edge_weight.square().sum()).backward()
    values, gradients = [], []
    for (own, edges), weight in zip((first, second), weights, strict=True):
        alone = own.clone().requires_grad_()
        morph = merge(alone, edges, weight)
        (morph.x.sin().sum() + morph.edge_weight.square().sum()).backward()
        values.append(morph)
        gradients.append(alone.grad)
    torch.testing.assert_close(together.x, torch.cat([morph.x for morph in values]))
    torch.testing.assert_close(together.edge_weight, torch.cat([morph.edge_weight for morph in values]))
    torch.testing.assert_close(x.grad, torch.cat(gradients))


def test_cosines_and_their_gradients_are_exact():
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    for pairs in (CHAIN, torch.tensor([[0, 0, 1, 4], [1, 5, 5, 2]]), CHAIN[:, [0, 3]]):
        assert gradcheck(lambda x, pairs=pairs: pair_cosines(x, pairs), (x,))
        expected = torch.cosine_similarity(x[pairs[0]], x[pairs[1]])
        torch.testing.assert_close(pair_cosines(x, pairs), expected)
    nothing = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    pair_cosines(nothing, torch.tensor([[0], [1]])).sum().backward()
    assert torch.equal(nothing.grad, torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    "edges", [CHAIN.tolist(), [[0, 0, 1, 2, 4, 1], [1, 2, 3, 3, 5, 3]], [[3, 1, 1, 5, 4], [1, 0, 2, 2, 0]]]
)
def test_soft_edges_weigh_what_is_expected_over_all_outcomes(edges):
    """Every pair of the forest merges or does not, by itself; a node's head is where its way up ends."""
    torch.manual_seed(5)
    x, edge_index = torch.randn(6, 3, dtype=torch.float64) + 1, torch.tensor(edges)
    weight = torch.rand(edge_index.size(1), dtype=torch.float64)
    merge = Merge(0.5, estimator="soft", temperature=2.0, reach=5).double()
    morph = merge(x, edge_index, weight)
    graph = Morph.start(x, edge_index)
    pairs = merge.pairs(graph)
    similarity = pair_cosines(x, pairs)
    plan = merge.plan(graph, pairs, similarity >= 0.5, similarity)
    gate = merge.logits(similarity).sigmoid().tolist()
    free = [node for node in range(6) if plan.parent[node] >= 0 and not plan.refused[plan.pair[node]]]
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for outcome in product([False, True], repeat=len(free)):
        merged = dict(zip(free, outcome, strict=True))
        probability = math.prod(
            gate[plan.pair[node]] if on else 1 - gate[plan.pair[node]] for node, on in merged.items()
        )
        head = list(range(6))
        for node in range(6):
            while merged.get(head[node]):
                head[node] = int(plan.parent[head[node]])
        for (s, t), w in zip(edge_index.T.tolist(), weight.tolist(), strict=True):
            if head[s] != head[t]:
                expected[head[s], head[t]] += probability * w
    found = torch.zeros(6, 6, dtype=torch.float64).index_put(tuple(morph.edge_index), morph.edge_weight.detach())
    torch.testing.assert_close(found, expected)


@given(text=st.text(alphabet="ab", min_size=1, max_size=12), seed=st.integers(0, 100), reach=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_soft_merging_keeps_a_text_acyclic(text, seed, reach):
    torch.manual_seed(seed)
    batch = texts_to_batch([text, "b"])
    x = torch.randn(2, 3)[batch.x - ord("a")] + 0.3 * torch.randn(batch.num_nodes, 3)
    morph = Merge(0.5, estimator="soft", reach=reach)(x, batch.edge_index, None, batch.batch)
    assert is_acyclic(morph.edge_index, morph.x.size(0))


def test_a_cold_soft_merge_weighed_by_existence_is_what_eval_gives_and_without_it_is_not():
    merge = Merge(0.9, estimator="soft", temperature=1e-3, reach=6)
    soft, hard = merge(chain_features(), CHAIN), merge.eval()(chain_features(), CHAIN)
    y, wanted = (soft.x + 1).tanh(), (hard.x + 1).tanh().sum(0)  # what a bias does to a node that has faded
    assert hard.existence is None
    torch.testing.assert_close((y * soft.existence[:, None]).sum(0), wanted)
    assert not torch.allclose(y.sum(0), wanted, atol=0.5)


@pytest.mark.parametrize("candidates", ["edges", "all"])
def test_gradients_of_soft_merging_are_exact(candidates):
    torch.manual_seed(0)
    x = (torch.randn(5, 3, dtype=torch.float64)).requires_grad_()
    edge_index = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 3]])
    weight = torch.rand(5, dtype=torch.float64, requires_grad=True)
    merge = Merge(0.4, candidates=candidates, estimator="soft", temperature=0.5).double()

    def soft(x, weight, theta):
        merge.theta.data = theta.data
        morph = torch.func.functional_call(merge, {"theta": theta}, (x, edge_index, weight))
        return morph.x, morph.edge_weight, morph.assignment.weight

    assert gradcheck(soft, (x, weight, merge.theta.detach().clone().requires_grad_()))


@pytest.mark.parametrize("estimator", ["straight_through", "gumbel"])
def test_the_gradient_of_a_hard_merge_is_that_of_soft_with_columns_added_up(estimator):
    """x' = S^T x, with the values of the hard S and the gradient of the soft one: checked entry by entry."""
    torch.manual_seed(5)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    merge = Merge(0.4, estimator=estimator, temperature=0.5).double()
    torch.manual_seed(1)
    morph = merge(x, CHAIN)
    sent = torch.randn_like(morph.x)
    gradient = torch.autograd.grad(morph.x, (x, merge.theta), sent)
    torch.manual_seed(1)
    logit = merge.logits(pair_cosines(x, CHAIN))
    score = logit if estimator == "straight_through" else logit + torch.rand_like(logit).logit()
    plan = merge.plan(Morph.start(x, CHAIN), CHAIN, score.detach() >= 0, score)
    source, ancestor, soft, *_ = memberships(plan, score, merge.reach)
    hard = morph.assignment.dense().detach()
    columns = torch.zeros_like(hard).index_put((source, plan.cluster[ancestor]), soft, accumulate=True)
    S = hard + columns - columns.detach()
    expected = torch.autograd.grad(S.T @ x, (x, merge.theta), sent)
    for ours, theirs in zip(gradient, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_two_level_history_routes_a_unit_gradient_to_exactly_its_contributors():
    x = chain_features().requires_grad_()
    merge = Merge(0.9, estimator="reinforce").eval()
    first = merge(x, CHAIN)
    second = Merge(0.01, candidates="window", window=2).eval()(first.x, first.edge_index, first.edge_weight)
    total = history([first, second])
    for node in range(total.num_targets):
        (gradient,) = torch.autograd.grad(second.x[node, 0], x, retain_graph=True)
        expected = torch.zeros(6, 2, dtype=torch.float64)
        sources, weights = total.contributors(node)
        expected[sources, 0] = weights
        assert torch.equal(gradient != 0, expected != 0)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-15)


def gradients_of(value, merge, x):
    theta, features = torch.autograd.grad(value, (merge.theta, x), allow_unused=True)
    return torch.cat([(torch.zeros(()) if theta is None else theta).reshape(1).double(), features.flatten()])


def test_the_enumerated_truth_agrees_with_central_differences():
    for kind in ("readout", "lift"):
        x, edge_index, loss = random_problem(2, kind)
        edge_index = edge_index[:, :5]
        merge = Merge(0.5, temperature=0.2).double()
        assert gradcheck(
            lambda x, theta, loss=loss, edges=edge_index, merge=merge: torch.func.functional_call(
                Expected(merge, loss, edges), {"merge.theta": theta}, (x,)
            ),
            (x, merge.theta.detach().clone().requires_grad_()),
            eps=1e-6,
            rtol=1e-6,
            atol=1e-8,
        )


class Expected(torch.nn.Module):
    def __init__(self, merge, loss, edge_index):
        super().__init__()
        self.merge, self.loss, self.edge_index = merge, loss, edge_index

    def forward(self, x):
        return expected_loss(self.merge, self.loss, x, self.edge_index)


# The figures of docs/estimators.md (cosine of theta and x together over 50 problems), held to 0.12 on the first 16.
TABLE = {
    "readout": {"straight_through": 0.79, "gumbel": 0.92, "soft": 0.89},
    "lift": {"straight_through": 0.77, "gumbel": 0.89, "soft": 0.79},
    "mean": {"straight_through": 0.64, "gumbel": 0.72, "soft": 0.56},
}


@pytest.mark.parametrize("kind", TABLE)
def test_estimators_point_where_the_table_says(kind):
    torch.manual_seed(0)
    cosines = {name: [] for name in TABLE[kind]}
    for seed in range(16):
        x, edge_index, loss = random_problem(seed, kind)
        merge = Merge(0.5, temperature=0.2).double()
        truth = gradients_of(expected_loss(merge, loss, x, edge_index), merge, x)
        for name, found in cosines.items():
            merge = Merge(0.5, temperature=0.2, estimator=name).double()
            value = sum(loss(merge(x, edge_index)) for _ in range(32 if name == "gumbel" else 1))
            found.append(float(torch.cosine_similarity(gradients_of(value, merge, x), truth, dim=0)))
    for name, found in cosines.items():
        assert sum(found) / len(found) == pytest.approx(TABLE[kind][name], abs=0.12), name


@pytest.mark.parametrize("edges", [CHAIN[:, :4], torch.tensor([[0, 0, 1, 2, 0], [1, 2, 3, 3, 4]])])
def test_reinforce_is_unbiased(edges):
    """Within three standard errors of the truth, over 20,000 samples: a batch of copies of the graph is one draw each."""
    torch.manual_seed(0)
    copies, samples, n = 400, 25, 5
    x = torch.randn(n, 3, dtype=torch.float64) + 0.7
    W, y = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)

    def per_graph(morph, graphs):
        readout = torch.zeros(graphs, 3, dtype=torch.float64).index_add(0, morph.batch, (morph.x @ W).tanh())
        return (readout - y).square().sum(dim=1)

    merge = Merge(0.5, estimator="reinforce", temperature=0.3).double()
    alone = x.clone().requires_grad_()
    one_graph = torch.zeros(n, dtype=torch.long)
    value = expected_loss(merge, lambda morph: per_graph(morph, 1)[0], alone, edges, None, one_graph)
    truth = gradients_of(value, merge, alone)

    many = x.repeat(copies, 1).requires_grad_()
    edge_index = torch.cat([edges + n * copy for copy in range(copies)], dim=1)
    batch = torch.arange(copies).repeat_interleave(n)
    # theta once per copy, so that each copy has a gradient of its own: through the logits, which are linear in tau.
    estimates = []
    for _ in range(2):
        theta = merge.theta.detach().expand(copies).clone().requires_grad_()
        morphs, losses = [], []
        graph = Morph.start(many, edge_index, batch=batch)
        pairs = merge.pairs(graph)
        for _ in range(samples):
            similarity = pair_cosines(many, pairs)
            logit = (similarity - theta.sigmoid()[batch[pairs[0]]]) / merge.temperature
            accepted = torch.rand_like(logit) < logit.sigmoid()
            plan = merge.plan(graph, pairs, accepted, similarity)
            log_p = merge.log_probability(graph, logit, accepted, pairs)
            morph = merge.morph(graph, plan, logit, sampled=log_p)
            morphs.append(morph)
            losses.append(per_graph(morph, copies))
        surrogate = torch.stack(losses).mean(dim=0).sum() + reinforce(morphs, losses)
        for_theta, for_x = torch.autograd.grad(surrogate, (theta, many))
        estimates.append(torch.cat([for_theta[:, None], for_x.view(copies, -1)], dim=1))
    estimates = torch.cat(estimates)  # [800 x 25 samples]
    error = estimates.std(dim=0) / math.sqrt(estimates.size(0))
    assert ((estimates.mean(dim=0) - truth).abs() < 3 * error + 1e-12).all()


def test_reinforce_of_the_module_agrees_with_the_truth_too():
    """The same through forward() alone, on theta: 20,000 samples in batches of copies."""
    torch.manual_seed(1)
    x = torch.randn(4, 3, dtype=torch.float64) + 0.7
    edges, copies = CHAIN[:, :3], 500
    merge = Merge(0.5, estimator="reinforce", temperature=0.3).double()

    def count(morph, graphs):
        return torch.bincount(morph.batch, minlength=graphs).double().square()

    value = expected_loss(merge, lambda m: count(m, 1)[0] + 0 * m.x.sum(), x, edges, None, torch.zeros(4).long())
    (truth,) = torch.autograd.grad(value, merge.theta)
    many = x.repeat(copies, 1)
    edge_index = torch.cat([edges + 4 * copy for copy in range(copies)], dim=1)
    batch = torch.arange(copies).repeat_interleave(4)
    estimates = []
    for _ in range(20):
        morphs = [merge(many, edge_index, None, batch) for _ in range(2)]
        term = reinforce(morphs, [count(morph, copies) for morph in morphs])
        assert sum(morph.losses["reinforce"].item() for morph in morphs) == pytest.approx(term.item())
        estimates.append(torch.autograd.grad(term, merge.theta)[0] / copies)
    estimates = torch.stack(estimates)
    assert abs(estimates.mean() - truth) < 3 * estimates.std() / math.sqrt(20)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("estimator", ["straight_through", "reinforce"])
def test_training_moves_the_threshold_to_where_the_wanted_clusters_come_out(estimator, seed):
    torch.manual_seed(seed)
    n, wanted = 40, 15
    angle = (torch.rand(n) * 1.5).cumsum(0)
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    by_ratio = estimator == "straight_through"
    merge = Merge(0.8, estimator=estimator, temperature=0.05, ratio=(n - wanted) / n if by_ratio else None)
    optimiser = torch.optim.Adam(merge.parameters(), lr=0.03)
    begun = merge.eval()(x, edge_index).x.size(0)
    assert begun != wanted
    merge.train()
    for _ in range(400):
        optimiser.zero_grad()
        if by_ratio:
            merge(x, edge_index).losses["ratio"].backward()
        else:
            morphs = [merge(x, edge_index) for _ in range(4)]
            reinforce(morphs, [torch.tensor(float(m.x.size(0) - wanted) ** 2) for m in morphs]).backward()
        optimiser.step()
    clusters = merge.eval()(x, edge_index).x.size(0)
    assert abs(clusters - wanted) <= (0 if by_ratio else 1)


def test_empty_and_single_graphs_merge_into_themselves():
    for n in (0, 1):
        for estimator in ("soft", "straight_through", "gumbel", "reinforce"):
            x = torch.randn(n, 3, requires_grad=True)
            morph = Merge(estimator=estimator)(x, torch.zeros(2, 0, dtype=torch.long))
            assert morph.x.shape == (n, 3)
            morph.x.sum().backward()


@pytest.mark.parametrize(
    ("sentence", "call"),
    [
        ("threshold must lie between 0 and 1, but is 1.5", lambda: Merge(1.5)),
        ("unknown candidates 'nodes': choose one of edges, window, all", lambda: Merge(candidates="nodes")),
        ("unknown estimator 'hard': choose one of soft", lambda: Merge(estimator="hard")),
        (r"temperature must be above 0, but is 0", lambda: Merge(temperature=0)),
        (r"in \[0, 1\), but is 1", lambda: Merge(ratio=1)),
        ("has a cycle", lambda: Merge(0.5)(torch.tensor([[1.0, 0], [0, 1], [1, 0]]), torch.tensor([[0, 1, 2], [1, 2, 0]]))),
        ("not finite", lambda: Merge(0.5, candidates="all")(torch.full((2, 2), torch.nan), CHAIN[:, :1])),
        ("needs a DAG: choose edges or all", lambda: Merge(candidates="window", acyclic=False)),
        ("not finite", lambda: Merge(0.5)(torch.full((2, 2), torch.nan), CHAIN[:, :1])),
        ("there are 5 edges", lambda: Merge()(chain_features(), CHAIN, torch.ones(4))),
        (r"x must be floating point of shape \[n, d\]", lambda: Merge()(torch.ones(6), CHAIN)),
        ("batch must be one integer per node", lambda: Merge()(chain_features(), CHAIN, None, torch.zeros(5).long())),
        ("were not sampled", lambda: reinforce([Merge()(chain_features(), CHAIN)] * 2, [torch.ones(())] * 2)),
        ("two samples or more", lambda: reinforce([], [])),
    ],
)  # fmt: skip
def test_bad_input_is_answered_by_a_sentence(sentence, call):
    with pytest.raises(ValueError, match=sentence):
        call()
