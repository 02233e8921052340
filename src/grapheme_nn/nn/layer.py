"""A layer of the network: recurrence, message passing and attention, each added to what was there before."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from grapheme_nn.config import ModelConfig
from grapheme_nn.morph.base import Condition, Morph
from grapheme_nn.nn.attention import Attention, EdgeBias
from grapheme_nn.nn.message import Messages
from grapheme_nn.nn.recurrence import Recurrence
from grapheme_nn.nn.structure import Structure


class Layer(nn.Module):
    """One round in which every node hears from the nodes near it, from all along the paths through it, and from all.

        x <- x + W recurrence(norm(x))
        x <- x + messages(norm(x))
        x <- x + attention(norm(x))         to the nodes and to what conditions them

    x [B, n, d]; heads 0 for no attention; types of edges 0 where edges have none.
    """

    def __init__(self, channels: int, heads: int, hidden: int, dropout: float, *, types: int = 0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3 if heads else 2))
        self.recurrence = Recurrence(channels, hidden, types=types)
        self.recurrence_out = nn.Linear(2 * hidden, channels)
        self.messages = Messages(channels, types=types)
        self.attention = Attention(channels, heads) if heads else None
        self.edge_bias = EdgeBias(heads, types) if heads and types else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, structure: Structure, condition: Condition | None) -> Tensor:
        x = x + self._dropped(self.recurrence_out(self.recurrence(self.norms[0](x), structure)))
        x = x + self._dropped(self.messages(self.norms[1](x), structure))
        if self.attention is not None:
            query = context = self.norms[2](x)
            mask = None if structure.padding.full else structure.mask
            bias = None if self.edge_bias is None else self.edge_bias(structure)
            if condition is not None:
                bias = None if bias is None else pad(bias, (condition.x.size(1), 0))  # features share no edge
                context = torch.cat([condition.x, query], 1)
                mask = torch.cat([condition.mask, structure.mask], 1)
            x = x + self._dropped(self.attention(query, context, mask, bias))
        return x

    def _dropped(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.training else x  # a call that does nothing costs a word 1% of its time


class Layers(nn.Module):
    """`count` layers over a graph and a LayerNorm: features change, the structure does not."""

    def __init__(self, config: ModelConfig, count: int) -> None:
        super().__init__()
        make = (config.width, config.heads, config.hidden, config.dropout)
        self.layers = nn.ModuleList(Layer(*make, types=len(config.edge_types)) for _ in range(count))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, graph: Morph) -> Morph:
        structure, x = Structure.of(graph), graph.dense
        for layer in self.layers:
            x = layer(x, structure, graph.condition)
        return graph.with_dense(self.norm(x))
