"""The room of splitting: a node becomes several, so that text can grow."""

import torch
from torch import Tensor, nn

from grapheme_nn.assignment import Assignment
from grapheme_nn.morph.base import Morph, check_channels, weights_or_ones


class Split(nn.Module):
    """Each node becomes `parts` children, each a learned function of its parent, chained in order.

        x'[i parts + r] = W_r x[i] + b_r
        S[i, i parts + r] = 1

    Edges into a node go to its first child, edges out of it leave its last; from each child an edge of weight 1 goes to
    the next. A DAG stays a DAG: every walk through the result is one through the graph before. No host copies.
    """

    def __init__(self, channels: int, parts: int) -> None:
        super().__init__()
        if channels < 1 or parts < 1:
            raise ValueError(f"a node of {channels} channels cannot become {parts} parts: both must be at least 1")
        self.channels, self.parts = channels, parts
        self.children_of = nn.Linear(channels, parts * channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Morph:
        check_channels(x, self.channels)
        edge_weight = weights_or_ones(x, edge_index, edge_weight)
        n, parts = x.size(0), self.parts
        child = torch.arange(n * parts, device=x.device).view(n, parts)
        inner = torch.stack([child[:, :-1].flatten(), child[:, 1:].flatten()])
        outer = torch.stack([edge_index[0] * parts + parts - 1, edge_index[1] * parts])
        parent = child.flatten() // parts
        return Morph(
            x=self.children_of(x).view(n * parts, self.channels),
            edge_index=torch.cat([outer, inner], dim=1),
            edge_weight=torch.cat([edge_weight, edge_weight.new_ones(inner.size(1))]),
            batch=None if batch is None else batch[parent],
            assignment=Assignment._unchecked(parent, child.flatten(), x.new_ones(n * parts), n, n * parts),
        )
