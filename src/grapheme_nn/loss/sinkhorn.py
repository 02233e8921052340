"""The room of transport: entropic optimal transport by a fixed number of Sinkhorn iterations, with an exact adjoint.

A pair of potentials (u, v), in units of the temperature, makes the plan

    P[i, j] = a[i] b[j] exp(u[i] + v[j] - M[i, j]),    M = cost / temperature,

of weights a [B, n] and b [B, m]. A half step sets one side of it right, u = -log sum_j b[j] exp(v[j] - M[:, j]), and never
divides by a weight: a node that is not there (padding) simply weighs 0. Both schemes below are plain compositions of half
steps, so their adjoints are written by hand from that of one half step, and keep only the potentials of each iteration:
O((n + m) iterations) numbers beside the cost.
"""

from abc import ABC, abstractmethod
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG_FORM_FROM = 40.0
"""Range of cost / temperature from which exp(-cost / temperature) is no longer formed: it would lose small entries."""

_ABSENT = -1e30  # log of the weight 0: finite, so that no difference of two of them is NaN


def sinkhorn(
    cost: Tensor,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
    *,
    iterations: int = 20,
    temperature: float = 0.1,
    void: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The entropic transport plan after a fixed number of Sinkhorn iterations; its gradient is that of this very map.

        P = argmin_P <P, cost> + temperature * KL(P | a b^T),    P 1 = a,  P^T 1 = b

    in the limit of many iterations; an iteration sets first the rows right, then the columns. Without `void` each of the
    n nodes of a side weighs 1/n. With `void`, the costs of deleting each source node [B, n] and of inserting each target
    node [B, m], each node weighs 1, and what a row or column of the plan lacks to 1 was deleted or inserted: a void node
    on either side, as heavy as the other side's nodes together, is their partner (void to void costs 0).

    Shapes: cost [B, n, m]; masks bool [B, n] and [B, m], False for padding, where the cost may be anything, inf included;
    returns P [B, n, m], 0 in padding.

    Where the costs range over less than 40 temperatures, iterations are products with exp(-cost / temperature), otherwise
    log-sum-exps. To choose, and to refuse NaN, one number is read back from the device.
    """
    masked = source_mask is not None or target_mask is not None
    source_mask, target_mask = _checked(cost, source_mask, target_mask, iterations, temperature)
    if cost.dtype in (torch.float16, torch.bfloat16):
        cost = cost.float()
    scaled = cost / temperature
    source, target = source_mask.to(scaled.dtype), target_mask.to(scaled.dtype)
    if void is None:
        source = source / source.sum(1, keepdim=True).clamp(min=1)
        target = target / target.sum(1, keepdim=True).clamp(min=1)
    else:
        for name, side, shape in zip(("deletion", "insertion"), void, (source.shape, target.shape), strict=True):
            if side.shape != shape:
                raise ValueError(f"the {name} costs of void must have shape {list(shape)}, but have {list(side.shape)}")
        deletion, insertion = (side.to(scaled) / temperature for side in void)
        scaled = border(scaled, deletion, insertion)
        deleted, inserted = source.sum(1, keepdim=True), target.sum(1, keepdim=True)
        source, target = torch.cat([source, inserted], 1), torch.cat([target, deleted], 1)
    if masked:
        # Padding must not reach exp or a product, not even times 0: inf * 0 is NaN. It takes the least cost there is.
        kept = (source > 0)[:, :, None] & (target > 0)[:, None, :]
        scaled = torch.where(kept, scaled, 0.0 if not scaled.numel() else _least(scaled.detach(), kept))
    least, log = survey(scaled)
    scaled = scaled - least  # changes no plan
    row, column = alternate(scaled, source, target, torch.zeros_like(target), iterations, log)
    exponent = row[:, :, None] + column[:, None, :] - scaled
    plan: Tensor = exponent.exp() * (source[:, :, None] * target[:, None, :])
    return plan if void is None else plan[:, :-1, :-1]


def border(cost: Tensor, deletion: Tensor, insertion: Tensor) -> Tensor:
    """The cost with a void row and column, [B, n + 1, m + 1]; the corner is 0."""
    wide = torch.cat([cost, deletion[:, :, None]], 2)
    return torch.cat([wide, torch.nn.functional.pad(insertion, (0, 1))[:, None, :]], 1)


def survey(*scaled: Tensor) -> tuple[float, bool]:
    """The least of costs in units of the temperature, and whether they range too widely for the kernel form.

    Reads two numbers back from the device, at once; refuses costs that are not finite.
    """
    ends = [torch.stack(part.detach().aminmax()) for part in scaled if part.numel()]
    if not ends:
        return 0.0, False
    table = torch.stack(ends)
    least, most = torch.stack([table[:, 0].amin(), table[:, 1].amax()]).tolist()
    if not isfinite(most - least):
        raise ValueError(
            f"costs must be finite where the masks keep them, but range from {least} to {most} temperatures: "
            "mask such pairs, or use a large finite cost"
        )
    return least, most - least >= LOG_FORM_FROM


def alternate(
    scaled: Tensor, source: Tensor, target: Tensor, start: Tensor, iterations: int, log: bool
) -> tuple[Tensor, Tensor]:
    """Potentials (u, v) after `iterations` of u <- rows(v), v <- columns(u), from v = start.

    Each half step maximises the dual value `<a, u> + <b, v> - sum P` over its side, so the value never falls.
    Shapes: scaled [B, n, m], source [B, n], target and start [B, m]; returns [B, n], [B, m].
    """
    potentials: tuple[Tensor, Tensor] = _Alternate.apply(scaled, source, target, start, iterations, log)
    return potentials


def balance(scaled: Tensor, weight: Tensor, iterations: int, log: bool) -> Tensor:
    """The potential u of a graph against itself (both sides have it), after `iterations` of u <- (u + rows(u)) / 2.

    Near the solution rows() acts as minus the plan, whose eigenvalues lie in [0, 1] where exp(-scaled) is positive
    definite; so every iteration at least halves the error, at any temperature. Shapes: scaled [B, n, n], symmetric;
    weight [B, n]; returns [B, n].
    """
    potential: Tensor = _Balance.apply(scaled, weight, iterations, log)
    return potential


class _Alternate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scaled: Tensor, source: Tensor, target: Tensor, start: Tensor, iterations: int, log: bool
    ) -> tuple[Tensor, Tensor]:
        form = _form(scaled, source, target, log)
        rows, columns = [], [form.enter(start)]
        for _ in range(iterations):
            rows.append(form.rows(columns[-1]))
            columns.append(form.columns(rows[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, source, target, torch.stack(rows), torch.stack(columns))
        return form.leave(rows[-1]), form.leave(columns[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_row: Tensor, grad_column: Tensor) -> tuple[Tensor | None, ...]:
        matrix, source, target, rows, columns = ctx.saved_tensors
        form = ctx.form(matrix, source, target)
        weighed = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
        grad, last = grad_column, len(rows) - 1
        for step in range(last, -1, -1):
            grad = form.pull_columns(rows[step], columns[step + 1], grad, weighed)
            if step == last:
                grad = grad + grad_row
            grad = form.pull_rows(columns[step], rows[step], grad, weighed)
        return form.grad_scaled(), form.grad_source(), form.grad_target(), grad, None, None


class _Balance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scaled: Tensor, weight: Tensor, iterations: int, log: bool) -> Tensor:
        form = _form(scaled, weight, weight, log)
        states, steps = [form.enter(torch.zeros_like(weight))], []
        for _ in range(iterations):
            steps.append(form.rows(states[-1]))
            states.append(form.halfway(states[-1], steps[-1]))
        ctx.form = type(form)
        ctx.save_for_backward(form.matrix, weight, torch.stack(states[:-1]), torch.stack(steps))
        return form.leave(states[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix, weight, states, steps = ctx.saved_tensors
        form = ctx.form(matrix, weight, weight)
        for step in range(len(steps) - 1, -1, -1):
            grad = grad / 2
            grad = grad + form.pull_rows(states[step], steps[step], grad, ctx.needs_input_grad[1])
        return form.grad_scaled(), form.grad_target(), None, None


class _Form(ABC):
    """How half steps are computed. Its state of a side is the potential, or what stands for it; gradients that `pull_*`
    takes and returns are those of the potentials, and what reaches the costs and the weights is collected inside.

    `matrix` [B, n, m] stands for the costs, `source` [B, n] and `target` [B, m] are the weights.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor) -> None:
        self.matrix, self.source, self.target = matrix, source, target
        self.by_source: list[Tensor] = []  # each [B, n]
        self.by_target: list[Tensor] = []  # each [B, m]

    def grad_source(self) -> Tensor | None:
        return torch.stack(self.by_source).sum(0) if self.by_source else None

    def grad_target(self) -> Tensor | None:
        return torch.stack(self.by_target).sum(0) if self.by_target else None

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
    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor, weighed: bool) -> Tensor: ...

    @abstractmethod
    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor, weighed: bool) -> Tensor: ...

    @abstractmethod
    def grad_scaled(self) -> Tensor: ...


class _Kernel(_Form):
    """The state is exp(potential), the matrix exp(-M), a half step a product with it and a reciprocal.

    The gradient of the matrix is a sum of outer products, one for each half step: they are kept as vectors and multiplied
    once. A row vector times a matrix is on a CPU some ten times faster than the matrix times a column.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor) -> None:
        super().__init__(matrix, source, target)
        self.left: list[Tensor] = []  # each [B, n]
        self.right: list[Tensor] = []  # each [B, m]
        # Where a side weighs nothing any state of the other will do, but 1 / 0.
        self.no_source = (source.sum(1) == 0).to(matrix.dtype)[:, None, None]
        self.no_target = (target.sum(1) == 0).to(matrix.dtype)[:, None, None]

    def enter(self, potential: Tensor) -> Tensor:
        return potential.exp()

    def leave(self, state: Tensor) -> Tensor:
        return state.log()

    def halfway(self, one: Tensor, other: Tensor) -> Tensor:
        return (one * other).sqrt_()

    def rows(self, column: Tensor) -> Tensor:
        push = (self.target * column)[:, None, :]
        return torch.baddbmm(self.no_target, push, self.matrix.mT).reciprocal_()[:, 0]

    def columns(self, row: Tensor) -> Tensor:
        push = (self.source * row)[:, None, :]
        return torch.baddbmm(self.no_source, push, self.matrix).reciprocal_()[:, 0]

    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor, weighed: bool) -> Tensor:
        back, push = grad * row, self.target * column
        pulled = torch.bmm(back[:, None, :], self.matrix)[:, 0]
        self.left.append(back)
        self.right.append(push)
        if weighed:
            self.by_target.append(-pulled * column)
        return (pulled * push).neg_()

    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor, weighed: bool) -> Tensor:
        back, push = grad * column, self.source * row
        pulled = torch.bmm(back[:, None, :], self.matrix.mT)[:, 0]
        self.left.append(push)
        self.right.append(back)
        if weighed:
            self.by_source.append(-pulled * row)
        return (pulled * push).neg_()

    def grad_scaled(self) -> Tensor:
        return torch.bmm(torch.stack(self.left, 2), torch.stack(self.right, 1)).mul_(self.matrix)


class _Log(_Form):
    """The state is the potential, the matrix M, a half step a log-sum-exp: for any range of costs.

    The adjoint forms the plan of each half step once more.
    """

    def __init__(self, matrix: Tensor, source: Tensor, target: Tensor) -> None:
        super().__init__(matrix, source, target)
        self.log_source, self.log_target = _log_weight(source), _log_weight(target)
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

    def pull_rows(self, column: Tensor, row: Tensor, grad: Tensor, weighed: bool) -> Tensor:
        by_weight = self.by_target if weighed else None
        return self._pull(self.matrix, self.grad, self.log_target, column, row, grad, by_weight)

    def pull_columns(self, row: Tensor, column: Tensor, grad: Tensor, weighed: bool) -> Tensor:
        by_weight = self.by_source if weighed else None
        return self._pull(self.matrix.mT, self.grad.mT, self.log_source, row, column, grad, by_weight)

    def grad_scaled(self) -> Tensor:
        return self.grad

    @staticmethod
    def _step(matrix: Tensor, exponent: Tensor) -> Tensor:
        if not exponent.size(1):
            return matrix.new_zeros(matrix.shape[:2])
        total = torch.logsumexp(exponent[:, None, :] - matrix, 2)
        return torch.where(total > _ABSENT / 2, -total, 0.0)

    @staticmethod
    def _pull(
        matrix: Tensor,
        into: Tensor,
        log_weight: Tensor,
        state: Tensor,
        result: Tensor,
        grad: Tensor,
        by_weight: list[Tensor] | None,
    ) -> Tensor:
        exponent = result[:, :, None] + state[:, None, :] - matrix
        share = grad[:, :, None] * (exponent + log_weight[:, None, :]).exp()
        into += share
        if by_weight is not None:
            # Per unit of weight, so that a node that weighs 0 has a gradient too; the bound is for padding alone.
            by_weight.append(-(grad[:, :, None] * exponent.clamp(max=80.0).exp()).sum(1))
        return -share.sum(1)


def _least(scaled: Tensor, kept: Tensor) -> Tensor:
    least = torch.where(kept, scaled, torch.inf).amin()
    return torch.where(least < torch.inf, least, 0.0)


def _form(scaled: Tensor, source: Tensor, target: Tensor, log: bool) -> _Form:
    return _Log(scaled, source, target) if log else _Kernel((-scaled).exp(), source, target)


def _log_weight(weight: Tensor) -> Tensor:
    return torch.where(weight > 0, weight.clamp(min=1e-38).log(), _ABSENT)


def _checked(
    cost: Tensor, source_mask: Tensor | None, target_mask: Tensor | None, iterations: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """The masks, all True where not given."""
    if cost.dim() != 3 or not cost.is_floating_point():
        raise ValueError(f"cost must be floats of shape [B, n, m], but is {cost.dtype} {list(cost.shape)}")
    check_options(iterations, temperature)
    masks = []
    for name, mask, size in (("source_mask", source_mask, cost.size(1)), ("target_mask", target_mask, cost.size(2))):
        if mask is None:
            mask = torch.ones(cost.size(0), size, dtype=torch.bool, device=cost.device)
        if mask.shape != (cost.size(0), size) or mask.dtype != torch.bool:
            raise ValueError(
                f"{name} must be bool of shape {[cost.size(0), size]}, but is {mask.dtype} {list(mask.shape)}"
            )
        if mask.device != cost.device:
            raise ValueError(f"{name} is on {mask.device}, but cost is on {cost.device}: move one of them")
        masks.append(mask)
    return masks[0], masks[1]


def check_options(iterations: int, temperature: float) -> None:
    """Refuses what no transport problem can be solved with."""
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, but is {iterations}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite, but is {temperature}")
