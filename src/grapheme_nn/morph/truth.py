"""The room of the referee: the expected loss of random merges, exactly, by trying every outcome of a small graph."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from grapheme_nn.morph.base import Morph, batch_or_zeros, weights_or_ones
from grapheme_nn.morph.merge import Merge
from grapheme_nn.morph.similarity import pair_cosines


def expected_loss(
    merge: Merge,
    loss: Callable[[Morph], Tensor],
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
) -> Tensor:
    """The loss expected if every candidate pair merged by itself with its probability p.

        sum over the 2^c outcomes of (product of p or 1 - p) loss(the merged graph)

    Its gradient in x and theta is the truth that the estimators of `Merge` are measured against. At most 16 pairs.
    """
    edge_weight = weights_or_ones(x, edge_index, edge_weight)
    pairs = merge.pairs(edge_index, batch_or_zeros(x, batch))
    if pairs.size(1) > 16:
        raise ValueError(f"{pairs.size(1)} candidate pairs have too many outcomes: at most 16 can be tried")
    similarity = pair_cosines(x, pairs)
    logit = merge.logits(similarity)
    total = x.new_zeros(())
    for outcome in product([False, True], repeat=pairs.size(1)):
        accepted = torch.tensor(outcome, dtype=torch.bool, device=x.device)
        plan = merge.plan(edge_index, pairs, accepted, similarity, x.size(0))
        morph = merge.morph(x, edge_index, edge_weight, batch, plan, logit)
        probability = merge.log_probability(logit, accepted, pairs, None).exp()[0]
        total = total + probability * loss(morph)
    return total
