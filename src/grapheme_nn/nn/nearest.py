"""Pointers along a chain to the nearest node that matches: from the words of a text to what they depend on."""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from grapheme_nn.candidates import CandidateEdges
from grapheme_nn.config import ModelConfig
from grapheme_nn.graph import type_identities
from grapheme_nn.morph.base import Morph


class NearestConsumer(nn.Module):
    r"""For each slot of a chain, which other slot it is an operand of: the nearest one to the left, or to the right,
    that matches (geometric attention: Csordás et al., 2022).

    .. math:: p(i \to j, t) = p(\text{side}) \, \sigma(a_{ij}) \prod_k (1 - \sigma(a_{ik})) \, p(t \mid i, j), \quad
              a_{ij} = q(x_i) \cdot k(x_j) / \sqrt{d}

    with the product over all k between i and j. Which side it is, or none, is decided by x_i and what the nearest ones
    on either side are. Nothing in it depends on how long the chain is, so that what was learned on short texts holds on
    long ones. Time and memory O(s^2).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.inner, self.types = config.width, config.width // 2, len(config.target_edge_types)
        self.query, self.key = nn.Linear(width, 2 * self.inner), nn.Linear(width, self.inner)
        self.value = nn.Linear(width, self.inner, bias=False)
        self.side = nn.Sequential(nn.Linear(width + 2 * self.inner, width), nn.ReLU(), nn.Linear(width, 3))
        self.type_query = nn.Linear(width, 2 * self.types * self.inner)
        self.type_key = nn.Linear(width, self.inner, bias=False)
        self.register_buffer("type_ids", torch.tensor(type_identities(config.target_edge_types)), persistent=False)
        self.type_ids: Tensor

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def forward(self, graph: Morph, x: Tensor) -> CandidateEdges:
        """The candidate edges of the slots of chains with features x [B, s, d]."""
        mask, (batch, slots, _) = graph.padding.mask, x.shape
        scale = self.inner**-0.5
        query = self.query(x).view(batch, slots, 2, self.inner).transpose(1, 2) * scale
        match = query @ self.key(x).mT[:, None]  # [B, side, s, s]
        place = torch.arange(slots, device=x.device)
        to_left, to_right = place[:, None] > place, place[:, None] < place
        there = torch.stack([to_left, to_right]) & mask[:, None, None, :] & mask[:, None, :, None]
        passed = torch.where(there, logsigmoid(-match), 0)
        # What was passed on the way to j: of those before i all that are after j, and the other way round.
        total = passed.cumsum(3)
        left = total[:, 0, :, -1:] - total[:, 0]
        right = total[:, 1] - passed[:, 1]
        nearest = torch.where(there, logsigmoid(match) + torch.stack([left, right], 1), -torch.inf)
        found = nearest.exp() @ self.value(x)[:, None]  # [B, side, s, inner]
        side = self.side(torch.cat([x, found[:, 0], found[:, 1]], 2)).log_softmax(2)  # left, right, none
        type_query = self.type_query(x).view(batch, slots, 2, self.types, self.inner) * scale
        kind = torch.einsum("bistd,bjd->bsijt", type_query, self.type_key(x)).log_softmax(4)
        log_prob = (nearest + side[:, :, :2].permute(0, 2, 1)[..., None])[..., None] + kind
        rest = side[:, :, :2] + total[:, :, :, -1].transpose(1, 2)  # nothing on that side matches
        none = torch.cat([side[:, :, 2:], rest], 2).logsumexp(2)
        number = graph.padding.dense(torch.arange(graph.num_nodes, device=x.device))
        first, second = number[:, :, None].expand(-1, -1, slots), number[:, None, :].expand(-1, slots, -1)
        pairs = [(there[:, at], log_prob[:, at]) for at in (0, 1)]
        return CandidateEdges(
            "consumer",
            torch.cat([first[chosen] for chosen, _ in pairs]),
            torch.cat([second[chosen] for chosen, _ in pairs]),
            torch.cat([values[chosen] for chosen, values in pairs]),
            graph.padding.flat(none)[:, None],
            self.type_ids,
        )
