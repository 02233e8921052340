"""The room of potentials: the iterations behind entropic transport, each with a hand-written adjoint.

A pair of potentials (u, v), in units of the temperature, makes the plan

    P[i, j] = a[i] b[j] exp(u[i] + v[j] - M[i, j]),    M = cost / temperature,

of weights a [B, n] and b [B, m]. A half step sets one side right, u = -log sum_j b[j] exp(v[j] - M[:, j]), and never
divides by a weight: a node that is not there (padding) simply weighs 0, but some node of each side must weigh more. The
schemes below are compositions of half steps, so their adjoints are written from that of one half step, and keep only
the potentials of each iteration: O((n + m) iterations) numbers beside the costs.
"""

from abc import ABC, abstractmethod
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG_FORM_FROM = 40.0
"""Range of cost / temperature from which exp(-cost / temperature) is not formed: it would lose its small entries."""

_ABSENT = -1e30  # log of the weight 0: finite, so that no difference of two of them is NaN
_BOUND = 80.0  # of exponents: exceeded only between nodes that weigh 0, and keeps 0 from meeting infinity


class Costs(NamedTuple):
    """Costs in units of the temperature, and exp(-costs) where their range allows it."""

    scaled: Tensor  # [B, n, m]
    kernel: Tensor | None  # [B, n, m], without gradient: it reaches `scaled`


def survey(*scaled: Tensor) -> list[Costs]:
    """The costs with their kernels, or without any where they range over 40 temperatures or more.

    Reads two numbers back from the device, at once, and refuses costs that are not finite.
    """
    ends = [torch.stack(part.detach().aminmax()) for part in scaled if part.numel()]
    least, most = 0.0, 0.0
    if ends:
        table = torch.stack(ends)
        least, most = torch.stack([table[:, 0].amin(), table[:, 1].amax()]).tolist()
    if not isfinite(most - least):
        raise ValueError(
            f"costs must be finite where masks keep them, but range from {least} to {most} temperatures: "
            "mask such pairs, or use a large finite cost"
        )
    if most - least >= LOG_FORM_FROM or max(-least, most) >= 2 * LOG_FORM_FROM:
        return [Costs(part, None) for part in scaled]
    return [Costs(part, part.detach().neg().exp_()) for part in scaled]


def alternate(costs: Costs, source: Tensor, target: Tensor, start: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Potentials (u, v) after `iterations` of u <- rows(v), v <- columns(u), from v = start.

    Each half step maximises the dual value `<a, u> + <b, v> - sum P` over its side, so the value never falls.
    Shapes: costs [B, n, m], source [B, n], target and start [B, m]; returns [B, n], [B, m].
    """
    potentials: tuple[Tensor, Tensor] = _Alternate.apply(*costs, source, target, start, iterations)  # type: ignore[no-untyped-call]
    return potentials


def meet(
    costs: Costs, source: Tensor, target: Tensor, start_row: Tensor, start_column: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """The mean of two runs of `alternate`, one from v = start_column and rows first, one from u = start_row and columns
    first: the same for (x, y) and, transposed, for (y, x).

    The dual value is concave, so that of the mean is not below their mean. The runs go hand in hand, half a step apart.
    Shapes: as in `alternate`, start_row [B, n].
    """
    potentials: tuple[Tensor, Tensor] = _Meet.apply(  # type: ignore[no-untyped-call]
        *costs, source, target, start_row, start_column, iterations
    )
    return potentials


def balance(costs: Costs, weight: Tensor, iterations: int) -> Tensor:
    """The potential u of a graph against itself (both sides have it), after `iterations` of u <- (u + rows(u)) / 2.

    Near the solution rows() acts as minus the plan, whose eigenvalues lie in [0, 1] where exp(-costs) is positive
    definite; so every iteration at least halves the error, at any temperature. Shapes: costs [B, n, n], symmetric;
    weight [B, n]; returns [B, n].
    """
    potential: Tensor = _Balance.apply(*costs, weight, iterations)  # type: ignore[no-untyped-call]
    return potential


def plan(costs: Costs, source: Tensor, target: Tensor, row: Tensor, column: Tensor, *, corner: bool = True) -> Tensor:
    """The plan that potentials make, [B, n, m]; with 0 in place of its last entry unless `corner`."""
    result: Tensor = _Plan.apply(*costs, source, target, row, column, corner)  # type: ignore[no-untyped-call]
    return result


class _Alternate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scaled: Tensor,
        kernel: Tensor | None,
        source: Tensor,
        target: Tensor,
        start: Tensor,
        iterations: int,
    ) -> tuple[Tensor, Tensor]:
        form = _form(scaled, kernel, source, target)
        rows, columns = [], [form.enter(start[:, None])]
        for _ in range(iterations):
            rows.append(form.rows(columns[-1]))
            columns.append(form.columns(rows[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, source, target, torch.stack(rows), torch.stack(columns))
        return form.leave(rows[-1])[:, 0], form.leave(columns[-1])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_row: Tensor, grad_column: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, rows, columns = ctx.saved_tensors
        form: _Form = ctx.form(matrix, source, target, weighed=any(ctx.needs_input_grad[2:4]))
        rows, columns = rows.unbind(), columns.unbind()
        grad, last = grad_column[:, None], len(rows) - 1
        for step in range(last, -1, -1):
            grad = form.pull_columns(rows[step], columns[step + 1], grad)
            if step == last:
                grad = grad + grad_row[:, None]
            grad = form.pull_rows(columns[step], rows[step], grad)
        return form.grad_scaled(), None, form.grad_source(), form.grad_target(), grad[:, 0], None


class _Meet(torch.autograd.Function):
    """Runs side by side in the second dimension: rows first, and columns first. The latter makes its first half step
    alone, ahead of the loop, and its last but one column is its result.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scaled: Tensor,
        kernel: Tensor | None,
        source: Tensor,
        target: Tensor,
        start_row: Tensor,
        start_column: Tensor,
        iterations: int,
    ) -> tuple[Tensor, Tensor]:
        form = _form(scaled, kernel, source, target)
        first = form.enter(start_row[:, None])
        rows, columns = [], [torch.cat([form.enter(start_column[:, None]), form.columns(first)], 1)]
        for _ in range(iterations):
            rows.append(form.rows(columns[-1]))
            columns.append(form.columns(rows[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, source, target, first, torch.stack(rows), torch.stack(columns))
        row, column = form.leave(rows[-1]), form.leave(torch.stack([columns[-1][:, 0], columns[-2][:, 1]], 1))
        return row.mean(1), column.mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_row: Tensor, grad_column: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, first, rows, columns = ctx.saved_tensors
        form: _Form = ctx.form(matrix, source, target, weighed=any(ctx.needs_input_grad[2:4]))
        rows, columns = rows.unbind(), columns.unbind()
        half, nothing = grad_column / 2, torch.zeros_like(grad_column)
        grad, last = torch.stack([half, nothing], 1), len(rows) - 1
        for step in range(last, -1, -1):
            grad = form.pull_columns(rows[step], columns[step + 1], grad)
            if step == last:
                grad = grad + (grad_row / 2)[:, None]
            grad = form.pull_rows(columns[step], rows[step], grad)
            if step == last:
                grad = grad + torch.stack([nothing, half], 1)
        by_row = form.pull_columns(first, columns[0][:, 1:], grad[:, 1:])
        return form.grad_scaled(), None, form.grad_source(), form.grad_target(), by_row[:, 0], grad[:, 0], None


class _Balance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scaled: Tensor, kernel: Tensor | None, weight: Tensor, iterations: int) -> Tensor:
        form = _form(scaled, kernel, weight, weight)
        states, steps = [form.enter(torch.zeros_like(weight)[:, None])], []
        for _ in range(iterations):
            steps.append(form.rows(states[-1]))
            states.append(form.halfway(states[-1], steps[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, weight, torch.stack(states[:-1]), torch.stack(steps))
        return form.leave(states[-1])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix, weight, states, steps = ctx.saved_tensors
        form: _Form = ctx.form(matrix, weight, weight, weighed=ctx.needs_input_grad[2])
        grad = grad[:, None]
        for state, step in zip(reversed(states.unbind()), reversed(steps.unbind()), strict=True):
            grad = grad / 2
            grad = grad + form.pull_rows(state, step, grad)
        return form.grad_scaled(), None, form.grad_target(), None


class _Plan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scaled: Tensor,
        kernel: Tensor | None,
        source: Tensor,
        target: Tensor,
        row: Tensor,
        column: Tensor,
        corner: bool,
    ) -> Tensor:
        if kernel is None:
            result = _ratio(scaled, row, column) * source[:, :, None] * target[:, None, :]
        else:
            result = (kernel * (source * row.exp())[:, :, None]).mul_((target * column.exp())[:, None, :])
        if not corner:
            result[:, -1, -1] = 0
        ctx.corner, ctx.weighed = corner, any(ctx.needs_input_grad[2:4])
        ctx.save_for_backward(result, *((scaled, source, target, row, column) if ctx.weighed else ()))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        result, *rest = ctx.saved_tensors
        moved = grad * result
        by_source = by_target = None
        if ctx.weighed:
            scaled, source, target, row, column = rest
            ratio = _ratio(scaled, row, column).mul_(grad)
            if not ctx.corner:
                ratio[:, -1, -1] = 0
            by_source = torch.bmm(target[:, None, :], ratio.mT)[:, 0]
            by_target = torch.bmm(source[:, None, :], ratio)[:, 0]
        by_row, by_column = moved.sum(2), moved.sum(1)
        return moved.neg_(), None, by_source, by_target, by_row, by_column, None


def _ratio(scaled: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """The plan per unit of both weights."""
    return (row[:, :, None] + column[:, None, :] - scaled).clamp_(max=_BOUND).exp_()


class _Form(ABC):
    """How half steps are computed, for r runs at once.

    A state, [B, r, n] of rows or [B, r, m] of columns, is the potential or what stands for it. The gradients that
    `pull_*` takes and returns are those of the potentials; what reaches the costs and the weights is collected inside.
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
    def halfway(self, one: Tensor, other: Tensor) -> Tensor: ...

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


class _Kernel(_Form):
    """The state is exp(potential), the matrix exp(-M), a half step a product with it and a reciprocal.

    The gradient of the matrix is a sum of outer products, one for each half step: they are kept as vectors and
    multiplied once. A row times a matrix is on a CPU some ten times faster than the matrix times a column.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        super().__init__(matrix, source, target, weighed=weighed)
        self.turned = matrix.mT
        self.left: list[Tensor] = []  # each [B, r, n]
        self.right: list[Tensor] = []  # each [B, r, m]

    def enter(self, potential: Tensor) -> Tensor:
        return potential.exp()

    def leave(self, state: Tensor) -> Tensor:
        return state.log()

    def halfway(self, one: Tensor, other: Tensor) -> Tensor:
        return (one * other).sqrt_()

    def rows(self, column: Tensor) -> Tensor:
        return torch.bmm(self.target * column, self.turned).reciprocal_()

    def columns(self, row: Tensor) -> Tensor:
        return torch.bmm(self.source * row, self.matrix).reciprocal_()

    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor) -> Tensor:
        back, push = grad * row, self.target * column
        pulled = torch.bmm(back, self.matrix)
        self.left.append(back)
        self.right.append(push)
        if self.weighed:
            self.by_target.append(-pulled * column)
        return pulled.mul_(push).neg_()

    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor) -> Tensor:
        back, push = grad * column, self.source * row
        pulled = torch.bmm(back, self.turned)
        self.left.append(push)
        self.right.append(back)
        if self.weighed:
            self.by_source.append(-pulled * row)
        return pulled.mul_(push).neg_()

    def grad_scaled(self) -> Tensor:
        return torch.bmm(torch.cat(self.left, 1).mT, torch.cat(self.right, 1)).mul_(self.matrix)


class _Log(_Form):
    """The state is the potential, the matrix M, a half step a log-sum-exp: for any range of costs.

    The adjoint forms the plan of each half step once more.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor, *, weighed: bool = False) -> None:
        super().__init__(matrix, source, target, weighed=weighed)
        self.log_source, self.log_target = _log_weight(self.source), _log_weight(self.target)
        self.grad = torch.zeros_like(matrix)

    def enter(self, potential: Tensor) -> Tensor:
        return potential

    def leave(self, state: Tensor) -> Tensor:
        return state.clone()  # an output must not be the tensor that is saved

    def halfway(self, one: Tensor, other: Tensor) -> Tensor:
        return (one + other) / 2

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
            by_weight.append(-(grad[:, :, :, None] * exponent.clamp(max=_BOUND).exp()).sum(2))
        return -share.sum(2)


def _form(scaled: Tensor, kernel: Tensor | None, source: Tensor, target: Tensor) -> _Form:
    return _Log(scaled, source, target) if kernel is None else _Kernel(kernel, source, target)


def _log_weight(weight: Tensor) -> Tensor:
    return torch.where(weight > 0, weight.clamp(min=1e-38).log(), _ABSENT)
