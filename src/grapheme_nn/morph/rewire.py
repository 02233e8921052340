"""Deletion and insertion of edges: of a DAG forward in topological order only, of other graphs near by."""

from math import sqrt

import torch
from torch import nn

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import check_counts, near_pairs
from grapheme_nn.derivatives import straight_through
from grapheme_nn.morph.base import Morph, pairs_within
from grapheme_nn.morph.operator import Operator


class Rewire(Operator):
    """Deletes edges of a DAG and inserts new ones, at most `reach` places forward in topological order.

        gate(i, j) = sigmoid(q(x_i) . k(x_j) / sqrt(d) + b)        b: one bias for edges that exist, one for new ones
        weight'(i, j) = gate weight(i, j) for an edge that exists, gate for a new one

    An edge is there where its gate is above one half. In training the weights are those hard ones with the gradient of
    the soft gates (straight-through), and an edge that is not there stays in the list with weight 0, so that it can
    come back; in `eval()` it is gone. All edges point forward in one order, so the result is acyclic whatever the gates
    say. The nodes stay: the assignment is the identity. Edges keep their types, and new ones are of type 0, where edges
    have types. In `eval()` the number of edges depends on the values.

    With `acyclic=False` it takes any graph: new edges lead both ways between nodes at most `reach` edges apart, and a
    gate is the same both ways, (q(x_i) . k(x_j) + q(x_j) . k(x_i)) / 2 in place of q(x_i) . k(x_j), so that an
    undirected graph stays undirected. The pairs near by are found on the host.
    """

    def __init__(self, channels: int, reach: int = 2, *, acyclic: bool = True) -> None:
        super().__init__()
        check_counts(channels=channels)
        check_counts(0, reach=reach)
        self.channels, self.reach, self.acyclic = channels, reach, acyclic
        self.query = nn.Linear(channels, channels, bias=False)
        self.key = nn.Linear(channels, channels, bias=False)
        self.bias = nn.Parameter(torch.empty(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.bias.copy_(torch.tensor([2.0, -2.0]))  # at first, what exists stays and nothing is new

    def change(self, graph: Morph) -> Morph:
        x, edge_index, edge_weight, types = graph.x, graph.edge_index, graph.edge_weight, graph.edge_type
        n = graph.num_nodes
        if self.acyclic:
            # What points back in a soft graph is no structure, and would close cycles.
            edge_index, edge_weight, types = graph.structure_edges, graph.structure_weights, graph.structure_types
            near, far = pairs_within(self.reach, graph.sequence, graph.owner)
        else:
            near, far = near_pairs(edge_index, n, self.reach)
        is_edge = torch.isin(near * n + far, edge_index[0] * n + edge_index[1])
        pairs = torch.cat([edge_index, torch.stack([near[~is_edge], far[~is_edge]])], dim=1)
        is_new = torch.arange(pairs.size(1), device=x.device) >= edge_index.size(1)
        query, key = self.query(x), self.key(x)
        score = (query[pairs[0]] * key[pairs[1]]).sum(dim=1)
        if not self.acyclic:
            score = (score + (query[pairs[1]] * key[pairs[0]]).sum(dim=1)) / 2
        score = score / sqrt(x.size(1))
        gate = (score + self.bias[is_new.long()]).sigmoid()
        hard = torch.where(gate.isnan(), gate, (gate > 0.5).to(gate.dtype))  # nan is handed on, for all to see
        weight = torch.cat([edge_weight, edge_weight.new_ones(pairs.size(1) - edge_index.size(1))])
        if types is not None:
            types = torch.cat([types, types.new_zeros(pairs.size(1) - edge_index.size(1))])
        if self.training:
            weight = weight * straight_through(hard, gate)
        else:
            kept = hard != 0
            pairs, weight = pairs[:, kept], (weight * hard)[kept]
            types = None if types is None else types[kept]
        same = Assignment.identity(x.size(0), device=x.device)
        order = graph.in_order if self.acyclic else graph.order
        return graph.changed(x, pairs, weight, graph.batch, same, order=order, edge_type=types)
