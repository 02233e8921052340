"""Multi-head attention between the nodes of a graph (Vaswani et al., 2017)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from grapheme_nn.nn.structure import Structure


class Attention(nn.Module):
    """Attention of nodes x [B, n, d] to others, `context` [B, k, d], of which `mask` bool [B, k] says which are there.

    Queries, keys and values have half as many channels as the nodes. Keys and values have no bias. One of the keys
    would add the same to all scores of a query, which softmax takes away, so its gradient is 0; one of the values would
    pass through the weights, which sum to 1, into the bias of `out`. `bias` [B, heads, n, k] is added to the scores.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        inner = channels // 2
        if inner % heads:
            raise ValueError(f"half of {channels} channels cannot be shared by {heads} heads: choose a divisor")
        self.heads = heads
        self.query = nn.Linear(channels, inner)
        self.key_value = nn.Linear(channels, 2 * inner, bias=False)
        self.out = nn.Linear(inner, channels)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        batch, n, _ = x.shape
        query = self.query(x).view(batch, n, self.heads, -1).transpose(1, 2)
        key, value = self.key_value(context).view(batch, context.size(1), 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        absent = None
        if mask is not None:
            # A large number, not infinity: a graph without nodes must not become nan.
            absent = torch.zeros_like(mask, dtype=x.dtype).masked_fill_(~mask, torch.finfo(x.dtype).min / 2)
            absent = absent[:, None, None, :]
        if bias is None:
            attended = scaled_dot_product_attention(query, key, value, absent)
        else:
            # By hand: torch's kernel for a bias with a gradient rounds differently from that for one without.
            score = query @ key.mT * query.size(-1) ** -0.5 + bias
            attended = (score if absent is None else score + absent).softmax(-1) @ value
        mixed: Tensor = self.out(attended.transpose(1, 2).reshape(batch, n, -1))
        return mixed


class EdgeBias(nn.Module):
    r"""What the type of an edge adds to the scores of attention between its two ends (Ying et al., 2021).

    .. math:: b_{ij} = \sum_{(j, i) \in E} w_{ji} c_{t(j, i)} + \sum_{(i, j) \in E} w_{ij} c'_{t(i, j)}

    for each head, where node i looks at node j: c along the edges, c' against them, 0 at first. Between nodes that
    share no edge it is 0.

    heads: of attention; types: how many there are, and one more, 0, for any other.
    """

    def __init__(self, heads: int, types: int) -> None:
        super().__init__()
        self.types = types
        self.bias = nn.Parameter(torch.zeros(2 * (1 + types), heads))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, structure: Structure) -> Tensor | None:
        """[B, heads, n, n], or None for graphs whose edges have no types."""
        if structure.edge_index is None or structure.edge_type is None:
            return None
        (graphs, n), index = structure.mask.shape, structure.padding.index
        source, target = structure.edge_index if index is None else index[structure.edge_index]
        along, against = self.bias[structure.edge_type], self.bias[structure.edge_type + 1 + self.types]
        if structure.edge_weight is not None:
            weight = structure.edge_weight[:, None].to(along.dtype)
            along, against = weight * along, weight * against
        bias = along.new_zeros(graphs * n * n, along.size(1))
        bias = bias.index_add(0, target * n + source % n, along).index_add(0, source * n + target % n, against)
        return bias.view(graphs, n, n, -1).permute(0, 3, 1, 2)
