"""The room of attention: every node of a graph may look at every other one, near or far."""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention of the nodes of a graph to each other, with several heads.

    Queries, keys and values have half as many channels as the nodes. x [B, n, d] are the nodes, `seen` [B, k, d] what
    they may look at and `mask` bool [B, k] whether it is there.

    Keys and values have no bias. One of the keys would add the same to all scores of a query, which softmax takes away,
    so its gradient is 0; one of the values would pass through the weights, which sum to 1, into the bias of `tell`.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        inner = channels // 2
        if inner % heads:
            raise ValueError(f"half of {channels} channels cannot be shared by {heads} heads: choose a divisor")
        self.heads = heads
        self.ask = nn.Linear(channels, inner)
        self.offer = nn.Linear(channels, 2 * inner, bias=False)
        self.tell = nn.Linear(inner, channels)

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        batch, n, _ = x.shape
        query = self.ask(x).view(batch, n, self.heads, -1).transpose(1, 2)
        key, value = self.offer(seen).view(batch, seen.size(1), 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = (query * query.size(-1) ** -0.5) @ key.transpose(2, 3)
        if mask is not None:
            # A large number, not infinity: a graph without nodes must not become nan.
            absent = torch.zeros_like(mask, dtype=score.dtype).masked_fill_(~mask, torch.finfo(score.dtype).min / 2)
            score = score + absent[:, None, None, :]
        told: Tensor = self.tell((score.softmax(3) @ value).transpose(1, 2).reshape(batch, n, -1))
        return told
