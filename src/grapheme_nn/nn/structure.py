"""What the layers know of a batch of graphs: where its nodes stand in dense tensors, and how they are connected."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from grapheme_nn.dag import levels
from grapheme_nn.morph.base import Morph
from grapheme_nn.nn.aggregation import aggregate
from grapheme_nn.padding import Padding


@dataclass(frozen=True, eq=False)
class Structure:
    """The graphs of a batch in dense tensors of n rows each, in topological order."""

    padding: Padding
    edge_index: Tensor | None = None  # int64 [2, e]; None where every graph is a chain: shifts take the place of edges
    edge_weight: Tensor | None = None  # [e]; None where each is 1
    edge_type: Tensor | None = None  # int64 [e]; None where they have none

    @classmethod
    def of(cls, graph: Morph) -> "Structure":
        if graph.is_chain:
            return cls(graph.padding)
        return cls(graph.padding, graph.structure_edges, graph.structure_weights, graph.structure_types)

    @property
    def mask(self) -> Tensor:
        """Where there is a node, bool [B, n]."""
        return self.padding.mask

    @cached_property
    def reversed(self) -> Tensor:
        """For each row, the row that holds its node when every chain is turned round, int64 [B, n, 1]."""
        row = torch.arange(self.mask.size(1), device=self.mask.device)
        return torch.where(self.mask, self.padding.length[:, None] - 1 - row, row)[:, :, None]

    @cached_property
    def sweeps(self) -> tuple[list["Level"], list["Level"]]:
        """The levels of the graphs along the edges, those without predecessors first, and against them."""
        assert self.edge_index is not None
        return _levels(self.edge_index, self.num_nodes), _levels(self.edge_index.flip(0), self.num_nodes)

    @cached_property
    def num_nodes(self) -> int:
        return int(self.padding.length.sum())

    def weighted_mean(
        self, value: Tensor, at: Tensor, chosen: Tensor | None = None, count: int | None = None
    ) -> Tensor:
        """The mean over the edges that lead to (or from) each node, weighed by them: [e, d] and nodes [e] to [N, d].

        Edges that together weigh less than 1 count as less: sum w v / max(sum w, 1). `chosen` are the edges meant, and
        `count` how many nodes, where these are not all.
        """
        count = self.num_nodes if count is None else count
        weight = self.edge_weight
        if weight is None:
            return aggregate(value, at, count, "mean")
        weight = (weight if chosen is None else weight[chosen])[:, None]
        total = aggregate(torch.cat([weight * value, weight], 1), at, count)
        return total[:, :-1] / total[:, -1:].clamp_min(1)

    def blank(self, x: Tensor) -> Tensor:
        """[B, n, d] with zeros in the padding."""
        return x if self.padding.full else x * self.mask[:, :, None]


class Level(NamedTuple):
    """Nodes that wait for nodes of earlier levels alone, and the edges that lead to them."""

    node: Tensor  # int64 [k]
    edge: Tensor  # int64 [a]: which edges arrive
    source: Tensor  # int64 [a]: where they come from
    row: Tensor  # int64 [a]: where they lead, as a row of `node`


def _levels(edge_index: Tensor, num_nodes: int) -> list[Level]:
    """The levels of DAGs in order; linear time."""
    level = levels(edge_index, num_nodes)
    node, edge = level.argsort(stable=True), level[edge_index[1]].argsort(stable=True)
    first = torch.bincount(level).cumsum(0)
    place = torch.empty_like(node).index_copy_(0, node, torch.arange(num_nodes, device=node.device))
    arriving = torch.bincount(level[edge_index[1]], minlength=first.numel()).tolist()
    begin = torch.cat([first.new_zeros(1), first])[:-1]
    row = place[edge_index[1]] - begin[level[edge_index[1]]]
    parts = (torch.split(part, arriving) for part in (edge, edge_index[0, edge], row[edge]))
    return [Level(*each) for each in zip(torch.split(node, torch.bincount(level).tolist()), *parts, strict=True)]


class EdgeTypes(nn.Module):
    r"""What goes along an edge depends on its type: 5 - 3 is not 3 - 5 (FiLM: Perez et al., 2018).

    .. math:: v' = (1 + a_t) v + b_t

    channels: of what goes along; types: how many there are, and one more, 0, for any other. a and b are other ones in
    the opposite direction.
    """

    def __init__(self, channels: int, types: int) -> None:
        super().__init__()
        self.scale = nn.Embedding(2 * (1 + types), channels)
        self.shift = nn.Embedding(2 * (1 + types), channels)
        self.types = types
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.scale.weight, std=0.5)
        nn.init.normal_(self.shift.weight, std=0.5)

    def forward(self, value: Tensor, edge_type: Tensor, direction: int) -> Tensor:
        """value [e, d] of edges of these types [e], along them (direction 0) or against them (1)."""
        row = edge_type + direction * (1 + self.types)
        typed: Tensor = value * (1 + self.scale(row)) + self.shift(row)
        return typed
