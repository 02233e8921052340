"""Whether numbers from outside are what they are given as: probabilities, their logarithms, weights."""

from math import inf

import torch
from torch import Tensor


def check_range(name: str, value: Tensor, most: float = inf) -> None:
    """That all values lie in [0, most]; none is nan."""
    if value.numel():
        low, high = (float(end) for end in value.detach().aminmax())
        if not 0 <= low <= high <= most + 1e-6:
            raise ValueError(f"{name} must lie in [0, {most:g}], but ranges from {low} to {high}")


def check_log_probabilities(name: str, whose: str, log_prob: Tensor, there: Tensor | None = None) -> None:
    """That the probabilities of each row sum to 1: log_prob [..., V], of the rows that are `there`, bool [...]."""
    total = log_prob.detach().double().exp().sum(-1)
    if there is not None:
        total = torch.where(there, total, 1.0)
    if not total.numel():
        return
    worst = float(total.flatten()[(total - 1).abs().argmax()])
    if not abs(worst - 1) <= max(1e-3, 8 * torch.finfo(log_prob.dtype).eps):
        raise ValueError(
            f"the probabilities exp({name}) of {whose} sum to {worst:.4g}, not to 1: "
            f"give log-probabilities, logits.log_softmax({log_prob.dim() - 1})"
        )
