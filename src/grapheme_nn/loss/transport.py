"""The room of transport between slots and targets: every target is spelled by one slot, every other slot is void."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from grapheme_nn.loss.spelling import VOID, Pairs, Spelling, check_slots, exact_dtype, pair, with_posteriors

Order = Literal["exact", "soft"]

_LONGEST = 1e4  # a larger cost counts as this, so that labels of probability 0 have one
_NEVER = -1e30  # minus infinity that can be subtracted from itself


class TransportLoss(nn.Module):
    r"""The free energy of transport between slots and targets, at cost -log p(label), or -log p(void) for other slots.

    `order="exact"`: only plans that keep the order of the targets count, and all of them are summed, in O(n m):

    .. math:: -T \log \sum_{s_1 < \dots < s_m} \Big[\prod_j p_{s_j}(t_j) \prod_{i \notin s} p_i(\text{void})\Big]^{1/T}

    At temperature 1 this is minus the log-probability of the target. The plan is the posterior of slot i spelling
    target j. Where no plan is possible the value is inf and its gradient 0.

    `order="soft"`: the plan P that shares each slot between targets and void, each target once, and minimises

    .. math:: \langle P, C \rangle + T \langle P, \log P \rangle + w \sum_j \sum_{u \ge t} P_{uj} P_{t,j+1}

    whose last term is the edge term: how many edges of the target do not point forward. P is solved for by `iterations`
    of Sinkhorn's after each of `rounds` linearisations of that term, the first at the mean of all monotone plans. The
    value is the dual energy at the scalings reached, a bound from below where Sinkhorn has not converged, and the
    gradient is that of this very computation. It is no probability and may fall below 0. Costs above 1e4 count as
    1e4. Where there are fewer slots than targets the value is inf and its gradient 0. O(n m) time per iteration.

    Exact is the default: it costs a seventh, learned in fewer epochs where both were tried, and has nothing to tune.
    Plain entropy (soft at temperature 1) rewards a label spread over several slots; a lower temperature does so less.

    temperature: T, by default 1 for exact and 0.7 for soft order.
    weight, rounds, iterations: w and the solver's steps, of soft order only.
    """

    def __init__(
        self,
        *,
        order: Order = "exact",
        temperature: float | None = None,
        weight: float = 6.0,
        rounds: int = 3,
        iterations: int = 20,
    ) -> None:
        super().__init__()
        if order not in get_args(Order):
            raise ValueError(f"unknown order {order!r}: choose one of {', '.join(get_args(Order))}")
        if temperature is None:
            temperature = 1.0 if order == "exact" else 0.7
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, but is {temperature}")
        if not weight >= 0:
            raise ValueError(f"weight must not be negative, but is {weight}")
        if rounds < 1 or iterations < 1:
            raise ValueError(f"rounds and iterations must be at least 1, but are {rounds} and {iterations}")
        self.order = order
        self.temperature = temperature
        self.weight = weight
        self.rounds = rounds
        self.iterations = iterations

    def forward(
        self,
        label_log_prob: Tensor,  # [B, n, V]
        target: Tensor,  # int64 [B, m]
        *,
        slot_mask: Tensor | None = None,  # bool [B, n]
        target_mask: Tensor | None = None,  # bool [B, m]
        edge_log_prob: Tensor | None = None,
    ) -> Spelling:
        if edge_log_prob is not None:
            raise ValueError("TransportLoss has no use for edge_log_prob: leave it out, or use PathLoss")
        pairs = pair(label_log_prob, target, slot_mask, target_mask)
        void = torch.where(pairs.slot_mask, label_log_prob[:, :, VOID], 0)  # a slot that is not there is void for free
        if self.order == "soft":
            return self._soft(pairs, void)
        with torch.no_grad():
            value, plan, unused = _monotone(pairs.label / self.temperature, void / self.temperature, pairs.length)
        plan, unused = plan.to(void.dtype), unused.to(void.dtype)
        value = (value * self.temperature).to(void.dtype)
        return Spelling(with_posteriors(value, (pairs.label, void), (plan, unused)), plan)

    def _soft(self, pairs: Pairs, void: Tensor) -> Spelling:
        temperature, weight = self.temperature, self.weight / self.temperature
        possible = pairs.length <= pairs.slot_mask.sum(1)
        there = pairs.slot_mask[:, :, None] & pairs.target_mask[:, None, :] & possible[:, None, None]
        wanted = pairs.target_mask & possible[:, None]
        exact = exact_dtype(void)
        missing = (~wanted)[:, None, :].to(exact)
        closeness = pairs.label.to(exact).clamp(min=-_LONGEST) / temperature
        unused = void.to(exact).clamp(min=-_LONGEST) / temperature

        plan = _mean_monotone(pairs, there)
        f, g = torch.zeros_like(unused), torch.zeros_like(missing[:, 0])  # log P = f + g + closeness - disorder
        for _ in range(self.rounds):
            disorder = weight * _disorder(plan)
            energy = torch.where(there, closeness - disorder, _NEVER)
            # One step with logarithms, which no cost is too large for; what is left to scale fits into numbers.
            f = -torch.logaddexp((energy + g[:, None, :]).logsumexp(2), unused)
            g = torch.where(wanted, -(energy + f[:, :, None]).logsumexp(1), 0)
            kernel, spare = (energy + f[:, :, None] + g[:, None, :]).exp(), (unused + f).exp()[:, None]
            row, column = _Scale.apply(kernel, spare, missing, self.iterations)  # type: ignore[no-untyped-call]
            plan = row.transpose(1, 2) * kernel * column
            f, g = f + row.log()[:, 0], g + column.log()[:, 0]
        behind = plan.flip(1).cumsum(1).flip(1)
        disorderly = weight * (behind[:, :, :-1] * plan[:, :, 1:]).sum((1, 2)) - (plan * disorder).sum((1, 2))
        value = temperature * (f.sum(1) + g.sum(1) + disorderly)
        return Spelling(torch.where(possible, value, torch.inf).to(void.dtype), plan.detach().to(void.dtype))

    def extra_repr(self) -> str:
        soft = f", weight={self.weight}, rounds={self.rounds}, iterations={self.iterations}"
        return f"order={self.order!r}, temperature={self.temperature}" + (soft if self.order == "soft" else "")


class _Scale(torch.autograd.Function):
    """Sinkhorn's steps: scalings of slots [B, 1, n] and of targets [B, 1, m] for a kernel [B, n, m].

    `spare` [B, 1, n] is the void's part of each slot, `missing` [B, 1, m] is 1 for targets that are not there. The
    adjoint goes back through the same fixed number of steps and keeps no more than the scalings.
    """

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, spare: Tensor, missing: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
        back = kernel.transpose(1, 2)
        columns = [torch.ones_like(missing)]
        rows = [(columns[0] @ back).add_(spare).reciprocal_()]
        for _ in range(iterations):
            columns.append((rows[-1] @ kernel).add_(missing).reciprocal_())
            rows.append((columns[-1] @ back).add_(spare).reciprocal_())
        ctx.save_for_backward(kernel, torch.cat(rows, 1), torch.cat(columns, 1))
        return rows[-1].clone(), columns[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, row_grad: Tensor, column_grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        kernel, rows, columns = ctx.saved_tensors  # [B, n, m], [B, steps, n], [B, steps, m]
        back = kernel.transpose(1, 2)
        row_squares, column_squares = rows.square().neg_(), columns.square().neg_()
        row_sums, column_sums = torch.empty_like(rows), torch.zeros_like(columns)  # gradients of what was inverted
        for step in range(rows.size(1) - 1, -1, -1):
            now = slice(step, step + 1)
            torch.mul(row_grad, row_squares[:, now], out=row_sums[:, now])
            if step:
                column_grad = torch.baddbmm(column_grad, row_sums[:, now], kernel)
                torch.mul(column_grad, column_squares[:, now], out=column_sums[:, now])
                row_grad, column_grad = column_sums[:, now] @ back, torch.zeros_like(column_grad)
        grad = row_sums.transpose(1, 2) @ columns + rows[:, :-1].transpose(1, 2) @ column_sums[:, 1:]
        return grad, row_sums.sum(1, keepdim=True), None, None


@torch.no_grad()
def most_probable_labels(label_log_prob: Tensor, *, slot_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What the slots spell: the most probable label of each, without the voids.

    label_log_prob [B, n, V], slot_mask bool [B, n]. Returns labels int64 [B, L], 0 after the end, and length [B].
    """
    slot_mask = check_slots(label_log_prob, slot_mask)
    label = torch.where(slot_mask, label_log_prob.argmax(2), VOID)
    spelled = label != VOID
    length = spelled.sum(1)
    order = (~spelled).byte().argsort(dim=1, stable=True)
    width = int(length.max()) if length.numel() else 0
    return label.gather(1, order)[:, :width], length


def _monotone(label: Tensor, void: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value [B], plan [B, n, m] and probability of the void [B, n], summed over all plans that keep the order.

    Forwards over slots, `a[i, j] = a[i-1, j] void[i] + a[i-1, j-1] label[i, j]` with logarithms; the same recursion
    from the last slot backwards runs beside it as the second half of the batch.
    """
    batch, n, m = label.shape
    exact = exact_dtype(label)
    # The batch comes last, so that a step's slices over j are contiguous.
    ahead = torch.cat([label, label.flip(1, 2)]).permute(1, 2, 0).to(exact).contiguous()  # [n, m, 2 B]
    keep = torch.cat([void, void.flip(1)]).T.to(exact).contiguous()[:, None]  # [n, 1, 2 B]
    reached = ahead.new_empty(n + 1, m + 1, 2 * batch)
    reached[0] = -torch.inf
    first = torch.cat([torch.zeros_like(length), m - length])  # turned round, the padding of the targets comes first
    reached[0].scatter_(0, first[None], 0.0)
    for i in range(n):
        torch.add(reached[i], keep[i], out=reached[i + 1])
        spelled = reached[i, :-1] + ahead[i]
        torch.logaddexp(reached[i + 1, 1:], spelled, out=reached[i + 1, 1:])
    before = reached[:-1, :, :batch]  # [n, m + 1, B]: before slot i, j targets are spelled
    after = reached[:-1, :, batch:].flip(0, 1)  # after slot i, the targets from j on are still to be spelled
    total = reached[n, :, :batch].gather(0, length[None])[0]
    possible = total > -torch.inf
    plan = before[:, :-1] + ahead[:, :, :batch] + after[:, 1:] - torch.where(possible, total, torch.inf)
    plan = plan.exp_().permute(2, 0, 1)
    return -total, plan, torch.where(possible[:, None], 1 - plan.sum(2), 0)


def _disorder(plan: Tensor) -> Tensor:
    """The gradient of the edge term: how much of j + 1 comes no later than slot t, and how much of j - 1 no earlier."""
    so_far = plan.cumsum(1)
    still = so_far[:, -1:] - so_far + plan
    nothing = torch.zeros_like(plan[:, :, :1])
    return torch.cat([so_far[:, :, 1:], nothing], 2)[:, :, : plan.size(2)] + torch.cat([nothing, still[:, :, :-1]], 2)


def _mean_monotone(pairs: Pairs, there: Tensor) -> Tensor:
    """The mean of all monotone plans, C(i, j) C(n - 1 - i, m - 1 - j) / C(n, m), where `there`."""
    slots, targets = pairs.slot_mask.sum(1)[:, None, None], pairs.length[:, None, None]
    i = pairs.slot_mask.cumsum(1)[:, :, None] - 1
    j = torch.arange(pairs.label.size(2), device=i.device)
    factorial = (
        torch.arange(pairs.label.size(1) + 1, device=i.device).clamp(min=1).to(exact_dtype(there)).log().cumsum(0)
    )
    largest = factorial.numel() - 1

    def binomial(n: Tensor, k: Tensor) -> Tensor:
        value = factorial[n.clamp(0, largest)] - factorial[k.clamp(0, largest)] - factorial[(n - k).clamp(0, largest)]
        return torch.where((k >= 0) & (k <= n), value, -torch.inf)

    log_mean = binomial(i, j) + binomial(slots - 1 - i, targets - 1 - j) - binomial(slots, targets)
    return torch.where(there, log_mean, -torch.inf).exp()
