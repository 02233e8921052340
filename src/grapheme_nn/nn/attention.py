"""Multi-head attention between the nodes of a graph (Vaswani et al., 2017)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    """Attention of nodes x [B, n, d] to others, `context` [B, k, d], of which `mask` bool [B, k] says which are there.

    Queries, keys and values have half as many channels as the nodes. Keys and values have no bias. One of the keys
    would add the same to all scores of a query, which softmax takes away, so its gradient is 0; one of the values would
    pass through the weights, which sum to 1, into the bias of `out`.
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

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
        batch, n, _ = x.shape
        query = self.query(x).view(batch, n, self.heads, -1).transpose(1, 2)
        key, value = self.key_value(context).view(batch, context.size(1), 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        absent = None
        if mask is not None:
            # A large number, not infinity: a graph without nodes must not become nan.
            absent = torch.zeros_like(mask, dtype=x.dtype).masked_fill_(~mask, torch.finfo(x.dtype).min / 2)
            absent = absent[:, None, None, :]
        attended = scaled_dot_product_attention(query, key, value, absent)
        mixed: Tensor = self.out(attended.transpose(1, 2).reshape(batch, n, -1))
        return mixed
