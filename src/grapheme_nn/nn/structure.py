"""What the layers know of a batch of graphs: where its nodes stand in dense tensors, and how they are connected."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from grapheme_nn.graph import levels
from grapheme_nn.morph.base import Morph
from grapheme_nn.nn.aggregation import aggregate
from grapheme_nn.padding import Padding


@dataclass(frozen=True, eq=False)
class Structure:
    """The graphs of a batch in dense tensors of n rows each, in topological order."""

    padding: Padding
    edge_index: Tensor | None = None  # int64 [2, e]; None where every graph is a chain: shifts take the place of edges
    edge_weight: Tensor | None = None  # [e]; None where each is 1

    @classmethod
    def of(cls, graph: Morph) -> "Structure":
        if graph.is_chain:
            return cls(graph.padding)
        return cls(graph.padding, graph.structure_edges, graph.structure_weights)

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
    def depth(self) -> tuple[Tensor, Tensor]:
        """The longest path that ends in each node, and the longest that begins there, int64 [nodes] each."""
        assert self.edge_index is not None
        count = int(self.padding.length.sum())
        return levels(self.edge_index, count), levels(self.edge_index.flip(0), count)

    def weighted_mean(self, value: Tensor, at: Tensor, chosen: Tensor | None = None) -> Tensor:
        """The mean over the edges that lead to (or from) each node, weighed by them: [e, d] and nodes [e] to [N, d].

        Edges that together weigh less than 1 count as less: sum w v / max(sum w, 1). `chosen` are the edges meant.
        """
        count = int(self.padding.length.sum())
        weight = self.edge_weight
        if weight is None:
            return aggregate(value, at, count, "mean")
        weight = (weight if chosen is None else weight[chosen])[:, None]
        total = aggregate(torch.cat([weight * value, weight], 1), at, count)
        return total[:, :-1] / total[:, -1:].clamp_min(1)

    def blank(self, x: Tensor) -> Tensor:
        """[B, n, d] with zeros in the padding."""
        return x if self.padding.full else x * self.mask[:, :, None]
