"""A pointer from each slot to the slot that follows it: a distribution over the next few slots, and the end."""

import torch
from torch import Tensor, nn

_TOGETHER = 256  # vertices whose products with all keys in their reach are one matrix


class NextPointer(nn.Module):
    r"""Where a walk through the slots goes from each of them (pointer network: Vinyals et al., 2015).

    .. math:: e(i, i + k) = \operatorname{softmax}_k(q_i \cdot k_{i+k} / \sqrt{d}), \quad e(i, \text{end}) \propto w q_i

    channels: of the slots; reach: how far ahead the next slot may be. x [B, s, channels] and mask bool [B, s] to log-
    probabilities [B, s + 1, 1 + reach] as in `objective.path`: vertex 0 is the beginning, column 0 the end; -inf to
    slots that are not there.
    """

    def __init__(self, channels: int, reach: int) -> None:
        super().__init__()
        if reach < 1:
            raise ValueError(f"reach must be at least 1, but is {reach}")
        self.reach = reach
        self.start = nn.Parameter(torch.empty(channels))
        self.query, self.key = nn.Linear(channels, channels // 2), nn.Linear(channels, channels // 2)
        self.end = nn.Linear(channels, 1)
        nn.init.normal_(self.start, std=0.1)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.start, std=0.1)
        for linear in (self.query, self.key, self.end):
            linear.reset_parameters()

    def extra_repr(self) -> str:
        return f"reach={self.reach}"

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        vertex = torch.cat([self.start.expand(x.size(0), 1, -1), x], 1)
        score = band(self.query(vertex), self.key(x), self.end(vertex)[:, :, 0], self.reach)
        return band_log_softmax(score, mask)


def band(query: Tensor, key: Tensor, end: Tensor, reach: int) -> Tensor:
    """The end's score, then those of the next `reach` slots: [B, s + 1, d], [B, s, d] and [B, s + 1] to scores.

    Returns [B, s + 1, 1 + reach]; entries beyond the last slot are 0 and are masked by `band_log_softmax`.
    """
    batch, vertices, _ = query.shape
    key = nn.functional.pad(key, (0, 0, 0, reach)) * query.size(-1) ** -0.5
    bands = []
    for start in range(0, vertices, _TOGETHER):
        some = query[:, start : start + _TOGETHER]
        rows, width = some.size(1), some.size(1) - 1 + reach
        product = some @ key[:, start : start + width].mT
        # The first column of each row is the vertex after it, one further right in every row: a diagonal band is a
        # strided view.
        bands.append(product.as_strided((batch, rows, reach), (rows * width, width + 1, 1)))
    return torch.cat([end[:, :, None], torch.cat(bands, 1)], 2)


def band_log_softmax(score: Tensor, mask: Tensor) -> Tensor:
    """A log-softmax over the end and the slots that are there: scores [B, s + 1, 1 + reach], mask bool [B, s]."""
    batch, slots = mask.shape
    reach = score.size(2) - 1
    there = mask.new_zeros(batch, slots + 1 + reach)
    there[:, 0] = True
    there[:, 1 : slots + 1] = mask
    possible = there.as_strided((batch, slots + 1, 1 + reach), (slots + 1 + reach, 1, 1)) & there[:, : slots + 1, None]
    elsewhere = score.new_full((score.size(2),), -torch.inf)
    elsewhere[0] = 0  # from a slot that is not there one can only end, so that no row is without probability
    return torch.where(possible, score, elsewhere).log_softmax(2)
