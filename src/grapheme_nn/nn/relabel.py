"""Relabelling: for each slot the probabilities of being nothing, what it was made from, or one of the labels."""

import torch
from torch import Tensor, nn

from grapheme_nn.candidates import PAIRWISE
from grapheme_nn.config import ModelConfig
from grapheme_nn.graph import label_identities
from grapheme_nn.morph.base import Morph, before_split
from grapheme_nn.nn.attention import Attention
from grapheme_nn.predicted import COPY, VOID, PredictedGraph, Vocabulary

KEEP = (1.0, 3.0)  # by how much, at first, a later slot of a node is void, and its first slot a copy
_FARTHEST = 30.0  # how far from 1 the odds of a void may be for the gradient of existence


class Relabel(nn.Module):
    r"""The last morph of a network: slots, which look back at all nodes of the graph before, become a predicted graph.

    .. math:: y = \operatorname{relu}(x) + \operatorname{attention}(\operatorname{relu}(x), x_\text{before}), \qquad
              p = \operatorname{softmax}(W y + b)

    A slot that exists with probability e (`Morph.existence`) has the void at 1 - e + e p(void), all else at e p.

    config: of the network; has_void: whether a slot may be nothing.
    """

    def __init__(self, config: ModelConfig, *, has_void: bool = True) -> None:
        super().__init__()
        self.has_void = has_void
        self.norm = nn.LayerNorm(config.width) if config.heads else None
        self.attention = Attention(config.width, config.heads) if config.heads else None
        self.dropout = nn.Dropout(config.dropout)
        self.label = nn.Linear(config.width, 2 + len(config.labels))
        # Where edges are choices of pairs, at first the first slot of a node copies it and the others are void.
        graphs = config.input_unit == config.target_unit == "graph"
        self.keep = nn.Parameter(torch.tensor(KEEP)) if graphs and config.edges in PAIRWISE else None
        unit, order = torch.from_numpy(label_identities(config.labels)).sort()
        self.register_buffer("unit", unit, persistent=False)
        self.register_buffer("unit_label", order + 2, persistent=False)
        self.unit: Tensor
        self.unit_label: Tensor

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.unit, self.unit_label)

    def forward(self, graph: Morph) -> PredictedGraph:
        padding, origin = graph.padding, graph.origin
        x = graph.dense.relu()
        if self.attention is not None and self.norm is not None:
            # Text may change its order: what a slot becomes can be far from the node it was made from.
            before = graph if graph.before is None else graph.before
            mask = None if before.padding.full else before.padding.mask
            x = x + self.attention(self.norm(x), before.dense, mask)
        x = self.dropout(x)
        score = self.label(x)
        if self.keep is not None:
            slot = torch.arange(score.size(1), device=score.device) % before_split(graph)[1]
            first = (slot == 0).to(score.dtype)[:, None]
            prior = torch.cat([(1 - first) * self.keep[VOID], first * self.keep[COPY]], 1)
            score = torch.cat([score[:, :, :2] + prior, score[:, :, 2:]], 2)
        if not self.has_void:
            score = torch.cat([torch.full_like(score[:, :, :1], -torch.inf), score[:, :, 1:]], 2)
        log_prob = score.log_softmax(2)
        if graph.existence is not None:
            log_prob = self._existing(log_prob, padding.dense(graph.existence - 1).to(score.dtype) + 1)
        unit = graph.unit
        if unit is None:
            assert origin.unit is not None
            unit = torch.where(graph.main_nodes >= 0, origin.unit[graph.main_nodes], 0)
        return PredictedGraph(log_prob, None, graph, x, padding.dense(unit), self.vocabulary, checked=False)

    def _existing(self, log_prob: Tensor, existence: Tensor) -> Tensor:
        """Log-probabilities [B, s, V] of slots that exist with a probability [B, s]."""
        labels = log_prob[:, :, VOID + 1 :] + existence.clamp_min(torch.finfo(log_prob.dtype).tiny).log()[:, :, None]
        void = log_prob[:, :, VOID]
        if self.has_void:
            # log(1 - e + e p) = log p + log(1 + (1 - e) (1 / p - 1)), which has a gradient at e = 1 too.
            void = void + torch.log1p((1 - existence) * torch.expm1((-void).clamp(max=_FARTHEST)))
        return torch.cat([void[:, :, None], labels], 2)
