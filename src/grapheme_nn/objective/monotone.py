"""Monotone alignment: all plans that keep the order of the target's nodes, summed exactly."""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from grapheme_nn.objective.base import Comparison, Objective, exact_dtype, masked_match, with_posteriors
from grapheme_nn.objective.edges import Start, align_with_edges
from grapheme_nn.objective.search import Walks
from grapheme_nn.predicted import VOID, PredictedGraph, Targets

INSERTION = 20.0  # what a target node costs that no slot can become
_CELLS = 1 << 22  # so many pairs of slots and target nodes are looked at together where no plan is wanted


class Monotone(Objective):
    """Minus the log-probability of the target: each of its nodes is one slot's, in order, every other slot is void.

    The default for text, whose edges are not looked at: the order of nodes is all. Where the network predicts edges
    (`PredictedGraph.candidates`), the nodes of targets are meant to come in the order of their slots, and edges take
    part in the plan (`align_with_edges`).
    """

    compares_edges = True
    value_has_plan = False

    def align(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        if predicted.candidates is not None:
            return align_with_edges(predicted, targets, partial(self._plan, targets), INSERTION, self.done)
        # A slot that is not there is void for free.
        void = torch.where(predicted.mask, predicted.label_log_prob[:, :, VOID], 0)
        return monotone_alignment(masked_match(predicted, targets), void, targets.length)

    def value_alone(self, predicted: PredictedGraph, targets: Targets) -> Tensor:
        """The forward recursion alone, some slots at a time: O(s m) time, O(m) memory."""
        if predicted.candidates is not None:
            return self.align(predicted, targets).value
        exact, (batch, m) = exact_dtype(predicted.label_log_prob), targets.mask.shape
        void = torch.where(predicted.mask, predicted.label_log_prob[:, :, VOID], 0).T.to(exact)  # [s, B]
        reached = void.new_full((m + 1, batch), -torch.inf)
        reached[0] = 0
        together = max(1, _CELLS // max(1, batch * m))
        for start in range(0, void.size(0), together):
            label = masked_match(predicted, targets, slice(start, start + together)).permute(1, 2, 0)
            for keep, spell in zip(void[start : start + together], label.to(exact).contiguous(), strict=True):
                spelled = reached[:-1] + spell
                reached = reached + keep
                torch.logaddexp(reached[1:], spelled, out=reached[1:])
        return -reached.gather(0, targets.length[None])[0].to(predicted.label_log_prob.dtype)

    def walks(self, predicted: PredictedGraph) -> Walks | None:
        """A slot that is passed by is void."""
        if predicted.candidates is not None:
            return None
        void = torch.where(predicted.mask, predicted.label_log_prob[:, :, VOID], 0).to(exact_dtype(predicted.x))
        passed = pad(void.cumsum(1), (1, 0))  # [B, s + 1]: log-probability that the first i slots are void
        move = (passed[:, None, :-1] - passed[:, :, None]).exp().triu()
        return Walks(predicted.spelled_apart[0].exp(), move, (passed[:, -1:] - passed).exp())

    def _plan(self, targets: Targets, cost: Tensor, void: Tensor, heat: float, start: Start) -> tuple[Tensor, Start]:
        """The posterior of all plans that keep the order, at these costs."""
        cost = torch.where(targets.mask[:, None, :], cost / heat, torch.inf)
        return monotone_alignment(-cost, -void / heat, targets.length).plan, None


def monotone_alignment(label: Tensor, void: Tensor, length: Tensor) -> Comparison:
    r"""The sum over all monotone alignments of slots and targets, by dynamic programming in O(s m).

    .. math:: -\log \sum_{s_1 < \dots < s_m} \prod_j p_{s_j}(t_j) \prod_{i \notin s} p_i(\text{void})

    label [B, s, m] log-probability that slot i becomes target j, -inf in padding; void [B, s] that it is void, 0 in
    padding; length int64 [B]. The plan is the posterior of slot i becoming target j. Where no plan is possible the
    value is inf and its gradient 0. As the sums of CTC (Graves et al., 2006), but no repeats are merged.
    """
    batch, n, m = label.shape
    exact = exact_dtype(label)
    # Forwards over slots, a[i, j] = a[i-1, j] void[i] + a[i-1, j-1] label[i, j] with logarithms; the same recursion
    # from the last slot backwards runs beside it as the second half of the batch. The batch comes last, so that a
    # step's slices over j are contiguous.
    both = torch.cat([label, label.flip(1, 2)]), torch.cat([void, void.flip(1)])
    ahead = both[0].detach().permute(1, 2, 0).to(exact).contiguous()  # [n, m, 2 B]
    keep = both[1].detach().T.to(exact).contiguous()[:, None]  # [n, 1, 2 B]
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
    unused = torch.where(possible[:, None], 1 - plan.sum(2), 0)
    value, plan, unused = (part.to(void.dtype) for part in (-total, plan, unused))
    return Comparison(with_posteriors(value, (label, void), (plan, unused)), plan)
