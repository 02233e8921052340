import random
from collections.abc import Callable
from itertools import pairwise
from math import cos, pi

import networkx as nx
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor
from torch_geometric.data import Batch, Data

from grapheme_nn import text_to_graph, texts_to_batch
from grapheme_nn.loss import StructuralLoss
from grapheme_nn.loss.mean_embedding import agreement
from grapheme_nn.loss.padded import pad_pair
from grapheme_nn.loss.structural import _not_negative
from grapheme_nn.morph import Merge

Edges = list[tuple[int, int]]
SETTINGS: dict[str, Callable[[], StructuralLoss]] = {
    "default": StructuralLoss,
    "context": lambda: StructuralLoss(context=0.5),
    "edit": StructuralLoss.edit,
    "warm": lambda: StructuralLoss(temperature=0.5),
    "cold": lambda: StructuralLoss(temperature=0.001),
}


def graph(types: str, edges: Edges, **fields: Tensor) -> Data:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return Data(x=torch.tensor([ord(each) for each in types], dtype=torch.long), edge_index=index, **fields)


def random_dag(rng: random.Random, most: int = 7) -> Data:
    nodes = rng.randint(0, most)
    edges = [(i, j) for i in range(nodes) for j in range(i + 1, nodes) if rng.random() < 0.35]
    return graph("".join(rng.choice("abcd") for _ in range(nodes)), edges)


def with_activations(data: Data, seed: int, width: int = 3) -> Data:
    generator = torch.Generator().manual_seed(seed)
    data.activation = torch.randn(data.x.size(0), width, generator=generator, dtype=torch.float64)
    return data


def permuted(data: Data, order: Tensor) -> Data:
    """The same graph with node order[i] in place i."""
    place = torch.empty_like(order).scatter_(0, order, torch.arange(order.size(0)))
    fields = {"activation": data.activation[order]} if "activation" in data else {}
    return Data(x=data.x[order], edge_index=place[data.edge_index], **fields)


def soft_pair(nodes: list[int] = [4, 0, 1, 3, 2], targets: list[int] = [3, 2, 1, 0, 2]) -> tuple[Batch, Batch]:  # noqa: B006
    """Soft predictions and hard targets: padding, empty graphs on either side, repeated nodes, one and no node."""
    generator = torch.Generator().manual_seed(0)
    predicted, target = [], []
    for n, m in zip(nodes, targets, strict=True):
        edges = torch.tensor([(i, j) for i in range(n) for j in range(i + 1, n)], dtype=torch.long).reshape(-1, 2).T
        predicted.append(
            Data(
                edge_index=edges,
                edge_weight=torch.rand(edges.size(1), generator=generator, dtype=torch.float64),
                label_log_prob=torch.randn(n, 4, generator=generator, dtype=torch.float64).log_softmax(1),
                existence=0.2 + 0.6 * torch.rand(n, generator=generator, dtype=torch.float64),
                activation=torch.randn(n, 2, generator=generator, dtype=torch.float64),
                num_nodes=n,
            )
        )
        if n == 3:  # the same node twice
            for field in ("label_log_prob", "activation", "existence"):
                predicted[-1][field][1] = predicted[-1][field][0]
        label = torch.randint(0, 2, (m,), generator=generator)
        chain = torch.stack([torch.arange(max(m - 1, 0)), torch.arange(max(m - 1, 0)) + 1])
        activation = torch.randn(m, 2, generator=generator, dtype=torch.float64).round()
        target.append(Data(label=label, edge_index=chain, activation=activation, num_nodes=m))
    return Batch.from_data_list(predicted), Batch.from_data_list(target)


def bordered_cost(x: Data, y: Data) -> Tensor:
    """The cost of the documentation with its default weights, written out for two graphs and a void."""
    (n, m), h, k = (x.x.size(0), y.x.size(0)), x.activation, y.activation
    degrees = [
        torch.stack([torch.bincount(side.edge_index[way], minlength=side.x.size(0)) for way in (0, 1)], 1).double()
        for side in (x, y)
    ]
    cost = torch.zeros(n + 1, m + 1, dtype=torch.float64)
    for i in range(n):
        for j in range(m):
            cost[i, j] = 0.1 * (x.x[i] != y.x[j]) + 0.7 * (h[i] - k[j]).square().mean() / 2
            cost[i, j] += 0.2 * (degrees[0][i] - degrees[1][j]).abs().sum() / 2
    cost[:n, m] = 1 + 0.7 * h.square().mean(1) / 2 + 0.2 * degrees[0].sum(1) / 2
    cost[n, :m] = 1 + 0.7 * k.square().mean(1) / 2 + 0.2 * degrees[1].sum(1) / 2
    return cost


def embedding_distance(x: Data, y: Data) -> Tensor:
    """R of the documentation, with the features written out: a type, and pairs of a type and one that is beside it."""
    types = sorted({*x.x.tolist(), *y.x.tolist()})

    def features(data: Data) -> Tensor:
        rows = []
        for node, kind in enumerate(data.x.tolist()):
            after = [data.x[t] for s, t in data.edge_index.T.tolist() if s == node]
            before = [data.x[s] for s, t in data.edge_index.T.tolist() if t == node]
            around = [sum(other == each for each in side) for side in (after, before) for other in types]
            row = torch.tensor([1.0] + [2 * float(count) for count in around], dtype=torch.float64)  # 8 / 2 = 2^2
            rows.append(torch.stack([row * (kind == each) for each in types]).flatten())
        return torch.stack(rows)

    sums = []
    for data in (x, y):
        phi = features(data)
        weight = (1 + (phi @ phi.T).sum(1)).rsqrt()
        sums.append((weight[:, None, None] * data.activation[:, None, :] * phi[:, :, None]).sum(0))
    return (sums[0] - sums[1]).square().sum() / x.activation.size(1)


@pytest.mark.parametrize("iterations", [1, 3, 2000])
def test_the_node_term_is_what_its_definition_says(iterations: int) -> None:
    t = 0.2
    x, y = with_activations(graph("abb", [(0, 1), (0, 2)]), 0), with_activations(graph("ba", [(1, 0)]), 1)
    result = StructuralLoss(iterations=iterations, temperature=t)(x, y)
    ours = result.node[0]
    a, b = torch.tensor([1.0, 1, 1, 2]).double(), torch.tensor([1.0, 1, 3]).double()
    xx, yy, xy = bordered_cost(x, x), bordered_cost(y, y), bordered_cost(x, y)

    def best(cost: Tensor, weight: Tensor, other: Tensor) -> Tensor:
        return -t * torch.logsumexp(weight.log() + (other - cost) / t, 1)

    def over_relaxed(old: Tensor, best: Tensor) -> Tensor:
        return best + ((best - old) / 2).clamp(max=1.5 * t)

    def value(cost: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor) -> Tensor:
        return a @ f + b @ g - t * (a[:, None] * b * ((f[:, None] + g - cost) / t).exp()).sum()

    half = (iterations + 1) // 2
    own_f, own_g = torch.zeros(4).double(), torch.zeros(3).double()
    for step in range(half):
        share = 1 / (1.5 + 0.5 * cos(pi * (step + 0.5) / (half - 2))) if step < half - 2 else 0.5
        own_f, own_g = own_f.lerp(best(xx, a, own_f), share), own_g.lerp(best(yy, b, own_g), share)

    def run(cost: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        for step in range(half):
            f = over_relaxed(f, best(cost, b, g))
            g = best(cost.T, a, f) if step == half - 1 else over_relaxed(g, best(cost.T, a, f))
        return f, g

    f, g = run(xy, a, b, own_f, own_g)
    late_g, late_f = run(xy.T, b, a, own_g, own_f)
    f, g = (f + late_f) / 2, (g + late_g) / 2
    node = value(xy, a, b, f, g) - value(xx, a, a, own_f, own_f) / 2 - value(yy, b, b, own_g, own_g) / 2
    torch.testing.assert_close(ours, node, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(result.embedding[0], embedding_distance(x, y), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        result.total, result.node + 0.5 * result.edge + 2 * result.clique + 0.7 * result.embedding
    )
    if iterations == 2000:
        converged = [transport_cost(cost, p, q, t) for cost, p, q in ((xy, a, b), (xx, a, a), (yy, b, b))]
        torch.testing.assert_close(ours, converged[0] - converged[1] / 2 - converged[2] / 2, rtol=1e-7, atol=1e-9)


def transport_cost(cost: Tensor, a: Tensor, b: Tensor, t: float) -> Tensor:
    """The least <P, C> + t KL(P | a b^T), the plan by POT."""
    plan = ot.bregman.sinkhorn_log(a, b, cost, t, numItermax=20000, stopThr=1e-15)
    return (plan * cost).sum() + t * (plan * (plan / (a[:, None] * b)).log()).sum()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("term", ["total", "node", "edge", "clique", "embedding"])
def test_gradients_match_central_differences(setting: str, term: str) -> None:
    predicted, target = soft_pair()
    loss = SETTINGS[setting]()
    weight = torch.linspace(0.5, 1.5, predicted.num_graphs, dtype=torch.float64)

    def value() -> Tensor:
        return (getattr(loss(predicted, target), term) * weight).sum()

    fields = ("activation", "label_log_prob", "edge_weight", "existence")
    for name in fields:
        predicted[name].requires_grad_()
    if term == "embedding" and not loss.embedding:
        assert float(value()) == 0
        return
    grads = torch.autograd.grad(value(), [predicted[name] for name in fields], allow_unused=True)
    step = 1e-6
    for name, grad in zip(fields, grads, strict=True):
        given = predicted[name].detach()
        numerical = torch.zeros_like(given)
        for position in range(given.numel()):
            sides = []
            for sign in (1, -1):
                moved = given.clone()
                moved.view(-1)[position] += sign * step
                predicted[name] = moved
                with torch.no_grad():
                    sides.append(value())
            numerical.view(-1)[position] = (sides[0] - sides[1]) / (2 * step)
        predicted[name] = given.requires_grad_()
        analytical = torch.zeros_like(given) if grad is None else grad
        error = (analytical - numerical).norm() / numerical.norm().clamp(min=1e-3)
        assert error < 1e-5, f"{name}: {error}"


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), setting=st.sampled_from(sorted(SETTINGS)), active=st.booleans())
def test_identical_graphs_are_at_distance_zero_in_any_order_of_their_nodes(
    seed: int, setting: str, active: bool
) -> None:
    data = random_dag(random.Random(seed))
    if active:
        data = with_activations(data, seed)
    order = torch.randperm(data.x.size(0), generator=torch.Generator().manual_seed(seed))
    result = SETTINGS[setting]()(data, permuted(data, order))
    assert abs(float(result.total)) < 1e-6


@pytest.mark.parametrize("text", ["", "a", "aaaaaa", "banana", "the quick brown fox"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_text_is_at_distance_zero_from_itself(text: str, setting: str) -> None:
    assert abs(float(SETTINGS[setting]()(text_to_graph(text), text_to_graph(text)).total)) < 1e-6


@pytest.mark.parametrize("setting", [*SETTINGS, "hasty"])
def test_ten_thousand_random_pairs_are_never_at_a_negative_distance_and_symmetric(setting: str) -> None:
    rng = random.Random(0)
    kinds: list[Callable[[], Data]] = [
        lambda: random_dag(rng),
        lambda: text_to_graph("".join(rng.choice("abc") for _ in range(rng.randint(0, 7)))),
    ]
    loss = StructuralLoss(iterations=2, context=0.2) if setting == "hasty" else SETTINGS[setting]()
    for kind in kinds:
        graphs = [kind() for _ in range(1001)]
        # Every graph with itself, with the next, and so on, with and without activations.
        for offset in range(5 if setting in ("default", "edit") else 1):
            x = Batch.from_data_list(graphs[:1000])
            y = Batch.from_data_list([graphs[(i + offset) % 1001] for i in range(1000)])
            if offset % 2:
                x, y = with_activations(x, 2 * offset), with_activations(y, 2 * offset + 1)
            forth, back = loss(x, y), loss(y, x)
            assert float(forth.total.min()) > -1e-6
            assert float(forth.node.min()) > -1e-6
            assert float(forth.embedding.min()) > -1e-6
            scale = forth.total.abs().clamp(min=1)
            assert float(((forth.total - back.total).abs() / scale).max()) < 1e-5
            torch.testing.assert_close(forth.plan.mT, back.plan, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("far", [0, 2**24, 2**62])
def test_types_are_told_apart_however_large_their_numbers_are(far: int) -> None:
    x, y = graph("abc", [(0, 1), (1, 2)]), graph("abd", [(0, 1), (1, 2)])
    near = StructuralLoss()(x, y).total
    x.x, y.x = x.x + far, y.x + far
    torch.testing.assert_close(StructuralLoss()(x, y).total, near)
    assert float(near) > 0.5
    with pytest.raises(ValueError, match="x of the target graph must be integers"):
        StructuralLoss()(x, Data(x=y.x.double(), edge_index=y.edge_index))


def test_soft_graphs_are_never_at_a_negative_distance() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        sizes = [rng.randint(0, 5) for _ in range(50)]
        predicted, target = soft_pair(sizes, [rng.randint(0, 5) for _ in sizes])
        predicted.label_log_prob = (torch.randn(predicted.num_nodes, 4) * 3).double().log_softmax(1)
        predicted.existence = torch.rand(predicted.num_nodes).double().round(decimals=1)
        predicted.activation = torch.randn(predicted.num_nodes, 2).double()
        for name in ("default", "edit", "warm"):
            assert float(SETTINGS[name]()(predicted, target).total.min()) > -1e-6


def test_a_hard_graph_written_as_a_soft_one_is_at_the_same_distance() -> None:
    target = graph("acb", [(0, 1), (1, 2)])
    target.label = target.x - ord("a")
    hard = graph("abb", [(0, 1), (0, 2), (1, 2)])
    log_prob = torch.nn.functional.one_hot(hard.x - ord("a"), 3).double().log().clamp(min=-1e3)
    # A node that does not exist and an edge of weight 0 are not there.
    soft = Data(
        label_log_prob=torch.cat([log_prob, torch.zeros(1, 3).double()]),
        edge_index=torch.tensor([[0, 0, 1, 1, 2], [1, 2, 2, 0, 3]]),
        edge_weight=torch.tensor([1.0, 1, 1, 0, 1]),
        existence=torch.tensor([1.0, 1, 1, 0]),
    )
    loss = StructuralLoss(context=0.3)
    one, other = loss(hard, target), loss(soft, target)
    for term in ("node", "edge", "clique", "embedding", "total"):
        torch.testing.assert_close(getattr(one, term), getattr(other, term).float(), rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), setting=st.sampled_from(["default", "edit", "cold"]))
def test_a_pair_is_at_the_same_distance_alone_and_in_any_batch(seed: int, setting: str) -> None:
    rng = random.Random(seed)
    pairs = [(random_dag(rng), random_dag(rng, most=rng.randint(0, 12))) for _ in range(4)]
    loss = SETTINGS[setting]()
    together = loss(Batch.from_data_list([x for x, _ in pairs]), Batch.from_data_list([y for _, y in pairs]))
    for index, (x, y) in enumerate(pairs):
        alone = loss(x, y)
        for term in ("total", "node", "edge", "clique", "embedding"):
            torch.testing.assert_close(getattr(together, term)[index], getattr(alone, term)[0], rtol=1e-6, atol=1e-6)
        n, m = x.x.size(0), y.x.size(0)
        torch.testing.assert_close(together.plan[index, :n, :m], alone.plan[0], rtol=1e-4, atol=1e-6)
        assert float(together.plan[index, n:].abs().sum() + together.plan[index, :, m:].abs().sum()) == 0


def test_chains_and_general_graphs_take_different_roads_to_the_same_value() -> None:
    predicted, target = texts_to_batch(["banana", "", "b", "abc"]), texts_to_batch(["ananas", "x", "", "acb"])
    for side in (predicted, target):
        side.edge_weight = torch.rand(side.edge_index.size(1), dtype=torch.float64)
    loss = StructuralLoss(context=0.3)
    fast = loss(predicted, target)
    slow_predicted, slow_target = predicted.clone(), target.clone()
    for side in (slow_predicted, slow_target):  # an edge of no weight, backwards: no chain any more, and no change
        side.edge_index = torch.cat([side.edge_index, side.edge_index[:, :1].flip(0)], 1)
        side.edge_weight = torch.cat([side.edge_weight, torch.zeros(1, dtype=torch.float64)])
    assert pad_pair(predicted, target)[0].edges.chain is not None
    assert pad_pair(slow_predicted, slow_target)[0].edges.chain is None
    for x, y in ((slow_predicted, slow_target), (predicted, slow_target), (slow_predicted, target)):
        torch.testing.assert_close(loss(x, y).total, fast.total, rtol=1e-12, atol=1e-12)


def test_edge_overlap_is_the_sum_over_all_pairs_of_edges() -> None:
    predicted, target = graph("abcd", [(0, 1), (0, 3), (2, 1), (0, 1)]), graph("xyz", [(2, 0), (1, 2)])
    predicted.edge_weight = torch.rand(4, dtype=torch.float64)
    target.edge_weight = torch.rand(2, dtype=torch.float64)
    x, y = pad_pair(predicted, target)
    plan = torch.rand(1, 5, 4, dtype=torch.float64)
    x_on_y, y_on_x = x.edges.overlap(y.edges, plan)
    for at, (s, t) in enumerate(predicted.edge_index.T.tolist()):
        parts = [
            w * plan[0, s, p] * plan[0, t, q] for w, (p, q) in zip(target.edge_weight, target.edge_index.T, strict=True)
        ]
        torch.testing.assert_close(x_on_y[at], sum(parts))
    for at, (p, q) in enumerate(target.edge_index.T.tolist()):
        parts = [
            w * plan[0, s, p] * plan[0, t, q]
            for w, (s, t) in zip(predicted.edge_weight, predicted.edge_index.T, strict=True)
        ]
        torch.testing.assert_close(y_on_x[at], sum(parts))


def test_each_term_sees_what_it_should() -> None:
    loss = StructuralLoss(temperature=0.03, iterations=500)  # sharp plans: numbers one can work out by hand
    chain = graph("abc", [(0, 1), (1, 2)])
    other_type = loss(chain, graph("abx", [(0, 1), (1, 2)]))
    assert float(other_type.node) == pytest.approx(0.8, abs=0.05)  # 0.1, and the 0.7 of activations it does not have
    assert float(other_type.clique) == 0
    inserted = loss(chain, graph("abcd", [(0, 1), (1, 2)]))
    assert float(inserted.node) == pytest.approx(1.0, abs=0.05)  # an isolated node from the void
    turned = loss(chain, graph("abc", [(1, 0), (2, 1)]))
    assert float(turned.edge) == pytest.approx(4, abs=0.3)  # two edges lost, two edges new
    # Out-degrees over n: 1/3, 1/3, 0 against 2/3, 1/3, 0; means 2/9, 3/9, variances 2/81, 6/81.
    denser = loss(chain, graph("abc", [(0, 1), (1, 2), (0, 2)]))
    assert float(denser.clique) == pytest.approx(0.3 / 9 + 0.7 * 4 / 81)
    assert float(denser.edge) == pytest.approx(1, abs=0.1)


def test_the_plan_says_which_node_was_deleted() -> None:
    loss = StructuralLoss(temperature=0.05, iterations=200, context=0.2)
    plan = loss(text_to_graph("abcd"), text_to_graph("acd")).plan[0]
    expected = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    torch.testing.assert_close(plan, expected, atol=0.1, rtol=0)


def test_costs_of_a_thousand_stay_finite_with_finite_gradients() -> None:
    x, y = texts_to_batch(["abc", "", "a"]), texts_to_batch(["abd", "xy", ""])
    for temperature in (1e-3, 0.1):
        for side in (x, y):
            side.activation = (60 * torch.randn(side.num_nodes, 2)).requires_grad_()
        result = StructuralLoss(temperature=temperature)(x, y)
        result.mean.backward()
        assert result.total.isfinite().all()
        assert x.activation.grad.isfinite().all()


def test_autocast_does_not_reach_the_plan() -> None:
    x, y = texts_to_batch(["abc", "a"]), texts_to_batch(["abd", "xy"])
    x.activation, y.activation = torch.randn(x.num_nodes, 4), torch.randn(y.num_nodes, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = StructuralLoss()(x, y)
    torch.testing.assert_close(result.total, StructuralLoss()(x, y).total, rtol=0, atol=0)


def test_activations_that_start_at_the_target_stay_there() -> None:
    target = texts_to_batch(["banana", "abc"])
    torch.manual_seed(0)
    target.activation = torch.randn(target.num_nodes, 4)
    learned = train(target, target.activation.clone(), steps=1500)
    ratio = learned.std(0) / target.activation.std(0)
    assert float((ratio - 1).abs().max()) < 0.01
    torch.testing.assert_close(learned, target.activation, atol=0.02, rtol=0)


def test_activations_that_start_small_reach_those_of_the_target() -> None:
    target = texts_to_batch(["abcdef", "xyz", "banana"])
    torch.manual_seed(1)
    target.activation = torch.randn(target.num_nodes, 4)
    learned = train(target, 0.1 * torch.randn(target.num_nodes, 4), steps=700)
    torch.testing.assert_close(learned, target.activation, atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", ["distinct letters", "four letters", "DAGs"])
@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_activations_that_start_at_random_reach_those_of_the_target(kind: str, spread: float) -> None:
    # Words of four letters, such as aaab, hold nodes that look alike; a few of them stay exchanged.
    rng = random.Random(0)
    if kind == "DAGs":
        target = Batch.from_data_list([random_dag(rng, most=8) for _ in range(32)])
    else:
        letters = [rng.sample("abcdefghijklmnop", rng.randint(3, 8)) for _ in range(32)]
        if kind == "four letters":
            letters = [[rng.choice("abcd") for _ in word] for word in letters]
        target = texts_to_batch(["".join(word) for word in letters])
    torch.manual_seed(1)
    target.activation = torch.randn(target.x.size(0), 8)
    learned = train(target, spread * torch.randn(target.x.size(0), 8), steps=400, rate=0.05)
    predicted = target.clone()
    predicted.activation = train(target, learned, steps=100, rate=0.005)
    # By value, since nodes that look the same to both graphs may be exchanged without harm.
    assert (StructuralLoss()(predicted, target).total < 0.02).float().mean() >= (
        0.9 if kind == "four letters" else 0.96
    )
    assert 0.97 < float(predicted.activation.std() / target.activation.std()) < 1.03


def train(target: Batch, start: Tensor, steps: int, rate: float = 0.01) -> Tensor:
    predicted, activation = target.clone(), start.requires_grad_()
    optimizer = torch.optim.Adam([activation], lr=rate)
    loss = StructuralLoss()
    for _ in range(steps):
        predicted.activation = activation
        optimizer.zero_grad()
        loss(predicted, target).total.sum().backward()
        optimizer.step()
    return activation.detach()


def test_the_edit_setting_follows_exact_edit_distance() -> None:
    rng = random.Random(3)
    words = ["".join(rng.choice("aeioubdgklmnprst") for _ in range(rng.randint(1, 6))) for _ in range(121)]
    chains = [text_to_graph(word) for word in words]
    dags = [random_dag(rng, most=6) for _ in range(121)]
    for graphs, least in ((chains, 0.94), (dags, 0.85)):
        exact = [reference(x, y) for x, y in pairwise(graphs)]
        x, y = Batch.from_data_list(graphs[:-1]), Batch.from_data_list(graphs[1:])
        assert spearmanr(StructuralLoss.edit()(x, y).total, exact).statistic >= least


def reference(x: Data, y: Data) -> float:
    both = []
    for data in (x, y):
        both.append(nx.DiGraph())
        both[-1].add_nodes_from((i, {"x": each}) for i, each in enumerate(data.x.tolist()))
        both[-1].add_edges_from(data.edge_index.T.tolist())
    return nx.graph_edit_distance(*both, node_match=lambda p, q: p["x"] == q["x"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edge_index": torch.zeros(3, 1).long()},
            r"edge_index of the predicted graph must be integers of shape \[2, e\]",
        ),
        ({"edge_index": torch.tensor([[0], [7]])}, "refers to node 7, but it has 2 nodes"),
        ({"edge_weight": torch.ones(5)}, r"edge_weight of the predicted graph must have shape \[1\], but has \[5\]"),
        ({"activation": torch.ones(2, 3)}, "only one of the two graphs has activations"),
        ({"x": None}, "the predicted graph has no x"),
        ({"x": torch.ones(2, 3)}, "x .* must be integers .* but is torch.float32: features go into activation"),
        ({"existence": torch.ones(2, device="meta")}, "existence of the predicted graph is on meta"),
        ({"label_log_prob": torch.zeros(2, 3)}, "the target graph has no label"),
    ],
)
def test_a_graph_that_cannot_be_compared_is_refused_in_a_sentence(change: dict[str, Tensor], message: str) -> None:
    predicted = text_to_graph("ab")
    for name, value in change.items():
        predicted[name] = value
    with pytest.raises(ValueError, match=message):
        StructuralLoss()(predicted, text_to_graph("abc"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature"),
        ({"iterations": 0}, "iterations"),
        ({"iterations": 1.5}, "iterations must be a whole number, at least 1, but is 1.5"),
        ({"edge": -1.0}, "the weight edge must be finite and not negative, but is -1.0"),
        ({"void": 0.1}, "void must be finite and at least"),
    ],
)
def test_options_out_of_range_are_refused_in_a_sentence(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StructuralLoss(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"label_log_prob": torch.randn(2, 3)},
            r"exp\(label_log_prob\) of a node .* sum to .*: give log-probabilities",
        ),
        ({"label_log_prob": torch.full((2, 3), torch.nan)}, "sum to nan, not to 1"),
        ({"existence": torch.tensor([0.5, 1.5])}, r"existence .* must lie in \[0, 1\], but ranges from 0.5 to 1.5"),
        ({"existence": torch.tensor([-0.5, 0.5])}, r"existence .* must lie in \[0, 1\], but ranges from -0.5"),
        ({"edge_weight": torch.tensor([-1.0])}, r"edge_weight .* must lie in \[0, inf\], but ranges from -1.0 to -1.0"),
    ],
)
def test_numbers_that_are_no_probabilities_or_weights_are_refused(change: dict[str, Tensor], message: str) -> None:
    torch.manual_seed(0)
    predicted = Data(label_log_prob=torch.zeros(2, 3).log_softmax(1), edge_index=torch.tensor([[0], [1]]))
    target = Data(label=torch.tensor([1]), edge_index=torch.zeros(2, 0).long())
    assert StructuralLoss()(predicted, target).total.isfinite().all()
    for name, value in change.items():
        predicted[name] = value
    with pytest.raises(ValueError, match=message):
        StructuralLoss()(predicted, target)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x if x.dim() == 1 else x.T.contiguous().T,
    "every other": lambda x: x.repeat_interleave(2, 0)[::2],
    "a part": lambda x: torch.cat([x, x], -1).narrow(-1, 0, x.size(-1)),
    "expanded": lambda x: x if x.dim() == 1 else x[:, :, None].expand(-1, -1, 3)[:, :, 1],
}


@settings(deadline=None, max_examples=40)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    integer=st.sampled_from([torch.int16, torch.int32, torch.int64]),
    floating=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    sizes=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    soft=st.booleans(),
    edges=st.booleans(),
)
def test_any_layout_and_type_of_tensors_gives_the_same_distance(
    layout: str, integer: torch.dtype, floating: torch.dtype, sizes: tuple[int, int], soft: bool, edges: bool
) -> None:
    predicted, target = soft_pair([sizes[0], 2], [sizes[1], 3])
    if not soft:
        predicted.x, target.x = predicted.label_log_prob.argmax(1), target.label
        del predicted.label_log_prob, target.label
    if not edges:
        for side in (predicted, target):
            side.edge_index = side.edge_index[:, :0]
        predicted.edge_weight = predicted.edge_weight[:0]
    plain, strange = (predicted, target), (predicted.clone(), target.clone())
    for one, other in zip(plain, strange, strict=True):
        for field in ("edge_weight", "existence", "label_log_prob", "activation"):
            if field in one:
                value = one[field].to(floating)
                one[field], other[field] = value, LAYOUTS[layout](value)
        for field in ("x", "label", "edge_index"):
            if field in one:
                other[field] = LAYOUTS[layout](one[field].to(integer))
    for field in ("edge_weight", "existence", "label_log_prob", "activation"):
        if field in strange[0]:
            strange[0][field].requires_grad_()
    near, far = StructuralLoss(context=0.1)(*plain), StructuralLoss(context=0.1)(*strange)
    torch.testing.assert_close(far.total, near.total, rtol=1e-5, atol=1e-5)
    far.mean.backward()
    assert strange[0].activation.grad.isfinite().all()


def test_graphs_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="2 predicted graphs and 1 targets"):
        StructuralLoss()(texts_to_batch(["a", "b"]), texts_to_batch(["a"]))
    soft = Data(label_log_prob=torch.zeros(1, 3), edge_index=torch.zeros(2, 0).long())
    with pytest.raises(ValueError, match="labels of the target range from 5 to 5"):
        StructuralLoss()(soft, Data(label=torch.tensor([5]), edge_index=torch.zeros(2, 0).long()))
    with pytest.raises(ValueError, match="hard graph"):
        StructuralLoss()(text_to_graph("a"), graph("a", [], existence=torch.ones(1)))


@pytest.mark.parametrize("active", [True, False])
def test_the_kernel_of_nodes_and_void_is_positive_semidefinite_down_to_the_least_void(active: bool) -> None:
    loss = StructuralLoss(void=0.4, context=0.3, temperature=0.2)  # (0.1 + 0.7) / 2
    for seed in range(20):
        data = random_dag(random.Random(seed))
        if active:
            data = with_activations(data, seed)
        x, _ = pad_pair(data, data)
        side = loss._side(x, agreement(x, x))
        kernel = loss._cost(side, side, agreement(x, x)).neg().exp()
        assert float(torch.linalg.eigvalsh(kernel.double()).min()) > -1e-6
    # Of 200 isolated nodes, each of its own type, with the void nearer than that.
    cost = torch.full((201, 201), 0.8, dtype=torch.float64)
    cost[-1], cost[:, -1] = 0.35, 0.35
    assert float(torch.linalg.eigvalsh((-cost.fill_diagonal_(0) / 0.2).exp()).min()) < 0


def test_second_derivatives_are_refused() -> None:
    predicted, target = text_to_graph("abc"), text_to_graph("abd")
    predicted.activation, target.activation = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    loss = StructuralLoss()(predicted, target).total.sum()
    with pytest.raises(RuntimeError, match="has no second derivative: leave out create_graph=True"):
        torch.autograd.grad(loss, predicted.activation, create_graph=True)


def test_activations_of_other_channels_or_not_finite_and_morphs_are_answered_by_a_sentence() -> None:
    predicted, target = text_to_graph("abc"), text_to_graph("abd")
    predicted.activation, target.activation = torch.ones(3, 2), torch.ones(3, 4)
    with pytest.raises(ValueError, match="the predicted graph has 2 channels and of the target 4: give both as many"):
        StructuralLoss()(predicted, target)
    predicted.activation = torch.full((3, 4), torch.nan)
    with pytest.raises(ValueError, match="activation of the predicted graph has values that are not finite"):
        StructuralLoss()(predicted, target)
    morph = Merge()(torch.ones(3, 4), target.edge_index)
    with pytest.raises(TypeError, match=r"must be a PyG Data or Batch, but is a Morph: give its as_data\(\)"):
        StructuralLoss()(morph, target)  # type: ignore[arg-type]


def test_rounding_does_not_make_the_distance_negative_nor_stop_its_gradient() -> None:
    for seed in range(40):
        torch.manual_seed(seed)
        graph, other = text_to_graph("abacab"), text_to_graph("abacab")
        graph.activation, other.activation = (torch.randn(6, 4).repeat(2, 1, 1)).unbind()
        distance = StructuralLoss()(graph, other)
        assert (distance.node >= 0).all()
        assert (distance.embedding >= 0).all()
    below = torch.tensor([-1e-8, 1.0], requires_grad=True)
    (_not_negative(below) * torch.tensor([2.0, 3.0])).sum().backward()
    assert below.grad is not None
    assert below.grad.tolist() == [2.0, 3.0]
