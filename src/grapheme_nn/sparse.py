"""Products of sparse and dense matrices, by torch's and PyG's kernels."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.utils import coalesce, scatter


def row_products(left: Tensor, left_row: Tensor, right: Tensor, right_row: Tensor) -> Tensor:
    """The dot product of a row of one matrix with a row of another for each entry: two [., d] and two [nnz] to [nnz].

    torch has this as the gradient of `embedding_bag` in its weights; gathered, it takes seven times as long.
    """
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return (left[left_row] * right[right_row]).sum(dim=1)
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(  # type: ignore[no-any-return]
        right.contiguous(), left.contiguous(), left_row, torch.zeros_like(left_row[:1]), right_row, 0
    )


class Grouping(NamedTuple):
    """The entries of a sparse matrix, sorted by row (or by column)."""

    order: Tensor  # int64 [nnz]: the entries, group after group
    begin: Tensor  # int64 [groups + 1]: where each group begins in that order
    other: Tensor  # int64 [nnz]: in that order, each entry's index on the other side

    @classmethod
    def of(cls, index: Tensor, size: int, other: Tensor) -> "Grouping":
        begin = pad(torch.bincount(index, minlength=size).cumsum(0), (1, 0))
        # On the host, looking is a hundredth of sorting, and clusters along a text are sorted already.
        if index.device.type == "cpu" and bool((index[1:] >= index[:-1]).all()):
            return cls(torch.arange(index.numel()), begin, other)
        order = index.argsort(stable=True)
        return cls(order, begin, other[order])


def summed_by_type(
    places: Tensor, values: Tensor, size: int, kind: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `summed`, with the types [e] of what is left; a place of two types `kind` int64 [e] is two places."""
    if kind is None:
        return *summed(places, values, size), None
    names, number = torch.unique(kind, return_inverse=True)
    count = max(names.numel(), 1)
    key = torch.stack([places[0], places[1] * count + number])
    (near, far), values = summed(key, values, size * count)
    return torch.stack([near, far // count]), values, names[far % count]


def summed(places: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Sorted places, each once, with the sum of its values: [2, e] and [e, ...]."""
    key = places[0] * size + places[1]
    is_sorted = key.device.type == "cpu" and bool((key[1:] >= key[:-1]).all())  # looking is far cheaper than sorting
    return coalesce(places, values, size, is_sorted=is_sorted)  # type: ignore[no-any-return]


def strongest(value: Tensor, group: Tensor, num_groups: int, other: Tensor) -> Tensor:
    """In each group of entries, the `other` end of the strongest, the first of equals: int64 [groups], -1 for none."""
    value = value.detach()
    wins = value == scatter(value, group, dim_size=num_groups, reduce="max")[group]
    none = torch.full((num_groups,), -1, device=group.device)
    return none.scatter_reduce(0, group[wins], other[wins], "amin", include_self=False)
