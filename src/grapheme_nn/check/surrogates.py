"""Reference surrogates: the functions whose gradients hard decisions have by definition, written densely and plainly.

They are referees: they share nothing with `Merge` and `Rewire` but what their docstrings state.
"""

from collections.abc import Callable

import networkx as nx
import torch
from torch import Tensor

from grapheme_nn.morph import Merge, Rewire

Surrogate = Callable[..., tuple[Tensor, ...]]


def soft_assignment(merge: Merge, gate: dict[tuple[int, int], Tensor], forest: nx.Graph, n: int) -> Tensor:
    """The S of `soft`, dense [n, n]: node i, in the cluster headed by its ancestor j in the forest.

    M[i, j] = (1 - g_j) (product of g from i up to below j),   S[i, j] = (1 - g_j) M[i, j] / sum_i M[i, j]
    """
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    parent: dict[int, int] = {}
    for tree in nx.connected_components(forest):
        parent |= {child: above for above, child in nx.bfs_edges(forest, min(tree))}
    g = [gate[min(i, parent[i]), max(i, parent[i])] if i in parent else zero for i in range(n)]
    member = [[zero] * n for _ in range(n)]
    for i in range(n):
        way, j = one, i
        for _ in range(merge.reach + 1):
            member[i][j] = (1 - g[j]) * way
            if j not in parent:
                break
            way, j = way * g[j], parent[j]
    dense = torch.stack([torch.stack(row) for row in member])
    head = 1 - torch.stack(g)
    return head * dense / dense.sum(0)


def straight_through(
    merge: Merge, edge_index: Tensor, x: Tensor, theta: Tensor, noise: Callable[[], Tensor] | None = None
) -> Surrogate:
    """What a hard merge is taken for around (x, theta): decisions as they are there, S as soft as `Merge` says.

        S(x, theta) = hard S + soft S(x, theta) with columns added up by cluster - the same at the point itself
        x' = S^T x,    weights of the assignment: S at each node and its cluster

    Returns a function of x, edge_weight and theta: x', the weights of the edges between clusters, and S. `noise` makes
    the logistic noise of the candidate pairs, of `gumbel`.
    """
    n = x.size(0)
    pairs = sorted({(min(a, b), max(a, b)) for a, b in edge_index.T.tolist()})
    added = torch.zeros(len(pairs), dtype=torch.float64) if noise is None else noise()

    def scores(x: Tensor, theta: Tensor) -> list[Tensor]:
        unit = x / x.norm(dim=1, keepdim=True)
        return [
            ((unit[a] @ unit[b] - theta.sigmoid()) / merge.temperature) + e
            for (a, b), e in zip(pairs, added, strict=True)
        ]

    with torch.no_grad():
        decided = [float(score) for score in scores(x, theta)]
    candidates = nx.Graph()
    candidates.add_nodes_from(range(n))
    candidates.add_weighted_edges_from((a, b, score) for (a, b), score in zip(pairs, decided, strict=True))
    forest = nx.maximum_spanning_tree(candidates)
    accepted = nx.Graph((a, b) for (a, b), score in zip(pairs, decided, strict=True) if score >= 0)
    accepted.add_nodes_from(range(n))
    clusters = sorted(sorted(group) for group in nx.connected_components(accepted))
    belongs = torch.zeros(n, len(clusters), dtype=torch.float64)
    for number, group in enumerate(clusters):
        belongs[group, number] = 1
    hard = belongs / belongs.sum(0)
    near, far = (belongs.argmax(1)[end] for end in edge_index)
    places = sorted({(a, b) for a, b in zip(near.tolist(), far.tolist(), strict=True) if a != b})

    def columns(x: Tensor, theta: Tensor) -> Tensor:
        gate = {pair: score.sigmoid() for pair, score in zip(pairs, scores(x, theta), strict=True)}
        return soft_assignment(merge, gate, forest, n) @ belongs

    with torch.no_grad():
        held = columns(x, theta)

    def surrogate(x: Tensor, edge_weight: Tensor, theta: Tensor) -> tuple[Tensor, ...]:
        s = hard + columns(x, theta) - held
        carried = [edge_weight[(near == a) & (far == b)].sum() for a, b in places]
        return s.T @ x, torch.stack(carried) if carried else edge_weight[:0], (s * belongs).sum(1)

    return surrogate


def gated_edges(rewire: Rewire, edge_index: Tensor, pairs: Tensor, x: Tensor, **parameters: Tensor) -> Surrogate:
    """What `Rewire` is taken for in training around a point: its gates hard as they are there, soft from there on.

    `pairs` int64 [2, p] are the edges, then the new pairs. Returns a function of x, edge_weight and the parameters: x,
    the weights of the pairs, and those of the assignment, which are all 1.
    """
    existing, new = edge_index.size(1), pairs.size(1) - edge_index.size(1)

    def gates(x: Tensor, **own: Tensor) -> Tensor:
        query, key = x @ own["query.weight"].T, x @ own["key.weight"].T
        score = query @ key.T
        if not rewire.acyclic:
            score = (score + score.T) / 2
        bias = own["bias"].repeat_interleave(torch.tensor([existing, new]))
        return torch.sigmoid(score[pairs[0], pairs[1]] / x.size(1) ** 0.5 + bias)

    with torch.no_grad():
        held = gates(x, **parameters)

    def surrogate(x: Tensor, edge_weight: Tensor, **own: Tensor) -> tuple[Tensor, ...]:
        weight = torch.cat([edge_weight, edge_weight.new_ones(new)])
        return x, weight * ((held > 0.5) + gates(x, **own) - held), x.new_ones(x.size(0))

    return surrogate
