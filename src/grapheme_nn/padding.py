"""Dense tensors for batches of graphs: nodes to padded rows and back."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from grapheme_nn.dag import is_sorted


@dataclass(frozen=True, eq=False)
class Padding:
    """Where the N nodes of B graphs stand in dense tensors of n rows a graph. Nodes come first, padding last."""

    mask: Tensor  # bool [B, n]: where there is a node
    index: Tensor | None  # int64 [N]: the row b n + i of each node; None where node j is in row j

    @classmethod
    def of(cls, owner: Tensor, num_graphs: int, order: Tensor | None = None) -> "Padding":
        """For nodes that belong to the graphs `owner` int64 [N].

        `order` int64 [N] lists the nodes graph after graph, as their rows shall come; by default in their own order.
        """
        if order is None and not is_sorted(owner):
            order = owner.argsort(stable=True)
        return cls.of_counts(torch.bincount(owner, minlength=num_graphs), order)

    @classmethod
    def of_counts(cls, count: Tensor, order: Tensor | None = None) -> "Padding":
        """For graphs of `count` int64 [B] nodes each, one after the other."""
        sizes = count.numpy(force=True)  # the host must know them, and counts a few numbers faster than torch
        longest = int(sizes.max(initial=0))
        mask = torch.from_numpy(np.arange(longest) < sizes[:, None]).to(count.device)
        if order is None and (sizes == longest).all():
            return cls(mask, None)
        row = mask.flatten().nonzero()[:, 0]
        return cls(mask, row if order is None else torch.empty_like(row).index_copy_(0, order, row))

    @cached_property
    def full(self) -> bool:
        """Whether no row is padding."""
        return self.index is None or self.index.numel() == self.mask.numel()

    @cached_property
    def length(self) -> Tensor:
        """Nodes of each graph, int64 [B]."""
        return self.mask.sum(1)

    @cached_property
    def owner(self) -> Tensor:
        """The graph of each node, int64 [N]."""
        return self.flat(torch.arange(len(self.mask), device=self.mask.device)[:, None].expand_as(self.mask))

    def dense(self, x: Tensor) -> Tensor:
        """Nodes to rows: [N, ...] to [B, n, ...], 0 in the padding."""
        graphs, rows = self.mask.shape
        if self.index is not None:
            x = x.new_zeros(graphs * rows, *x.shape[1:]).index_copy(0, self.index, x)
        return x.reshape(graphs, rows, *x.shape[1:])

    def flat(self, x: Tensor) -> Tensor:
        """Rows to nodes: [B, n, ...] to [N, ...]."""
        x = x.flatten(0, 1)
        return x if self.index is None else x.index_select(0, self.index)

    def split(self, parts: int) -> "Padding":
        """Where the nodes stand when each becomes `parts` nodes in a row, numbered one after the other."""
        mask = self.mask.repeat_interleave(parts, 1)
        if self.index is None:
            return Padding(mask, None)
        return Padding(mask, (self.index[:, None] * parts + torch.arange(parts, device=mask.device)).flatten())
