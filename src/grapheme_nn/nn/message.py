"""Message passing from the nodes one and two edges before and after a node; on a chain, a convolution."""

import torch
from torch import Tensor, nn

from grapheme_nn.nn.structure import EdgeTypes, Structure


class Messages(nn.Module):
    r"""Messages along edges, in both directions, from up to `hops` edges away.

    .. math:: y = W'' \operatorname{relu}\big(W' [P^2 z, Pz, z, Fz, F^2 z]\big), \quad z = W x

    z, the message of a node, has half as many channels as x. P takes the mean over a node's predecessors, F over its
    successors, weighed by the edges; on a chain they are shifts, and this is a convolution of width 1 + 2 hops.
    x, y: [B, n, d], padded.
    """

    def __init__(self, channels: int, *, hops: int = 2, types: int = 0) -> None:
        super().__init__()
        self.hops = hops
        self.typed = EdgeTypes(channels // 2, types) if types else None
        self.message = nn.Linear(channels, channels // 2)
        self.combine = nn.Linear((1 + 2 * hops) * (channels // 2), channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, structure: Structure) -> Tensor:
        message = self.message(x)
        gathered = (
            self._shifted(message, structure) if structure.edge_index is None else self._along_edges(message, structure)
        )
        y: Tensor = self.out(self.combine(gathered).relu_())
        return y

    def _shifted(self, message: Tensor, structure: Structure) -> Tensor:
        batch, n, d = message.shape
        padded = nn.functional.pad(structure.blank(message), (0, 0, self.hops, self.hops))
        # Windows as a view: node i sees rows i to i + 2 hops, that is itself in the middle.
        return padded.as_strided((batch, n, (1 + 2 * self.hops) * d), (padded.stride(0), d, 1))

    def _along_edges(self, message: Tensor, structure: Structure) -> Tensor:
        assert structure.edge_index is not None
        source, target = structure.edge_index
        node = structure.padding.flat(message)
        before, after = [node], [node]
        for _ in range(self.hops):
            before.append(structure.weighted_mean(self._by_type(before[-1][source], structure, 0), target))
            after.append(structure.weighted_mean(self._by_type(after[-1][target], structure, 1), source))
        # The order of a window: the furthest predecessor first, the furthest successor last.
        return structure.padding.dense(torch.cat([*before[::-1], *after[1:]], 1))

    def _by_type(self, value: Tensor, structure: Structure, direction: int) -> Tensor:
        if self.typed is None or structure.edge_type is None:
            return value
        typed: Tensor = self.typed(value, structure.edge_type, direction)
        return typed
