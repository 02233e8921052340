"""Unpooling: what a coarse graph has learned goes back to the nodes that it was made from."""

import torch
from torch import nn

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import check_counts
from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import Operator


class Lift(Operator):
    r"""Takes the last change back: each node becomes the nodes it was made from, which keep what they had.

    .. math:: x' = x_\text{before} + W (S x) + b, \qquad A' = A_\text{before}, \qquad S' = (S \neq 0)^T

    with S the assignment of the change taken back: a node hears from the clusters that it belongs to, as in a graph
    U-Net (Gao and Ji, 2019). The history of merging and lifting leads from each node to the members of its cluster;
    what a node *is* (`Morph.main_nodes`) it stays.

    A Lift right after another takes back the change before that one, as a U-Net goes up: after `Merge, Merge, Lift,
    Lift` the nodes are those of the beginning.

    channels: d. The graph must have been changed by an operator before.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_counts(channels=channels)
        self.channels = channels
        self.linear = nn.Linear(channels, channels)

    def change(self, graph: Morph) -> Morph:
        changed = graph if graph.lifted_to is None else graph.lifted_to
        fine = changed.before
        if fine is None:
            raise ValueError("there is no change to take back: Lift comes after an operator that makes a graph coarser")
        change = changed.assignment
        x = fine.x + self.linear(change.lift(graph.x))
        whole = torch.ones_like(change.weight)
        back = Assignment(change.target, change.source, whole, change.num_targets, change.num_sources, checked=False)
        own = {"order": fine.order, "existence": fine.existence, "unit": fine.unit, "edge_type": fine.edge_type}
        level = fine if fine.lifted_to is None else fine.lifted_to
        morph = graph.changed(x, fine.edge_index, fine.edge_weight, fine.batch, back, lifted_to=level, **own)
        known = {name: fine.__dict__[name] for name in ("is_chain", "padding") if name in fine.__dict__}
        return morph.knowing(main_nodes=fine.main_nodes, **known)
