"""DiffPool at the cost of the edges alone: every node joins every cluster of its graph a little."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from grapheme_nn.assignment import Assignment, Entries
from grapheme_nn.dag import check_counts, is_sorted
from grapheme_nn.derivatives import once_differentiable
from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import Operator
from grapheme_nn.padding import Padding

# Graphs up to this size are padded and go through dense products together; where padding would multiply the nodes by
# more than this, or graphs are larger, A stays sparse.
_SMALL, _WASTE = 64, 4


class SoftPool(Operator):
    """DiffPool: k soft clusters a graph, from scores that are learned (Ying et al., 2018).

        S = softmax(x W + b)        x' = S^T x        A' = S^T A S without its diagonal
        link = ||A - S S^T||^2 / n^2                  how badly neighbours share clusters; the mean over graphs
        entropy = mean over i of -sum_c S[i, c] log S[i, c]

    No n x n matrix is made: ||A - S S^T||^2 = ||A||^2 - 2 tr(S^T A S) + ||S^T S||^2, whose three terms are added up in
    float64 because they cancel near a perfect fit (and the square is kept: a root has no gradient there). With e edges
    it takes O(e k + n k (k + d)); the gradient is written by hand, with the products it needs and no more, and cannot
    be differentiated again. `assignment.harden()` gives the quotient graph, each node in its strongest cluster.

    Each graph of a batch gets the same number of clusters, and A' all k (k - 1) edges between them; where edges have
    types, those of each type that the graph has, in O(e k^2). The number of graphs and their sizes are read on the
    host.
    """

    def __init__(self, channels: int, clusters: int) -> None:
        super().__init__()
        check_counts(channels=channels, clusters=clusters)
        self.channels, self.clusters = channels, clusters
        self.score = nn.Linear(channels, clusters)

    def change(self, graph: Morph) -> Morph:
        x, k = graph.x.to(self.score.weight.dtype), self.clusters
        graphs = _Graphs.of(graph)
        with torch.autocast(x.device.type, enabled=False):  # half precision would lose what is left where terms cancel
            features, coarse, link, entropy, member = _Pool.apply(  # type: ignore[no-untyped-call]
                graphs.pad(self.score(x)), graphs.pad(x), graph.edge_weight.to(x.dtype), graphs
            )
        num_graphs = graphs.nodes.numel()
        cluster = torch.arange(num_graphs * k, device=x.device).view(num_graphs, k)
        near = cluster[:, :, None].expand(-1, k, k)
        weight = graphs.unpad(member).flatten()

        def make() -> Entries:
            node = torch.arange(x.size(0), device=x.device)[:, None].expand(-1, k).flatten()
            return node, cluster[graph.owner].flatten(), weight

        # As large as all else together: its places are made when asked for.
        assignment = Assignment.lazy(make, x.size(0), num_graphs * k, membership=weight)
        edges, weights = torch.stack([_off_diagonal(near), _off_diagonal(near.transpose(1, 2))]), _off_diagonal(coarse)
        types = graph.edge_type
        if types is not None:
            edges, weights, types = assignment.connect_typed(graph.edge_index, graph.edge_weight, types)
        return graph.changed(
            features.reshape(num_graphs * k, x.size(1)),
            edges,
            weights,
            None if graph.batch is None else torch.arange(num_graphs, device=x.device).repeat_interleave(k),
            assignment,
            losses={"link": link.mean().to(x.dtype), "entropy": entropy.mean()},
            order=cluster.flatten(),
            edge_type=types,
        )


def _off_diagonal(matrices: Tensor) -> Tensor:
    """All entries off the diagonal, row by row: [graphs, k, k] to [graphs k (k - 1)]."""
    graphs, k, _ = matrices.shape
    # Without its first entry, a k x k matrix read in rows of k + 1 has the diagonal as its last column.
    return matrices.flatten(1)[:, 1:].reshape(graphs, k - 1, k + 1)[:, :, :-1].flatten()


@dataclass(frozen=True)
class _Graphs:
    """How the nodes of a batch lie in memory, so that each graph is multiplied by its own matrices.

    Small graphs are padded to the same number of rows; N is the number of all rows.
    """

    edge_index: Tensor  # int64 [2, e], in rows
    owner: Tensor  # int64 [N]
    nodes: Tensor  # int64 [graphs]
    padding: Padding | None  # None where each graph has as many rows as nodes

    @classmethod
    def of(cls, graph: Morph) -> "_Graphs":
        edge_index, owner, n = graph.edge_index, graph.owner, graph.num_nodes
        if graph.batch is None:  # nothing to wait for the device for
            nodes, largest = torch.tensor([n], device=owner.device), n or 1
        else:
            if not is_sorted(owner):
                raise ValueError("batch must be sorted: the nodes of a graph stand together")
            nodes = torch.bincount(owner, minlength=graph.num_graphs)
            largest = int(nodes.max()) if n else 1
        if largest > _SMALL or nodes.numel() * largest > _WASTE * n:
            return cls(edge_index, owner, nodes, None)
        padding = Padding.of_counts(nodes)
        if padding.index is not None:
            owner = torch.arange(nodes.numel(), device=owner.device).repeat_interleave(largest)
            edge_index = padding.index[edge_index]
        return cls(edge_index, owner, nodes, padding)

    def pad(self, value: Tensor) -> Tensor:
        """Nodes to rows: [n, v] to [N, v]."""
        return value if self.padding is None or self.padding.full else self.padding.dense(value).flatten(0, 1)

    def unpad(self, value: Tensor) -> Tensor:
        return value if self.padding is None or self.padding.full else self.padding.flat(value[None])

    def split(self, value: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Each graph's rows: one tensor [graphs, rows, v], or one per graph."""
        if self.padding is not None:
            return value.view(*self.padding.mask.shape, value.size(1))
        return value[None] if self.nodes.numel() == 1 else value.split(self.nodes.tolist())  # type: ignore[no-untyped-call]

    def pool(self, member: Tensor, value: Tensor) -> Tensor:
        """S^T V of each graph: [N, k] and [N, v] to [graphs, k, v]."""
        members, values = self.split(member), self.split(value)
        if isinstance(members, Tensor) and isinstance(values, Tensor):
            return members.transpose(1, 2) @ values
        return torch.stack([own.T @ part for own, part in zip(members, values, strict=True)])

    def spread(self, value: Tensor, matrix: Tensor) -> Tensor:
        """V G of each graph: [N, v] and [graphs, v, w] to [N, w]."""
        values = self.split(value)
        if isinstance(values, Tensor):
            return (values @ matrix).view(-1, matrix.size(2))
        return torch.cat([part @ own for part, own in zip(values, matrix, strict=True)])

    def adjacency(self, edge_weight: Tensor) -> "tuple[Tensor | Assignment, Tensor]":
        """A, dense [graphs, rows, rows] or sparse (the S^T of an assignment), and its entry at each edge, [e]."""
        near, far = self.edge_index
        if self.padding is not None:
            graphs, rows = self.padding.mask.shape
            place = near * rows + far % rows
            flat = edge_weight.new_zeros(graphs * rows**2).index_add_(0, place, edge_weight)
            return flat.view(graphs, rows, rows), flat[place]
        n = self.owner.numel()
        key, order = (near * n + far).sort(stable=True)
        entry = torch.empty_like(order).scatter_(0, order, (key.diff(prepend=key[:1]) != 0).cumsum(0))
        # As many places as edges, so that the host need not know how many entries there are.
        total = torch.zeros_like(edge_weight).index_add_(0, entry, edge_weight)
        return Assignment(far, near, edge_weight, n, n, checked=False), total[entry]

    def times(self, adjacency: "Tensor | Assignment", value: Tensor, *, transposed: bool = False) -> Tensor:
        """A V, or A^T V, [N, v]."""
        if isinstance(adjacency, Assignment):
            return adjacency.lift(value) if transposed else adjacency.reduce(value)
        matrix = adjacency.transpose(1, 2) if transposed else adjacency
        return (matrix @ value.view(*matrix.shape[:2], value.size(1))).view_as(value)


class _Pool(torch.autograd.Function):
    """From scores [N, k], features [N, d] and edge weights [e]: x' and A' of each graph, link, entropy, and S."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, x: Tensor, edge_weight: Tensor, graphs: _Graphs
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        # Over a few columns torch's softmax is several times slower than over a few rows.
        log_member = score.T.log_softmax(dim=0).T.contiguous() if score.size(1) < 32 else score.log_softmax(dim=1)
        member = graphs.pad(graphs.unpad(log_member.exp()))  # no row of padding belongs anywhere
        adjacency, entry = graphs.adjacency(edge_weight)
        neighbours = graphs.times(adjacency, member)
        features = graphs.pool(member, x)
        coarse = graphs.pool(member, neighbours)
        overlap = graphs.pool(member, member)
        nodes = graphs.nodes.clamp_min(1)
        norm = scatter((edge_weight * entry).double(), graphs.owner[graphs.edge_index[0]], dim_size=nodes.numel())
        fit = coarse.diagonal(dim1=1, dim2=2).double().sum(dim=1)
        link = (norm - 2 * fit + overlap.double().square().sum(dim=(1, 2))) / nodes.square()
        uncertainty = -(member * log_member).sum(dim=1)
        ctx.save_for_backward(x, member, log_member, neighbours, overlap, entry, uncertainty, nodes)
        ctx.graphs, ctx.adjacency = graphs, adjacency
        ctx.set_materialize_grads(False)  # S is as large as all else together, and mostly has no gradient of its own
        entropy = uncertainty.new_zeros(nodes.numel()).index_add_(0, graphs.owner, uncertainty) / nodes
        return features, coarse, link, entropy, member

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x, member, log_member, neighbours, overlap, entry, uncertainty, nodes = ctx.saved_tensors
        graphs, adjacency = ctx.graphs, ctx.adjacency
        shapes = [(member.size(1), x.size(1)), (member.size(1), member.size(1)), (), ()]
        for_features, for_coarse, for_link, for_entropy = (
            # Contiguous, because that of a plain sum is one number spread out, which bmm is slow on.
            x.new_zeros(nodes.numel(), *shape) if gradient is None else gradient.contiguous()
            for gradient, shape in zip(gradients, shapes, strict=False)
        )
        misfit = for_link.double() / nodes.square()  # [graphs]
        for_coarse = for_coarse - torch.diag_embed((2 * misfit).to(x.dtype)[:, None].expand(-1, member.size(1)))
        through = graphs.spread(member, for_coarse)  # S dL/dA'
        gradient = graphs.times(adjacency, through, transposed=True)
        gradient += graphs.spread(x, for_features.transpose(1, 2))
        gradient += graphs.spread(neighbours, for_coarse.transpose(1, 2))
        gradient += graphs.spread(member, overlap * (4 * misfit).to(x.dtype)[:, None, None])
        if gradients[4] is not None:
            gradient += gradients[4]
        gradient -= (gradient * member).sum(dim=1, keepdim=True)
        gradient -= (for_entropy / nodes).to(x.dtype)[graphs.owner][:, None] * (log_member + uncertainty[:, None])
        gradient *= member
        for_x = graphs.spread(member, for_features) if ctx.needs_input_grad[1] else None
        for_weight = None
        if ctx.needs_input_grad[2]:
            near, far = graphs.edge_index
            for_weight = (through[near] * member[far]).sum(dim=1)
            for_weight += 2 * misfit.to(x.dtype)[graphs.owner[near]] * entry
        return gradient, for_x, for_weight, None
