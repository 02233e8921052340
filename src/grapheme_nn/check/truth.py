"""The expected loss of random merges, exactly: every outcome on a small graph is tried. A referee for estimators."""

from collections.abc import Callable
from itertools import product
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.merge import Merge
from grapheme_nn.morph.operator import as_graph
from grapheme_nn.morph.similarity import pair_cosines

Kind = Literal["readout", "lift", "mean"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Problem(NamedTuple):
    """A small graph and a loss of what it is merged into."""

    x: Tensor  # float64 [n, 4], to be differentiated in
    edge_index: Tensor  # int64 [2, e], e at most 7
    loss: Callable[[Morph], Tensor]


def random_problem(seed: int, kind: Kind) -> Problem:
    """A chain of seven nodes or a DAG of five with seven edges, features that are somewhat alike, and a random loss.

    - `readout`: ||sum over nodes of relu(x' W) - y||^2, as of a graph's class;
    - `lift`: ||tanh(S x' W) - Y||^2, as of labels for the nodes before, after coarse layers;
    - `mean`: ||mean over nodes of tanh(x' W) - y||^2, which depends on the *number* of nodes after.
    """
    generator = torch.Generator().manual_seed(seed)
    n = 7 if seed % 2 else 5
    if seed % 2:
        edge_index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    else:
        every = torch.combinations(torch.arange(n)).T
        edge_index = every[:, torch.randperm(every.size(1), generator=generator)[:7]]
    x = torch.randn(1, 4, generator=generator) + torch.randn(n, 4, generator=generator)
    w, y, each = (torch.randn(*shape, generator=generator).double() for shape in ((4, 4), (4,), (n, 4)))

    def loss(morph: Morph) -> Tensor:
        if kind == "readout":
            return ((morph.x @ w).relu().sum(dim=0) - y).square().sum()
        if kind == "mean":
            return ((morph.x @ w).tanh().mean(dim=0) - y).square().sum()
        return ((morph.assignment.lift(morph.x) @ w).tanh() - each).square().sum()

    return Problem(x.double().requires_grad_(), edge_index, loss)


def expected_loss(
    merge: Merge,
    loss: Callable[[Morph], Tensor],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
) -> Tensor:
    """The loss expected if every candidate pair merged by itself with its probability p.

        sum over the 2^c outcomes of (product of p or 1 - p) loss(the merged graph)

    Its gradient in x and theta is the truth that the estimators of `Merge` are measured against. At most 16 pairs.
    """
    graph = as_graph(x, edge_index, edge_weight, batch)
    pairs = merge.pairs(graph)
    if pairs.size(1) > 16:
        raise ValueError(f"{pairs.size(1)} candidate pairs have too many outcomes: at most 16 can be tried")
    similarity = pair_cosines(x, pairs)
    logit = merge.logits(similarity)
    total = x.new_zeros(())
    for outcome in product([False, True], repeat=pairs.size(1)):
        accepted = torch.tensor(outcome, dtype=torch.bool, device=x.device)
        morph = merge.morph(graph, merge.plan(graph, pairs, accepted, similarity), logit)
        probability = merge.log_probability(graph, logit, accepted, pairs).sum().exp()
        total = total + probability * loss(morph)
    return total
