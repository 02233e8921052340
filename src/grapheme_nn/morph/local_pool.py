"""Soft pooling along the topological order, in time linear in the number of nodes."""

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import check_counts
from grapheme_nn.morph.base import Morph
from grapheme_nn.morph.operator import Operator


class LocalPool(Operator):
    """Soft pooling into k = ceil(ratio n) clusters, where a node may join only the `reach` nearest of them.

    Each node takes a learned step a_i = softplus(w . x_i + b) along the topological order of its graph. The steps,
    added up and scaled to the k clusters, give it a place, and the clusters 0..k-1 stand at the whole numbers:

        t_i = k (a_1 + ... + a_{i-1} + a_i / 2) / (a_1 + ... + a_n) - 1/2
        S[i, c] = softmax over the `reach` c nearest to t_i of -(t_i - c)^2 / width

    t is kept within 0..k-1, and clusters beyond the ends do not count: a node near an end has fewer. So S has at most
    `reach` entries a row and everything is linear in n. Cluster c is the weighted mean of what joins it:
    x' = diag(1 / sum_i S[i, c]) S^T x, and A' = S^T A S. The sizes of the graphs are read on the host.

    With `acyclic=False` it takes any graph, such as an undirected one: nodes then step along an order in which
    neighbours stand near by, breadth first from one end of each component (`dag.breadth_first`; ties by number), which
    on a path is the path itself. An undirected graph stays undirected, since A' is as symmetric as A.

    **The hardened result on a DAG is a DAG.** t does not decrease along the topological order, and a node's strongest
    cluster is the one nearest to t; so along every edge the cluster stays or moves forward, and no way leads back.
    """

    def __init__(self, channels: int, ratio: float = 0.5, reach: int = 3, *, acyclic: bool = True) -> None:
        super().__init__()
        check_counts(channels=channels, reach=reach)
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must lie in (0, 1], but is {ratio}")
        self.channels, self.ratio, self.reach, self.acyclic = channels, ratio, reach, acyclic
        self.step = nn.Linear(channels, 1)
        self.log_width = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.log_width)

    def change(self, graph: Morph) -> Morph:
        x, owner, n = graph.x, graph.owner, graph.num_nodes
        nodes = torch.bincount(owner, minlength=graph.num_graphs)  # [graphs]
        clusters = (nodes * self.ratio).ceil().long()
        first = clusters.cumsum(0) - clusters  # the number of each graph's first cluster

        place = self._places(graph, clusters)  # float64 [n]
        # A place that is nan has clusters all the same, so that nan is handed on to them.
        near = (place.nan_to_num(0) - (self.reach - 1) / 2).round().long()[:, None]
        near = near + torch.arange(self.reach, device=x.device)
        valid = (near >= 0) & (near < clusters[owner][:, None])  # [n, reach]
        distance = (place[:, None] - near).to(x.dtype)
        score = (-distance.square() / self.log_width.exp()).masked_fill(~valid, -torch.inf)
        member = score.softmax(dim=1)[valid]

        source = torch.arange(n, device=x.device)[:, None].expand_as(near)[valid]
        target = (near + first[owner][:, None])[valid]
        k = int(clusters.sum())
        mass = scatter(member, target, dim_size=k)
        # A cluster that nothing is near to is empty, and 0 / 0 is not its feature.
        weight = member / mass.clamp_min(torch.finfo(x.dtype).tiny)[target]
        assignment = Assignment(source, target, weight, n, k, member, checked=False)
        edges, weights, types = assignment.connect_typed(graph.edge_index, graph.edge_weight, graph.edge_type)
        of_graph = torch.arange(graph.num_graphs, device=x.device).repeat_interleave(clusters)
        batch = None if graph.batch is None else of_graph
        order = torch.arange(k, device=x.device)
        return graph.changed(assignment.reduce(x), edges, weights, batch, assignment, order=order, edge_type=types)

    def _places(self, graph: Morph, clusters: Tensor) -> Tensor:
        """t of each node, [n]. In float64: among a million nodes, float32 cannot tell neighbours apart."""
        order = graph.sequence if self.acyclic else graph.nearby
        step = nn.functional.softplus(self.step(graph.x)[:, 0].double())[order]
        owner = graph.owner[order]
        length = scatter(step, owner, dim_size=clusters.numel())  # [graphs]
        before = step.cumsum(0) - step / 2 - (length.cumsum(0) - length)[owner]
        place = clusters[owner] * before / length[owner] - 0.5
        place = place.clamp(min=torch.zeros_like(place), max=(clusters[owner] - 1).to(place.dtype))
        return torch.empty_like(place).scatter(0, order, place)
