"""The room of paths: the predicted graph is a DAG of slots with predicted edges, and a walk through it spells a text.

The vertices of the DAG are a beginning, vertex 0, and the `n` slots, vertices 1 to n. Its edges are log-probabilities
`edge_log_prob` [B, n + 1, 1 + reach]: from vertex i, column k > 0 leads to vertex i + k and column 0 ends the walk.
So any walk of at most n steps is possible whatever the reach, and slots of ragged batches need no special last one.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from grapheme_nn.loss.edges import arriving_edges, check_edges
from grapheme_nn.loss.spelling import VOID, Spelling, check_slots, exact_dtype, pair, with_posteriors

# Minus infinity for the recursion that autograd follows: large enough to be impossible, and -1e30 + 1e30 is not nan.
_NEVER = -1e30


class PathLoss(nn.Module):
    r"""Minus the log-probability that a walk through the predicted DAG spells the target, summed over all walks.

    .. math:: -\log \sum_{0 = v_0 < \dots < v_m} e(v_m, \text{end}) \prod_{j=1}^m e(v_{j-1}, v_j) p_{v_j}(t_j)

    A walk begins in vertex 0, which spells nothing, and every slot it visits spells exactly one label. The void is
    never spelled: a walk goes round the slots it does not need, so labels are best normalised without it. The plan is
    the posterior probability that slot i spells target j. Where no walk spells the target (it has more labels than
    there are slots, or probabilities are 0) the value is inf and its gradient 0. O(m n reach) time, O((m + reach) n)
    memory.

    reach: the longest edge, for `edge_log_prob` to be checked against; None takes any.
    """

    def __init__(self, *, reach: int | None = None) -> None:
        super().__init__()
        if reach is not None and reach < 1:
            raise ValueError(f"reach must be at least 1, but is {reach}")
        self.reach = reach

    def forward(
        self,
        label_log_prob: Tensor,  # [B, n, V]
        target: Tensor,  # int64 [B, m]
        *,
        slot_mask: Tensor | None = None,  # bool [B, n]
        target_mask: Tensor | None = None,  # bool [B, m]
        edge_log_prob: Tensor | None = None,  # [B, n + 1, 1 + reach]
    ) -> Spelling:
        pairs = pair(label_log_prob, target, slot_mask, target_mask)
        edge = check_edges(label_log_prob, edge_log_prob, pairs.slot_mask, self.reach)
        possible = pairs.length <= pairs.slot_mask.sum(1)
        with torch.no_grad():
            value, plan, edge_posterior = _posterior(pairs.label, edge, pairs.length, possible)
        dtype = label_log_prob.dtype
        value, plan, edge_posterior = value.to(dtype), plan.to(dtype), edge_posterior.to(edge.dtype)
        return Spelling(with_posteriors(value, (pairs.label, edge), (plan, edge_posterior)), plan)

    def extra_repr(self) -> str:
        return f"reach={self.reach}"


class Walk(NamedTuple):
    """One walk through each DAG of a batch, and what it spells.

    labels  int64 [B, L]  the labels spelled, 0 after the end
    slots   int64 [B, L]  the slots that spell them, -1 after the end
    length  int64 [B]     labels of each walk
    score   float [B]     log-probability of walk and labels
    """

    labels: Tensor
    slots: Tensor
    length: Tensor
    score: Tensor


@torch.no_grad()
def greedy_path(label_log_prob: Tensor, edge_log_prob: Tensor, *, slot_mask: Tensor | None = None) -> Walk:
    """The walk whose every step is the most probable one: next slot and best label there, or the end."""
    ahead, label = _ahead(label_log_prob, edge_log_prob, slot_mask)
    score, step = ahead.max(2)
    return _follow(step, score, label)


@torch.no_grad()
def best_path(
    label_log_prob: Tensor, edge_log_prob: Tensor, *, slot_mask: Tensor | None = None, normalise: bool = False
) -> Walk:
    """The most probable walk with the most probable label in each slot, by Viterbi's recursion from the last slot.

    `normalise` looks for the highest log-probability per step instead (the end is a step), so that long texts are
    not at a disadvantage. Shapes as in `PathLoss`. O(n reach), a few times that with `normalise`.
    """
    ahead, label = _ahead(label_log_prob, edge_log_prob, slot_mask)
    walk = _viterbi(ahead, label)
    while normalise:
        # Dinkelbach: the walk w with the best S(w) - rate |w| has, for the best ratio of an earlier walk as rate, a
        # ratio at least as good, and the best one when nothing changes.
        rate = walk.score / (walk.length + 1)
        candidate = _viterbi(ahead, label, rate)
        better = candidate.score / (candidate.length + 1) > rate
        if not better.any():
            break
        width = max(walk.labels.size(1), candidate.labels.size(1))
        old, new = _widen(walk, width), _widen(candidate, width)
        walk = Walk(*(torch.where(better.view(-1, *[1] * (o.dim() - 1)), x, o) for x, o in zip(new, old, strict=True)))
        walk = _widen(walk, int(walk.length.max()))
    return walk


def _posterior(label: Tensor, edge: Tensor, length: Tensor, possible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value [B], plan [B, n, m] and the posterior of every edge [B, n + 1, 1 + reach]."""
    # On the CPU the recursion is 5 times faster with probabilities, scaled at each step, than with logarithms, and we
    # can look whether float64 was wide enough; elsewhere looking would make the device wait.
    if label.device.type == "cpu":
        value, plan, edges, trusted = _by_probability(label, edge, length)
        doubtful = possible & ~trusted
        if doubtful.any():
            again = _by_logarithm(label[doubtful], edge[doubtful], length[doubtful])
            for result, better in zip((value, plan, edges), again, strict=True):
                result[doubtful] = better.to(result.dtype)
        return value, plan, edges
    return _by_logarithm(label, edge, length)


def _by_probability(label: Tensor, edge: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The forward-backward recursion in scaled probabilities; `trusted` [B] says where nothing that counts was lost."""
    batch, n, m = label.shape
    vertices, reach = n + 1, edge.size(2) - 1
    p = torch.zeros(m, batch, vertices, dtype=torch.float64)
    p[:, :, 1:] = label.permute(2, 0, 1)
    p[:, :, 1:].exp_()
    e = edge.to(torch.float64).exp()
    end, leaving = e[:, :, 0], e[:, :, 1:].contiguous()
    arriving = arriving_edges(leaving)

    # alpha[j, v]: the target up to j is spelled and the walk is in v, divided by scale[1] ... scale[j].
    alpha = torch.zeros(m + 1, batch, reach + vertices, dtype=torch.float64)
    alpha[0, :, reach] = 1
    scale = torch.ones(m + 1, batch, 1, dtype=torch.float64)
    tiny = torch.finfo(torch.float64).tiny
    product = torch.empty_like(arriving)  # one for all steps: fresh memory costs more than the arithmetic
    for j in range(m):
        torch.mul(alpha[j].unfold(1, reach, 1)[:, :vertices], arriving, out=product)
        inflow = product.sum(2).mul_(p[j])
        torch.sum(inflow, 1, keepdim=True, out=scale[j + 1]).clamp_(min=tiny)
        torch.div(inflow, scale[j + 1], out=alpha[j + 1, :, reach:])
    alpha = alpha[:, :, reach:]
    last = length[None, :, None]
    ended = alpha.gather(0, last.expand(1, batch, vertices))[0] * end  # [B, n + 1]
    finish = ended.sum(1, keepdim=True)
    steps = torch.arange(m + 1)[:, None] <= length
    log_total = (scale.log()[:, :, 0] * steps).sum(0) + finish[:, 0].log()
    spelled = finish > 0
    finish = torch.where(spelled, finish, 1)
    end_posterior = torch.where(spelled, ended / finish, 0)

    # beta[j, v], so scaled that alpha[j] beta[j] is the posterior of being in v when j is spelled.
    plan = torch.zeros(m, batch, vertices, dtype=torch.float64)
    edges = torch.zeros_like(leaving)
    outflow = torch.zeros(batch, vertices + reach, dtype=torch.float64)
    begins = torch.where(spelled, end / finish, 0)
    ends = (torch.arange(m + 1)[:, None, None] == length[:, None]).to(torch.float64)  # [m + 1, B, 1]
    beta = torch.zeros_like(begins)
    largest = torch.zeros_like(begins)
    for j in range(m, 0, -1):
        beta = torch.addcmul(beta, begins, ends[j])
        torch.maximum(largest, beta, out=largest)
        torch.mul(alpha[j], beta, out=plan[j - 1])
        torch.mul(beta, p[j - 1], out=outflow[:, :vertices]).div_(scale[j])
        window = outflow[:, 1:].unfold(1, reach, 1)
        edges.addcmul_(alpha[j - 1][:, :, None], window)
        beta = torch.mul(window, leaving, out=product).sum(2)
    # What falls below 1e-308 is lost: at most 1e-258 of alpha where no scale is below 1e-50, and so at most 1e-28 of
    # the posterior where no beta is above 1e230.
    trusted = spelled[:, 0] & (finish[:, 0] > 1e-50) & (largest.amax(1) < 1e230)
    trusted &= ((scale[:, :, 0] > 1e-50) | ~steps).all(0)
    posterior = torch.empty_like(edge)
    posterior[:, :, 0] = end_posterior
    torch.mul(edges, leaving, out=posterior[:, :, 1:])
    return -log_total, plan[:, :, 1:].permute(1, 2, 0), posterior, trusted


def _by_logarithm(label: Tensor, edge: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The forward recursion in logarithms, and autograd for the posteriors: for any device and any probabilities."""
    batch, n, m = label.shape
    vertices, reach = n + 1, edge.size(2) - 1
    exact = exact_dtype(label)
    with torch.enable_grad():
        label, edge = (x.detach().to(exact).clamp(min=_NEVER).requires_grad_() for x in (label, edge))
        arriving = arriving_edges(edge[:, :, 1:])
        alpha = label.new_full((batch, vertices), _NEVER)
        alpha[:, 0] = 0
        reached = [alpha]
        for j in range(m):
            window = nn.functional.pad(reached[-1], (reach, 0), value=_NEVER).unfold(1, reach, 1)[:, :vertices]
            inflow = (window + arriving).logsumexp(2)[:, 1:] + label[:, :, j]
            reached.append(nn.functional.pad(inflow, (1, 0), value=_NEVER))
        last = torch.stack(reached).gather(0, length[None, :, None].expand(1, batch, vertices))[0]
        total = (last + edge[:, :, 0]).logsumexp(1)
        impossible = total <= _NEVER / 2  # what is nan is not that, and stays nan
        total = torch.where(impossible, 0, total)  # what no walk spells has no gradient
        plan, edges = torch.autograd.grad(total.sum(), (label, edge), allow_unused=True, materialize_grads=True)
    return torch.where(impossible, torch.inf, -total.detach()), plan, edges


def _ahead(labels: Tensor, edge: Tensor, slot_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Per vertex the log-probability of ending and of each next slot with its best label; the best labels [B, n]."""
    slot_mask = check_slots(labels, slot_mask)
    ahead = check_edges(labels, edge, slot_mask)
    reach = ahead.size(2) - 1
    if labels.size(2) < 2:
        raise ValueError("label_log_prob has the void only: a walk needs at least one label to spell")
    best, label = labels[:, :, VOID + 1 :].max(2)
    best = nn.functional.pad(torch.where(slot_mask, best, -torch.inf), (0, reach), value=-torch.inf)
    ahead[:, :, 1:] += best.unfold(1, reach, 1)
    return ahead, label + VOID + 1


def _viterbi(ahead: Tensor, label: Tensor, rate: Tensor | None = None) -> Walk:
    """The walk with the largest sum of `ahead` - `rate` [B] over its steps; `score` is the sum without the rate."""
    batch, vertices, width = ahead.shape
    rest = ahead.new_full((vertices + width, batch), -torch.inf)  # rest[v]: the best from vertex v to the end
    step = torch.empty(vertices, batch, dtype=torch.long, device=ahead.device)
    gains = ahead.permute(1, 2, 0).contiguous()  # [n + 1, 1 + reach, B]
    if rate is not None:
        gains -= rate
    for v in range(vertices - 1, -1, -1):
        rest[v] = 0  # after the end, column 0, nothing follows
        best, step[v] = (gains[v] + rest[v : v + width]).max(0)
        rest[v] = best
    step = step.T
    return _follow(step, ahead.gather(2, step[:, :, None])[:, :, 0], label)


def _follow(step: Tensor, score: Tensor, label: Tensor) -> Walk:
    """Walk from vertex 0 by each vertex's own step [B, n + 1], 0 for the end, summing up the scores [B, n + 1]."""
    batch, vertices = step.shape
    following = torch.arange(vertices, device=step.device) + step
    following = torch.where(step == 0, vertices, following)
    following = torch.cat([following, following.new_full((batch, 1), vertices)], 1)  # the end leads to itself
    visited = [following.new_zeros(batch, 1)]
    while len(visited) <= vertices:
        visited.append(following.gather(1, visited[-1]))
        if step.device.type == "cpu" and bool((visited[-1] == vertices).all()):
            break
    walked = torch.cat(visited, 1)
    ended = walked == vertices
    total = torch.where(ended, 0, score.gather(1, walked.clamp(max=vertices - 1))).sum(1)
    length = (~ended[:, 1:]).sum(1)
    width = int(length.max()) if batch else 0
    walked = torch.where(ended, 0, walked)[:, 1 : width + 1]
    labels = nn.functional.pad(label, (1, 0), value=VOID).gather(1, walked)
    return Walk(labels, walked - 1, length, total)


def _widen(walk: Walk, width: int) -> Walk:
    """The same walks in `width` columns."""
    extra = width - walk.labels.size(1)
    labels = nn.functional.pad(walk.labels, (0, extra), value=VOID)
    return Walk(labels, nn.functional.pad(walk.slots, (0, extra), value=-1), walk.length, walk.score)
