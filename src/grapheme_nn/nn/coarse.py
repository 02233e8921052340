"""The room of the coarse view: nodes that are alike merge, the merged graph is thought about, and the result lifted."""

import torch
from torch import Tensor, nn

from grapheme_nn.morph.merge import Merge
from grapheme_nn.nn.layer import Layer
from grapheme_nn.nn.structure import Structure, arrange


class Coarse(nn.Module):
    """Merge, a layer on the merged graph, and lift back to the nodes: [B, n, d] to [B, n, d]."""

    def __init__(self, channels: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.merge = Merge()
        self.layer = Layer(channels, heads, hidden, dropout)
        self.answer = nn.Linear(channels, channels)

    def forward(self, x: Tensor, structure: Structure, features: tuple[Tensor, Tensor] | None) -> Tensor:
        graphs = structure.mask.size(0)
        owner = torch.arange(graphs, device=x.device).repeat_interleave(structure.length)
        morph = self.merge(structure.flatten(x), structure.edges(), None, owner)
        coarse, order = arrange(morph.batch, morph.edge_index, graphs)
        thought = coarse.flatten(self.layer(coarse.unflatten(morph.x[order]), coarse, features))
        back = torch.empty_like(thought).index_copy(0, order, thought)
        lifted: Tensor = self.answer(structure.unflatten(morph.assignment.lift(back)))
        return lifted
