"""Gradient-check cases of assignments, and of every morph with every estimator of its gradient."""

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from grapheme_nn.assignment import Assignment
from grapheme_nn.check.subjects.subject import (
    BATCH,
    BATCH_EDGES,
    CHAIN,
    DAG,
    TYPES,
    UNDIRECTED,
    Case,
    Subject,
    doubles,
    of_morph,
    parameters_of,
    weights_of,
)
from grapheme_nn.check.surrogates import gated_edges, straight_through
from grapheme_nn.check.truth import expected_loss
from grapheme_nn.morph import Lift, LocalPool, Merge, Morph, Rewire, SoftPool, Split, Tour, reinforce
from grapheme_nn.morph.merge import Estimator
from grapheme_nn.morph.operator import as_graph
from grapheme_nn.morph.similarity import pair_cosines

SOURCE, TARGET = torch.tensor([0, 0, 1, 2, 3, 4, 5]), torch.tensor([0, 1, 1, 2, 0, 2, 1])  # node 0 in two clusters
CLUSTER = torch.tensor([0, 0, 1, 2, 2, 2])
PAIR_OF_CHAINS = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
PAIR = torch.tensor([0, 0, 0, 1, 1, 1])
LONG_CHAIN = torch.stack([torch.arange(65), torch.arange(1, 66)])  # too long for SoftPool to pad
LONG_CHAINS = torch.cat([LONG_CHAIN, LONG_CHAIN + 66], dim=1)
LONG_BATCH = torch.arange(2).repeat_interleave(66)
NOISE = 4  # the seed of what is sampled: some pairs merge, some do not


def _soft(weight: Tensor, membership: Tensor | None = None) -> Assignment:
    return Assignment(SOURCE, TARGET, weight, 6, 3, membership)


def _reduce() -> Case:
    return Case(lambda x, weight: _soft(weight).reduce(x), {"x": doubles(6, 2), "weight": doubles(7)})


def _reduce_hard() -> Case:
    return Case(lambda x: Assignment.from_clusters(CLUSTER).reduce(x), {"x": doubles(6, 2)})


def _lift() -> Case:
    return Case(lambda x, weight: _soft(weight).lift(x), {"x": doubles(3, 2), "weight": doubles(7)})


def _connect() -> Case:
    inputs = {"edge_weight": weights_of(DAG), "weight": doubles(7), "membership": doubles(7)}
    return Case(
        lambda edge_weight, weight, membership: (
            _soft(weight).connect(DAG, edge_weight)[1],
            _soft(weight, membership).connect(DAG, edge_weight)[1],
        ),
        inputs,
    )


def _connect_hard() -> Case:
    assignment = Assignment.from_clusters(CLUSTER)
    return Case(lambda edge_weight: assignment.connect(DAG, edge_weight)[1], {"edge_weight": weights_of(DAG)})


def _connect_typed() -> Case:
    inputs = {"edge_weight": weights_of(DAG), "weight": doubles(7)}
    return Case(
        lambda edge_weight, weight: (
            _soft(weight).connect_typed(DAG, edge_weight, TYPES)[1],
            Assignment.from_clusters(CLUSTER).connect_typed(DAG, edge_weight, TYPES)[1],
        ),
        inputs,
    )


def _compose() -> Case:
    cluster = torch.tensor([0, 1, 1])

    def fn(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        whole = _soft(first).compose(Assignment(torch.arange(3), cluster, second, 3, 2))
        return whole.dense(), whole.dense_membership()

    return Case(fn, {"first": doubles(7), "second": doubles(3)})


def _cosines(pairs: Tensor) -> Case:
    return Case(lambda x: pair_cosines(x, pairs), {"x": doubles(6, 3)})


def _alike(n: int) -> Tensor:
    """Features that are somewhat alike, so that about half of the neighbours merge at a threshold of 0.5."""
    return (torch.randn(n, 3, dtype=torch.float64) + 0.7).requires_grad_()


def _merge(
    estimator: Estimator,
    edges: Tensor,
    batch: Tensor | None = None,
    *,
    training: bool = True,
    edge_type: Tensor | None = None,
    **options: Any,
) -> Case:
    """`Merge`; in training also as a function of its threshold's theta, against what it is taken for."""
    settings: dict[str, Any] = {"temperature": 0.5, **options}
    merge = Merge(0.5, estimator=estimator, **settings).double().train(training)
    x, theta = _alike(int(edges.max()) + 1), merge.theta.detach().clone().requires_grad_()

    def fn(x: Tensor, edge_weight: Tensor, theta: Tensor | None = None) -> Morph:
        torch.manual_seed(NOISE)
        own = {} if theta is None else {"theta": theta}
        graph = as_graph(x, edges, edge_weight, batch, edge_type=edge_type)
        morph: Morph = torch.func.functional_call(merge, own, (graph,))
        return morph

    inputs = {"x": x, "edge_weight": weights_of(edges)} | ({"theta": theta} if training else {})
    if not training or estimator in ("soft", "reinforce"):
        return Case(fn, inputs)

    def noise() -> Tensor:
        torch.manual_seed(NOISE)
        return torch.rand(torch.unique(edges, dim=1).size(1), dtype=torch.float64).logit()

    return Case(fn, inputs, straight_through(merge, edges, x, theta, noise if estimator == "gumbel" else None))


def _ratio() -> Case:
    """(share of nodes merged away - ratio)^2, as if that share had moved with the mean of p."""
    merge = Merge(0.5, temperature=0.5, ratio=0.3).double()
    x, theta = _alike(6), merge.theta.detach().clone().requires_grad_()

    def mean(x: Tensor, theta: Tensor) -> Tensor:
        unit = x / x.norm(dim=1, keepdim=True)
        cosine = (unit[:-1] * unit[1:]).sum(1)
        probability: Tensor = ((cosine - theta.sigmoid()) / merge.temperature).sigmoid()
        return probability.sum() / 6

    with torch.no_grad():
        held, merged = mean(x, theta), (6 - merge(x, CHAIN).x.size(0)) / 6
    return Case(
        lambda x, theta: torch.func.functional_call(merge, {"theta": theta}, (x, CHAIN)).losses,
        {"x": x, "theta": theta},
        lambda x, theta: (merged + mean(x, theta) - held - 0.3) ** 2,
    )


def _reinforce() -> Case:
    """The estimator's mean over all pairs of samples, each with its probability, against the expected loss itself."""
    edges = CHAIN[:, :3]
    merge = Merge(0.5, estimator="reinforce", temperature=0.3).double()
    mix, wanted = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)

    def loss(morph: Morph) -> Tensor:
        return ((morph.x @ mix).tanh().mean(dim=0) - wanted).square().sum()

    def truth(x: Tensor, theta: Tensor) -> Tensor:
        merge.theta.data.copy_(theta)
        return expected_loss(merge, loss, x, edges)

    def estimate(x: Tensor, theta: Tensor) -> Tensor:
        merge.theta.data.copy_(theta.detach())
        similarity = pair_cosines(x, edges)
        logit = (similarity - theta.sigmoid()) / merge.temperature
        samples = []
        for outcome in product([False, True], repeat=3):
            accepted = torch.tensor(outcome)
            graph = Morph.start(x, edges)
            log_p = merge.log_probability(graph, logit, accepted, edges)
            plan = merge.plan(graph, edges, accepted, similarity)
            samples.append((merge.morph(graph, plan, logit, sampled=log_p), log_p.detach().exp()[0]))
        total = x.new_zeros(())
        for (one, p), (other, q) in product(samples, repeat=2):
            losses = [loss(one), loss(other)]
            total = total + p * q * (reinforce([one, other], losses) + (losses[0] + losses[1]) / 2)
        return total

    return Case(estimate, {"x": _alike(4), "theta": merge.theta.detach().clone().requires_grad_()}, truth)


def _tour() -> Case:
    """Edges say where the walk goes, and have no part in features."""
    module = Tour(3).double()

    def fn(x: Tensor, **parameters: Tensor) -> Tensor:
        morph: Morph = torch.func.functional_call(module, parameters, (as_graph(x, DAG, edge_type=TYPES),))
        return morph.x

    return Case(fn, {"x": doubles(6, 3), **parameters_of(module)})


def _rewire(edges: Tensor, *, acyclic: bool = True) -> Case:
    rewire = Rewire(3, 2, acyclic=acyclic).double()
    case = of_morph(rewire, edges)
    with torch.no_grad():
        pairs = case.fn(**case.inputs).edge_index
        own = {name: value for name, value in case.inputs.items() if name not in ("x", "edge_weight")}
        surrogate = gated_edges(rewire, edges, pairs, case.inputs["x"], **own)
    return case._replace(surrogate=surrogate)


def _rewire_eval() -> Case:
    rewire = Rewire(3, 2).double().eval()
    return Case(
        lambda x, edge_weight: rewire(x, DAG, edge_weight), {"x": doubles(6, 3), "edge_weight": weights_of(DAG)}
    )


MORPHS = (
    Subject("Assignment", "reduce", _reduce),
    Subject("Assignment", "reduce, hard", _reduce_hard),
    Subject("Assignment", "lift", _lift),
    Subject("Assignment", "connect", _connect),
    Subject("Assignment", "connect, hard", _connect_hard),
    Subject("Assignment", "connect, typed", _connect_typed),
    Subject("Assignment", "compose", _compose),
    Subject("Merge", "cosines, chain", lambda: _cosines(CHAIN)),
    Subject("Merge", "cosines, graph", lambda: _cosines(torch.tensor([[0, 0, 1, 4], [1, 5, 5, 2]]))),
    Subject("Merge", "soft, chain", lambda: _merge("soft", CHAIN)),
    Subject("Merge", "soft, all pairs", lambda: _merge("soft", DAG, candidates="all")),
    Subject("Merge", "straight_through, chain", lambda: _merge("straight_through", CHAIN)),
    Subject("Merge", "straight_through, graph", lambda: _merge("straight_through", DAG)),
    Subject("Merge", "gumbel, chain", lambda: _merge("gumbel", CHAIN)),
    Subject("Merge", "gumbel, graph", lambda: _merge("gumbel", DAG)),
    Subject("Merge", "reinforce, one sample", lambda: _merge("reinforce", DAG)),
    Subject("Merge", "soft, window", lambda: _merge("soft", DAG, candidates="window")),
    Subject("Merge", "soft, typed", lambda: _merge("soft", DAG, edge_type=TYPES)),
    Subject("Merge", "straight_through, batch", lambda: _merge("straight_through", PAIR_OF_CHAINS, PAIR)),
    Subject("Merge", "reinforce, batch", lambda: _merge("reinforce", PAIR_OF_CHAINS, PAIR)),
    Subject("Merge", "reinforce, mean of all samples", _reinforce),
    Subject("Merge", "soft, undirected", lambda: _merge("soft", UNDIRECTED, acyclic=False)),
    Subject("Merge", "straight_through, undirected", lambda: _merge("straight_through", UNDIRECTED, acyclic=False)),
    Subject("Merge", "ratio", _ratio),
    Subject("Merge", "eval", lambda: _merge("straight_through", DAG, training=False)),
    Subject("SoftPool", "one graph", lambda: of_morph(SoftPool(3, 2), DAG)),
    Subject("SoftPool", "batch", lambda: of_morph(SoftPool(3, 2), BATCH_EDGES, BATCH)),
    Subject("SoftPool", "sparse", lambda: of_morph(SoftPool(2, 2), LONG_CHAIN, channels=2)),
    Subject("SoftPool", "sparse, batch", lambda: of_morph(SoftPool(1, 2), LONG_CHAINS, LONG_BATCH, channels=1)),
    Subject("SoftPool", "typed", lambda: of_morph(SoftPool(3, 2), DAG, edge_type=TYPES)),
    Subject("LocalPool", "one graph", lambda: of_morph(LocalPool(3), DAG)),
    Subject("LocalPool", "batch", lambda: of_morph(LocalPool(3, ratio=0.7), BATCH_EDGES, BATCH)),
    Subject("LocalPool", "undirected", lambda: of_morph(LocalPool(3, acyclic=False), UNDIRECTED)),
    Subject("LocalPool", "typed", lambda: of_morph(LocalPool(3), DAG, edge_type=TYPES)),
    Subject("Lift", "after LocalPool", lambda: of_morph(nn.Sequential(LocalPool(3), Lift(3)), BATCH_EDGES, BATCH)),
    Subject("Split", "one graph", lambda: of_morph(Split(3, 2), DAG)),
    Subject("Split", "undirected", lambda: of_morph(Split(3, 2, acyclic=False), UNDIRECTED)),
    Subject("Tour", "typed", _tour),
    Subject("Rewire", "in training", lambda: _rewire(DAG)),
    Subject("Rewire", "undirected", lambda: _rewire(UNDIRECTED, acyclic=False)),
    Subject("Rewire", "eval", _rewire_eval),
)
