"""The distance between the kernel mean embeddings (Smola et al., 2007) of two graphs' activations."""

from typing import Any

import torch
from torch import Tensor

from grapheme_nn.derivatives import once_differentiable
from grapheme_nn.loss.padded import Padded


def agreement(x: Padded, y: Padded) -> Tensor:
    """The probability that two nodes have the same type, [B, n, m]."""
    if x.probability is not None and y.probability is not None:
        return torch.bmm(x.probability, y.probability.mT)
    assert y.identity is not None  # a predicted graph alone may be soft, and comes first
    if x.probability is not None:
        return x.probability.gather(2, y.identity[:, None, :].expand(-1, x.probability.size(1), -1))
    assert x.identity is not None
    same = x.existence.new_empty(*x.existence.shape, y.existence.size(1))
    # Into floats at once: on a CPU three times as fast as into bools first.
    return torch.eq(x.identity[:, :, None], y.identity[:, None, :], out=same)


def context(x: Padded, y: Padded, same: Tensor) -> Tensor:
    """The inner products of the sums of types around the nodes, mean over after and before: [B, n, m]."""
    if x.edges.chain is not None and y.edges.chain is not None:
        result = torch.zeros_like(same)
        for here, beside in ((slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1))):
            row, column = x.edges.chain * x.existence[:, beside], y.edges.chain * y.existence[:, beside]
            around = same[:, beside, beside] * column[:, None, :]
            result[:, here, here].addcmul_(around, row[:, :, None], value=0.5)
        return result
    there = x.existence[:, :, None] * same * y.existence[:, None, :]
    after = y.edges.successors(x.edges.successors(there).mT).mT
    before = y.edges.predecessors(x.edges.predecessors(there).mT).mT
    return (after + before) / 2


def embedding_term(x: Padded, y: Padded, same: list[Tensor]) -> Tensor:
    """R of `StructuralLoss`, [B], from the agreement of x with itself, of y with itself, and of x with y."""
    # <phi_i, phi_j>, [B, n, m] each. In place: new memory costs more than the arithmetic.
    pairs = zip((x, y, x), (x, y, y), same, strict=True)
    kernels = [context(one, other, alike).mul_(8).add_(1).mul_(alike) for one, other, alike in pairs]
    h, k = _weighted(x, kernels[0]), _weighted(y, kernels[1])
    return _SquaredDistance.apply(h, k, *kernels) / max(h.size(2), 1)  # type: ignore[no-any-return,no-untyped-call]


def _weighted(graph: Padded, kernel: Tensor) -> Tensor:
    """w_i h_i, [B, n, d]."""
    assert graph.activation is not None
    around = torch.bmm(graph.existence[:, None, :], kernel)[:, 0]
    return graph.activation * (graph.existence * (1 + around).rsqrt())[:, :, None]


class _SquaredDistance(torch.autograd.Function):
    """<h, X h> - 2 <h, Z k> + <k, Y k> for symmetric X [B, n, n] and Y [B, m, m], and Z [B, n, m]: [B].

    h [B, n, d] and k [B, m, d]. Autograd would form the products with X, Y and Z once more.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, k: Tensor, x_x: Tensor, y_y: Tensor, x_y: Tensor) -> Tensor:
        # Differences first, node by node: between graphs that are nearly the same they keep their digits.
        at_x = torch.baddbmm(torch.bmm(x_x, h), x_y, k, alpha=-1)
        at_y = torch.baddbmm(torch.bmm(y_y, k), x_y.mT, h, alpha=-1)
        ctx.save_for_backward(h, k, at_x, at_y)
        return (h * at_x).sum((1, 2)) + (k * at_y).sum((1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, k, at_x, at_y = ctx.saved_tensors
        grad = grad[:, None, None]
        pairs = ((h, h, 1), (k, k, 1), (h, k, -2))
        outer = [
            torch.bmm(one * (grad * times), other.mT) if needed else None
            for (one, other, times), needed in zip(pairs, ctx.needs_input_grad[2:], strict=True)
        ]
        return 2 * grad * at_x, 2 * grad * at_y, *outer
