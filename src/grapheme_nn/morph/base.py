"""The room of what every change of a graph hands on, and of the history of many changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grapheme_nn.assignment import Assignment
from grapheme_nn.graph import levels


@dataclass(frozen=True, eq=False)
class Morph:
    """A graph after a change, and the assignment that tells how it came about.

    With n nodes before, k after, e' edges after:
    """

    x: Tensor  # [k, d]: features
    edge_index: Tensor  # int64 [2, e']
    edge_weight: Tensor  # [e']
    batch: Tensor | None  # int64 [k]: the graph of each node, None where none was given
    assignment: Assignment  # n -> k
    losses: dict[str, Tensor] = field(default_factory=dict)  # scalars by name, to be added to the task's own loss
    log_probability: Tensor | None = None  # [number of graphs]: of the sampled decisions, where they were sampled


def history(morphs: Sequence[Morph]) -> Assignment:
    """The assignment from the first graph's nodes to the last graph's: the product of all, in order."""
    if not morphs:
        raise ValueError("the history of no change is not defined: give at least one morph")
    total = morphs[0].assignment
    for morph in morphs[1:]:
        total = total.compose(morph.assignment)
    return total


def weights_or_ones(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The weights of the edges [e], in the type of the features; 1 each where none are given. Checks what was given."""
    if x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"x must be floating point of shape [n, d], but is {x.dtype} {list(x.shape)}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, e], but has {list(edge_index.shape)}")
    if edge_index.device != x.device:
        raise ValueError(f"edge_index is on {edge_index.device}, but x is on {x.device}: move one of them with .to()")
    if edge_weight is None:
        return torch.ones(edge_index.size(1), dtype=x.dtype, device=x.device)
    if edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(f"edge_weight has shape {list(edge_weight.shape)}, but there are {edge_index.size(1)} edges")
    return edge_weight.to(x.dtype)


def check_channels(x: Tensor, channels: int) -> None:
    if x.size(-1) != channels:
        raise ValueError(f"x has {x.size(-1)} channels, but this operator was made for {channels}")


def batch_or_zeros(x: Tensor, batch: Tensor | None) -> Tensor:
    """The graph of each node, int64 [n]."""
    if batch is None:
        return torch.zeros(x.size(0), dtype=torch.long, device=x.device)
    if batch.shape != x.shape[:1]:
        raise ValueError(f"batch has shape {list(batch.shape)}, but there are {x.size(0)} nodes")
    return batch


def graph_order(edge_index: Tensor, batch: Tensor) -> Tensor:
    """The nodes graph after graph, each graph's in its own topological order, int64 [n].

    As `topological_order`, but by the edges of a node's own graph alone: what else is in the batch must not matter.
    """
    n = batch.numel()
    place = torch.arange(n, device=batch.device)
    backward = edge_index[0] >= edge_index[1]
    if bool(backward.any()):
        unordered = torch.zeros_like(place).index_put_((batch[edge_index[0, backward]],), place.new_ones(()))
        place = torch.where(unordered[batch].bool(), levels(edge_index, n), place)
        place = place.argsort(stable=True)
        return place[batch[place].argsort(stable=True)]
    return batch.argsort(stable=True)
