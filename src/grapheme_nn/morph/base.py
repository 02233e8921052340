"""What every change of a graph hands on (`Morph`), and the history of changes."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import breadth_first, is_acyclic, is_chain, is_sorted, levels, on_host
from grapheme_nn.graph import as_batch, chain_edges
from grapheme_nn.lazy import Lazy
from grapheme_nn.padding import Padding


class Condition(NamedTuple):
    """What conditions the graphs of a batch without being part of them: f features each."""

    x: Tensor  # [B, f, d]
    mask: Tensor  # bool [B, f]


@dataclass(frozen=True, eq=False, repr=False)
class Morph(Lazy):
    """A graph inside a network: after a change, with the assignment that tells how it came about.

    With n nodes before and k after, features H [n, d] and adjacency A [n, n] before, the operators hand on

        operator        x'                A'                                        S
        Merge           S^T H             M^T A M                                   1 / size at (node, its cluster)
        Merge, soft     S^T H             mean of M^T A M over all outcomes         as `Merge` states
        SoftPool        S^T H             M^T A M                                   softmax over all clusters
        LocalPool       S^T H             M^T A M                                   M with columns that sum to 1
        Split           W_r H + b_r       last child to first child, and a chain    1 at (node, each of its children)
        Lift            F + W T H + b     that before the change it takes back      1 at (cluster, each of its members)
        Rewire          H                 gated A, and new edges forward            identity

    A' without its diagonal (`Split` and `Rewire` with `acyclic=False` keep self-loops); M is the membership of
    `assignment` (of `LocalPool`, a softmax over the nearest clusters); F are the features before the change that `Lift`
    takes back, T its assignment. Where edges have types, all of it holds for each type by itself, and the edges that
    `Split` and `Rewire` insert are of type 0. Every operator takes a `Morph`, so that they chain
    (`nn.Sequential(Merge(), LocalPool(8))(data)`), and `history` leads back to the nodes that the chain began with.

    A soft graph need not be acyclic. What makes it a DAG is its `order`: only edges that point forward in it count as
    structure, and the others are weights that operators carry along. Operators with `acyclic=False` take all edges as
    they are, so that undirected graphs, whose edges point both ways, stay undirected.
    """

    x: Tensor  # [k, d]: features
    edge_index: Tensor  # int64 [2, e']
    edge_weight: Tensor  # [e']
    batch: Tensor | None  # int64 [k]: the graph of each node, None where none was given
    assignment: Assignment  # n -> k
    losses: dict[str, Tensor] = field(default_factory=dict)  # scalars to add to one's own loss, summed over the chain
    log_probability: Tensor | None = None  # [graphs]: of the sampled decisions of the chain, where they were sampled
    order: Tensor | None = None  # int64 [k]: the nodes graph after graph, in order; None where the edges tell
    existence: Tensor | None = None  # [k] in [0, 1]: the probability that a node is there; None: all are
    condition: Condition | None = None  # what conditions each graph, in a network
    before: "Morph | None" = None  # the graph that was changed
    graphs: int | None = None  # how many graphs there are; None: as `batch` says
    unit: Tensor | None = None  # int64 [k]: what each node is, as far as it is known: of data, and what is split of it
    edge_type: Tensor | None = None  # int64 [e']: of each edge; None where edges have none
    lifted_to: "Morph | None" = None  # after `Lift`: the graph that is back again; the next `Lift` starts there

    @classmethod
    def start(
        cls, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None, **more: Any
    ) -> Self:
        """A graph before any change: nothing is checked."""
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        return cls(x, edge_index, weight, batch, Assignment.identity(x.size(0), device=x.device), **more)

    @classmethod
    def chains(cls, x: Tensor, pointer: Tensor, **more: Any) -> Self:
        """Chains that begin and end at `pointer` int64 [B + 1], such as texts: nobody need look at their edges."""
        padding = Padding.of_counts(pointer.diff())

        def edges() -> tuple[Tensor, Tensor]:
            edge_index = chain_edges(pointer)
            return edge_index, x.new_ones(edge_index.size(1))

        graph = cls(x, x, x, padding.owner, Assignment.identity(x.size(0), device=x.device), **more)
        graph = graph.later(("edge_index", "edge_weight"), edges)
        return graph.knowing(padding=padding, in_order=None, is_chain=True)

    def changed(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        batch: Tensor | None,
        assignment: Assignment,
        **own: Any,
    ) -> "Morph":
        """The graph that this one becomes by a change, with all that travels along a chain."""
        added = own.pop("losses", {})
        losses = self.losses | {name: value + self.losses.get(name, 0) for name, value in added.items()}
        sampled = own.pop("log_probability", None)
        if self.log_probability is not None:
            sampled = self.log_probability if sampled is None else sampled + self.log_probability
        if self.existence is not None and "existence" not in own:
            own["existence"] = assignment.mean(self.existence)
        travels = {"before": self, "condition": self.condition, "graphs": self.graphs}
        return Morph(x, edge_index, edge_weight, batch, assignment, losses, sampled, **(travels | own))

    def with_dense(self, dense: Tensor) -> "Morph":
        """The same graph with other features, given as `dense`: nothing about its structure has changed."""
        padding = self.padding
        return copy(self).later(("x",), lambda: (padding.flat(dense),)).knowing(dense=dense)

    def knowing(self, **known: Any) -> Self:
        """This graph, of which something is known already, so that nobody need look at its edges for it."""
        self.__dict__.update(known)
        return self

    @cached_property
    def dense(self) -> Tensor:
        """The features, padded: [B, n, d], each graph's nodes in order; anything in the padding."""
        return self.padding.dense(self.x)

    @property
    def _features(self) -> Tensor:
        """`dense` or `x`, whichever is there."""
        return self.dense if "dense" in self.__dict__ else self.x

    @property
    def channels(self) -> int:
        """d."""
        return self._features.size(-1)

    @property
    def origin(self) -> "Morph":
        """The graph that the chain began with."""
        return self if self.before is None else self.before.origin

    @cached_property
    def history(self) -> Assignment:
        """From the nodes that the chain began with to these: the product of all its assignments."""
        return self.assignment if self.before is None else self.before.history.compose(self.assignment)

    @cached_property
    def main_nodes(self) -> Tensor:
        """Per node the one it is made of most, among the nodes that the chain began with: int64 [k], -1 for none."""
        main = self.assignment.main_sources()
        if self.before is None or self.before.before is None:
            return main
        return torch.where(main < 0, -1, self.before.main_nodes[main])

    @property
    def num_nodes(self) -> int:
        return self.assignment.num_targets

    @property
    def device(self) -> torch.device:
        return self._features.device

    @cached_property
    def num_graphs(self) -> int:
        if self.graphs is not None:
            return self.graphs
        return 1 if self.batch is None else int(self.batch.max()) + 1 if self.batch.numel() else 0

    @cached_property
    def owner(self) -> Tensor:
        """The graph of each node, int64 [k]."""
        if self.batch is not None:
            return self.batch
        return torch.zeros(self.num_nodes, dtype=torch.long, device=self.device)

    @cached_property
    def in_order(self) -> Tensor | None:
        """The nodes graph after graph, each graph's in topological order, int64 [k]; None where that is 0, 1, 2, ...

        By the edges of a node's own graph alone: what else is in the batch must not matter. Found on the host where the
        node numbers do not already follow it.
        """
        if self.order is not None:
            return self.order
        owner = self.owner
        backward = self.edge_index[0] >= self.edge_index[1]
        if bool(backward.any()):
            place = torch.arange(self.num_nodes, device=owner.device)
            unordered = torch.zeros_like(place).index_put_((owner[self.edge_index[0, backward]],), place.new_ones(()))
            place = torch.where(unordered[owner].bool(), levels(self.edge_index, self.num_nodes), place)
            return graph_after_graph(place, owner)
        return None if self.batch is None or is_sorted(owner) else owner.argsort(stable=True)

    @property
    def sequence(self) -> Tensor:
        """As `in_order`, 0, 1, 2, ... included."""
        return torch.arange(self.num_nodes, device=self.device) if self.in_order is None else self.in_order

    @cached_property
    def place(self) -> Tensor:
        """Where each node stands in that sequence, int64 [k]."""
        order = self.sequence
        return torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))

    @cached_property
    def nearby(self) -> Tensor:
        """The nodes graph after graph so that neighbours stand near by, whichever way edges point: int64 [k].

        Its `order` where it has one, else breadth first (`dag.breadth_first`).
        """
        if self.order is not None:
            return self.order
        order = breadth_first(self.edge_index, self.num_nodes)
        return order[self.owner[order].argsort(stable=True)]

    @cached_property
    def is_dag(self) -> bool:
        """Whether `structure_edges` have no cycle."""
        if self.order is not None or "in_order" in self.__dict__:  # an order was found: so there is none
            return True
        source, target = on_host(self.edge_index)
        return bool((source < target).all()) or is_acyclic(self.edge_index, self.num_nodes)

    @cached_property
    def _forward(self) -> Tensor:
        """Which edges point forward in the order, bool [e]."""
        return self.place[self.edge_index[0]] < self.place[self.edge_index[1]]

    @cached_property
    def structure_edges(self) -> Tensor:
        """The edges that make it a DAG, int64 [2, e]: all of them, unless an order says which."""
        return self.edge_index if self.order is None else self.edge_index[:, self._forward]

    @cached_property
    def structure_weights(self) -> Tensor:
        """The weights of `structure_edges`, [e]."""
        return self.edge_weight if self.order is None else self.edge_weight[self._forward]

    @cached_property
    def structure_types(self) -> Tensor | None:
        """The types of `structure_edges`, int64 [e]; None where they have none."""
        return self.edge_type if self.order is None or self.edge_type is None else self.edge_type[self._forward]

    @cached_property
    def is_chain(self) -> bool:
        """Whether every graph is one chain, numbered along it, whose edges weigh 1 and have no types, as text is."""
        if self.edge_type is not None:
            return False
        edges, filled = self.structure_edges, int(on_host(self.padding.mask)[:, :1].sum())
        chain = edges.size(1) == self.num_nodes - filled and is_chain(edges)
        return chain and bool((on_host(self.structure_weights) == 1).all())

    @cached_property
    def padding(self) -> Padding:
        """Where the nodes stand in dense tensors: each graph's in order."""
        return Padding.of(self.owner, self.num_graphs, self.in_order)

    def as_data(self) -> Data:
        """The graph for PyG: `x`, `edge_index`, `edge_weight`, `edge_type` if any; a `Batch` of several graphs.

        The edges of a `Batch` stand graph after graph, so that it can be taken apart.
        """
        nodes = {"x": self.x} | ({} if self.existence is None else {"existence": self.existence})
        edges = {"edge_index": self.edge_index, "edge_weight": self.edge_weight}
        edges |= {} if self.edge_type is None else {"edge_type": self.edge_type}
        return Data(**nodes, **edges) if self.batch is None else as_batch(nodes, edges, self.batch, self.num_graphs)

    def __repr__(self) -> str:
        edges = self.edge_index.size(1)
        return f"Morph({self.num_nodes} nodes, {edges} edges, {self.channels} channels, {self.num_graphs} graphs)"


def before_split(graph: Morph) -> tuple[Morph, int]:
    """The graph whose nodes were split into these slots, and into how many each; this graph and 1 where none was."""
    before, slots = graph.before, graph.num_nodes
    if before is not None and before.num_nodes and slots > before.num_nodes and slots % before.num_nodes == 0:
        parts = slots // before.num_nodes
        if bool((graph.assignment.main_sources() == torch.arange(slots, device=graph.device) // parts).all()):
            return before, parts
    return graph, 1


def graph_after_graph(rank: Tensor, owner: Tensor) -> Tensor:
    """The nodes graph after graph, each graph's by rank, of equals the first: two int64 [n] to one."""
    by_rank = rank.argsort(stable=True)
    return by_rank[owner[by_rank].argsort(stable=True)]


def pairs_within(reach: int, order: Tensor, owner: Tensor) -> Tensor:
    """The pairs of nodes of one graph at most `reach` places apart in an order graph after graph: int64 [2, p]."""
    place = torch.arange(order.numel(), device=order.device)[:, None]
    later = place + torch.arange(1, reach + 1, device=order.device)
    exists = later < order.numel()
    pairs = torch.stack([order[place.expand_as(later)[exists]], order[later[exists]]])
    return pairs[:, owner[pairs[0]] == owner[pairs[1]]]


def history(morphs: Sequence[Morph]) -> Assignment:
    """The assignment from the first graph's nodes to the last graph's: the product of all, in order."""
    if not morphs:
        raise ValueError("the history of no change is not defined: give at least one morph")
    return reduce(Assignment.compose, (morph.assignment for morph in morphs))
