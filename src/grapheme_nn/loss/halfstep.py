"""The room of the half step: one side of a transport plan is set right, as a product or as a log-sum-exp.

    u[i] = -log sum_j b[j] exp(v[j] - M[i, j]),    and the same from u to v with the weights a and the transpose of M

A half step never divides by a weight: a node that is not there (padding) simply weighs 0, but some node of each side
must weigh more. What `rows` and `columns` compute, `pull_rows` and `pull_columns` take back.
"""

from abc import ABC, abstractmethod
from math import exp

import torch
from torch import Tensor

BOUND = 80.0
"""Of exponents: exceeded only between nodes that weigh 0, and keeps 0 from meeting infinity."""

_LEAP = 1.5
_ABSENT = -1e30  # log of the weight 0: finite, so that no difference of two of them is NaN


class Form(ABC):
    """How half steps are computed, for r runs at once.

    A state, [B, r, n] of rows or [B, r, m] of columns, is the potential or what stands for it. Potentials that go in or
    out are in double precision: they are few, and the plan is exponential in them. The gradients that `pull_*` takes
    and returns are those of the potentials; what reaches the costs and the weights is collected inside.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        self.matrix = matrix  # [B, n, m]: stands for the costs
        self.source, self.target = source[:, None], target[:, None]  # [B, 1, n], [B, 1, m]
        self.weighed = weighed  # whether gradients of the weights are asked for
        self.by_source: list[Tensor] = []
        self.by_target: list[Tensor] = []

    def grad_source(self) -> Tensor | None:
        return torch.cat(self.by_source, 1).sum(1) if self.by_source else None

    def grad_target(self) -> Tensor | None:
        return torch.cat(self.by_target, 1).sum(1) if self.by_target else None

    @abstractmethod
    def enter(self, potential: Tensor) -> Tensor: ...

    @abstractmethod
    def leave(self, state: Tensor) -> Tensor: ...

    @abstractmethod
    def between(self, one: Tensor, other: Tensor, share: float) -> Tensor: ...

    @abstractmethod
    def beyond(self, old: Tensor, best: Tensor) -> Tensor:
        """From `old` to `best` and half as far again, but upwards at most `_LEAP` beyond.

        A half step maximises over its side, for every node of weight a by itself, a (u - exp(u - best)). This is not
        lower there than at `old`: exp(min(x / 2, 3/2)) - min(x / 2, 3/2) <= exp(-x) + x where `old` is x below `best`,
        and exp(-x / 2) + x / 2 <= exp(x) - x where it is x above.
        """

    @abstractmethod
    def leapt(self, old: Tensor, best: Tensor) -> Tensor:
        """Where `beyond` came to its limit, bool."""

    def pull_beyond(self, old: Tensor, best: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of `old` and of `best`."""
        by_old = torch.where(self.leapt(old, best), 0.0, grad / -2)
        return by_old, grad - by_old

    @abstractmethod
    def rows(self, column: Tensor) -> Tensor: ...

    @abstractmethod
    def columns(self, row: Tensor) -> Tensor: ...

    @abstractmethod
    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor) -> Tensor: ...

    @abstractmethod
    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor) -> Tensor: ...

    @abstractmethod
    def grad_scaled(self) -> Tensor: ...


class KernelForm(Form):
    """The state is exp(-potential), the matrix exp(-M), and a half step a product with it, of weights per state.

    The gradient of the matrix is a sum of outer products, one for each half step: they are kept as vectors and
    multiplied once. A row times a matrix is on a CPU some ten times faster than the matrix times a column.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        super().__init__(matrix, source, target, weighed=weighed)
        self.turned = matrix.mT
        self.left: list[Tensor] = []  # each [B, r, n]
        self.right: list[Tensor] = []  # each [B, r, m]

    def enter(self, potential: Tensor) -> Tensor:
        return potential.neg().exp_().to(self.matrix.dtype)

    def leave(self, state: Tensor) -> Tensor:
        return state.double().log().neg_()

    def between(self, one: Tensor, other: Tensor, share: float) -> Tensor:
        return (one * other).sqrt_() if share == 0.5 else (other / one).pow_(share).mul_(one)

    def beyond(self, old: Tensor, best: Tensor) -> Tensor:
        return (best / old).sqrt_().clamp_(min=exp(-_LEAP)).mul_(best)

    def leapt(self, old: Tensor, best: Tensor) -> Tensor:
        return best < old * exp(-2 * _LEAP)

    def rows(self, column: Tensor) -> Tensor:
        return torch.bmm(self.target / column, self.turned)

    def columns(self, row: Tensor) -> Tensor:
        return torch.bmm(self.source / row, self.matrix)

    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor) -> Tensor:
        back, push = grad / row, self.target / column
        pulled = torch.bmm(back, self.matrix).neg_()
        self.left.append(back)
        self.right.append(push)
        if self.weighed:
            self.by_target.append(pulled / column)
        return pulled.mul_(push)

    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor) -> Tensor:
        back, push = grad / column, self.source / row
        pulled = torch.bmm(back, self.turned).neg_()
        self.left.append(push)
        self.right.append(back)
        if self.weighed:
            self.by_source.append(pulled / row)
        return pulled.mul_(push)

    def grad_scaled(self) -> Tensor:
        return torch.bmm(torch.cat(self.left, 1).mT, torch.cat(self.right, 1)).mul_(self.matrix)


class LogForm(Form):
    """The state is the potential, the matrix M, a half step a log-sum-exp: for any range of costs.

    The adjoint forms the plan of each half step once more.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        super().__init__(matrix, source, target, weighed=weighed)
        self.log_source, self.log_target = _log_weight(self.source), _log_weight(self.target)
        self.grad = torch.zeros_like(matrix)

    def enter(self, potential: Tensor) -> Tensor:
        return potential.to(self.matrix.dtype)

    def leave(self, state: Tensor) -> Tensor:
        return state.to(torch.float64, copy=True)  # an output must not be the tensor that is saved

    def between(self, one: Tensor, other: Tensor, share: float) -> Tensor:
        return torch.lerp(one, other, share)

    def beyond(self, old: Tensor, best: Tensor) -> Tensor:
        return best + ((best - old) / 2).clamp_(max=_LEAP)

    def leapt(self, old: Tensor, best: Tensor) -> Tensor:
        return best > old + 2 * _LEAP

    def rows(self, column: Tensor) -> Tensor:
        return self._step(self.matrix, self.log_target + column)

    def columns(self, row: Tensor) -> Tensor:
        return self._step(self.matrix.mT, self.log_source + row)

    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor) -> Tensor:
        return self._pull(self.matrix, self.grad, self.log_target, column, row, grad, self.by_target)

    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor) -> Tensor:
        return self._pull(self.matrix.mT, self.grad.mT, self.log_source, row, column, grad, self.by_source)

    def grad_scaled(self) -> Tensor:
        return self.grad

    @staticmethod
    def _step(matrix: Tensor, exponent: Tensor) -> Tensor:
        return -torch.logsumexp(exponent[:, :, None, :] - matrix[:, None], 3)

    def _pull(
        self,
        matrix: Tensor,
        into: Tensor,
        log_weight: Tensor,
        state: Tensor,
        result: Tensor,
        grad: Tensor,
        by_weight: list[Tensor],
    ) -> Tensor:
        exponent = result[:, :, :, None] + state[:, :, None, :] - matrix[:, None]
        share = grad[:, :, :, None] * (exponent + log_weight[:, :, None, :]).exp()
        into += share.sum(1)
        if self.weighed:
            # Per unit of weight, so that a node that weighs 0 has a gradient too.
            by_weight.append(-(grad[:, :, :, None] * exponent.clamp(max=BOUND).exp()).sum(2))
        return -share.sum(2)


def form_of(scaled: Tensor, kernel: Tensor | None, source: Tensor, target: Tensor) -> Form:
    """The form that costs are in: the kernel form where there is a kernel."""
    return LogForm(scaled, source, target) if kernel is None else KernelForm(kernel, source, target)


def _log_weight(weight: Tensor) -> Tensor:
    return torch.where(weight > 0, weight.clamp(min=1e-38).log(), _ABSENT)
