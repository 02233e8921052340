"""Connectionist temporal classification (Graves et al., 2006): neighbouring slots with the same label are one node."""

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from grapheme_nn.dag import Integers
from grapheme_nn.objective.base import Comparison, Decoded, Objective, with_posteriors, without_voids
from grapheme_nn.predicted import COPY, VOID, PredictedGraph, Targets


class CTC(Objective):
    """Minus the log-probability of the target, summed over all ways to spell it with repeats merged.

    A void keeps two equal neighbours apart. The field's reference for text. Of target nodes that are the same unit, the
    first has the plan of all.
    """

    def align(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        same = (targets.unit[:, :, None] == targets.unit[:, None, :]).byte().argmax(2)
        label, void = predicted.match(targets), predicted.label_log_prob[:, :, VOID]
        return Comparison(*ctc_value(label, void, same, predicted.mask.sum(1), targets.length))

    @torch.no_grad()
    def decode(self, predicted: PredictedGraph) -> Decoded:
        label = predicted.spelled.argmax(2)
        # A copied unit without label is told from another one by what it is.
        repeats = merge_repeats(torch.where(label == COPY, -2 - predicted.unit.abs(), label))
        return without_voids(torch.where((repeats == VOID) | ~predicted.mask, VOID, label), predicted.graph)

    def needed_slots(self, target: Integers) -> int:
        return target.size + int((target[1:] == target[:-1]).sum())  # two equal neighbours need a void between them


def ctc_value(label: Tensor, void: Tensor, same: Tensor, slots: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the log-probability of each target, with repeats merged, [B], and the posterior of each label [B, n, m].

    label [B, n, m] log-probability that slot i has the label of target j, void [B, n] that it has none; same int64
    [B, m] the first target with the same label as target j; slots and targets int64 [B], how many there are. Where the
    slots are too few the value is inf and its gradient 0.
    """
    log_prob = torch.cat([void[:, :, None], label], 2)  # the labels of an item are its own targets
    with torch.enable_grad():
        # torch's gradient is right only below a softmax over all labels, which these are not; the posteriors that we
        # take from it are right anywhere.
        inner = log_prob.detach().transpose(0, 1).clone().requires_grad_()
        value = ctc_loss(inner, same + 1, slots, targets, reduction="none")
        (gradient,) = torch.autograd.grad(value.sum(), inner)
    possible = value.detach() < torch.inf
    there = torch.arange(label.size(1), device=label.device) < slots[:, None]
    wanted = (there & possible[:, None])[:, :, None]
    posterior = torch.where(wanted, (inner.detach().exp() - gradient).transpose(0, 1), 0)
    return with_posteriors(value.detach(), (log_prob,), (posterior,)), posterior[:, :, 1:]


def merge_repeats(label: Tensor) -> Tensor:
    """Labels [B, n] with the void for each that repeats the one before it."""
    repeated = torch.zeros_like(label, dtype=torch.bool)
    repeated[:, 1:] = label[:, 1:] == label[:, :-1]
    return label.masked_fill(repeated, VOID)
