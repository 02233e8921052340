"""The assignment: which nodes of a graph became which nodes of the next, as a sparse matrix S."""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from grapheme_nn.dag import check_edges, check_types, check_weights, is_integer, same_device
from grapheme_nn.lazy import Lazy
from grapheme_nn.sparse import Grouping, row_products, strongest, summed, summed_by_type

# So many edges at a time become those of a soft assignment: what they grow into stays in the processor's cache.
_CHUNK = 2**15

Entries: TypeAlias = tuple[Tensor, Tensor, Tensor]  # source, target and weight of an assignment


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Lazy):
    """Which nodes before became which nodes after, and how much: a sparse matrix S of n sources x k targets.

    With features H [n, d], an adjacency A [n, n], and what comes back as gradient:

        H' = S^T H        `reduce`         dL/dH = S dL/dH'     `lift`
        A' = M^T A M      `connect`, without its diagonal
        S1 S2             `compose`: the history of two changes

    M has the pattern of S and says what *belongs* where, while S says what a feature is made of. They differ because a
    merge takes the mean of its members, S[i, c] = 1 / size(c), and yet must not shrink the edges it carries along. So
    M = (S != 0) where no source has two targets, M = S where one has, M = M1 M2 where S = S1 S2; or M is given.

    A source without entry is deleted; one that is whole (M = 1) in each of several targets was split. Everything is
    differentiable in features, edge weights, weight and membership. The fields are not to be changed in place.
    """

    source: Tensor  # int64 [nnz]: row of each entry
    target: Tensor  # int64 [nnz]: column of each entry; no (source, target) twice
    weight: Tensor  # float [nnz]: S at that place
    num_sources: int  # n
    num_targets: int  # k
    membership: Tensor | None = None  # float [nnz]: M at that place; None where it follows from S
    checked: InitVar[bool] = field(default=True, kw_only=True)  # False: known to be right, no wait for a device

    def __post_init__(self, checked: bool) -> None:
        if not checked:
            return
        if self.num_sources < 0 or self.num_targets < 0:
            raise ValueError(f"an assignment of {self.num_sources} sources to {self.num_targets} targets cannot be")
        shape = self.weight.shape
        for name, tensor in self._tensors().items():
            if tensor.dim() != 1 or tensor.shape != shape:
                raise ValueError(f"{name} has shape {list(tensor.shape)}, but weight has {list(shape)}: both are [nnz]")
            same_device(name, tensor, "the assignment", self.weight)
            if name in ("source", "target"):
                limit = self.num_sources if name == "source" else self.num_targets
                _indices(name, tensor, f"{name}s", limit)
            elif not tensor.is_floating_point():
                raise TypeError(f"{name} must be floating point, but is {tensor.dtype}")
            elif not tensor.isfinite().all():
                wrong = int((~tensor.isfinite()).nonzero()[0, 0])
                raise ValueError(f"{name} has a value that is not finite at entry {wrong}")
        self.__dict__.update(source=self.source.long(), target=self.target.long())  # other integers are fine, too

    @classmethod
    def lazy(
        cls, make: Callable[[], Entries], num_sources: int, num_targets: int, membership: Tensor | None = None
    ) -> Self:
        """Not checked; `make` is called for source, target and weight when one of them is first asked for."""
        nothing = torch.empty(0)
        assignment = cls(nothing, nothing, nothing, num_sources, num_targets, membership, checked=False)
        return assignment.later(("source", "target", "weight"), make)

    @classmethod
    def identity(cls, num_nodes: int, *, device: torch.device | str | None = None) -> Self:
        """Every node stays what it is."""

        def make() -> Entries:
            node = torch.arange(num_nodes, device=device)
            return node, node, torch.ones_like(node, dtype=_exact(node))

        return cls.lazy(make, num_nodes, num_nodes)

    @classmethod
    def from_clusters(cls, cluster: Tensor, num_clusters: int | None = None) -> Self:
        """Each node goes to its cluster, whose feature is the mean of its members.

        `cluster` int64 [n] holds 0..k-1; k is one more than the largest where `num_clusters` does not give it. Weights
        are kept in float64, so that 1/3 is as exact as the features it meets.
        """
        if not isinstance(cluster, Tensor):
            raise TypeError(f"cluster must be a tensor of integers [n], but is a {type(cluster).__name__}")
        if cluster.dim() != 1:
            raise ValueError(f"cluster must be one number per node, shape [n], but has shape {list(cluster.shape)}")
        largest = int(cluster.max()) if cluster.numel() else -1
        count = largest + 1 if num_clusters is None else num_clusters
        _indices("cluster", cluster, "clusters", count)
        node = torch.arange(cluster.numel(), device=cluster.device)
        return cls._means(node, cluster.long(), cluster.numel(), count)

    @classmethod
    def _means(cls, source: Tensor, target: Tensor, num_sources: int, num_targets: int) -> Self:
        """Hard, each target the mean of its sources."""
        size = torch.zeros(num_targets, dtype=torch.long, device=target.device)
        size = size.scatter_add_(0, target, torch.ones_like(target))
        weight = size.to(_exact(size))[target].reciprocal()
        return cls(source, target, weight, num_sources, num_targets, checked=False)

    def dense(self) -> Tensor:
        """S as a tensor [n, k]."""
        return self._spread(self.weight)

    def dense_membership(self) -> Tensor:
        """M as a tensor [n, k]."""
        return self._spread(self.belonging())

    def _spread(self, value: Tensor) -> Tensor:
        matrix = value.new_zeros(self.num_sources, self.num_targets)
        return matrix.index_put((self.source, self.target), value, accumulate=True)

    @cached_property
    def is_hard(self) -> bool:
        """Whether no source is shared out: it is in one target only, or whole in each of several (a split)."""
        return self.has_clusters or bool((self.belonging() == 1).all())

    @cached_property
    def has_clusters(self) -> bool:
        """Whether no source has two targets."""
        return not self.source.numel() or int(torch.bincount(self.source).max()) == 1

    def reduce(self, x: Tensor) -> Tensor:
        """Features of the nodes after, S^T x, from those before: [n, ...] to [k, ...]."""
        return self._weighted_sum(x, self.num_sources, "sources", reduces=True)

    def mean(self, x: Tensor) -> Tensor:
        """What the nodes after have on average, weighed by S: [n] to [k], 0 where nothing became a node."""
        total, weight = self.reduce(torch.stack([x, torch.ones_like(x)], 1)).unbind(1)
        return total / torch.where(weight > 0, weight, 1.0)

    def lift(self, x: Tensor) -> Tensor:
        """What reaches the nodes before, S x, from features (or a gradient) of those after: [k, ...] to [n, ...]."""
        return self._weighted_sum(x, self.num_targets, "targets", reduces=False)

    def connect(self, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Edges of the graph after, M^T A M without self-loops, where A sums duplicates and weighs 1 by default.

        `edge_index` [2, e], `edge_weight` [e] to the same of the graph after, sorted, each edge once. A hard assignment
        costs one sort of the edges; a soft one with r entries a row, one of up to e r^2. The number of edges depends on
        the values, so a CUDA device waits for the host here.
        """
        return self.connect_typed(edge_index, edge_weight, None)[:2]

    def connect_typed(
        self, edge_index: Tensor, edge_weight: Tensor | None, edge_type: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `connect`, for the edges of each type by themselves, M^T A_t M: also the type of each edge after.

        `edge_type` int [e], or None where edges have none. Parallel edges of two types stay two.
        """
        belonging = self.belonging()
        if edge_weight is None:
            dtype = torch.get_default_dtype() if self.membership is None and self.has_clusters else belonging.dtype
            edge_weight = torch.ones(edge_index.size(-1), dtype=dtype, device=edge_index.device)
        same_device("edge_index", edge_index, "the assignment", self.weight)
        check_edges(edge_index, self.num_sources)
        check_weights(edge_index, edge_weight)
        if edge_type is not None:
            check_types(edge_index, edge_type)
            edge_type = edge_type.long()
        edge_index = edge_index.long()
        if self.has_clusters:
            cluster = self.clusters()
            near, far = cluster[edge_index[0]], cluster[edge_index[1]]
            if self.membership is not None:
                belongs = belonging.new_zeros(self.num_sources).scatter(0, self.source, belonging).to(edge_weight.dtype)
                edge_weight = edge_weight * belongs[edge_index[0]] * belongs[edge_index[1]]
            kept = ((near != far) & (near >= 0) & (far >= 0)).nonzero()[:, 0]
            kind = None if edge_type is None else edge_type[kept]
            return summed_by_type(torch.stack([near[kept], far[kept]]), edge_weight[kept], self.num_targets, kind)
        parts = []
        for begin in range(0, max(edge_index.size(1), 1), _CHUNK):
            (near, far), weight = edge_index[:, begin : begin + _CHUNK], edge_weight[begin : begin + _CHUNK, None]
            near, far, weight, edge = self._product(near, far, weight, belonging[:, None])  # A M
            far, near, weight, term = self._product(far, near, weight, belonging[:, None])  # M^T (A M)
            kept = (near != far).nonzero()[:, 0]
            kind = None if edge_type is None else edge_type[begin + edge[term[kept]]]
            places = torch.stack([near[kept], far[kept]])
            parts.append(summed_by_type(places, weight[kept, 0], self.num_targets, kind))
        if len(parts) == 1:
            return parts[0]
        places, values = torch.cat([part[0] for part in parts], dim=1), torch.cat([part[1] for part in parts])
        kind = None if edge_type is None else torch.cat([part[2] for part in parts if part[2] is not None])
        return summed_by_type(places, values, self.num_targets, kind)

    def compose(self, following: "Assignment") -> "Assignment":
        """The history of this change and the one that follows it: S1 S2, and M1 M2."""
        if self.num_targets != following.num_sources:
            raise ValueError(
                f"this change leads to {self.num_targets} nodes, but the next one starts from {following.num_sources}"
            )
        same_device("the following assignment", following.weight, "the assignment", self.weight)
        by_pattern = all(each.membership is None and each.has_clusters for each in (self, following))
        left = torch.stack([self.weight, self.belonging()], dim=1)
        right = torch.stack([following.weight, following.belonging()], dim=1)
        row, column, terms, _ = following._product(self.source, self.target, left, right)
        n, k = self.num_sources, following.num_targets
        (source, target), value = summed(torch.stack([row, column]), terms, max(n, k))
        return Assignment(source, target, value[:, 0], n, k, None if by_pattern else value[:, 1], checked=False)

    def harden(self) -> "Assignment":
        """Each source to the one target it belongs to most (the first of equals); a target is the mean of its sources.

        The number of targets stays, so that their numbers keep their meaning; one that nobody chose is empty.
        """
        target = strongest(self.belonging(), self.source, self.num_sources, self.target)
        source = (target >= 0).nonzero()[:, 0]
        return self._means(source, target[source], self.num_sources, self.num_targets)

    def contributors(self, target: int) -> tuple[Tensor, Tensor]:
        """The nodes before that made this node after, int64 [c], and their weights [c]."""
        if not 0 <= target < self.num_targets:
            raise ValueError(f"there is no target {target}: the assignment has {self.num_targets} targets")
        entry = (self.target == target).nonzero()[:, 0]
        entry = entry[self.source[entry].argsort()]
        return self.source[entry], self.weight[entry]

    def main_sources(self) -> Tensor:
        """Per target the source that weighs most in it, the first of equals: int64 [k], -1 where there is none."""
        if self.target.numel() == self.num_targets and bool((self.target.diff() == 1).all()):  # one source each
            return self.source
        return strongest(self.weight, self.target, self.num_targets, self.source)

    def clusters(self) -> Tensor:
        """The cluster of each source, int64 [n], -1 for a deleted one: the inverse of `from_clusters`."""
        if not self.has_clusters:
            raise ValueError("a source that has several targets has no cluster: call harden() first")
        cluster = torch.full((self.num_sources,), -1, device=self.target.device)
        return cluster.scatter(0, self.source, self.target)

    def to(self, device: torch.device | str) -> "Assignment":
        """The same assignment on another device."""
        moved = {name: tensor.to(device) for name, tensor in self._tensors().items()}
        return Assignment(**moved, num_sources=self.num_sources, num_targets=self.num_targets, checked=False)

    def __repr__(self) -> str:
        kind = "hard" if self.is_hard else "soft"
        return f"Assignment({self.num_sources} -> {self.num_targets}, {self.source.numel()} entries, {kind})"

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"source": self.source, "target": self.target, "weight": self.weight}
        return tensors if self.membership is None else tensors | {"membership": self.membership}

    def belonging(self) -> Tensor:
        """M at the places of the entries, [nnz]."""
        if self.membership is not None:
            return self.membership
        return torch.ones_like(self.weight) if self.has_clusters else self.weight

    @cached_property
    def _by_source(self) -> Grouping:
        return Grouping.of(self.source, self.num_sources, self.target)

    @cached_property
    def _by_target(self) -> Grouping:
        return Grouping.of(self.target, self.num_targets, self.source)

    def _product(self, outer: Tensor, inner: Tensor, value: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        """A sparse matrix with entries (outer, inner) times this one, whose entries have the values `own`.

        `value` [e, v] and `own` [nnz, v] hold v matrices of the same pattern. So does the result, whose terms are not
        added up yet: a place may occur more than once. The last is which of the entries each term comes from.
        """
        begin = self._by_source.begin
        repeats = begin.diff()[inner]
        left = torch.arange(inner.numel(), device=inner.device).repeat_interleave(repeats)
        step = torch.arange(left.numel(), device=inner.device) - (repeats.cumsum(0) - repeats)[left]
        entry = self._by_source.order[begin[inner[left]] + step]
        return outer[left], self.target[entry], value[left] * own[entry].to(value.dtype), left

    def _weighted_sum(self, x: Tensor, expected: int, what: str, *, reduces: bool) -> Tensor:
        """S^T x, or S x: [n, ...] to [k, ...], or back."""
        if not x.is_floating_point():
            raise TypeError(f"x must be floating point, but is {x.dtype}")
        if x.dim() == 0 or x.size(0) != expected:
            raise ValueError(f"x has shape {list(x.shape)}, but the assignment has {expected} {what}")
        same_device("x", x, "the assignment", self.weight)
        flat = x.reshape(x.size(0), prod(x.shape[1:]))
        total: Tensor = _WeightedSum.apply(flat, self.weight.to(x.dtype), self, reduces)  # type: ignore[no-untyped-call]
        return total.view(-1, *x.shape[1:]) if x.dim() != 2 else total


class _WeightedSum(torch.autograd.Function):
    """A sparse matrix times a dense one, both ways without a temporary of nnz rows (`embedding_bag` is torch's kernel).

    Gathering, weighing and scattering, as autograd would have it, takes five times as long on a million nodes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, assignment: Assignment, reduces: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.assignment, ctx.reduces = assignment, reduces
        groups = assignment._by_target if reduces else assignment._by_source
        if not x.numel() or not weight.numel():
            return x.new_zeros(groups.begin.numel() - 1, x.size(1))
        return embedding_bag(
            groups.other,
            x.contiguous(),  # other layouts have a slower kernel, which rounds differently
            groups.begin,
            mode="sum",
            per_sample_weights=weight[groups.order],
            include_last_offset=True,
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (gradient,), (x, weight), assignment = gradients, ctx.saved_tensors, ctx.assignment
        for_x = for_weight = None
        if ctx.needs_input_grad[0]:
            for_x = _WeightedSum.apply(gradient, weight, assignment, not ctx.reduces)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            before, after = assignment.source, assignment.target
            origin, group = (before, after) if ctx.reduces else (after, before)
            for_weight = row_products(x, origin, gradient, group)
        return for_x, for_weight, None, None


def _exact(like: Tensor) -> torch.dtype:
    """The most exact floating point type that the device of `like` has."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def _indices(name: str, index: Tensor, what: str, limit: int) -> None:
    if not is_integer(index):
        raise TypeError(f"{name} must be integers, but is {index.dtype}")
    low, high = map(int, index.aminmax()) if index.numel() else (0, -1)
    if low < 0 or high >= limit:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} refers to number {wrong}, but there are {limit} {what}, from 0 on")
