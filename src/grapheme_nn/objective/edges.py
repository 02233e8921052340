"""Plans that edges take part in: each target edge costs -log p(edge) between the slots that become its ends."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from grapheme_nn.candidates import PAIRWISE
from grapheme_nn.morph.base import before_split
from grapheme_nn.objective.base import Comparison
from grapheme_nn.predicted import VOID, PredictedGraph, Targets

HIGHEST_COST = 1e4  # of a label, so that one of probability 0 has a price
LEAST_PROBABILITY = 6e-6  # of an edge, exp(-12), so that plans through one that cannot be have a price
MOST_FORWARDS = 4  # voids in a row that a pointer is followed through while learning
ROUNDS = 12  # linearisations of the edge term at most
SLOT_COST = 0.1  # of a node's slots that are alike, each costs a plan so much more than the one before
LAST_TEMPERATURE = 0.15  # of plans, once `COOLED` of a training is done; at its beginning, 1
COOLED = 0.2  # share of a training
SETTLED = 1e-2  # where no entry of the plan moved by more, there will be no other

Start: TypeAlias = tuple[Tensor, Tensor] | None  # potentials of slots [B, s] and of target nodes [B, m]


def align_with_edges(
    predicted: PredictedGraph,
    targets: Targets,
    solve: Callable[[Tensor, Tensor, float, Start], tuple[Tensor, Start]],
    insertion: float,
    done: float,
) -> Comparison:
    r"""The least that a target costs over plans P of slots to its nodes, of labels and, under the same plan, of edges:

    .. math:: \langle P, -\log p(\text{label}) \rangle + \langle \text{rest}, -\log p(\text{void}) \rangle + E(P)

    A target node that no slot becomes costs `insertion`. E, see `EdgeTerms`, is linearised at the last plan and solved
    again, until the plan no longer moves; its weight rises and the temperature falls over the first half of the rounds
    (graduated assignment: Gold and Rangarajan, 1996), so that labels decide first, and then edges among equal labels.
    It falls on below 1, the further the more of the training is `done` (annealed EM: Ueda and Nakano, 1998): plans must
    be soft while nothing is known, but where several slots could become a node, one has to. A network whose edges are
    choices of pairs begins as one that copies, so that its plans can be cold at once.

    The plan is found first and held fixed: this is the M step of an EM algorithm, and the gradient is that of the value
    at this plan. At a plan that is the best there is, it is that of the least value, too (envelope theorem).

    solve: from what slots cost as target nodes [B, s, m], what they cost as void [B, s], a temperature and potentials
    to start with, to the plan and its potentials, which are costs.
    """
    there, label, void = _node_costs(predicted, targets)
    assert predicted.candidates is not None
    with torch.no_grad():
        terms = edge_terms(predicted, targets, (-void).exp())
        parts = before_split(predicted.graph)[1]
        order = (torch.arange(label.size(1), device=label.device) % parts * SLOT_COST)[:, None]
        plan = crossed = torch.zeros_like(label)
        start: Start = None
        cooled = 1.0 if predicted.candidates.kind in PAIRWISE else min(done / COOLED, 1.0)
        last = 1 - (1 - LAST_TEMPERATURE) * cooled
        for number in range(1 + ROUNDS):
            first_half = min(1.0, 2 * number / ROUNDS)  # 0 to 1: the weight of the edges
            then = min(1.0, max(0.0, 2 * number / ROUNDS - 1) / 0.7)  # 0 to 1, and then some rounds at the end
            temperature = 2 - first_half - (1 - last) * then
            before = plan
            plan, start = solve(label + order + first_half * crossed, void, temperature, start)
            plan = torch.where(there, plan / plan.sum(2, keepdim=True).clamp_min(1), 0).to(label.dtype)
            if temperature < last + 1e-6 and bool((plan - before).abs().amax() < SETTLED):
                break
            crossed = terms.crossed(plan)
    return Comparison(value_at(plan, predicted, targets, insertion), plan)


def value_at(plan: Tensor, predicted: PredictedGraph, targets: Targets, insertion: float) -> Tensor:
    """What labels, voids, edges and nodes that no slot becomes cost under a plan [B, s, m]: [B]."""
    _, label, void = _node_costs(predicted, targets)
    empty = torch.where(predicted.mask, 1 - plan.sum(2), 0)
    missing = torch.where(targets.mask, 1 - plan.sum(1), 0).sum(1)
    nodes = (plan * label).sum((1, 2)) + (empty * void).sum(1) + insertion * missing
    return nodes + edge_terms(predicted, targets, empty).value(plan)


def _node_costs(predicted: PredictedGraph, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Where slots and target nodes are, bool [B, s, m]; what a slot costs as each [B, s, m]; and as void [B, s]."""
    there = predicted.mask[:, :, None] & targets.mask[:, None, :]
    label = torch.where(there, -predicted.match(targets), 0).clamp(max=HIGHEST_COST)
    return there, label, torch.where(predicted.mask, -predicted.label_log_prob[:, :, VOID], 0).clamp(max=HIGHEST_COST)


class EdgeTerms(NamedTuple):
    r"""K relations between slots and between target nodes, and what they cost:

    .. math:: E(P) = \sum_k \sum_{ii'jj'} P_{ij} P_{i'j'} C^k_{ii'} A^k_{jj'} + \sum_{ij} P_{ij} N_{ij}
    """

    cost: Tensor  # C [B, K, s, s]
    target: Tensor  # A [B, K, m, m]
    node: Tensor  # N [B, s, m]

    def crossed(self, plan: Tensor) -> Tensor:
        """The gradient of E at a plan [B, s, m]: what slot i pays as target node j, at both ends of edges."""
        plan = plan[:, None]
        return (self.cost @ plan @ self.target.mT + self.cost.mT @ plan @ self.target).sum(1) + self.node

    def value(self, plan: Tensor) -> Tensor:
        """E(P), [B]."""
        pairs = (plan[:, None] * (self.cost @ plan[:, None] @ self.target.mT)).sum((1, 2, 3))
        return pairs + (plan * self.node).sum((1, 2))


def edge_terms(predicted: PredictedGraph, targets: Targets, void: Tensor) -> EdgeTerms:
    """The terms of candidate edges, given how surely slots are `void` [B, s] under the plan."""
    candidates = predicted.candidates
    assert candidates is not None
    target = targets.adjacency_by_type(candidates).to(candidates.log_prob.dtype)  # [B, T, m, m]: operand, consumer
    count = target.size(1)
    if candidates.kind == "undirected":  # an edge is one in both directions, whichever the file has
        target = torch.maximum(target, target.mT)
    if candidates.kind in PAIRWISE:
        log_prob = torch.cat([candidates.log_prob, candidates.none], 1)
        cost = -(_dense(predicted, log_prob.exp()) + LEAST_PROBABILITY).log()
        # A pair that is no candidate is surely no edge.
        is_candidate = _dense(predicted, torch.ones_like(log_prob[:, :1])) > 0
        cost = torch.cat([cost[:, :count], torch.where(is_candidate, cost[:, count:], 0)], 1)
        different = ~torch.eye(target.size(2), dtype=torch.bool, device=target.device)
        there = targets.mask[:, None, :, None] & targets.mask[:, None, None, :] & different
        absent = (there & (target.sum(1, keepdim=True) == 0)).to(target.dtype)
        free = cost.new_zeros(*predicted.mask.shape, targets.mask.size(1))
        return EdgeTerms(cost, torch.cat([target, absent], 1), free)
    prob = _dense(predicted, candidates.log_prob.exp())  # [B, T', s, s]: first, second
    none = -predicted.graph.padding.dense(candidates.none)
    if candidates.kind == "operands":
        prob, stands_in = prob[:, :count], prob[:, count] * void[:, :, None]
        reached = step = prob
        for _ in range(MOST_FORWARDS):
            step = step @ stands_in[:, None]
            reached = reached + step
        lacks = (target.sum(2) == 0).to(prob.dtype)  # [B, T, m]: has no operand of that type
        return EdgeTerms(-(reached + LEAST_PROBABILITY).log(), target.mT, none[:, :, :count] @ lacks)
    lacks = (target.sum((1, 3)) == 0).to(prob.dtype)  # [B, m]: has no consumer
    return EdgeTerms(-(prob + LEAST_PROBABILITY).log(), target, none * lacks[:, None, :])


def _dense(predicted: PredictedGraph, value: Tensor) -> Tensor:
    """Values of candidates [c, K] at their places, 0 elsewhere: [B, K, s, s]."""
    candidates, (batch, slots) = predicted.candidates, predicted.mask.shape
    assert candidates is not None
    index = predicted.graph.padding.index
    first, second = (ends if index is None else index[ends] for ends in (candidates.first, candidates.second))
    place = first * slots + second % max(slots, 1)
    dense = value.new_zeros(batch * slots * slots, value.size(1)).index_copy(0, place, value)
    return dense.view(batch, slots, slots, -1).permute(0, 3, 1, 2)
