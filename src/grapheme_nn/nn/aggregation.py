"""Aggregation of messages: how those that reach a node become one."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.utils import scatter

How = Literal["sum", "mean", "max", "max_norm"]
HOWS: tuple[How, ...] = get_args(How)


def aggregate(message: Tensor, index: Tensor, num_nodes: int, how: How = "sum") -> Tensor:
    """One feature per node from the messages that reach it: [e, d] and the node of each, int64 [e], to [num_nodes, d].

        sum, mean    of the messages
        max          per channel, the largest
        max_norm     the whole message with the largest L2 norm

    A node that no message reaches gets zeros. Of equal messages the first wins, and the gradient of a maximum goes to
    the winner and to nobody else.
    """
    if how not in HOWS:
        raise ValueError(f"unknown aggregation {how!r}: choose one of {', '.join(HOWS)}")
    if message.dim() != 2 or index.shape != message.shape[:1]:
        raise ValueError(
            f"messages of shape {list(message.shape)} and indices of shape {list(index.shape)} do not fit: "
            "they are [e, d] and [e]"
        )
    if how in ("sum", "mean"):
        total: Tensor = scatter(message, index, dim_size=num_nodes, reduce=how)
        return total
    score = message if how == "max" else torch.linalg.vector_norm(message.detach(), dim=1, keepdim=True)
    winner = _winners(score.detach(), index, num_nodes).expand(-1, message.size(1))  # [num_nodes, d]
    # Row e is a message of zeros, for the nodes that none reaches.
    return torch.cat([message, message.new_zeros(1, message.size(1))]).gather(0, winner)


def _winners(score: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """Per node and channel the first message with the largest score, int64 [num_nodes, c]; e where there is none."""
    best = scatter(score, index, dim_size=num_nodes, reduce="max")
    nobody = index.numel()
    row = torch.arange(nobody, device=index.device)[:, None]
    candidate = row.where(score == best[index], nobody)
    first = torch.full_like(best, nobody, dtype=torch.long)
    return first.scatter_reduce(0, index[:, None].expand_as(candidate), candidate, "amin")


class Aggregate(Aggregation):  # type: ignore[misc]
    """`aggregate` as a module of PyG: `MessagePassing(aggr=Aggregate("max_norm"))`."""

    def __init__(self, how: How = "sum") -> None:
        super().__init__()
        if how not in HOWS:
            raise ValueError(f"unknown aggregation {how!r}: choose one of {', '.join(HOWS)}")
        self.how = how

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        """Messages `x` [e, d] to `dim_size` nodes; `index` [e] or `ptr` says which (neither: all to node 0)."""
        if ptr is not None:
            index = torch.arange(ptr.numel() - 1, device=x.device).repeat_interleave(ptr.diff())
        elif index is None:
            index = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        if dim_size is None:
            dim_size = int(index.max()) + 1 if index.numel() else 0
        return aggregate(x, index, dim_size, self.how)

    def __repr__(self) -> str:
        return f"Aggregate({self.how!r})"
