"""Entropic transport plans between padded sets: balanced, with a void on either side, or with a free dustbin."""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from grapheme_nn.dag import check_counts, same_device
from grapheme_nn.loss.potentials import Costs, alternating_sinkhorn, transport_plan, with_kernels


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

    in the limit of many iterations; an iteration sets first the rows right, then the columns. Without `void` each of
    the n nodes of a side weighs 1/n. With `void`, the costs of deleting each source node [B, n] and of inserting each
    target node [B, m], each node weighs 1, and what a row or column of the plan lacks to 1 was deleted or inserted: a
    void node on either side, as heavy as the other side's nodes together, is their partner (void to void costs 0).

    Shapes: cost [B, n, m]; masks bool [B, n] and [B, m], False for padding, where the cost may be anything, inf
    included; returns P [B, n, m], 0 in padding, in single precision where cost is in half.

    Where the costs range over less than 40 temperatures, iterations are products with exp(-cost / temperature),
    otherwise log-sum-exps. To choose, and to refuse NaN, two numbers are read back from the device, at once.
    """
    masked = source_mask is not None or target_mask is not None
    check_options(iterations, temperature)
    _check_sides(cost, source_mask, target_mask, *(void or ()))
    if source_mask is None:
        source_mask = cost.new_ones(cost.shape[:2], dtype=torch.bool)
    if target_mask is None:
        target_mask = cost.new_ones(cost.shape[::2], dtype=torch.bool)
    if not cost.numel():
        return cost * 0.0
    scaled = cost.to(torch.promote_types(cost.dtype, torch.float32)) / temperature
    source, target = source_mask.to(scaled.dtype), target_mask.to(scaled.dtype)
    if void is None:
        # A side without nodes gets the weights 1 in place of 0 / 0, and loses its plan in the end.
        source, target = ((side / side.sum(1, keepdim=True)).nan_to_num_(1.0) for side in (source, target))
    else:
        scaled = border(scaled, *(side.to(scaled) / temperature for side in void))
        source, target = with_void(source, target)
        source_mask, target_mask = (pad(mask, (0, 1), value=True) for mask in (source_mask, target_mask))
    # The least cost is taken off: that changes no plan, and the kernel needs no room for large numbers.
    if masked:
        # Padding must not reach exp or a product, not even times 0: inf * 0 is NaN. It takes the least cost there is.
        kept = source_mask[:, :, None] & target_mask[:, None, :]
        least = torch.where(kept, scaled.detach(), torch.inf).amin()
        scaled = torch.where(kept, scaled - least, 0.0)
    else:
        scaled = scaled.sub_(scaled.detach().amin())
    (costs,) = with_kernels(scaled)
    with torch.autocast(cost.device.type, enabled=False):  # half precision would lose the plan
        row, column = alternating_sinkhorn(costs, source, target, torch.zeros_like(target), iterations)
        result = transport_plan(costs, source, target, row, column)
    if void is not None:
        return result[:, :-1, :-1]
    return torch.where(kept, result, 0.0) if masked else result


class DustbinPlan(NamedTuple):
    """What `dustbin_sinkhorn` returns; with gradients, and 0 in padding."""

    plan: Tensor  # [B, n, m]: what a row lacks to 1 was deleted, what a column lacks was inserted
    row: Tensor  # [B, n]: the potentials u
    column: Tensor  # [B, m]: the potentials v
    value: Tensor  # [B]: the dual value


def dustbin_sinkhorn(
    cost: Tensor,
    deletion: Tensor,
    insertion: Tensor,
    source_mask: Tensor,
    target_mask: Tensor,
    *,
    iterations: int,
    start: tuple[Tensor, Tensor] | None = None,
) -> DustbinPlan:
    """Entropic transport with a free dustbin: every row and column may go to a void that takes any mass.

    The void is one more row and column as in SuperGlue (Sarlin et al., 2020), but its potential is held at 0, so that
    no mass is asked of it. Costs are in units of the temperature. From v = min(start, insertion), an iteration is

        u_i = -log(sum_j exp(v_j - cost_ij) + exp(-deletion_i))
        v_j = -log(sum_i exp(u_i - cost_ij) + exp(-insertion_j))

    and makes P_ij = exp(u_i + v_j - cost_ij), D_i = exp(u_i - deletion_i), I_j = exp(v_j - insertion_j). Columns are
    set last: sum_i P_ij + I_j = 1 exactly, and sum_j P_ij + D_i = 1 in the limit. Then (P, D, I) minimise, under both,

        F = <P, cost> + <D, deletion> + <I, insertion> + sum of x log x - x over all entries x of P, D, I + n + m

    of which `value` = sum u + sum v - sum(P) - sum(D) - sum(I) + n + m is the dual: at any (u, v) a lower bound of F,
    since x (c + log x - 1) >= x w - exp(w - c) for w = u_i + v_j, u_i or v_j, and their sum over all x under the
    constraints gives sum u + sum v; and equal to it in the limit. (There sum(P) + sum(D) + sum(I) = n + m - sum(P), so
    F is also <P, cost + 1> + <D, deletion> + <I, insertion> + sum of x log x.) Gradients are those of this very
    computation. They reach `start`, too, of which the columns alone are read; by default it is 0.

    Shapes: cost [B, n, m]; deletion [B, n], insertion [B, m]; masks bool, False for padding, where costs may be
    anything; start [B, n] and [B, m], such as the potentials of a plan before.

    The first iteration is made of log-sum-exps, which no finite cost is too large for. After it the columns are right,
    and a row sums to something between 1 / (n + 1) and m + 1: the next half step moves no potential further than log(1
    + max(n, m)), nor does any after it, since a softmin is not expansive in the maximum norm. So the iterations that
    follow can be products with exp(u + v - cost) in double precision, taken anew before potentials have moved by 300:
    what is lost below exp(-700) cannot come to matter.
    """
    check_options(iterations)
    _check_sides(cost, source_mask, target_mask, deletion, insertion)
    if start is not None and (start[0].shape != deletion.shape or start[1].shape != insertion.shape):
        raise ValueError(
            f"start must have the shapes {list(deletion.shape)} and {list(insertion.shape)}, "
            f"but has {list(start[0].shape)} and {list(start[1].shape)}"
        )
    kept = source_mask[:, :, None] & target_mask[:, None, :]
    parts = ((cost, kept), (deletion, source_mask), (insertion, target_mask))
    with torch.autocast(cost.device.type, enabled=False):
        scaled = border(*(torch.where(mask, part.double(), 0.0) for part, mask in parts))
        if scaled.device.type == "cpu" and not scaled.isfinite().all():
            raise ValueError(
                "costs must be finite where masks keep them, but are not: mask such pairs, or use a large finite cost"
            )
        there, other = (pad(mask, (0, 1), value=True) for mask in (source_mask, target_mask))
        source, target, padding = there.double(), other.double(), ~(there[:, :, None] & other[:, None, :])
        zero = torch.zeros_like(target)
        begin = zero if start is None else pad(torch.where(target_mask, start[1].double(), 0.0), (0, 1))
        begin = torch.where(begin > scaled[:, -1], scaled[:, -1], begin)
        row, column = alternating_sinkhorn(Costs(scaled, None), source, target, begin, 1, dustbin=True)
        stride = max(int(300 / log(max(scaled.shape[1:]) + 1)), 1)
        for done in range(1, iterations, stride):
            relative = (scaled - row[:, :, None]).sub_(column[:, None, :]).masked_fill_(padding, 0.0)
            costs = Costs(relative, relative.detach().neg_().exp_())
            moved = alternating_sinkhorn(costs, source, target, zero, min(stride, iterations - done), dustbin=True)
            row, column = row + moved[0], column + moved[1]
        plan = transport_plan(Costs(scaled, None), source, target, row, column, corner=False)
        row, column = torch.where(there, row, 0.0)[:, :-1], torch.where(other, column, 0.0)[:, :-1]
        value = row.sum(1) + column.sum(1) - plan.sum((1, 2)) + source_mask.sum(1) + target_mask.sum(1)
    dtype = torch.promote_types(cost.dtype, torch.float32)
    return DustbinPlan(plan[:, :-1, :-1].to(dtype), row.to(dtype), column.to(dtype), value.to(dtype))


def border(cost: Tensor, deletion: Tensor, insertion: Tensor) -> Tensor:
    """The cost with a void row and column, [B, n + 1, m + 1]; the corner is 0."""
    wide = torch.cat([cost, deletion[:, :, None]], 2)
    return torch.cat([wide, pad(insertion, (0, 1))[:, None, :]], 1)


def with_void(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The weights [B, n + 1] and [B, m + 1] with a void on either side that can take all nodes of the other.

    Between two graphs without nodes the voids weigh 1: there must be something to transport.
    """
    deleted, inserted = source.sum(1, keepdim=True), target.sum(1, keepdim=True)
    nothing = (deleted + inserted == 0).to(source.dtype)
    return torch.cat([source, inserted + nothing], 1), torch.cat([target, deleted + nothing], 1)


def _check_sides(cost: Tensor, *sides: Tensor | None) -> None:
    """Refuses costs that are no matrices, and masks of rows and columns, or deletions and insertions, not like them."""
    if cost.dim() != 3 or not cost.is_floating_point():
        raise ValueError(f"cost must be floats of shape [B, n, m], but is {cost.dtype} {list(cost.shape)}")
    names = "source_mask", "target_mask", "the tensor of deletion costs", "the tensor of insertion costs"
    for name, side, size in zip(names, sides, 2 * cost.shape[1:], strict=False):
        if side is None:
            continue
        kind = "bool" if name.endswith("mask") else "numbers"
        if side.shape != (cost.size(0), size) or (kind == "bool" and side.dtype != torch.bool):
            wanted = f"{kind} of shape {[cost.size(0), size]}"
            raise ValueError(f"{name} must be {wanted}, but is {side.dtype} {list(side.shape)}")
        same_device(name, side, "cost", cost)


def check_options(iterations: int, temperature: float = 1.0) -> None:
    """Refuses what no transport problem can be solved with."""
    check_counts(iterations=iterations)
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite, but is {temperature}")
