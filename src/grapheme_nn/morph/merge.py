"""The room of merging: nodes that are alike become one, and what is alike enough is learned."""

from collections.abc import Sequence
from math import log
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, normalize
from torch_geometric.utils import scatter

from grapheme_nn.assignment import Assignment
from grapheme_nn.graph import topological_order
from grapheme_nn.morph.acyclic import acyclic_clusters, rooted, spanning_forest
from grapheme_nn.morph.base import Morph, batch_or_zeros, weights_or_ones

Candidates = Literal["edges", "window", "all"]
Estimator = Literal["soft", "straight_through", "gumbel", "reinforce"]


class Plan(NamedTuple):
    """What merges: clusters, and the forest of pairs they hang together by."""

    cluster: Tensor  # int64 [n], numbered by their first node
    parent: Tensor  # int64 [n]: the node above in the forest, -1 for a root
    pair: Tensor  # int64 [n]: the candidate pair that leads there, -1 for a root
    refused: Tensor  # bool [c]: accepted pairs that would have closed a cycle


class Merge(nn.Module):
    """Merges nodes whose features are similar; a DAG stays a DAG; the threshold is learned.

        similarity(i, j) = cos(x_i, x_j)            for each candidate pair
        tau = sigmoid(theta)                        `threshold` reads it
        p(i, j) = sigmoid((similarity - tau) / temperature)
        accepted: similarity >= tau, that is p >= 1/2

    Clusters are the connected components of the accepted pairs, a merged feature is the mean of its members. Where the
    merged graph would have a cycle, the least similar accepted pairs inside it are refused first (of equals, the first
    in node order), until it has none. `candidates` are the pairs that share an edge, those at most `window` places apart
    in topological order, or all pairs of a graph. In `eval()` merging is always this: hard, without chance.

    In training, `estimator` says how the decisions are made and where theta's gradient comes from. The truth is the
    gradient of the *expected* loss if each pair merged by itself with probability p.

    - `straight_through`: hard and without chance as in `eval()`, with the gradient of `soft`.
    - `soft`: nothing is decided. The strongest spanning forest of the candidates hangs from the first node of each
      tree, with g_i the p of the pair between node i and its parent. Node i is then in the cluster headed by its
      ancestor j with probability M[i, j] = (1 - g_j) (product of g from i up to below j), for j at most `reach` steps
      up, and S[i, j] = M[i, j] (1 - g_j) / (sum of column j of M): a head's share of being one, times a mean. Every node
      heads a cluster, so the number of nodes stays, and what is no head fades to zero.
    - `gumbel`: sampled decisions, with the gradient of `soft` at the relaxed sample (binary concrete).
    - `reinforce`: sampled decisions, and `log_probability` in the result. Sample several times, hand their losses to
      `reinforce`, and add what it returns.

    Losses: `ratio`, where a target is given: (merged away / n - ratio)^2, with the gradient of the mean of p.

    Edges are carried by the hard membership; the assignment's weights carry the gradient on the places where S is not
    zero, x' on all. Clusters are found on the host, except on chains numbered in order, such as text, where only a yes
    or no is asked of the device.
    """

    def __init__(
        self,
        threshold: float = 0.8,
        *,
        candidates: Candidates = "edges",
        window: int = 2,
        estimator: Estimator = "straight_through",
        temperature: float = 0.1,
        reach: int = 4,
        ratio: float | None = None,
    ) -> None:
        super().__init__()
        if not 0 < threshold < 1:
            raise ValueError(f"threshold must lie between 0 and 1, but is {threshold}")
        if candidates not in get_args(Candidates):
            raise ValueError(f"unknown candidates {candidates!r}: choose one of {', '.join(get_args(Candidates))}")
        if estimator not in get_args(Estimator):
            raise ValueError(f"unknown estimator {estimator!r}: choose one of {', '.join(get_args(Estimator))}")
        if temperature <= 0 or window < 1 or reach < 1:
            raise ValueError(
                f"temperature ({temperature}) must be above 0, window ({window}) and reach ({reach}) at least 1"
            )
        if ratio is not None and not 0 <= ratio < 1:
            raise ValueError(f"ratio is the share of nodes merged away, in [0, 1), but is {ratio}")
        self.candidates, self.window, self.estimator = candidates, window, estimator
        self.temperature, self.reach, self.ratio = temperature, reach, ratio
        self.theta = nn.Parameter(torch.tensor(log(threshold / (1 - threshold))))

    @property
    def threshold(self) -> Tensor:
        """tau, the similarity from which on nodes merge."""
        return self.theta.sigmoid()

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Morph:
        edge_weight = weights_or_ones(x, edge_index, edge_weight)
        pairs = self.pairs(edge_index, batch_or_zeros(x, batch))
        similarity = self.similarities(x, pairs)
        logit = self.logits(similarity)
        estimator = self.estimator if self.training else None
        score = logit
        if estimator in ("gumbel", "reinforce"):
            # Logistic noise: score >= 0 with probability p.
            score = logit + torch.rand_like(logit).clamp_min(torch.finfo(x.dtype).tiny).logit()
        # What decides the order of refusal must also decide the forest, or a cluster could hang together by pairs
        # outside it. Only `gumbel` needs the forest of what was sampled.
        strength = score if estimator == "gumbel" else similarity
        plan = self.plan(edge_index, pairs, score >= 0, strength, x.size(0))
        if estimator == "soft":
            return self._soft_morph(x, edge_index, edge_weight, batch, plan, logit)
        log_probability = None
        relaxed = None
        if estimator == "reinforce":
            log_probability = self.log_probability(logit, score >= 0, pairs, batch)
        elif estimator is not None:
            relaxed = score
        return self.morph(x, edge_index, edge_weight, batch, plan, logit, relaxed, log_probability)

    def pairs(self, edge_index: Tensor, batch: Tensor) -> Tensor:
        """The candidate pairs of a graph, int64 [2, c], the smaller node first, each pair once."""
        n = batch.numel()
        if self.candidates == "edges":
            if bool((edge_index[1] == edge_index[0] + 1).all() and (edge_index[0].diff() > 0).all()):
                return edge_index
            low, high = edge_index.amin(dim=0), edge_index.amax(dim=0)
        else:
            order = torch.arange(n, device=batch.device)
            if self.candidates == "window":
                order = topological_order(edge_index, n)
            order = order[batch[order].argsort(stable=True)]  # graph after graph
            span = self.window if self.candidates == "window" else int(torch.bincount(batch).max()) - 1 if n else 0
            place = torch.arange(n, device=batch.device)[:, None]
            later = place + torch.arange(1, span + 1, device=batch.device)
            place, later = place.expand_as(later)[later < n], later[later < n]
            ends = torch.stack([order[place], order[later]])
            ends = ends[:, batch[ends[0]] == batch[ends[1]]]
            low, high = ends.amin(dim=0), ends.amax(dim=0)
        key = (low * n + high)[low != high].unique()
        return torch.stack([key // n, key % n])

    def similarities(self, x: Tensor, pairs: Tensor) -> Tensor:
        """The cosine of each pair, [c]."""
        direction = normalize(x, dim=1)
        near, far = pairs
        if pairs.size(1) == x.size(0) - 1 and bool((far == near + 1).all()):  # one chain: no need to gather
            return (direction[:-1] * direction[1:]).sum(dim=1)
        return (direction[near] * direction[far]).sum(dim=1)

    def logits(self, similarity: Tensor) -> Tensor:
        """The log-odds of merging, [c]: p is their sigmoid."""
        return (similarity - self.threshold.to(similarity.dtype)) / self.temperature

    def plan(self, edge_index: Tensor, pairs: Tensor, accepted: Tensor, strength: Tensor, num_nodes: int) -> Plan:
        """Which of the accepted pairs merge, the weakest refused first where there would be a cycle."""
        near, far = pairs
        if self.candidates == "edges" and edge_index is pairs:  # chains: merging neighbours on a line closes no cycle
            link = torch.full((num_nodes,), -1, device=pairs.device)
            link[far] = torch.arange(far.numel(), device=pairs.device)
            begins = torch.ones(num_nodes, dtype=torch.bool, device=pairs.device)
            begins[far] = ~accepted
            parent = torch.where(link >= 0, torch.arange(num_nodes, device=pairs.device) - 1, -1)
            return Plan(begins.cumsum(0) - 1, parent, link, torch.zeros_like(accepted))
        strength = strength.detach().double()
        if not bool(strength.isfinite().all()):
            raise ValueError("x has values that are not finite, so its nodes have no similarity")
        # Refused first: the weakest; of equals, the first in node order, which the pairs already are in.
        order = torch.empty_like(near).scatter_(0, strength.argsort(stable=True), torch.arange(far.numel()).to(near))
        edges, candidates, decided, ranked = (t.cpu().numpy() for t in (edge_index, pairs, accepted, order))
        cluster, refused = acyclic_clusters(edges, candidates, decided, ranked, num_nodes)
        # An accepted pair is preferred to any other, so that every cluster hangs together by pairs of the forest.
        forest = spanning_forest(candidates, ranked + decided * ranked.size, num_nodes)
        parent, pair = rooted(candidates[:, forest], num_nodes)
        pair[pair >= 0] = forest[pair[pair >= 0]]
        return Plan(*(torch.from_numpy(part).to(pairs.device) for part in (cluster, parent, pair, refused)))

    def log_probability(self, logit: Tensor, accepted: Tensor, pairs: Tensor, batch: Tensor | None) -> Tensor:
        """Log of the probability of these decisions, [number of graphs]."""
        log_p = logsigmoid(torch.where(accepted, logit, -logit))
        if batch is None:
            return log_p.sum()[None]
        graphs = int(batch.max()) + 1 if batch.numel() else 0
        total: Tensor = scatter(log_p, batch[pairs[0]], dim_size=graphs)
        return total

    def morph(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        batch: Tensor | None,
        plan: Plan,
        logit: Tensor,
        relaxed: Tensor | None = None,
        log_probability: Tensor | None = None,
    ) -> Morph:
        """The graph in which a plan has been carried out, with the gradient of `soft` where relaxed scores are given."""
        n, k = x.size(0), int(plan.cluster.max()) + 1 if x.size(0) else 0
        assignment = Assignment.from_clusters(plan.cluster, k)
        edges, weights = assignment.connect(edge_index, edge_weight)
        if relaxed is None:
            features = assignment.reduce(x)
        else:
            weight = assignment.weight.to(x.dtype)
            is_head, source, ancestor, soft = self._relaxation(plan, relaxed)
            head = torch.empty(k, dtype=torch.long, device=x.device)
            head[plan.cluster[is_head]] = is_head.nonzero()[:, 0]
            # Only clusters that are there have a feature, so only their columns of the soft S have a gradient.
            seen = torch.ones_like(ancestor, dtype=torch.bool)
            source, target = source[seen], plan.cluster[ancestor[seen]]
            gradient_only = soft[seen] - soft[seen].detach()
            own = plan.cluster[source] == target
            weight = weight.index_add(0, source[own], gradient_only[own])
            assignment = Assignment._unchecked(assignment.source, plan.cluster, weight, n, k)
            elsewhere = Assignment._unchecked(source[~own], target[~own], gradient_only[~own], n, k)
            features = assignment.reduce(x) + elsewhere.reduce(x)
        losses = {}
        if self.ratio is not None:
            losses["ratio"] = self._ratio_loss(logit, n, k)
        owner = None if batch is None else torch.empty_like(batch[:k]).scatter_(0, plan.cluster, batch)
        return Morph(features, edges, weights, owner, assignment, losses, log_probability)

    def _soft_morph(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor | None, plan: Plan, logit: Tensor
    ) -> Morph:
        n = x.size(0)
        _, source, target, weight, member = self._memberships(plan, logit)
        assignment = Assignment._unchecked(source, target, weight, n, n, member)
        edges, weights = assignment.connect(edge_index, edge_weight)
        losses = {}
        if self.ratio is not None:
            losses["ratio"] = self._ratio_loss(logit, n, int(plan.cluster.max()) + 1 if n else 0)
        return Morph(assignment.reduce(x), edges, weights, batch, assignment, losses)

    def _relaxation(self, plan: Plan, score: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        is_head, source, ancestor, weight, _ = self._memberships(plan, score)
        return is_head, source, ancestor, weight

    def _memberships(self, plan: Plan, score: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Which node heads its cluster [n]; and per entry of the soft S its node, its head, S and M there, [nnz]."""
        n = plan.parent.numel()
        has_parent = plan.parent >= 0
        pair = plan.pair.clamp_min(0)
        free = has_parent & ~plan.refused[pair] if plan.refused.numel() else has_parent
        gate = torch.where(free, score.sigmoid()[pair], 0) if score.numel() else score.new_zeros(n)
        above = plan.parent.clamp_min(0)
        is_head = ~has_parent | (plan.cluster != plan.cluster[above])
        node = torch.arange(n, device=score.device)
        sources, ancestors, ways = [node], [node], [torch.ones_like(gate)]
        here, ancestor, way = node, node, ways[0]
        for _ in range(self.reach):
            onward = has_parent[ancestor]
            here, ancestor, way = here[onward], ancestor[onward], way[onward]
            way = way * gate[ancestor]
            ancestor = plan.parent[ancestor]
            sources.append(here)
            ancestors.append(ancestor)
            ways.append(way)
        source, ancestor, way = torch.cat(sources), torch.cat(ancestors), torch.cat(ways)
        heads = 1 - gate
        member = way * heads[ancestor]
        mass = torch.zeros_like(gate).index_add(0, ancestor, way)  # at least 1: a head reaches itself
        return is_head, source, ancestor, (heads / mass)[ancestor] * way, member

    def _ratio_loss(self, logit: Tensor, n: int, k: int) -> Tensor:
        """(share of nodes merged away - target)^2, with the gradient of the mean probability of merging."""
        assert self.ratio is not None
        mean = logit.sigmoid().sum() / max(n, 1)
        return ((n - k) / max(n, 1) + (mean - mean.detach()) - self.ratio).square()


def reinforce(morphs: Sequence[Morph], losses: Sequence[Tensor]) -> Tensor:
    """The part of the gradient of the expected loss that goes through sampled decisions, as a term to add to the loss.

        sum over samples s of (L_s - mean of the other samples' L) log p_s / number of samples

    `morphs` are two or more samples of the same graphs, and `losses` the loss of each: a scalar, or one per graph. The
    term's value means nothing; its gradient is unbiased. It is also put into each morph's `losses["reinforce"]`, the
    sample's own share of it.
    """
    if len(morphs) != len(losses) or len(morphs) < 2:
        raise ValueError(
            f"give two samples or more and a loss for each, not {len(morphs)} samples, {len(losses)} losses"
        )
    if any(morph.log_probability is None for morph in morphs):
        raise ValueError('these morphs were not sampled: use Merge(estimator="reinforce"), in training')
    value = torch.stack([loss.detach() for loss in losses])
    log_probability = torch.stack([m.log_probability for m in morphs if m.log_probability is not None])
    if value.dim() == 1:
        log_probability = log_probability.sum(dim=1)
    if value.shape != log_probability.shape:
        raise ValueError(f"losses of shape {list(value.shape[1:])} do not fit {log_probability.size(1)} graphs")
    others = (value.sum(dim=0) - value) / (len(morphs) - 1)
    terms = ((value - others) * log_probability).flatten(start_dim=1).sum(dim=1) if value.dim() > 1 else None
    terms = (value - others) * log_probability if terms is None else terms
    terms = terms / len(morphs)
    for morph, term in zip(morphs, terms, strict=True):
        morph.losses["reinforce"] = term
    return terms.sum()
