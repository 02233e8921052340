"""The room of potentials: the iterations behind entropic transport, each with a hand-written adjoint.

A pair of potentials (u, v), in units of the temperature, makes the plan

    P[i, j] = a[i] b[j] exp(u[i] + v[j] - M[i, j]),    M = cost / temperature,

of weights a [B, n] and b [B, m]. The schemes below are compositions of half steps (`halfstep`), so their adjoints are
written from that of one half step, and keep only the potentials of each iteration: O((n + m) iterations) numbers beside
the costs. Potentials come out in double precision, as `halfstep` says.
"""

from math import ceil, cos, isfinite, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from grapheme_nn.loss.halfstep import BOUND, Form, form_of

LOG_FORM_FROM = 40.0
"""Range of cost / temperature from which exp(-cost / temperature) is not formed: it would lose its small entries."""


class Costs(NamedTuple):
    """Costs in units of the temperature, and exp(-costs) where their range allows it."""

    scaled: Tensor  # [B, n, m]: what gradients reach; its numbers are gone where there is a kernel
    kernel: Tensor | None  # [B, n, m], without gradient


def survey(*scaled: Tensor) -> list[Costs]:
    """The costs with their kernels, or without any where they range over 40 temperatures or more.

    Kernels take the place of the costs in memory: they must be the caller's own. Reads two numbers back from the
    device, at once, and refuses costs that are not finite.
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
        return [Costs(part.double(), None) for part in scaled]  # single precision has few digits after such numbers
    return [Costs(part, part.detach().neg_().exp_()) for part in scaled]


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
    """Potentials (u, v) from the given ones: the mean of two runs of half the iterations, one of which begins with the
    rows and one with the columns, so that they are the same for (x, y) and, transposed, for (y, x).

    A run goes `beyond` what each half step finds, except for the last one: so ten iterations come as near to the
    solution as twenty of `alternate`. The dual value does not fall here either: it is concave, so that of the mean is
    not below the mean of both. The runs go hand in hand, half a step apart. Shapes: as in `alternate`, and start_row
    [B, n].
    """
    potentials: tuple[Tensor, Tensor] = _Meet.apply(  # type: ignore[no-untyped-call]
        *costs, source, target, start_row, start_column, iterations
    )
    return potentials


def balance(costs: Costs, weight: Tensor, iterations: int) -> Tensor:
    """The potential u of a graph against itself (both sides have it), after `iterations` of u <- u + s (rows(u) - u).

    Near the solution rows() acts as minus the plan, whose eigenvalues p lie in [0, 1] where exp(-costs) is positive
    definite: an iteration multiplies the error by 1 - s (1 + p), at any temperature. With s from the zeros of
    Chebyshev's polynomial on [1, 2], c of them together leave at most 2 (3 - 2 sqrt 2)^c of it. The last two have
    s = 1/2, which at least halves it and takes back the noise of single precision. No s is above 1, so that no
    iteration moves two potentials apart, however far they are from the solution.
    Shapes: costs [B, n, n], symmetric; weight [B, n]; returns [B, n].
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
        form = form_of(scaled, kernel, source, target)
        rows, columns = [], [form.enter(start[:, None])]
        for _ in range(iterations):
            rows.append(form.rows(columns[-1]))
            columns.append(form.columns(rows[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, source, target, *rows, *columns)
        return form.leave(rows[-1])[:, 0], form.leave(columns[-1])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_row: Tensor, grad_column: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, *states = ctx.saved_tensors
        form: Form = ctx.form(matrix, source, target, weighed=any(ctx.needs_input_grad[2:4]))
        rows, columns = states[: len(states) // 2], states[len(states) // 2 :]
        grad_row, grad_column = grad_row.to(matrix.dtype), grad_column.to(matrix.dtype)
        grad, last = grad_column[:, None], len(rows) - 1
        for step in range(last, -1, -1):
            grad = form.pull_columns(rows[step], columns[step + 1], grad)
            if step == last:
                grad = grad + grad_row[:, None]
            grad = form.pull_rows(columns[step], rows[step], grad)
        return form.grad_scaled(), None, form.grad_source(), form.grad_target(), grad[:, 0], None


class _Meet(torch.autograd.Function):
    """Runs side by side in the second dimension: rows first, and columns first.

    The latter makes its first half step alone, ahead of the loop, and the former its last one, after it.
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
        form = form_of(scaled, kernel, source, target)
        row, column = form.enter(start_row[:, None]), form.enter(start_column[:, None])
        first = form.columns(row)
        rows, columns = [row.expand(-1, 2, -1)], [torch.cat([column, form.beyond(column, first)], 1)]
        best_rows, best_columns = [form.rows(columns[0])], []
        for _ in range(ceil(iterations / 2) - 1):
            rows.append(form.beyond(rows[-1], best_rows[-1]))
            best_columns.append(form.columns(rows[-1]))
            columns.append(form.beyond(columns[-1], best_columns[-1]))
            best_rows.append(form.rows(columns[-1]))
        last_row = form.beyond(rows[-1][:, :1], best_rows[-1][:, :1])
        last_column = form.columns(last_row)
        ctx.form = type(form)
        ends = first, last_row, last_column
        ctx.save_for_backward(form.matrix, source, target, *ends, *rows, *columns, *best_rows, *best_columns)
        row, column = torch.cat([last_row, best_rows[-1][:, 1:]], 1), torch.cat([last_column, columns[-1][:, 1:]], 1)
        return form.leave(row).mean(1), form.leave(column).mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_row: Tensor, grad_column: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, first, last_row, last_column, *states = ctx.saved_tensors
        form: Form = ctx.form(matrix, source, target, weighed=any(ctx.needs_input_grad[2:4]))
        rounds = (len(states) + 1) // 4
        rows, columns, best_rows, best_columns = (states[rounds * part : rounds * (part + 1)] for part in range(4))
        row, column = (grad[:, None].to(matrix.dtype) / 2 for grad in (grad_row, grad_column))
        by_last = row + form.pull_columns(last_row, last_column, column)
        by_row, by_best = form.pull_beyond(rows[-1][:, :1], best_rows[-1][:, :1], by_last)
        by_row = torch.cat([by_row, torch.zeros_like(by_row)], 1)
        by_column = form.pull_rows(columns[-1], best_rows[-1], torch.cat([by_best, row], 1))
        by_column[:, 1:] += column
        for step in range(rounds - 2, -1, -1):
            old, by_best = form.pull_beyond(columns[step], best_columns[step], by_column)
            by_row = by_row + form.pull_columns(rows[step + 1], best_columns[step], by_best)
            by_row, by_best = form.pull_beyond(rows[step], best_rows[step], by_row)
            by_column = old + form.pull_rows(columns[step], best_rows[step], by_best)
        old, by_first = form.pull_beyond(columns[0][:, :1], first, by_column[:, 1:])
        by_start_row = by_row.sum(1) + form.pull_columns(rows[0][:, :1], first, by_first)[:, 0]
        by_start_column = by_column[:, 0] + old[:, 0]
        return form.grad_scaled(), None, form.grad_source(), form.grad_target(), by_start_row, by_start_column, None


class _Balance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scaled: Tensor, kernel: Tensor | None, weight: Tensor, iterations: int) -> Tensor:
        form = form_of(scaled, kernel, weight, weight)
        states, steps = [form.enter(torch.zeros_like(weight)[:, None])], []
        for share in _shares(iterations):
            steps.append(form.rows(states[-1]))
            states.append(form.between(states[-1], steps[-1], share))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, weight, *states[:-1], *steps)
        return form.leave(states[-1])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix, weight, *saved = ctx.saved_tensors
        form: Form = ctx.form(matrix, weight, weight, weighed=ctx.needs_input_grad[2])
        states, steps = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        grad = grad[:, None].to(matrix.dtype)
        for state, step, share in zip(states[::-1], steps[::-1], _shares(len(steps))[::-1], strict=True):
            grad = form.pull_rows(state, step, grad * share).add_(grad, alpha=1 - share)
        return form.grad_scaled(), None, form.grad_target(), None


def _shares(iterations: int) -> list[float]:
    """How far each iteration of `balance` goes, from 1/2 to 1: small steps first, while the solution is far."""
    count = max(iterations - 2, 0)
    chebyshev = [1 / (1.5 + 0.5 * cos(pi * (step + 0.5) / count)) for step in range(count)]
    return chebyshev + [0.5] * (iterations - count)


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
            result = (_ratio(scaled, kernel, row, column) * source[:, :, None] * target[:, None, :]).to(source.dtype)
        else:
            result = _scaled(kernel, source * row.exp(), target * column.exp())
        if not corner:
            result[:, -1, -1] = 0
        ctx.corner, ctx.weighed = corner, any(ctx.needs_input_grad[2:4])
        ctx.save_for_backward(result, *((scaled, kernel, source, target, row, column) if ctx.weighed else ()))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        result, *rest = ctx.saved_tensors
        moved = grad * result
        by_source = by_target = None
        if ctx.weighed:
            scaled, kernel, source, target, row, column = rest
            ratio = _ratio(scaled, kernel, row, column).to(grad.dtype).mul_(grad)
            if not ctx.corner:
                ratio[:, -1, -1] = 0
            by_source = torch.bmm(target[:, None, :], ratio.mT)[:, 0]
            by_target = torch.bmm(source[:, None, :], ratio)[:, 0]
        by_row, by_column = moved.sum(2), moved.sum(1)
        return moved.neg_(), None, by_source, by_target, by_row, by_column, None


def _ratio(scaled: Tensor, kernel: Tensor | None, row: Tensor, column: Tensor) -> Tensor:
    """The plan per unit of both weights."""
    if kernel is not None:
        return _scaled(kernel, row.exp(), column.exp())
    return (row[:, :, None] + column[:, None, :] - scaled).clamp_(max=BOUND).exp_()


def _scaled(matrix: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Every row and every column of a matrix times a number."""
    row, column = row.to(matrix.dtype), column.to(matrix.dtype)
    return (matrix * column[:, None, :]).mul_(row[:, :, None])
