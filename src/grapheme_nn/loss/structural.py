"""A distance between graphs to learn from: Sinkhorn divergence of their nodes, overlap of their edges, density."""

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data

from grapheme_nn.derivatives import straight_through
from grapheme_nn.loss.mean_embedding import agreement, context, embedding_term
from grapheme_nn.loss.padded import Edges, Padded, pad_pair
from grapheme_nn.loss.potentials import Costs, averaged_sinkhorn, symmetric_sinkhorn, transport_plan, with_kernels
from grapheme_nn.loss.sinkhorn import check_options, with_void
from grapheme_nn.loss.softmin import BOUND
from grapheme_nn.predicted import PredictedGraph


class StructuralDistance(NamedTuple):
    """What `StructuralLoss` returns, for B pairs of graphs padded to n predicted and m target nodes."""

    total: Tensor  # [B]: the weighted sum of the four terms
    mean: Tensor  # []: of total; what one trains on
    node: Tensor  # [B]
    edge: Tensor  # [B]
    clique: Tensor  # [B]
    embedding: Tensor  # [B]: 0 without activations, or where it has no weight
    plan: Tensor  # [B, n, m]: which node went where; what a row or column lacks to 1 was deleted or inserted


class StructuralLoss(torch.nn.Module):
    """The distance between predicted and target graphs: of their nodes, edges, density and activations.

        total = node * N + edge * E + clique * Q + embedding * R

    **N** is the Sinkhorn divergence (Feydy et al., 2019), the debiased cost of entropic transport, between the nodes of
    x and of y. With cost C and temperature t,

        W(x, y) = max_{f, g} <a, f> + <b, g> - t sum_ij a_i b_j exp((f_i + g_j - C_ij) / t)
        N = W(x, y) - W(x, x) / 2 - W(y, y) / 2

    where every node weighs 1 (a predicted one its `existence`) and on either side a void, the partner of what is
    deleted or inserted (as in graph edit distance), weighs as much as the nodes of the other. A pair of nodes costs
    what each would alone, and a type, less what they share; to the void a node goes for `void` and what it costs alone:

        C_ij = alone_i + alone_j + type - shared_ij,    C_i,void = alone_i + void,    C_void,void = 0
        shared = type [same type] + activation <h, h'> / d + degree (min(out, out') + min(in, in')) + context <k, k'>
        alone = activation |h|^2 / 2d + degree (out + in) / 2 + context |k|^2 / 2

    so C_ij is made of `type [other type]`, `activation |h - h'|^2 / 2d`, `degree (|out - out'| + |in - in'|) / 2` and
    `context |k - k'|^2 / 2`, where k counts the types of a node's successors and of its predecessors (half of each).
    Two types are as far apart as two independent activations of unit variance. A graph without activations gives their
    weight to the type. Of predicted label distributions p, [same type] is p(label).

    *The kernel K = exp(-C / t) is positive semidefinite over all nodes and the void if void >= type / 2*, `type` with
    the weight of activations where it went there. Proof: `shared` is a sum of inner products (min(p, q) is that of the
    indicators of [0, p] and [0, q]), so exp(shared / t) = 1 + Q elementwise, where Q = shared / t + (shared / t)^2 / 2
    + ... is positive semidefinite, as products of such matrices are (Schur). Up to factors exp(-alone / t) of rows and
    columns, K is therefore exp(-type / t) Q between nodes, plus a matrix that repeats the entries of

        [[exp(-type / t), exp(-void / t)], [exp(-void / t), 1]]

    for nodes and void, whose determinant exp(-type / t) - exp(-2 void / t) is not negative just if void >= type / 2.

    *N is never negative, after any number of iterations.* First f and g are found for x and y against themselves, then
    those of x against y, starting from them. There N is t/2 |a e^(f/t) - b e^(g/t)|^2 in the norm of K, and no step and
    no mean of two lowers the value of a concave maximum (see `averaged_sinkhorn`, whose two runs share the iterations).
    *It is 0 for identical graphs*, since of a graph against itself next to no error of f is left (see
    `symmetric_sinkhorn`), and from there it does not move.

    **E** asks how much an edge (s, t) overlaps with edges, o_xy(s, t) = sum over (s', t') of w' P[s, s'] P[t, t'],
    under the plan P of N, as fused Gromov-Wasserstein does (Vayer et al., 2019), and compares with how much it overlaps
    with its own graph's under that graph's own plan:

        E = sum_{(s, t) in x} w (o_xx - o_xy)^2 + sum_{(s', t') in y} w' (o_yy - o_yx)^2

    A sum of squares, 0 for identical graphs; where plans are sharp, the number of edges that are lost or new, and an
    edge turned round is both. O(n m) on chains, else O(e_x m + e_y n). Where both graphs have `edge_type`, an edge
    overlaps only with edges of its own type, so that one of another type is lost and new as well: 5 - 3 is not 3 - 5.

    **Q** compares the density of out-degrees, out / n: `0.3 |difference of means| + 0.7 |difference of variances|`.

    **R** is the distance of the kernel mean embeddings (Smola et al., 2007) of activations. By transport alone, an
    activation goes to whichever is nearest, though it be that of a node of another type in another place; there it
    stays. R compares those of nodes of the same type, with the same around them most of all, and is convex in them:

        R = |sum_i w_i h_i phi_i - sum_j w_j h'_j phi'_j|^2 / d,    <phi_i, phi_j> = [same type] (1 + 8 <k, k'>)
        w_i = existence_i / sqrt(1 + sum_j existence_j <phi_i, phi_j>),    j in the same graph

    All is symmetric for hard graphs. Graphs are PyG `Data` or `Batch` with `x` integer [n], `edge_index` [2, e], and
    optionally `edge_weight` [e], not negative, `edge_type` integer [e], and `activation` [n, d]; a predicted one may
    have `existence` [n] in [0, 1], and `label_log_prob` [n, V] in place of x, the target then `label` integer [m]; or
    it is what a network returns, a `PredictedGraph`. Memory O((n + m)^2) a pair, times the types of edges where these
    are told apart. Read back from the device are the sizes, and the range of the costs (see `sinkhorn`).
    """

    def __init__(
        self,
        *,
        node: float = 1.0,
        edge: float = 0.5,
        clique: float = 2.0,
        embedding: float = 0.7,
        iterations: int = 20,
        temperature: float = 0.1,
        type: float = 0.1,
        activation: float = 0.7,
        degree: float = 0.2,
        context: float = 0.0,
        void: float = 1.0,
    ) -> None:
        super().__init__()
        check_options(iterations, temperature)
        terms = {"node": node, "edge": edge, "clique": clique, "embedding": embedding}
        costs = {"type": type, "activation": activation, "degree": degree, "context": context}
        self.options = terms | costs | {"void": void, "iterations": iterations, "temperature": temperature}
        for name, weight in (terms | costs).items():
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight {name} must be finite and not negative, but is {weight}")
        if not (type + activation) / 2 <= void < float("inf"):
            raise ValueError(
                f"void must be finite and at least (type + activation) / 2 = {(type + activation) / 2}, but is {void}: "
                "the void would lie between the nodes, and the loss could fall below 0"
            )
        self.node, self.edge, self.clique, self.embedding = node, edge, clique, embedding
        self.iterations, self.temperature = iterations, temperature
        self.type_weight, self.activation_weight = type, activation
        self.degree_weight, self.context_weight, self.void = degree, context, void

    @classmethod
    def edit(cls) -> "StructuralLoss":
        """The setting that follows graph edit distance best."""
        return cls(clique=0.0, embedding=0.0, type=0.5, activation=0.0, degree=0.5, context=0.4)

    def forward(self, predicted: Data | PredictedGraph, target: Data) -> StructuralDistance:
        if isinstance(predicted, PredictedGraph):
            predicted, target = predicted.as_pair(target)
        x, y = pad_pair(predicted, target)
        with torch.autocast(x.existence.device.type, enabled=False):  # half precision would lose the plans
            same = [agreement(x, x), agreement(y, y), agreement(x, y)]
            x_side, y_side = self._side(x, same[0]), self._side(y, same[1])
            sides = (x_side, x_side), (y_side, y_side), (x_side, y_side)
            costs = with_kernels(*(self._cost(*both, alike) for both, alike in zip(sides, same, strict=True)))
            node, plans = _transport(costs, x.existence, y.existence, self.iterations)
            node = _not_negative(node * self.temperature)
            edge, density = _edge_term(plans, x.edges, y.edges), (_density(x_side) - _density(y_side)).abs()
            clique = 0.3 * density[0] + 0.7 * density[1]
            total = self.node * node + self.edge * edge + self.clique * clique
            embedding = torch.zeros_like(total)
            if x.activation is not None and self.embedding:
                embedding = _not_negative(embedding_term(x, y, same))
                total = total + self.embedding * embedding
            mean = total.sum() / max(total.size(0), 1)
            return StructuralDistance(total, mean, node, edge, clique, embedding, plans[2][:, :-1, :-1])

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.options.items())

    def _side(self, graph: Padded, same: Tensor) -> "_Side":
        there = graph.existence[:, :, None]
        outward, inward = graph.edges.successors(there), graph.edges.predecessors(there)
        alone = (outward + inward) * (self.degree_weight / 2)
        activation = outward[:, :, :0] if graph.activation is None else graph.activation
        by_channel = self.activation_weight / max(activation.size(2), 1)
        alone = alone + activation.square().sum(2, keepdim=True) * (by_channel / 2)
        if self.context_weight:
            around = context(graph, graph, same).diagonal(dim1=1, dim2=2)
            alone = alone + around[:, :, None] * (self.context_weight / 2)
        # The void is one more row: alone it costs nothing, and it shares nothing.
        activation, alone, node = (pad(part, (0, 0, 0, 1)) for part in (activation, alone, torch.ones_like(there)))
        void, one = 1 - node, torch.ones_like(node)
        left = torch.cat([activation * -by_channel, alone, one, node, void], 2)
        right = torch.cat([activation, one, alone, self._by_type(graph) * node + self.void * void, self.void * node], 2)
        outward, inward = (pad(part[:, :, 0], (0, 1)) for part in (outward, inward))
        return _Side(graph, outward, inward, left, right)

    def _cost(self, one: "_Side", other: "_Side", same: Tensor) -> Tensor:
        """The cost between the nodes of two graphs and the void, in units of the temperature: [B, n + 1, m + 1]."""
        # |p - q| = p + q - 2 min(p, q). In place from here on: new memory costs more than the arithmetic.
        shared = torch.minimum(one.outward[:, :, None], other.outward[:, None, :])
        shared.add_(torch.minimum(one.inward[:, :, None], other.inward[:, None, :])).mul_(self.degree_weight)
        nodes = shared[:, :-1, :-1]
        nodes.add_(same, alpha=self._by_type(one.graph))
        if self.context_weight:
            nodes.add_(context(one.graph, other.graph, same), alpha=self.context_weight)
        per_temperature = 1 / self.temperature
        return shared.baddbmm_(one.left, other.right.mT, beta=-per_temperature, alpha=per_temperature)

    def _by_type(self, graph: Padded) -> float:
        return self.type_weight + (self.activation_weight if graph.activation is None else 0.0)


class _Side(NamedTuple):
    """One of the two graphs with what its costs are made of.

    `left` of one times `right` of the other, [B, n + 1, d + 4] both, is what a pair of nodes (or voids) costs before
    the types, degrees and contexts that they share are taken off; the activations are in it.
    """

    graph: Padded
    outward: Tensor  # [B, n + 1]: out-degree, of the void 0
    inward: Tensor  # [B, n + 1]: in-degree
    left: Tensor
    right: Tensor


def _transport(costs: list[Costs], x: Tensor, y: Tensor, iterations: int) -> tuple[Tensor, list[Tensor]]:
    """The node term in units of the temperature [B], and the plans of x and x, y and y, x and y, with a void each."""
    xx, yy, xy = costs
    x, y = with_void(x, y)
    alone = ceil(iterations / 2)  # they converge fast, see `symmetric_sinkhorn`
    own_x, own_y = symmetric_sinkhorn(xx, x, alone), symmetric_sinkhorn(yy, y, alone)
    row, column = averaged_sinkhorn(xy, x, y, own_x, own_y, iterations)
    potentials = (x, x, own_x, own_x), (y, y, own_y, own_y), (x, y, row, column)
    x_x, y_y, x_y = (transport_plan(cost, *each, corner=False) for cost, each in zip(costs, potentials, strict=True))
    # Differences first, node by node: between graphs that are nearly the same they are small, and keep their digits.
    # What goes from void to void is as much as all nodes together, and takes more digits.
    mass = (x_x.sum(2) - x_y.sum(2)).sum(1) + (y_y.sum(2) - x_y.sum(1)).sum(1)
    at_void = ((part[:, -1] for part in each) for each in potentials)
    # Its cost is 0. A bound where a and b are 0, so that nothing meets infinity.
    void_x, void_y, void = (a * b * (u + v).clamp(max=BOUND).exp() for a, b, u, v in at_void)
    mass = mass + (void_x - void) + (void_y - void)
    value = (x * (row - own_x)).sum(1) + (y * (column - own_y)).sum(1) + mass / 2
    return value.to(x.dtype), [x_x, y_y, x_y]


def _not_negative(value: Tensor) -> Tensor:
    """What is below 0 by rounding alone is 0, with the gradient that it has."""
    return straight_through(value.detach().clamp(min=0), value)


def _edge_term(plans: list[Tensor], x: Edges, y: Edges) -> Tensor:
    """E, [B], under the plans of x and x, y and y, x and y."""
    (x_on_x, _), (y_on_y, _) = x.overlap(x, plans[0]), y.overlap(y, plans[1])
    x_on_y, y_on_x = x.overlap(y, plans[2])
    return x.total((x_on_x - x_on_y).square()) + y.total((y_on_y - y_on_x).square())


def _density(side: _Side) -> Tensor:
    """Mean and variance of out-degree / n over the nodes of each graph, [2, B]; 0 for a graph without nodes."""
    there = side.graph.existence
    nodes = there.sum(1, keepdim=True)
    nodes = torch.where(nodes > 0, nodes, 1.0)
    density, share = side.outward[:, :-1] / nodes, there / nodes
    mean = (share * density).sum(1, keepdim=True)
    return torch.stack([mean[:, 0], (share * (density - mean).square()).sum(1)])
