"""Splitting of every node into several, so that graphs can grow."""

import torch
from torch import Tensor, nn

from grapheme_nn.assignment import Assignment, Entries
from grapheme_nn.dag import check_counts
from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import Operator


class Split(Operator):
    """Each node becomes `parts` children, each a learned function of its parent, chained in order.

        x'[i parts + r] = W_r x[i] + b_r
        S[i, i parts + r] = 1

    Edges into a node go to its first child, edges out of it leave its last; from each child an edge of weight 1, and
    of type 0 where edges have types, goes to the next. A DAG stays a DAG: every walk through the result is one through
    the graph before.

    With `acyclic=False` it takes any graph, and an undirected one stays undirected: edges go between first children,
    and those from each child to the next have one back. No host copies.
    """

    def __init__(self, channels: int, parts: int, *, acyclic: bool = True) -> None:
        super().__init__()
        check_counts(channels=channels, parts=parts)
        self.channels, self.parts, self.acyclic = channels, parts, acyclic
        self.children_of = nn.Linear(channels, parts * channels)

    def change(self, graph: Morph) -> Morph:
        n, parts, device = graph.num_nodes, self.parts, graph.device

        def children() -> Tensor:
            return torch.arange(n * parts, device=device).view(n, parts)

        def entries() -> Entries:
            child = children().flatten()
            return child // parts, child, self.children_of.weight.new_ones(n * parts)

        def edges() -> tuple[Tensor, Tensor]:
            child = children()
            inner = torch.stack([child[:, :-1].flatten(), child[:, 1:].flatten()])
            outer = graph.edge_index * parts
            if self.acyclic:
                outer[0] += parts - 1
            else:
                inner = torch.cat([inner, inner.flip(0)], dim=1)
            weight = torch.cat([graph.edge_weight, graph.edge_weight.new_ones(inner.size(1))])
            return torch.cat([outer, inner], dim=1), weight

        types, order = graph.edge_type, graph.in_order if self.acyclic else graph.order
        new_edges = n * (parts - 1) * (1 if self.acyclic else 2)
        chained = (
            self.acyclic and "is_chain" in graph.__dict__
        )  # a network looked: nobody need look at these edges again
        features = self.children_of(graph.dense if chained else graph.x)
        morph = graph.changed(
            features.view(-1, self.channels),
            features,  # until somebody asks for edges
            features,
            None if graph.batch is None else graph.batch.repeat_interleave(parts),
            Assignment.lazy(entries, n, n * parts),
            # Children stay together: by levels alone, those of parallel nodes would alternate.
            order=None if order is None else children()[order].flatten(),
            unit=None if graph.unit is None else graph.unit.repeat_interleave(parts),
            edge_type=None if types is None else torch.cat([types, types.new_zeros(new_edges)]),
        ).later(("edge_index", "edge_weight"), edges)
        if chained:
            morph = morph.knowing(is_chain=graph.is_chain, padding=graph.padding.split(parts))
            morph = morph.with_dense(features.view(*morph.padding.mask.shape, self.channels))
        return morph
