"""The half step of Sinkhorn's algorithm (a softmin) and its adjoint, in the kernel domain and in the log domain.

    u[i] = -log sum_j b[j] exp(v[j] - M[i, j])    and the same from u to v, with the weights a and the transpose of M

A half step never divides by a weight: a node that is not there (padding) simply weighs 0, but some node of each side
must weigh more. Side 0 are the rows, with potentials u and weights a; side 1 the columns, with v and b.

Both domains take r runs at once. A state, [B, r, n] of rows or [B, r, m] of columns, is the potential or what stands
for it. The gradients that the adjoints (`_vjp`) take and return are those of the potentials; what reaches the costs and
the weights is collected inside. Potentials that go in or out are in double precision: they are few, and the plan is
exponential in them.
"""

from math import exp

import torch
from torch import Tensor

BOUND = 80.0
"""Of exponents: exceeded only between nodes that weigh 0, and keeps 0 from meeting infinity."""

OVERSHOOT = 1.5
"""How far over-relaxation may raise a potential above what the half step found."""

_ABSENT = -1e30  # log of the weight 0: finite, so that no difference of two of them is NaN


class KernelDomain:
    """The state is exp(-potential), the matrix exp(-M), and a half step a product with it, of weights per state.

    The gradient of the matrix is a sum of outer products, one for each half step: they are kept as vectors and
    multiplied once. A row times a matrix is on a CPU some ten times faster than the matrix times a column.
    """

    zero = 1.0  # the state of the potential 0

    def __init__(self, kernel: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        self.matrix, self.toward = kernel, (kernel.mT, kernel)  # [B, n, m]
        self.weight = source[:, None], target[:, None]  # [B, 1, n], [B, 1, m]
        self.weighed = weighed  # whether gradients of the weights are asked for
        self.outer: tuple[list[Tensor], list[Tensor]] = [], []  # each [B, r, n], and each [B, r, m]
        self.by_weight: tuple[list[Tensor], list[Tensor]] = [], []

    def from_potential(self, potential: Tensor) -> Tensor:
        return potential.neg().exp_().to(self.matrix.dtype)

    def to_potential(self, state: Tensor) -> Tensor:
        return state.double().log().neg_()

    def relax(self, factor: float, old: Tensor, best: Tensor) -> Tensor:
        """old + factor (best - old), as potentials; by over-relaxation (factor > 1) at most `OVERSHOOT` above best."""
        ratio = (best / old).pow_(factor - 1)
        if factor > 1:
            ratio.clamp_(min=exp(-OVERSHOOT))
        return ratio.mul_(best)

    def relax_vjp(self, factor: float, old: Tensor, best: Tensor, grad: Tensor) -> Tensor:
        """The adjoint of `relax`: the gradient of old. What is left of grad is the gradient of best."""
        by_old = grad * (1 - factor)
        return torch.where(self.overshot(factor, old, best), 0.0, by_old) if factor > 1 else by_old

    def overshot(self, factor: float, old: Tensor, best: Tensor) -> Tensor:
        """Where over-relaxation came to its limit, bool."""
        return best < old * exp(-OVERSHOOT / (factor - 1))

    def softmin(self, side: int, other: Tensor) -> Tensor:
        """The half step: the best state of a side for the given state of the other one."""
        return torch.bmm(self.weight[1 - side] / other, self.toward[side])

    def softmin_vjp(self, side: int, other: Tensor, best: Tensor, grad: Tensor) -> Tensor:
        """The adjoint of `best = softmin(side, other)`: from the gradient of best to that of other."""
        back, push = grad / best, self.weight[1 - side] / other
        pulled = torch.bmm(back, self.toward[1 - side]).neg_()
        self.outer[side].append(back)
        self.outer[1 - side].append(push)
        if self.weighed:
            self.by_weight[1 - side].append(pulled / other)
        return pulled.mul_(push)

    def grad_scaled(self) -> Tensor:
        left, right = (torch.cat(part, 1) for part in self.outer)
        return torch.bmm(left.mT, right).mul_(self.matrix)

    def grad_weight(self, side: int) -> Tensor | None:
        return torch.cat(self.by_weight[side], 1).sum(1) if self.by_weight[side] else None


class LogDomain(KernelDomain):
    """The state is the potential, the matrix M, a half step a log-sum-exp: for any range of costs.

    The adjoint forms the plan of each half step once more. In place, since new memory costs more than the arithmetic.
    """

    zero = 0.0

    def __init__(self, scaled: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        super().__init__(scaled, source, target, weighed=weighed)
        self.log_weight = [torch.where(part > 0, part.clamp(min=1e-38).log(), _ABSENT) for part in self.weight]
        self.grad: Tensor | None = None

    def from_potential(self, potential: Tensor) -> Tensor:
        return potential.to(self.matrix.dtype)

    def to_potential(self, state: Tensor) -> Tensor:
        return state.double()

    def relax(self, factor: float, old: Tensor, best: Tensor) -> Tensor:
        further = (best - old).mul_(factor - 1)
        if factor > 1:
            further.clamp_(max=OVERSHOOT)
        return further.add_(best)

    def overshot(self, factor: float, old: Tensor, best: Tensor) -> Tensor:
        return best > old + OVERSHOOT / (factor - 1)

    def softmin(self, side: int, other: Tensor) -> Tensor:
        exponent = (self.log_weight[1 - side] + other)[:, :, None, :] - self.toward[1 - side][:, None]
        most = exponent.amax(3, keepdim=True)
        return exponent.sub_(most).exp_().sum(3).log_().add_(most[:, :, :, 0]).neg_()

    def softmin_vjp(self, side: int, other: Tensor, best: Tensor, grad: Tensor) -> Tensor:
        share = (best[:, :, :, None] + other[:, :, None, :]).sub_(self.toward[1 - side][:, None])
        if self.weighed:
            # Per unit of weight, so that a node that weighs 0 has a gradient too.
            by_unit = share.clamp(max=BOUND).exp_().mul_(grad[:, :, :, None])
            self.by_weight[1 - side].append(by_unit.sum(2).neg_())
        # Above 0 is only what faces a potential that is held, whose gradient is 0.
        share.add_(self.log_weight[1 - side][:, :, None, :]).clamp_(max=0).exp_().mul_(grad[:, :, :, None])
        pulled, share = share.sum(2).neg_(), share.sum(1) if share.size(1) > 1 else share[:, 0]
        share = share.mT if side else share
        self.grad = share if self.grad is None else self.grad.add_(share)
        return pulled

    def grad_scaled(self) -> Tensor:
        assert self.grad is not None  # every schedule has a step
        return self.grad
