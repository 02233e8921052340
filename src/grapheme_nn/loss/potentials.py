"""Batched entropic optimal transport: Sinkhorn's iterations (Cuturi, 2013) with one hand-written adjoint.

A pair of dual potentials (u, v), in units of the temperature, makes the plan

    P[i, j] = a[i] b[j] exp(u[i] + v[j] - M[i, j]),    M = cost / temperature,

of weights a [B, n] and b [B, m]. Every scheme below is a *schedule* of half steps (`softmin`): which side moves, and
how far towards, or beyond, what its half step finds. One autograd function runs a schedule and replays it backwards;
it keeps only the potentials of each half step: O((n + m) iterations) numbers beside the costs.
"""

from collections.abc import Callable
from math import ceil, cos, isfinite, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grapheme_nn.derivatives import once_differentiable
from grapheme_nn.loss.softmin import BOUND, KernelDomain, LogDomain

LOG_DOMAIN_FROM = 40.0
"""Range of cost / temperature from which exp(-cost / temperature) is not formed: it would lose its small entries."""

ROWS, COLUMNS = 0, 1
PLAIN, OVER = (1.0,), 1.5  # a single run that goes to what each half step finds, and the factor of over-relaxation

Schedule = list[tuple[int, tuple[float, ...]]]
"""Of each half step the side, and the relaxation factor of each run: 0 rests, 1 goes to what is found, 1.5 beyond."""


class Costs(NamedTuple):
    """Costs in units of the temperature, and exp(-costs) where their range allows it."""

    scaled: Tensor  # [B, n, m]: what gradients reach; its numbers are gone where there is a kernel
    kernel: Tensor | None  # [B, n, m], without gradient


def with_kernels(*scaled: Tensor) -> list[Costs]:
    """The costs with their kernels, or without any, as `sinkhorn` says.

    Kernels take the place of the costs in memory: they must be the caller's own.
    """
    table = torch.stack([torch.stack(part.detach().aminmax()) for part in scaled if part.numel()] or [torch.zeros(2)])
    least, most = torch.stack([table[:, 0].amin(), table[:, 1].amax()]).tolist()
    if not isfinite(most - least):
        raise ValueError(
            f"costs must be finite where masks keep them, but range from {least} to {most} temperatures: "
            "mask such pairs, or use a large finite cost"
        )
    if most - least >= LOG_DOMAIN_FROM or max(-least, most) >= 2 * LOG_DOMAIN_FROM:
        return [Costs(part.double(), None) for part in scaled]  # single precision has few digits after such numbers
    return [Costs(part, part.detach().neg_().exp_()) for part in scaled]


def alternating_sinkhorn(
    costs: Costs, source: Tensor, target: Tensor, start: Tensor, iterations: int, *, dustbin: bool = False
) -> tuple[Tensor, Tensor]:
    """Potentials (u, v) after `iterations` of u <- softmin(v), v <- softmin(u), from v = start.

    Each half step maximises the dual value `<a, u> + <b, v> - sum P` over its side, so the value never falls. With
    `dustbin`, the potentials of the last row and of the last column are held at 0.
    Shapes: costs [B, n, m], source [B, n], target and start [B, m]; returns [B, n], [B, m].
    """
    schedule: Schedule = [(ROWS, PLAIN), (COLUMNS, PLAIN)] * iterations  # the start of the rows is not read
    return _Sinkhorn.apply(*costs, source, target, schedule, dustbin, source, start)  # type: ignore[no-any-return,no-untyped-call]


def averaged_sinkhorn(
    costs: Costs, source: Tensor, target: Tensor, start_row: Tensor, start_column: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Over-relaxed Sinkhorn (Thibault et al., 2021), averaged over a run that begins with the rows and one that begins
    with the columns, of half the iterations each: the same for (x, y) and, transposed, for (y, x).

    A half step maximises over its side, for every node of weight a by itself, a (u - exp(u - best)). Half as far again,
    but upwards at most `OVERSHOOT` = 3/2 beyond, this is not lower than at the old u: exp(min(x / 2, 3/2)) - min(x / 2,
    3/2) <= exp(-x) + x where old is x below best, and exp(-x / 2) + x / 2 <= exp(x) - x where it is x above. So the
    dual value never falls; it is concave, so that of the mean is not below the mean of both. The last half step of a
    run goes no further than best: ten iterations come as near to the solution as twenty of `alternating_sinkhorn`.
    Shapes: as there, and start_row [B, n].
    """
    schedule: Schedule = [(COLUMNS, (0, OVER))]  # the runs go side by side, half a step apart
    schedule += [(ROWS, (OVER, OVER)), (COLUMNS, (OVER, OVER))] * (ceil(iterations / 2) - 1)
    schedule += [(ROWS, (OVER, 1)), (COLUMNS, (1, 0))]
    return _Sinkhorn.apply(*costs, source, target, schedule, False, start_row, start_column)  # type: ignore[no-any-return,no-untyped-call]


def symmetric_sinkhorn(costs: Costs, weight: Tensor, iterations: int) -> Tensor:
    """The potential u of a graph against itself, which both sides have: `iterations` of u <- u + s (softmin(u) - u).

    With s = 1/2 this is the symmetric update of Feydy et al. (2019). Near the solution softmin acts as minus the plan,
    whose eigenvalues p lie in [0, 1] where exp(-costs) is positive definite: an iteration multiplies the error by
    1 - s (1 + p), at any temperature. With s from the zeros of Chebyshev's polynomial on [1, 2], c of them together
    leave at most 2 (3 - 2 sqrt 2)^c of it; small steps come first, while the solution is far. The last two have s =
    1/2, which at least halves it and takes back the noise of single precision. No s is above 1, so that no iteration
    moves two potentials apart, however far they are from the solution.
    Shapes: costs [B, n, n], symmetric; weight [B, n]; returns [B, n].
    """
    count = max(iterations - 2, 0)
    shares = [1 / (1.5 + 0.5 * cos(pi * (step + 0.5) / count)) for step in range(count)] + [0.5] * (iterations - count)
    schedule: Schedule = [(ROWS, (share,)) for share in shares]
    return _Sinkhorn.apply(*costs, weight, weight, schedule, False, torch.zeros_like(weight))[0]  # type: ignore[no-any-return,no-untyped-call]


def transport_plan(
    costs: Costs, source: Tensor, target: Tensor, row: Tensor, column: Tensor, *, corner: bool = True
) -> Tensor:
    """The plan that potentials make, [B, n, m]; with 0 in place of its last entry unless `corner`."""
    return _Plan.apply(corner, *costs, source, target, row, column)  # type: ignore[no-any-return,no-untyped-call]


class _Sinkhorn(torch.autograd.Function):
    """Runs a schedule from the given potentials, and gives the mean over its runs.

    `starts` are the potentials of the rows and of the columns, or a single one that stands for both sides.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scaled: Tensor,
        kernel: Tensor | None,
        source: Tensor,
        target: Tensor,
        schedule: Schedule,
        dustbin: bool,
        *starts: Tensor,
    ) -> tuple[Tensor, ...]:
        domain = LogDomain(scaled, source, target) if kernel is None else KernelDomain(kernel, source, target)
        runs = len(schedule[0][1])
        states = [domain.from_potential(start[:, None]).expand(-1, runs, -1) for start in starts]
        now = list(range(len(starts)))  # where the last state of each side is among all states
        ctx.places = []
        for side, factors in schedule:
            other, old = now[side - 1], now[side]  # of a single start, both are it
            best = domain.softmin(side, states[other])
            if dustbin:
                best[:, :, -1] = domain.zero
            ctx.places.append((other, old, len(states)))
            states.append(best)
            if factors != PLAIN:
                states.append(_each_run(domain.relax, factors, states[old], best))
            now[side] = len(states) - 1
        ctx.domain, ctx.schedule, ctx.dustbin = type(domain), schedule, dustbin
        ctx.save_for_backward(domain.matrix, source, target, *states)
        return tuple(domain.to_potential(states[last]).mean(1) for last in now)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, *states = ctx.saved_tensors
        domain: KernelDomain = ctx.domain(matrix, source, target, weighed=any(ctx.needs_input_grad[2:4]))
        runs = len(ctx.schedule[0][1])
        grads: list[Tensor | None] = [(each[:, None].to(matrix.dtype) / runs).expand(-1, runs, -1) for each in outputs]
        for (side, factors), (other, old, best) in zip(ctx.schedule[::-1], ctx.places[::-1], strict=True):
            grad, grads[side] = grads[side], None
            assert grad is not None  # a side that was set before has its gradient from the other one since
            if factors != PLAIN:
                grads[side] = by_old = _each_run(domain.relax_vjp, factors, states[old], states[best], grad)
                grad = grad - by_old
            if ctx.dustbin:
                grad = torch.nn.functional.pad(grad[:, :, :-1], (0, 1))
            pulled, given = domain.softmin_vjp(side, states[other], states[best], grad), grads[side - 1]
            grads[side - 1] = pulled if given is None else given + pulled
        by_starts = [None if grad is None else grad.sum(1) for grad in grads]
        return domain.grad_scaled(), None, domain.grad_weight(ROWS), domain.grad_weight(COLUMNS), None, None, *by_starts


def _each_run(apply: Callable[..., Tensor], factors: tuple[float, ...], *states: Tensor) -> Tensor:
    """What `apply` makes of a factor and states, run by run; of all runs at once where they have the same factor."""
    if len(set(factors)) == 1:
        return apply(factors[0], *states)
    runs = zip(factors, *(state.chunk(len(factors), 1) for state in states), strict=True)
    return torch.cat([apply(*run) for run in runs], 1)


class _Plan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, corner: bool, *parts: Any) -> Tensor:  # as `_entries` takes them
        result = _entries(corner, *parts)
        ctx.corner, ctx.weighed = corner, any(ctx.needs_input_grad[3:5])
        ctx.save_for_backward(result, *(parts if ctx.weighed else ()))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        result, *parts = ctx.saved_tensors
        moved = grad * result
        by_source = by_target = None
        if ctx.weighed:
            scaled, kernel, source, target, row, column = parts
            ones = torch.ones_like(source), torch.ones_like(target)
            ratio = _entries(ctx.corner, scaled, kernel, *ones, row, column).mul_(grad)  # weights may be 0
            by_source = torch.bmm(target[:, None, :], ratio.mT)[:, 0]
            by_target = torch.bmm(source[:, None, :], ratio)[:, 0]
        by_row, by_column = moved.sum(2), moved.sum(1)
        return None, moved.neg_(), None, by_source, by_target, by_row, by_column


def _entries(
    corner: bool, scaled: Tensor, kernel: Tensor | None, source: Tensor, target: Tensor, row: Tensor, column: Tensor
) -> Tensor:
    """The plan, [B, n, m]; with 0 in place of its last entry unless `corner`."""
    if kernel is None:
        result = (row[:, :, None] + column[:, None, :]).sub_(scaled).clamp_(max=BOUND).exp_()
        result = result.mul_(source[:, :, None]).mul_(target[:, None, :]).to(source.dtype)
    else:
        row, column = (source * row.exp()).to(kernel.dtype), (target * column.exp()).to(kernel.dtype)
        result = (kernel * column[:, None, :]).mul_(row[:, :, None])
    if not corner:
        result[:, -1, -1] = 0
    return result
