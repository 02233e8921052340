"""Clusters as trees with a head: which nodes merge, or how likely each node is to head which others."""

from typing import NamedTuple

import torch
from torch import Tensor

from grapheme_nn.sparse import summed_by_type

# A way up the forest less probable than this is not followed further: its gradient is as small.
_NEGLIGIBLE = 1e-3


class Plan(NamedTuple):
    """What merges: clusters, and the forest of pairs they hang together by."""

    cluster: Tensor  # int64 [n], numbered by their first node
    parent: Tensor  # int64 [n]: the node above in the forest, -1 for a root
    pair: Tensor  # int64 [n]: the candidate pair that leads there, -1 for a root
    refused: Tensor  # bool [c]: accepted pairs that would have closed a cycle


class Memberships(NamedTuple):
    """The entries of the soft S."""

    source: Tensor  # int64 [nnz]: the node
    head: Tensor  # int64 [nnz]: the node that heads its cluster
    soft: Tensor  # [nnz]: S there
    member: Tensor  # [nnz]: M there
    is_head: Tensor  # [n]: the probability that a node heads a cluster


def memberships(plan: Plan, score: Tensor, reach: int) -> Memberships:
    """The entries of the soft S, from the log-odds `score` [c] of the candidate pairs."""
    n = plan.parent.numel()
    pair = plan.pair.clamp_min(0)
    free = plan.parent >= 0
    if plan.refused.numel():
        free = free & ~plan.refused[pair]  # what closes a cycle does not merge, however similar
    gate = torch.where(free, score.sigmoid().index_select(0, pair), 0) if score.numel() else score.new_zeros(n)
    node = torch.arange(n, device=score.device)
    sources, ancestors, ways = [node], [node], [torch.ones_like(gate)]
    for _ in range(reach):
        way = ways[-1] * gate.index_select(0, ancestors[-1])
        onward = (way.detach() > _NEGLIGIBLE).nonzero()[:, 0]
        sources.append(sources[-1][onward])
        ancestors.append(plan.parent[ancestors[-1][onward]])
        ways.append(way.index_select(0, onward))
    source, ancestor, way = torch.cat(sources), torch.cat(ancestors), torch.cat(ways)
    is_head = 1 - gate
    mass = torch.zeros_like(gate).index_add(0, ancestor, way)  # at least 1: every node reaches itself
    soft = (is_head / mass).index_select(0, ancestor) * way
    return Memberships(source, ancestor, soft, is_head.index_select(0, ancestor) * way, is_head)


def expected_edges(
    edge_index: Tensor, edge_weight: Tensor, edge_type: Tensor | None, plan: Plan, entries: Memberships, reach: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What an edge (s, t) is expected to weigh between the heads of s and t: M[s, a] M[t, b], if both can be.

    They cannot, where a and b are both above s and above t: the ways up have met by then, and go on as one. Edges of
    different types stay apart.
    """
    n = plan.parent.numel()
    above = [torch.arange(n, device=edge_index.device)]
    for _ in range(2 * reach):  # no head is further from the other end
        above.append(torch.where(above[-1] >= 0, plan.parent[above[-1].clamp_min(0)], -1))
    ways = torch.stack(above, 1)  # [n, 2 reach + 1], the node itself first, -1 beyond the root
    depth = (ways[entries.source] == entries.head[:, None]).int().argmax(1)
    belongs = entries.member.new_zeros(n, reach + 1).index_put((entries.source, depth), entries.member)
    (s, t), heads = edge_index, ways[:, : reach + 1]
    together = belongs[s][:, :, None] * belongs[t][:, None, :]  # [e, heads of s, heads of t]
    shared = [(heads[one][:, :, None] == ways[other][:, None, :]).any(2) for one, other in ((s, t), (t, s))]
    possible = (together.detach() != 0) & ~(shared[0][:, :, None] & shared[1][:, None, :])
    edge, near, far = possible.nonzero().unbind(1)
    weight = edge_weight[edge] * together[edge, near, far]
    kind = None if edge_type is None else edge_type[edge]
    return summed_by_type(torch.stack([heads[s[edge], near], heads[t[edge], far]]), weight, n, kind)
