"""The room of what the layers know of a batch of graphs: which places hold a node, and how nodes are connected."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from grapheme_nn.graph import levels, topological_order


@dataclass(frozen=True, eq=False)
class Structure:
    """The graphs of a batch, padded to the same number of nodes n, each in topological order.

    edge_index is None where every graph is a chain, which text is: then shifts take the place of edges. In it, nodes
    are numbered as `flatten` puts them: graph after graph, without padding.
    """

    mask: Tensor  # bool [B, n]: where there is a node; padding comes last
    edge_index: Tensor | None = None  # int64 [2, e]

    @cached_property
    def full(self) -> bool:
        """Whether there is no padding at all."""
        return bool(self.mask.all())

    @cached_property
    def length(self) -> Tensor:
        """Nodes of each graph, int64 [B]."""
        return self.mask.sum(1)

    @cached_property
    def turned(self) -> Tensor:
        """For each place, the place that holds its node when every chain is turned round, int64 [B, n, 1]."""
        place = torch.arange(self.mask.size(1), device=self.mask.device)
        return torch.where(self.mask, self.length[:, None] - 1 - place, place)[:, :, None]

    @cached_property
    def depth(self) -> tuple[Tensor, Tensor]:
        """The longest path that ends in each node, and the longest that begins there, int64 [nodes] each."""
        assert self.edge_index is not None
        count = int(self.mask.sum())
        return levels(self.edge_index, count), levels(self.edge_index.flip(0), count)

    def edges(self) -> Tensor:
        """The edges of all graphs, int64 [2, e], whether they are chains or not."""
        if self.edge_index is not None:
            return self.edge_index
        first = torch.nn.functional.pad(self.length.cumsum(0), (1, 0))[:-1]
        follows = torch.ones(int(self.length.sum()), dtype=torch.bool, device=self.mask.device)
        follows[first[self.length > 0]] = False
        target = follows.nonzero()[:, 0]
        return torch.stack([target - 1, target])

    def blank(self, x: Tensor) -> Tensor:
        """[B, n, d] with zeros in the padding."""
        return x if self.full else x * self.mask[:, :, None]

    def flatten(self, x: Tensor) -> Tensor:
        """[B, n, d] to [nodes, d]."""
        return x[self.mask]

    def unflatten(self, x: Tensor) -> Tensor:
        """[nodes, d] to [B, n, d], zeros in the padding."""
        padded = x.new_zeros(*self.mask.shape, x.size(1))
        return padded.masked_scatter(self.mask[:, :, None], x)


def arrange(owner: Tensor, edge_index: Tensor, graphs: int) -> tuple[Structure, Tensor]:
    """The structure of DAGs whose node i belongs to graph `owner[i]`, and their nodes in its order, int64 [n]."""
    order = topological_order(edge_index, owner.numel())
    order = order[owner[order].argsort(stable=True)]
    mask = padding_mask(torch.bincount(owner, minlength=graphs))
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    edges = place[edge_index]
    source, target = edges
    # Every node but the first of each graph has exactly the node before it as its predecessor: chains.
    chained = source.numel() == order.numel() - int(mask.any(1).sum()) and bool((target == source + 1).all())
    chained = chained and bool((source[1:] > source[:-1]).all())
    return Structure(mask, None if chained else edges), order


def padding_mask(count: Tensor) -> Tensor:
    """Where there is something, bool [B, largest], for a count int64 [B]."""
    longest = int(count.max()) if count.numel() else 0
    return torch.arange(longest, device=count.device) < count[:, None]
