"""The overlap of the edges of two graphs under a transport plan between their nodes, as in Gromov-Wasserstein."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from grapheme_nn.loss.padded import Edges


def edge_term(plans: list[Tensor], x: Edges, y: Edges) -> Tensor:
    """E of `StructuralLoss`, [B], under the plans of x and x, y and y, x and y, with a void each."""
    x_x, y_y, x_y = plans
    (x_on_x, _), (y_on_y, _) = edge_overlap(x_x, x, x), edge_overlap(y_y, y, y)
    x_on_y, y_on_x = edge_overlap(x_y, x, y)
    return x.total((x_on_x - x_on_y).square()) + y.total((y_on_y - y_on_x).square())


def edge_overlap(plan: Tensor, x: Edges, y: Edges) -> tuple[Tensor, Tensor]:
    """How much each edge of x overlaps with edges of y, and each edge of y with edges of x.

        o(s, t) = sum_(s', t') w'(s', t') P[s, s'] P[t, t']

    Shapes: plan [B, n + 1, m + 1], the void last; returns as `Edges.inner` does.
    """
    if x.chain is not None and y.chain is not None:
        return _ChainOverlap.apply(plan, x.chain, y.chain)  # type: ignore[no-any-return,no-untyped-call]
    plan = plan[:, :-1, :-1]
    back = plan.mT
    return x.inner(plan, y.successors(back).mT), y.inner(back, x.successors(plan).mT)


class _ChainOverlap(torch.autograd.Function):
    """`edge_overlap` on two chains, whose edges lead from a node to the next: sums over P[i, k] P[i + 1, k + 1].

    As slices it would be as exact; but the adjoint of each slice fills and adds a plan of its own.
    """

    @staticmethod
    def forward(ctx: Any, plan: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(plan, x, y)
        both = plan[:, :-2, :-2] * plan[:, 1:-1, 1:-1]
        return torch.bmm(y[:, None, :], both.mT)[:, 0], torch.bmm(x[:, None, :], both)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, on_y: Tensor, on_x: Tensor) -> tuple[Tensor | None, ...]:
        plan, x, y = ctx.saved_tensors
        grad = torch.bmm(torch.stack([on_y, x], 2), torch.stack([y, on_x], 1))
        result = torch.zeros_like(plan)
        torch.mul(grad, plan[:, 1:-1, 1:-1], out=result[:, :-2, :-2])
        result[:, 1:-1, 1:-1].addcmul_(grad, plan[:, :-2, :-2])
        by_x = by_y = None
        if any(ctx.needs_input_grad[1:]):
            both = plan[:, :-2, :-2] * plan[:, 1:-1, 1:-1]
            by_x, by_y = torch.bmm(on_x[:, None, :], both.mT)[:, 0], torch.bmm(on_y[:, None, :], both)[:, 0]
        return result, by_x, by_y
