"""What every change of a graph hands on (`Morph`), what all operators have in common, and the history of changes."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from grapheme_nn.assignment import Assignment
from grapheme_nn.graph import chain_edges, is_chain, is_integer, is_sorted, levels, on_host
from grapheme_nn.padding import Padding


class Condition(NamedTuple):
    """What conditions the graphs of a batch without being part of them: f features each."""

    x: Tensor  # [B, f, d]
    mask: Tensor  # bool [B, f]


@dataclass(frozen=True, eq=False, repr=False)
class Morph:
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

    A' without its diagonal; M is the membership of `assignment` (of `LocalPool`, a softmax over the nearest clusters);
    F are the features before the change that `Lift` takes back, T its assignment. Every operator takes a `Morph`, so
    that they chain (`nn.Sequential(Merge(), LocalPool(8))(data)`), and `history` leads back to the nodes that the chain
    began with.

    A soft graph need not be acyclic. What makes it a DAG is its `order`: only edges that point forward in it count as
    structure, and the others are weights that operators carry along.
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
        graph = cls.start(x, pointer[None].expand(2, -1)[:, :0], None, padding.owner, **more)
        graph.__dict__.update(padding=padding, in_order=None, is_chain=True)

        def edges() -> tuple[Tensor, Tensor]:
            edge_index = chain_edges(pointer)
            return edge_index, x.new_ones(edge_index.size(1))

        return graph.with_edges(edges)

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
        losses = dict(self.losses)
        for name, value in own.pop("losses", {}).items():
            losses[name] = losses[name] + value if name in losses else value
        sampled = own.pop("log_probability", None)
        if self.log_probability is not None:
            sampled = self.log_probability if sampled is None else sampled + self.log_probability
        if self.existence is not None and "existence" not in own:
            own["existence"] = assignment.mean(self.existence)
        travels = {"before": self, "condition": self.condition, "graphs": self.graphs}
        return Morph(x, edge_index, edge_weight, batch, assignment, losses, sampled, **(travels | own))

    def with_dense(self, dense: Tensor) -> "Morph":
        """The same graph with other features, given as `dense`: nothing about its structure has changed."""
        twin = copy(self)
        twin.__dict__["dense"] = dense
        twin.__dict__.pop("x", None)
        return twin

    @cached_property
    def dense(self) -> Tensor:
        """The features, padded: [B, n, d], each graph's nodes in order; anything in the padding."""
        return self.padding.dense(self.x)

    @property
    def _features(self) -> Tensor:
        """`dense` or `x`, whichever is there."""
        there: Tensor | None = self.__dict__.get("dense")
        return self.x if there is None else there

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
        if self.before is None:
            return self.assignment
        return self.before.history.compose(self.assignment)

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

        By the edges of a node's own graph alone: what else is in the batch must not matter.
        """
        if self.order is not None:
            return self.order
        owner = self.owner
        if not is_chain(self.edge_index) and bool((self.edge_index[0] >= self.edge_index[1]).any()):
            backward = self.edge_index[0] >= self.edge_index[1]
            place = torch.arange(self.num_nodes, device=owner.device)
            unordered = torch.zeros_like(place).index_put_((owner[self.edge_index[0, backward]],), place.new_ones(()))
            place = torch.where(unordered[owner].bool(), levels(self.edge_index, self.num_nodes), place)
            place = place.argsort(stable=True)
            return place[owner[place].argsort(stable=True)]
        return None if self.batch is None or is_sorted(owner) else owner.argsort(stable=True)

    @cached_property
    def place(self) -> Tensor:
        """Where each node stands in order, int64 [k]."""
        number = torch.arange(self.num_nodes, device=self.device)
        return number if self.in_order is None else torch.empty_like(number).index_copy_(0, self.in_order, number)

    @cached_property
    def _forward(self) -> Tensor:
        """Which edges point forward in the order, bool [e]."""
        place = self.place[self.edge_index]
        return place[0] < place[1]

    @cached_property
    def structure_edges(self) -> Tensor:
        """The edges that make it a DAG, int64 [2, e]: all of them, unless an order says which."""
        return self.edge_index if self.order is None else self.edge_index[:, self._forward]

    @cached_property
    def structure_weights(self) -> Tensor:
        """The weights of `structure_edges`, [e]."""
        return self.edge_weight if self.order is None else self.edge_weight[self._forward]

    @cached_property
    def is_chain(self) -> bool:
        """Whether every graph is one chain, numbered along it, whose edges weigh 1, as text is."""
        edges, filled = self.structure_edges, int(on_host(self.padding.mask)[:, :1].sum())
        chain = edges.size(1) == self.num_nodes - filled and is_chain(edges)
        return chain and bool((on_host(self.structure_weights) == 1).all())

    @cached_property
    def padding(self) -> Padding:
        """Where the nodes stand in dense tensors: each graph's in order."""
        return Padding.of(self.owner, self.num_graphs, self.in_order)

    def with_edges(self, make: Callable[[], tuple[Tensor, Tensor]]) -> Self:
        """This graph, whose `edge_index` and `edge_weight` are made when one of them is first asked for."""
        del self.__dict__["edge_index"], self.__dict__["edge_weight"]
        self.__dict__["_make_edges"] = make
        return self

    def __getattr__(self, name: str) -> Tensor:
        if name == "x" and "dense" in self.__dict__:
            self.__dict__["x"] = flat = self.padding.flat(self.dense)
            return flat
        if name not in ("edge_index", "edge_weight") or "_make_edges" not in self.__dict__:
            raise AttributeError(f"a Morph has no attribute {name!r}")
        self.__dict__.update(zip(("edge_index", "edge_weight"), self.__dict__["_make_edges"](), strict=True))
        made: Tensor = self.__dict__[name]
        return made

    def with_padding(self, padding: Padding) -> Self:
        """This graph, for whose `padding` nobody has to look at its edges any more."""
        self.__dict__["padding"] = padding
        return self

    def as_data(self) -> Data:
        """The graph for PyG: `x`, `edge_index`, `edge_weight`; a `Batch` where there are several graphs."""
        data = Data(x=self.x, edge_index=self.edge_index, edge_weight=self.edge_weight)
        if self.batch is not None:
            data = Batch(**data.to_dict(), batch=self.batch)
            data._num_graphs = self.num_graphs
        if self.existence is not None:
            data.existence = self.existence
        return data

    def __repr__(self) -> str:
        edges = self.edge_index.size(1)
        return f"Morph({self.num_nodes} nodes, {edges} edges, {self.channels} channels, {self.num_graphs} graphs)"


class Operator(nn.Module):
    """An operator that changes graphs. Subclasses define `change`, from `Morph` to `Morph` (see `Morph.changed`).

    Called with a `Morph`, a PyG `Data` or `Batch`, or with tensors: x float [n, d], edge_index int [2, e], edge_weight
    [e] (1 each by default), batch int [n] (one graph by default).
    """

    channels: int = 0  # d, where the operator was made for a number of channels

    def forward(
        self,
        x: Tensor | Morph | Data,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Morph:
        graph = x if isinstance(x, Morph) else as_graph(x, edge_index, edge_weight, batch)
        if self.channels not in (0, graph.channels):
            raise ValueError(f"x has {graph.channels} channels, but this operator was made for {self.channels}")
        if graph is not x:
            self._check_precision(graph.x.dtype)
        return self.change(graph)

    def _check_precision(self, dtype: torch.dtype) -> None:
        for parameter in self.parameters():
            if parameter.dim() and parameter.dtype != dtype:
                raise TypeError(
                    f"x is {dtype}, but the weights of this {type(self).__name__} are {parameter.dtype}: "
                    "convert one of them with .to()"
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def change(self, graph: Morph) -> Morph:
        """The graph after the change."""
        raise TypeError(f"{type(self).__name__} does not define change(graph), which an operator is")


def as_graph(
    x: Tensor | Data,
    edge_index: Tensor | None,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    **more: Any,
) -> Morph:
    """A graph before any change, checked, with int64 indices in memory order; `more` are other fields of it."""
    if isinstance(x, Data):
        x, edge_index, edge_weight, batch = x.x, x.edge_index, x.get("edge_weight"), x.get("batch")
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        found = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be floating point of shape [n, d], but is {found}")
    if edge_index is None:
        raise ValueError("edge_index is missing: give the edges as integers of shape [2, e]")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or not is_integer(edge_index):
        raise ValueError(
            f"edge_index must be integers of shape [2, e], but is {edge_index.dtype} {list(edge_index.shape)}"
        )
    for name, tensor in (("edge_index", edge_index), ("edge_weight", edge_weight), ("batch", batch)):
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, but x is on {x.device}: move one of them with .to()")
    if edge_index.numel():
        ends = on_host(edge_index)
        least, most = int(ends.min()), int(ends.max())
        if least < 0 or most >= x.size(0):
            wrong = least if least < 0 else most
            raise ValueError(f"edge_index refers to node {wrong}, but the graph has {x.size(0)} nodes")
    if edge_weight is not None:
        if edge_weight.shape != edge_index.shape[1:]:
            raise ValueError(
                f"edge_weight has shape {list(edge_weight.shape)}, but there are {edge_index.size(1)} edges"
            )
        edge_weight = edge_weight.to(x.dtype).contiguous()
    if batch is not None:
        if batch.shape != x.shape[:1] or not is_integer(batch):
            raise ValueError(
                f"batch must be one integer per node, but is {batch.dtype} {list(batch.shape)} for {x.size(0)} nodes"
            )
        batch = batch.long().contiguous()
        if batch.numel() and int(batch.min()) < 0:
            raise ValueError(
                f"batch must not be negative, but a node is in graph {int(batch.min())}: graphs begin with 0"
            )
        owner, ends = on_host(batch), on_host(edge_index.long())
        if batch.numel() and bool((owner[ends[0]] != owner[ends[1]]).any()):
            raise ValueError("an edge leads from one graph of the batch to another: graphs do not mix")
    return Morph.start(x.contiguous(), edge_index.long().contiguous(), edge_weight, batch, **more)


def history(morphs: Sequence[Morph]) -> Assignment:
    """The assignment from the first graph's nodes to the last graph's: the product of all, in order."""
    if not morphs:
        raise ValueError("the history of no change is not defined: give at least one morph")
    total = morphs[0].assignment
    for morph in morphs[1:]:
        total = total.compose(morph.assignment)
    return total
