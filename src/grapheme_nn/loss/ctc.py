"""The room of merged repeats: neighbouring slots with the same label spell it once, and the void keeps two apart."""

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from grapheme_nn.loss.spelling import with_posteriors


def ctc_value(label: Tensor, void: Tensor, same: Tensor, slots: Tensor, targets: Tensor) -> Tensor:
    """Minus the log-probability of each target, summed over all ways to spell it with repeats merged, [B].

    label [B, n, m] log-probability that slot i has the label of target j, void [B, n] that it has none; same int64
    [B, m] the first target with the same label as target j; slots and targets int64 [B], how many there are. Where the
    slots are too few the value is inf and its gradient 0.
    """
    log_prob = torch.cat([void[:, :, None], label], 2)  # the labels of an item are its own targets
    if not (torch.is_grad_enabled() and log_prob.requires_grad):
        return ctc_loss(log_prob.transpose(0, 1), same + 1, slots, targets, reduction="none")
    with torch.enable_grad():
        # torch's gradient is right only below a softmax over all labels, which these are not; the posteriors that we
        # take from it are right anywhere.
        inner = log_prob.detach().transpose(0, 1).contiguous().requires_grad_()
        value = ctc_loss(inner, same + 1, slots, targets, reduction="none")
        (gradient,) = torch.autograd.grad(value.sum(), inner)
    possible = value.detach() < torch.inf
    there = torch.arange(label.size(1), device=label.device) < slots[:, None]
    wanted = (there & possible[:, None])[:, :, None]
    posterior = torch.where(wanted, (inner.detach().exp() - gradient).transpose(0, 1), 0)
    return with_posteriors(value.detach(), (log_prob,), (posterior,))


def merge_repeats(label: Tensor, void: int = 0) -> Tensor:
    """Labels [B, n] with the void for each that repeats the one before it."""
    repeated = torch.zeros_like(label, dtype=torch.bool)
    repeated[:, 1:] = label[:, 1:] == label[:, :-1]
    return label.masked_fill(repeated, void)
