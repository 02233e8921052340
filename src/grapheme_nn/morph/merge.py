"""Merging of similar nodes with a learned threshold: a DAG stays a DAG."""

from collections.abc import Sequence
from math import log
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import check_counts, is_chain, levels
from grapheme_nn.derivatives import once_differentiable, straight_through
from grapheme_nn.morph.acyclic import acyclic_clusters, rooted, spanning_forest
from grapheme_nn.morph.base import Morph, graph_after_graph, pairs_within
from grapheme_nn.morph.heads import Plan, expected_edges, memberships
from grapheme_nn.morph.operator import Operator
from grapheme_nn.morph.similarity import pair_cosines
from grapheme_nn.sparse import row_products

Candidates = Literal["edges", "window", "all"]
Estimator = Literal["soft", "straight_through", "gumbel", "reinforce"]


class Merge(Operator):
    """Merges nodes whose features are similar; a DAG stays a DAG; the threshold is learned.

        similarity(i, j) = cos(x_i, x_j)            for each candidate pair
        tau = sigmoid(theta)                        `threshold` reads it
        p(i, j) = sigmoid((similarity - tau) / temperature)
        accepted: similarity >= tau, that is p >= 1/2

    Clusters are the connected components of the accepted pairs, a merged feature is the mean of its members. Where the
    merged graph would have a cycle, the least similar accepted pairs inside it are refused first (of equals, the first
    in node order), until it has none. `candidates` are the pairs that share an edge, those at most `window` places
    apart in topological order, or all pairs of a graph. In `eval()` merging is always this: hard, without chance.

    With `acyclic=False` it takes any graph, such as an undirected one, and no pair is refused. A' is as symmetric as A,
    so an undirected graph stays undirected. There is no topological order, and so no `window`.

    In training, `estimator` says how the decisions are made and where theta's gradient comes from. The truth is the
    gradient of the *expected* loss if each pair merged by itself with probability p (`check.truth.expected_loss`).

    - `soft`: nothing is decided. The strongest spanning forest of the candidates hangs from the first node of each
      tree, with g_i the p of the pair between node i and its parent. Node i is then in the cluster headed by its
      ancestor j with probability M[i, j] = (1 - g_j) (product of g from i up to below j), for j at most `reach` steps
      up, and S[i, j] = (1 - g_j) M[i, j] / (sum of column j of M): the probability of being a head, times a mean.
      Every node heads a cluster, so the number of nodes stays, and what is no head fades to zero. An edge weighs what
      is expected over all outcomes: a chain stays a DAG, with edges that skip nodes; elsewhere outcomes may disagree on
      which of two heads comes first, and then there is a cycle, though every single outcome is a DAG. **What it trains
      on is not what `eval()` gives**, so accuracy there may fall with the loss: weigh nodes by `existence` wherever
      they are counted, and lower `temperature` as training goes on; or use another estimator (docs/estimators.md).
    - `straight_through` (Bengio et al., 2013): hard and without chance as in `eval()`, with the gradient of `soft`,
      whose column j counts for the cluster that j is in: so a cluster feels the members it might win or lose, and the
      heads it might fall into.
    - `gumbel` (binary concrete: Jang et al., 2017): sampled decisions, with that gradient at the relaxed sample.
    - `reinforce` (Williams, 1992): sampled decisions, and their `log_probability` in the result. Sample several times,
      hand the losses to `reinforce`, and add what it returns.

    Losses: `ratio`, where a target is given: (share of nodes merged away - ratio)^2, with the gradient of the mean p.

    Edges are carried by the hard membership (`soft`: by the heads of both ends together). The assignment's weights
    carry the gradient of their own places, x' that of all. Clusters are found on the host, except on chains numbered in
    order, such as text, where the device is only asked how many there are and whether all is well.
    """

    def __init__(
        self,
        threshold: float = 0.8,
        *,
        candidates: Candidates = "edges",
        window: int = 2,
        estimator: Estimator = "straight_through",
        temperature: float = 0.1,
        reach: int = 2,
        ratio: float | None = None,
        acyclic: bool = True,
    ) -> None:
        super().__init__()
        if not 0 < threshold < 1:
            raise ValueError(f"threshold must lie between 0 and 1, but is {threshold}")
        if candidates not in get_args(Candidates):
            raise ValueError(f"unknown candidates {candidates!r}: choose one of {', '.join(get_args(Candidates))}")
        if estimator not in get_args(Estimator):
            raise ValueError(f"unknown estimator {estimator!r}: choose one of {', '.join(get_args(Estimator))}")
        check_counts(window=window, reach=reach)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, but is {temperature}")
        if ratio is not None and not 0 <= ratio < 1:
            raise ValueError(f"ratio is the share of nodes merged away, in [0, 1), but is {ratio}")
        if candidates == "window" and not acyclic:
            raise ValueError(
                "candidates='window' go by topological order, which needs a DAG: choose edges or all, or acyclic=True"
            )
        self.candidates, self.window, self.estimator, self.acyclic = candidates, window, estimator, acyclic
        self.temperature, self.reach, self.ratio = temperature, reach, ratio
        self._threshold = threshold
        self.theta = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    @property
    def threshold(self) -> Tensor:
        """tau, the similarity from which on nodes merge."""
        return self.theta.sigmoid()

    def reset_parameters(self) -> None:
        """The threshold that it began with."""
        with torch.no_grad():
            self.theta.fill_(log(self._threshold / (1 - self._threshold)))

    def change(self, graph: Morph) -> Morph:
        pairs = self.pairs(graph)
        similarity = pair_cosines(graph.x, pairs)
        logit = self.logits(similarity)
        estimator = self.estimator if self.training else None
        score = logit
        if estimator in ("gumbel", "reinforce"):
            # Logistic noise: score >= 0 with probability p.
            score = logit + torch.rand_like(logit).clamp_min(torch.finfo(logit.dtype).tiny).logit()
        # What decides the order of refusal must also decide the forest, or a cluster could hang together by pairs
        # outside it. Only `gumbel` needs the forest of what was sampled.
        strength = score if estimator == "gumbel" else similarity
        plan = self.plan(graph, pairs, score >= 0, strength)
        if estimator == "soft":
            return self._soft_morph(graph, plan, logit)
        relaxed = score if estimator in ("straight_through", "gumbel") else None
        sampled = self.log_probability(graph, logit, score >= 0, pairs) if estimator == "reinforce" else None
        return self.morph(graph, plan, logit, relaxed, sampled)

    def pairs(self, graph: Morph) -> Tensor:
        """The candidate pairs of a graph, int64 [2, c], the smaller node first, each pair once."""
        n, edge_index, batch = graph.num_nodes, graph.edge_index, graph.owner
        if self.candidates == "edges":
            if is_chain(edge_index):
                return edge_index
            ends = edge_index
        else:
            windowed = self.candidates == "window"
            order = graph.sequence if windowed else batch.argsort(stable=True)
            span = self.window if windowed else int(torch.bincount(batch).max()) - 1 if n else 0
            ends = pairs_within(span, order, batch)
        low, high = ends.amin(dim=0), ends.amax(dim=0)
        key = torch.unique((low * n + high)[low != high])
        return torch.stack([key // n, key % n])

    def logits(self, similarity: Tensor) -> Tensor:
        """The log-odds of merging, [c]: p is their sigmoid."""
        return (similarity - self.threshold.to(similarity.dtype)) / self.temperature

    def plan(self, graph: Morph, pairs: Tensor, accepted: Tensor, strength: Tensor) -> Plan:
        """Which of the accepted pairs merge, the weakest refused first where there would be a cycle."""
        if not bool(strength.isfinite().all()):
            raise ValueError("x has values that are not finite, so its nodes have no similarity")
        near, far = pairs
        num_nodes, edge_index = graph.num_nodes, graph.structure_edges
        if edge_index is pairs:  # chains: merging neighbours on a line closes no cycle
            link = torch.full((num_nodes,), -1, device=pairs.device)
            link[far] = torch.arange(far.numel(), device=pairs.device)
            begins = torch.ones(num_nodes, dtype=torch.bool, device=pairs.device)
            begins[far] = ~accepted
            parent = torch.where(link >= 0, torch.arange(num_nodes, device=pairs.device) - 1, -1)
            return Plan(begins.cumsum(0) - 1, parent, link, torch.zeros_like(accepted))
        # Refused first: the weakest; of equals, the first in node order, which the pairs already are in.
        order = torch.empty_like(near).scatter_(0, strength.argsort(stable=True), torch.arange(far.numel()).to(near))
        if not self.acyclic:
            edge_index = edge_index[:, :0]  # nothing to keep free of cycles
        edges, candidates, decided, ranked = (t.cpu().numpy() for t in (edge_index, pairs, accepted, order))
        cluster, refused = acyclic_clusters(edges, candidates, decided, ranked, num_nodes)
        # An accepted pair is preferred to any other, so that every cluster hangs together by pairs of the forest.
        forest = spanning_forest(candidates, ranked + decided * ranked.size, num_nodes)
        above, branch = rooted(candidates[:, forest], num_nodes)
        branch[branch >= 0] = forest[branch[branch >= 0]]
        return Plan(*(torch.from_numpy(part).to(pairs.device) for part in (cluster, above, branch, refused)))

    def log_probability(self, graph: Morph, logit: Tensor, accepted: Tensor, pairs: Tensor) -> Tensor:
        """Log of the probability of these decisions, [graphs]."""
        log_p = logsigmoid(torch.where(accepted, logit, -logit))
        return log_p.new_zeros(graph.num_graphs).index_add(0, graph.owner[pairs[0]], log_p)

    def morph(
        self, graph: Morph, plan: Plan, logit: Tensor, relaxed: Tensor | None = None, sampled: Tensor | None = None
    ) -> Morph:
        """The graph in which a plan has been carried out, with the gradient of `soft` where scores are given for it."""
        x, n, k = graph.x, graph.num_nodes, int(plan.cluster.max()) + 1 if graph.num_nodes else 0
        assignment = Assignment.from_clusters(plan.cluster, k)
        edges, weights, types = assignment.connect_typed(graph.edge_index, graph.edge_weight, graph.edge_type)
        own: dict[str, Any] = {"losses": self._losses(logit, n, k), "log_probability": sampled, "edge_type": types}
        if relaxed is None:
            features = assignment.reduce(x)
        else:
            entries = memberships(plan, relaxed, self.reach)
            target = plan.cluster[entries.head]
            features = _StraightThrough.apply(x, entries.soft, assignment, entries.source, target)  # type: ignore[no-untyped-call]
            nothing = straight_through(torch.zeros_like(entries.soft), entries.soft)
            inside = torch.where(plan.cluster[entries.source] == target, nothing, 0)
            weight = assignment.weight.to(x.dtype).index_add(0, entries.source, inside)
            # A cluster is there; it would be there less if its heads were likelier to fall into others.
            heads = straight_through(torch.zeros_like(entries.is_head), entries.is_head)
            own["existence"] = self._existence(graph, assignment, heads.new_ones(k).index_add(0, plan.cluster, heads))
            assignment = Assignment(assignment.source, plan.cluster, weight, n, k, checked=False)
        owner = torch.empty_like(graph.owner[:k]).scatter_(0, plan.cluster, graph.owner)
        if graph.order is not None:
            if self.acyclic:
                rank = levels(assignment.connect(graph.structure_edges)[0], k)
            else:  # by the first member
                rank = torch.full_like(owner, n).scatter_reduce(0, plan.cluster, graph.place, "amin")
            own["order"] = graph_after_graph(rank, owner)
        return graph.changed(features, edges, weights, None if graph.batch is None else owner, assignment, **own)

    def _soft_morph(self, graph: Morph, plan: Plan, logit: Tensor) -> Morph:
        n, entries = graph.num_nodes, memberships(plan, logit, self.reach)
        assignment = Assignment(entries.source, entries.head, entries.soft, n, n, entries.member, checked=False)
        carried = graph.edge_index, graph.edge_weight, graph.edge_type
        edges, weights, types = expected_edges(*carried, plan, entries, self.reach)
        losses = self._losses(logit, n, int(plan.cluster.max()) + 1 if n else 0)
        own = {"losses": losses, "order": graph.sequence if self.acyclic else graph.order, "edge_type": types}
        own["existence"] = self._existence(graph, assignment, entries.is_head)
        return graph.changed(assignment.reduce(graph.x), edges, weights, graph.batch, assignment, **own)

    @staticmethod
    def _existence(graph: Morph, assignment: Assignment, own: Tensor) -> Tensor:
        return own if graph.existence is None else own * assignment.mean(graph.existence)

    def _losses(self, logit: Tensor, n: int, k: int) -> dict[str, Tensor]:
        if self.ratio is None:
            return {}
        mean = logit.sigmoid().sum() / max(n, 1)
        share = straight_through(torch.full_like(mean, (n - k) / max(n, 1)), mean)
        return {"ratio": (share - self.ratio).square()}


class _StraightThrough(torch.autograd.Function):
    """The mean of each cluster, [k, d], with a gradient for the entries of the soft S as if they had taken part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, soft: Tensor, assignment: Assignment, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(x, source, target)
        ctx.assignment = assignment
        return assignment.reduce(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        x, source, target = ctx.saved_tensors
        gradient = gradient.contiguous()
        weight = ctx.assignment.weight.to(x.dtype)[:, None]
        # `lift`, for an assignment that has just one entry for each node, in order.
        for_x = gradient.index_select(0, ctx.assignment.target).mul_(weight)
        return for_x, row_products(x, source, gradient, target), None, None, None


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
    value = torch.stack([loss.detach() for loss in losses])  # [samples] or [samples, graphs]
    log_probability = torch.stack([m.log_probability for m in morphs if m.log_probability is not None])
    if value.dim() == 1:
        value, log_probability = value[:, None], log_probability.sum(dim=1, keepdim=True)
    if value.shape != log_probability.shape:
        raise ValueError(f"{value.size(1)} losses a sample do not fit {log_probability.size(1)} graphs")
    others = (value.sum(dim=0) - value) / (len(morphs) - 1)
    terms = ((value - others) * log_probability).sum(dim=1) / len(morphs)
    terms = straight_through(terms.detach(), terms)  # of second derivatives it is no estimate
    for morph, term in zip(morphs, terms, strict=True):
        morph.losses["reinforce"] = term
    return terms.sum()
