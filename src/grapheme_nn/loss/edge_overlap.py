"""The overlap of the edges of two graphs under a transport plan between their nodes, as in Gromov-Wasserstein."""

import torch
from torch import Tensor
from torch.nn.functional import pad

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
        # Sums over P[i, k] P[i + 1, k + 1], m + 2 entries on. In one piece, as the adjoint of each slice fills a
        # plan of its own; in the last two columns k + 1 is the void, or in the next row: there y weighs 0.
        (batch, rows, columns), flat = plan.shape, plan.flatten(1)
        size = (rows - 2) * columns
        both = (flat[:, :size] * flat[:, columns + 1 : columns + 1 + size]).view(batch, rows - 2, columns)
        on_x = torch.bmm(x.chain[:, None, :], both)[:, 0, :-2]
        return torch.bmm(pad(y.chain, (0, 2))[:, None, :], both.mT)[:, 0], on_x
    plan = plan[:, :-1, :-1]
    back = plan.mT
    return x.inner(plan, y.successors(back).mT), y.inner(back, x.successors(plan).mT)
