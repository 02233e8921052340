"""The room of what the spelling losses share: their result, the checks of what comes in, and posteriors as gradients.

A predicted graph is a DAG of `n` slots in topological order, each with log-probabilities over `V` labels of which
label 0 is the void; the target is a chain of `m` labels. `PathLoss` and `TransportLoss` are called in the same way.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

VOID = 0


@dataclass(frozen=True)
class Spelling:
    """How well the slots of each item of a batch spell its target.

    value  float [B]        per item, `inf` with zero gradient where the slots cannot spell the target at all
    plan   float [B, n, m]  how much slot i spells target j, without gradient; zero in padding and where value is inf
    """

    value: Tensor
    plan: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean value over the items that can be spelled; 0 where none can."""
        possible = self.value != torch.inf  # nan is no such case: it must be seen
        return torch.where(possible, self.value, 0).sum() / possible.sum().clamp(min=1)


class Pairs(NamedTuple):
    """What the slots say about the targets, checked and masked.

    label        float [B, n, m]  log-probability that slot i is labelled with target j; -inf in padding
    slot_mask    bool [B, n]
    target_mask  bool [B, m]
    length       int64 [B]        targets of each item
    """

    label: Tensor
    slot_mask: Tensor
    target_mask: Tensor
    length: Tensor


def pair(label_log_prob: Tensor, target: Tensor, slot_mask: Tensor | None, target_mask: Tensor | None) -> Pairs:
    """Check the arguments of a spelling loss and look up the log-probability of every target in every slot."""
    slot_mask = check_slots(label_log_prob, slot_mask)
    batch, _, labels = label_log_prob.shape
    if target.dim() != 2 or target.size(0) != batch or target.dtype != torch.long:
        raise ValueError(f"target must be int64 [{batch}, m], but is {target.dtype} {list(target.shape)}")
    if target_mask is None:
        target_mask = torch.ones_like(target, dtype=torch.bool)
    elif target_mask.shape != target.shape or target_mask.dtype != torch.bool:
        raise ValueError(
            f"target_mask must be bool {list(target.shape)}, but is {target_mask.dtype} {list(target_mask.shape)}"
        )
    if target.device.type == "cpu":  # elsewhere looking at values would make the device wait
        seen = target[target_mask]
        if seen.numel() and not (seen.min() > VOID and seen.max() < labels):
            wrong = int(seen.min()) if seen.min() <= VOID else int(seen.max())
            raise ValueError(f"target labels must be in 1..{labels - 1} (0 is the void), but one is {wrong}")
        if (target_mask[:, 1:] & ~target_mask[:, :-1]).any():
            raise ValueError("target_mask must have its padding at the end, but it is True after a False")
    index = torch.where(target_mask, target, VOID)[:, None, :].expand(-1, label_log_prob.size(1), -1)
    both = slot_mask[:, :, None] & target_mask[:, None, :]
    # Masked after the look-up, so that neither nan in padding nor its gradient goes any further.
    label = torch.where(both, label_log_prob.gather(2, index), -torch.inf)
    return Pairs(label, slot_mask, target_mask, target_mask.sum(1))


def check_slots(label_log_prob: Tensor, slot_mask: Tensor | None) -> Tensor:
    """The mask of slots, bool [B, n], all True where none was given."""
    if label_log_prob.dim() != 3 or not label_log_prob.is_floating_point():
        raise ValueError(
            f"label_log_prob must be floats [B, n, V], but is {label_log_prob.dtype} {list(label_log_prob.shape)}"
        )
    expected = label_log_prob.shape[:2]
    if slot_mask is None:
        return torch.ones(expected, dtype=torch.bool, device=label_log_prob.device)
    if slot_mask.shape != expected or slot_mask.dtype != torch.bool:
        raise ValueError(f"slot_mask must be bool {list(expected)}, but is {slot_mask.dtype} {list(slot_mask.shape)}")
    return slot_mask


def exact_dtype(tensor: Tensor) -> torch.dtype:
    """The type that recursions run in: float64, which sums over many plans want, where the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


class _KnownPosteriors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_and_posteriors: Tensor) -> Tensor:
        half = len(inputs_and_posteriors) // 2
        ctx.save_for_backward(*inputs_and_posteriors[half:])
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [posterior * -grad.view(-1, *[1] * (posterior.dim() - 1)) for posterior in ctx.saved_tensors]
        return None, *gradients, *[None] * len(gradients)


def with_posteriors(value: Tensor, inputs: tuple[Tensor, ...], posteriors: tuple[Tensor, ...]) -> Tensor:
    """`value` [B], minus the log of a sum over plans, as a function of `inputs` [B, ...], log-probabilities in it.

    Its exact gradient is minus the posteriors of the inputs, of their shapes and types. They come with the plan, so
    autograd need not follow the recursion that made them.
    """
    result: Tensor = _KnownPosteriors.apply(value, *inputs, *posteriors)  # type: ignore[no-untyped-call]
    return result
