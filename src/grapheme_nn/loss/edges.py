"""The room of predicted edges: from scores to log-probabilities of where a walk goes next.

The vertices are a beginning, vertex 0, and the `n` slots, vertices 1 to n. Edges are [B, n + 1, 1 + reach]: from vertex
i, column k > 0 leads to vertex i + k and column 0 ends the walk.
"""

import torch
from torch import Tensor, nn


def edge_score(query: Tensor, key: Tensor, end: Tensor, reach: int | None = None) -> Tensor:
    r"""Scores of edges from dot products, :math:`q_i \cdot k_{i+o} / \sqrt{d}`, with the end's score in front.

    query [B, n + 1, d] of all vertices, key [B, n, d] of the slots, end [B, n + 1]; reach None means all later slots.
    Returns [B, n + 1, 1 + reach]; entries beyond the last slot are 0 and are masked by `edge_log_softmax`.
    """
    if key.dim() != 3 or query.shape != (key.size(0), key.size(1) + 1, key.size(2)) or end.shape != query.shape[:2]:
        raise ValueError(
            "query, key and end must be [B, n + 1, d], [B, n, d] and [B, n + 1], "
            f"but are {list(query.shape)}, {list(key.shape)} and {list(end.shape)}"
        )
    batch, n, _ = key.shape
    reach = max(n, 1) if reach is None else reach
    if reach < 1:
        raise ValueError(f"reach must be at least 1, but is {reach}")
    # In rows of n + reach columns, vertex i + o of row i stands one further right in every row: a diagonal band is a
    # strided view. The first column is vertex 1.
    product = nn.functional.pad(query @ key.transpose(1, 2), (0, reach)) * query.size(-1) ** -0.5
    width = n + reach
    band = product.as_strided((batch, n + 1, reach), ((n + 1) * width, width + 1, 1))
    return torch.cat([end[:, :, None], band], 2)


def edge_log_softmax(score: Tensor, slot_mask: Tensor | None = None) -> Tensor:
    """Normalise scores of edges over the end and the slots that are there: a masked log-softmax.

    score [B, n + 1, 1 + reach] as in `PathLoss`; slot_mask bool [B, n]. Edges to slots that are not there get -inf.
    """
    if score.dim() != 3 or score.size(1) < 1 or score.size(2) < 2:
        raise ValueError(f"score must be [B, n + 1, 1 + reach] with reach at least 1, but is {list(score.shape)}")
    if slot_mask is None:
        slot_mask = score.new_ones(score.size(0), score.size(1) - 1, dtype=torch.bool)
    elsewhere = score.new_full((score.size(2),), -torch.inf)
    elsewhere[0] = 0  # from a slot that is not there one can only end, so that no row is without probability
    return torch.where(_edge_mask(slot_mask, score.size(2) - 1), score, elsewhere).log_softmax(2)


def check_edges(labels: Tensor, edge: Tensor | None, slot_mask: Tensor, reach: int | None = None) -> Tensor:
    """Edges with -inf for those to slots that are not there."""
    batch, n, _ = labels.shape
    if edge is None:
        raise ValueError("edge_log_prob is missing: a path needs the log-probabilities of edges, see edge_log_softmax")
    if edge.dim() != 3 or edge.shape[:2] != (batch, n + 1) or edge.size(2) < 2 or reach not in (None, edge.size(2) - 1):
        raise ValueError(
            f"edge_log_prob must be [{batch}, {n + 1}, 1 + {reach or 'reach'}], but is {list(edge.shape)}: "
            "n + 1 vertices, the first of them the beginning, and the end before the edges"
        )
    return torch.where(_edge_mask(slot_mask, edge.size(2) - 1), edge, -torch.inf)


def arriving_edges(leaving: Tensor) -> Tensor:
    """Edges by where they lead, [B, n + 1, reach], row v from vertices v - reach to v - 1; `leaving` is by origin.

    Entries for vertices before vertex 0 are those of other vertices: they must meet something that makes them harmless.
    """
    batch, vertices, reach = leaving.shape
    # Column o of row v is row v - reach + o, column reach - 1 - o: a strided view that begins before the first row.
    flat = nn.functional.pad(leaving.reshape(-1), (reach * reach, 0))
    return flat.as_strided((batch, vertices, reach), (vertices * reach, reach, reach - 1), reach - 1).contiguous()


def _edge_mask(slot_mask: Tensor, reach: int) -> Tensor:
    """Which edges there are, bool [B, n + 1, 1 + reach]: from vertices that are there, to the end or such vertices."""
    batch, n = slot_mask.shape
    there = slot_mask.new_zeros(batch, n + 1 + reach)
    there[:, 0] = True
    there[:, 1 : n + 1] = slot_mask
    return there.as_strided((batch, n + 1, 1 + reach), (n + 1 + reach, 1, 1)) & there[:, : n + 1, None]
