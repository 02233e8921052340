"""Structural objective: entropic transport of slots to target nodes at cost -log p(label), edges under the plan."""

from functools import partial

import torch
from torch import Tensor

from grapheme_nn.loss.sinkhorn import dustbin_sinkhorn
from grapheme_nn.objective.base import Comparison, Objective, exact_dtype
from grapheme_nn.objective.edges import HIGHEST_COST, Start, align_with_edges
from grapheme_nn.predicted import VOID, PredictedGraph, Targets


class Structural(Objective):
    r"""How far a predicted graph is from any target DAG: of its nodes and, under the same plan, of its edges.

    The plan P shares each slot between target nodes and the void, and each target node between slots and an insertion,
    so that it minimises

    .. math:: \langle P, C \rangle + T \langle P, \log P - 1 \rangle
              + w \sum_{j \leadsto j'} \sum_{i \not\leadsto i'} P_{ij} P_{i'j'}

    with C = -log p(label), -log p(void) for what a slot keeps to itself and `insertion` for a target node that no slot
    becomes (dustbins: Sarlin et al., 2020). The last term is what the edges cost: wherever a way leads from one target
    node to another, a way must lead from slot to slot; on text, to a later one. It is that of fused Gromov-Wasserstein
    transport (Vayer et al., 2019), one-sided. It goes over all ways, not over edges alone: moving a whole block of
    nodes breaks two edges only, and a network that learned to copy would find no reason to move it back.

    P is solved for by `iterations` of Sinkhorn's after each of `rounds` linearisations of that term. The first is at
    the mean of all plans that keep the order, as far as the target has one: node j stands where its numbers of
    ancestors and descendants put it, whatever its number. So the target's nodes may be numbered as one likes.

    Where the network predicts edges (`PredictedGraph.candidates`), it is these that target edges are compared with, see
    `align_with_edges`. What follows holds where it does not.

    The value is the dual energy at the potentials reached, and its gradient that of this very computation. It is no
    probability and may fall below 0. O(s^2 m + s m^2) time a round, and a transitive closure of the target.
    """

    compares_edges = True
    temperature, weight, insertion, rounds, iterations = 0.7, 9.0, 20.0, 3, 20

    def align(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        if predicted.candidates is not None:
            solve = partial(self._plan, predicted, targets)
            return align_with_edges(predicted, targets, solve, self.insertion, self.done)
        there = predicted.mask[:, :, None] & targets.mask[:, None, :]
        label, void = predicted.match(targets), predicted.label_log_prob[:, :, VOID]
        exact, slots = exact_dtype(label), predicted.mask
        cost = torch.where(there, -label, 0).to(exact).clamp(max=HIGHEST_COST) / self.temperature
        deletion = torch.where(slots, -void, 0).to(exact).clamp(max=HIGHEST_COST) / self.temperature
        insertion = cost.new_full(targets.mask.shape, self.insertion / self.temperature)
        unreachable = (1 - reachability(predicted).to(exact)) * (self.weight / self.temperature)  # [B or 1, s, s]
        ways = closure(targets.adjacency)
        plan, start = mean_monotone_plan(slots, targets, ways).to(exact), None
        ways = ways.to(exact)
        for _ in range(self.rounds):
            # What slot i pays as target j: for the ways that leave j, then for those that arrive there.
            crossed = unreachable @ plan @ ways.mT + unreachable.mT @ plan @ ways
            found = dustbin_sinkhorn(
                cost + crossed, deletion, insertion, slots, targets.mask, iterations=self.iterations, start=start
            )
            plan, start = found.plan, (found.row, found.column)
        # The dual of the linearised problem, 0 for a perfect prediction, with the edge term itself in its place.
        total = found.value - targets.length
        total = total - (plan * crossed).sum((1, 2)) + ((unreachable @ plan @ ways.mT) * plan).sum((1, 2))
        return Comparison((total * self.temperature).to(label.dtype), plan.detach().to(label.dtype))

    def _plan(
        self, predicted: PredictedGraph, targets: Targets, cost: Tensor, void: Tensor, heat: float, start: Start
    ) -> tuple[Tensor, Start]:
        """The plan at these costs; a target node that no slot becomes costs `insertion`."""
        exact = exact_dtype(cost)
        lost = cost.new_full(targets.mask.shape, self.insertion / heat, dtype=exact)
        sides, iterations = (predicted.mask, targets.mask), self.iterations // 2
        start = None if start is None else (start[0] / heat, start[1] / heat)
        found = dustbin_sinkhorn(
            cost.to(exact) / heat, void.to(exact) / heat, lost, *sides, iterations=iterations, start=start
        )
        return found.plan, (found.row * heat, found.column * heat)


def reachability(predicted: PredictedGraph) -> Tensor:
    """1 where a way leads from slot i to slot i', bool [B, s, s], or [1, s, s] where all are chains: later slots."""
    batch, slots = predicted.mask.shape
    if predicted.graph.is_chain:
        return torch.ones(1, slots, slots, dtype=torch.bool, device=predicted.mask.device).triu(1)
    edges = predicted.graph.structure_edges[:, predicted.graph.structure_weights > 0]
    if predicted.graph.padding.index is not None:
        edges = predicted.graph.padding.index[edges]
    adjacency = torch.zeros(batch * slots, slots, device=edges.device)
    adjacency[edges[0], edges[1] % max(slots, 1)] = 1
    return closure(adjacency.view(batch, slots, slots))


def closure(adjacency: Tensor) -> Tensor:
    """The transitive closure of DAGs, bool [B, n, n], by squaring: O(n^3 log n)."""
    reached = adjacency
    for _ in range(max(adjacency.size(1) - 1, 0).bit_length()):
        reached = (reached + reached @ reached > 0).to(adjacency.dtype)
    return reached > 0


def mean_monotone_plan(slots: Tensor, targets: Targets, ways: Tensor) -> Tensor:
    """The mean of all plans that keep the order of the target's nodes, [B, s, m]; a column sums to 1.

    slots bool [B, s]; ways bool [B, m, m], from which node of the target a way leads to which.

    Of a chain, C(i, j) C(s - 1 - i, m - 1 - j) / C(s, m). Node j of a DAG has as its place the mean of the first and
    the last that its a ancestors and d descendants leave it: (a + m - 1 - d) / 2.
    """
    after = ways.float()
    count = targets.length[:, None].float()
    rank = ((after.sum(1) + count - 1 - after.sum(2)) / 2)[:, None, :]
    size = slots.sum(1)[:, None, None].float()
    place = (slots.cumsum(1) - 1)[:, :, None].float()
    log_mean = _log_binomial(place, rank) + _log_binomial(size - 1 - place, count[:, :, None] - 1 - rank)
    there = slots[:, :, None] & targets.mask[:, None, :]
    return torch.where(there, torch.where(there, log_mean, -1e30).softmax(1), 0)


def _log_binomial(n: Tensor, k: Tensor) -> Tensor:
    """log C(n, k) for real k, -1e30 where k is not in [0, n]."""
    inside = (k >= 0) & (k <= n)
    k = torch.where(inside, k, 0)
    value = torch.lgamma(n.clamp_min(0) + 1) - torch.lgamma(k + 1) - torch.lgamma((n - k).clamp_min(0) + 1)
    return torch.where(inside, value, -1e30)
