"""The room of a layer: recurrence, messages and attention, each added to what was there before."""

import torch
from torch import Tensor, nn

from grapheme_nn.nn.attention import Attention
from grapheme_nn.nn.message import Messages
from grapheme_nn.nn.recurrence import Recurrence
from grapheme_nn.nn.structure import Structure


class Layer(nn.Module):
    """One round in which every node hears from the nodes near it, from all along the paths through it, and from all.

        x <- x + W recurrence(norm(x))
        x <- x + messages(norm(x))
        x <- x + attention(norm(x))         to the nodes and to the features

    x [B, n, d], features [B, f, d] with their mask bool [B, f], or None.
    """

    def __init__(self, channels: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.recurrence = Recurrence(channels, hidden)
        self.gather = nn.Linear(2 * hidden, channels)
        self.messages = Messages(channels)
        self.attention = Attention(channels, heads) if heads else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, structure: Structure, features: tuple[Tensor, Tensor] | None) -> Tensor:
        x = x + self.dropout(self.gather(self.recurrence(self.norms[0](x), structure)))
        x = x + self.dropout(self.messages(self.norms[1](x), structure))
        if self.attention is not None:
            seen = self.norms[2](x)
            mask = None if structure.full else structure.mask
            everything = seen
            if features is not None:
                everything = torch.cat([features[0], seen], 1)
                mask = torch.cat([features[1], structure.mask], 1)
            x = x + self.dropout(self.attention(seen, everything, mask))
        return x
