"""Walks through a predicted DAG (Huang et al., 2022, DA-Transformer): the target is a walk, and all walks are summed.

The vertices are a beginning, vertex 0, and the s slots, vertices 1 to s. `next_log_prob` [B, s + 1, 1 + reach] says
where a walk goes: from vertex i, column k > 0 leads to vertex i + k and column 0 ends the walk. So any walk of at most
s steps is possible whatever the reach, and slots of ragged batches need no special last one.
"""

import torch
from torch import Tensor, nn

from grapheme_nn.objective.base import Comparison, Decoded, Objective, exact_dtype, masked_match, with_posteriors
from grapheme_nn.objective.search import Walks
from grapheme_nn.predicted import VOID, PredictedGraph, Targets

# Minus infinity for the recursion that autograd follows: large enough to be impossible, and -1e30 + 1e30 is not nan.
_NEVER = -1e30


class Path(Objective):
    """Minus the log-probability that a walk through the predicted DAG spells the target, summed over all walks.

    Every slot on a walk spells one node; a walk goes round the slots it does not need, so none of them is void.
    """

    predicts_next = True
    has_void = False

    def align(self, predicted: PredictedGraph, targets: Targets) -> Comparison:
        return path_alignment(masked_match(predicted, targets), _following(predicted), targets.length)

    @torch.no_grad()
    def decode(self, predicted: PredictedGraph) -> Decoded:
        return best_path(predicted.spelled, _following(predicted))

    def walks(self, predicted: PredictedGraph) -> Walks:
        edge = _following(predicted).exp()
        batch, vertices, width = edge.shape
        move = edge.new_zeros(batch, vertices, vertices + width - 2)
        move.as_strided((batch, vertices, width - 1), (move.stride(0), move.stride(1) + 1, 1)).copy_(edge[:, :, 1:])
        return Walks(predicted.spelled_apart[0].exp(), move[:, :, : vertices - 1], edge[:, :, 0])


def _following(predicted: PredictedGraph) -> Tensor:
    if predicted.next_log_prob is None:
        raise ValueError('it was not predicted which slot follows which: make the network with loss="path"')
    return predicted.next_log_prob


def path_alignment(label: Tensor, edge: Tensor, length: Tensor) -> Comparison:
    r"""The sum over all walks that spell the target, by the forward-backward recursion.

    .. math:: -\log \sum_{0 = v_0 < \dots < v_m} e(v_m, \text{end}) \prod_{j=1}^m e(v_{j-1}, v_j) p_{v_j}(t_j)

    label [B, s, m] log-probability that slot i spells target j, -inf in padding; edge [B, s + 1, 1 + reach], -inf to
    slots that are not there; length int64 [B]. The plan is the posterior that slot i spells target j. Where no walk
    spells the target (it is longer than there are slots, or probabilities are 0) the value is inf and its gradient 0.
    O(m s reach) time, O((m + reach) s) memory.
    """
    possible = length <= (label > -torch.inf).any(2).sum(1)
    with torch.no_grad():
        value, plan, edge_posterior = _posterior(label, edge, length, possible)
    value, plan, edge_posterior = value.to(label.dtype), plan.to(label.dtype), edge_posterior.to(edge.dtype)
    return Comparison(with_posteriors(value, (label, edge), (plan, edge_posterior)), plan)


@torch.no_grad()
def best_path(label_log_prob: Tensor, edge: Tensor) -> Decoded:
    """The most probable walk with the most probable label in each slot, by Viterbi's recursion: O(s reach).

    label_log_prob [B, s, V] of which column 0, the void, does not count; edge as in `path_alignment`.
    """
    best, label = label_log_prob[:, :, VOID + 1 :].max(2)
    batch, vertices, width = edge.shape
    gain = edge.clone()  # of ending, and of each next slot with its best label
    gain[:, :, 1:] += nn.functional.pad(best, (0, width - 1), value=-torch.inf).unfold(1, width - 1, 1)
    gain = gain.permute(1, 2, 0).contiguous()  # [s + 1, 1 + reach, B]
    rest = gain.new_full((vertices + width, batch), -torch.inf)  # rest[v]: the best from vertex v to the end
    step = torch.empty(vertices, batch, dtype=torch.long, device=edge.device)  # the first of that; 0 ends the walk
    for v in range(vertices - 1, -1, -1):
        rest[v] = 0  # after the end, column 0, nothing follows
        rest[v], step[v] = (gain[v] + rest[v : v + width]).max(0)
    following = torch.where(step == 0, vertices, step + torch.arange(vertices, device=edge.device)[:, None])
    following = nn.functional.pad(following, (0, 0, 0, 1), value=vertices)  # the end leads to itself
    visited = [following.new_zeros(1, batch)]
    while len(visited) <= vertices:
        visited.append(following.gather(0, visited[-1]))
        if edge.device.type == "cpu" and bool((visited[-1] == vertices).all()):
            break
    walked = torch.cat(visited).T[:, 1:]
    length = (walked < vertices).sum(1)
    walked = torch.where(walked < vertices, walked, 0)[:, : int(length.max()) if batch else 0]
    labels = nn.functional.pad(label + VOID + 1, (1, 0), value=VOID).gather(1, walked)
    return Decoded(labels, (walked - 1).clamp_min(0), length)


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
    arriving = _arriving(leaving)

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
    posterior = torch.cat([end_posterior[:, :, None], edges.mul_(leaving)], 2)
    return -log_total, plan[:, :, 1:].permute(1, 2, 0), posterior, trusted


def _by_logarithm(label: Tensor, edge: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The forward recursion in logarithms, and autograd for the posteriors: for any device and any probabilities."""
    batch, n, m = label.shape
    vertices, reach = n + 1, edge.size(2) - 1
    exact = exact_dtype(label)
    with torch.enable_grad():
        label, edge = (x.detach().to(exact).clamp(min=_NEVER).requires_grad_() for x in (label, edge))
        arriving = _arriving(edge[:, :, 1:])
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


def _arriving(leaving: Tensor) -> Tensor:
    """Edges by where they lead, [B, n + 1, reach], row v from vertices v - reach to v - 1; `leaving` is by origin.

    Entries for vertices before vertex 0 are those of other vertices: they must meet something that makes them harmless.
    """
    batch, vertices, reach = leaving.shape
    # Column o of row v is row v - reach + o, column reach - 1 - o: a strided view that begins before the first row.
    flat = nn.functional.pad(leaving.reshape(-1), (reach * reach, 0))
    return flat.as_strided((batch, vertices, reach), (vertices * reach, reach, reach - 1), reach - 1).contiguous()
