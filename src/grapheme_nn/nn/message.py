"""The room of message passing: a node hears from the nodes one and two edges before and after it."""

import torch
from torch import Tensor, nn

from grapheme_nn.nn.aggregation import aggregate
from grapheme_nn.nn.structure import Structure


class Messages(nn.Module):
    r"""Messages along edges, in both directions, from up to `hops` edges away, then one hidden layer.

    .. math:: y = W' \operatorname{relu}\big(W [x, Px, P^2 x, Fx, F^2 x]\big)

    P takes the mean over a node's predecessors, F over its successors; on a chain they are shifts, and this is a
    convolution of width 1 + 2 hops. x and y are [B, n, d], padded.
    """

    def __init__(self, channels: int, *, hops: int = 2) -> None:
        super().__init__()
        self.hops = hops
        self.hear = nn.Linear((1 + 2 * hops) * channels, channels)
        self.answer = nn.Linear(channels, channels)

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        heard = self._shifted(x, structure) if structure.edge_index is None else self._along_edges(x, structure)
        y: Tensor = self.answer(self.hear(heard).relu_())
        return y

    def _shifted(self, x: Tensor, structure: Structure) -> Tensor:
        batch, n, d = x.shape
        padded = nn.functional.pad(structure.blank(x), (0, 0, self.hops, self.hops))
        # Windows as a view: node i sees rows i to i + 2 hops, that is itself in the middle.
        return padded.as_strided((batch, n, (1 + 2 * self.hops) * d), (padded.stride(0), d, 1))

    def _along_edges(self, x: Tensor, structure: Structure) -> Tensor:
        assert structure.edge_index is not None
        source, target = structure.edge_index
        node = structure.flatten(x)
        count = node.size(0)
        before, after = [node], [node]
        for _ in range(self.hops):
            before.append(aggregate(before[-1][source], target, count, "mean"))
            after.append(aggregate(after[-1][target], source, count, "mean"))
        # The order of a window: the furthest predecessor first, the furthest successor last.
        return structure.unflatten(torch.cat([*before[::-1], *after[1:]], 1))
