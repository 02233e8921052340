"""Two batches of PyG graphs, checked and padded to dense tensors, as a loss compares them."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Batch, Data

from grapheme_nn.assignment import Assignment
from grapheme_nn.dag import is_chain, is_integer, same_device
from grapheme_nn.padding import Padding
from grapheme_nn.probabilities import check_log_probabilities, check_range


@dataclass(frozen=True, eq=False)
class Edges:
    """The weighted, directed edges of B padded graphs of n nodes, as an adjacency A [B, n, n] that is never formed.

    Where all edges lead from a node to the next, as in text, `chain` [B, n - 1] is the weight of the edge that leaves
    each node, and what follows takes slices; else it goes over the entries of `matrix`, from b n + i to b n + j.
    """

    shape: tuple[int, int]  # B, n
    matrix: Assignment
    chain: Tensor | None  # None also where there are types
    kind: Tensor | None = None  # int64 [e]: of each edge in 0..kinds - 1; None where there are no types to tell apart
    kinds: int = 1

    def successors(self, values: Tensor) -> Tensor:
        """A @ values: per node, the weighted sum over the nodes its edges lead to. [B, n, c] to [B, n, c]."""
        if self.chain is not None:
            return pad(self.chain[:, :, None] * values[:, 1:], (0, 0, 0, 1))
        return self.matrix.lift(values.flatten(0, 1)).view_as(values)

    def predecessors(self, values: Tensor) -> Tensor:
        """A^T @ values: per node, the weighted sum over the nodes whose edges lead to it. [B, n, c] to [B, n, c]."""
        if self.chain is not None:
            return pad(self.chain[:, :, None] * values[:, :-1], (0, 0, 1, 0))
        return self.matrix.reduce(values.flatten(0, 1)).view_as(values)

    def inner(self, at_source: Tensor, at_target: Tensor) -> Tensor:
        """Per edge, the inner product of a row [B, n, c] at its source and a row at its target: [e], or [B, n - 1]."""
        if self.chain is not None:
            return (at_source[:, :-1] * at_target[:, 1:]).sum(2)
        return (at_source.flatten(0, 1)[self.matrix.source] * at_target.flatten(0, 1)[self.matrix.target]).sum(1)

    def overlap(self, other: "Edges", plan: Tensor) -> tuple[Tensor, Tensor]:
        """How much each edge overlaps with edges of `other` under a plan of the nodes, and each of other's with these.

            o(s, t) = sum_(s', t') w'(s', t') P[s, s'] P[t, t']        over edges of its own type, where they have one

        Shapes: plan [B, n + 1, m + 1], the void last; returns as `inner` does.
        """
        if self.chain is not None and other.chain is not None:
            # Sums over P[i, k] P[i + 1, k + 1], m + 2 entries on. In one piece, as the adjoint of each slice fills a
            # plan of its own; in the last two columns k + 1 is the void, or in the next row: there other weighs 0.
            (batch, rows, columns), flat = plan.shape, plan.flatten(1)
            size = (rows - 2) * columns
            both = (flat[:, :size] * flat[:, columns + 1 : columns + 1 + size]).view(batch, rows - 2, columns)
            on_self = torch.bmm(self.chain[:, None, :], both)[:, 0, :-2]
            return torch.bmm(pad(other.chain, (0, 2))[:, None, :], both.mT)[:, 0], on_self
        plan = plan[:, :-1, :-1]
        back = plan.mT
        if self.kind is not None:
            return self._inner_by_type(plan, other, back), other._inner_by_type(back, self, plan)
        return self.inner(plan, other.successors(back).mT), other.inner(back, self.successors(plan).mT)

    def _inner_by_type(self, plan: Tensor, other: "Edges", back: Tensor) -> Tensor:
        """o of `overlap` for these edges, [e]: as `inner`, with the successors of each type by themselves."""
        assert self.kind is not None
        assert other.kind is not None
        rows, own = other.matrix.num_sources, other.matrix
        place = own.source * other.kinds + other.kind
        typed = Assignment(place, own.target, own.weight, rows * other.kinds, rows, checked=False)
        reached = typed.lift(back.flatten(0, 1)).view(*other.shape, other.kinds, back.size(2))  # [B, m, kinds, n]
        at_target = reached.transpose(1, 3).flatten(0, 2)[self.matrix.target * self.kinds + self.kind]
        return (plan.flatten(0, 1)[self.matrix.source] * at_target).sum(1)

    def total(self, per_edge: Tensor) -> Tensor:
        """The weighted sum of a value per edge, as `inner` gives it, over the edges of each graph: [B]."""
        if self.chain is not None:
            return (self.chain * per_edge).sum(1)
        graph = self.matrix.source // max(self.shape[1], 1)
        return per_edge.new_zeros(self.shape[0]).index_add(0, graph, self.matrix.weight * per_edge)


class Padded(NamedTuple):
    """A batch of B graphs with n nodes each, those beyond a graph's own being padding.

    Either `identity`, or `probability` (a predicted graph's distribution over labels), says what a node is.
    """

    existence: Tensor  # [B, n]: 0 for padding
    identity: Tensor | None  # [B, n]: int64; of two hard graphs as floats that tell them apart as well
    probability: Tensor | None  # [B, n, V]
    activation: Tensor | None  # [B, n, d]
    edges: Edges


def pad_pair(predicted: Data, target: Data) -> tuple[Padded, Padded]:
    """Both batches padded. The sizes, and what has to be checked, are read back from the device, at once."""
    for side, graph in (("predicted", predicted), ("target", target)):
        if not isinstance(graph, Data):
            way_out = ": give its as_data()" if hasattr(graph, "as_data") else ""
            raise TypeError(f"the {side} graph must be a PyG Data or Batch, but is a {type(graph).__name__}{way_out}")
    soft = "label_log_prob" in predicted
    _check_fields("predicted", predicted, "label_log_prob" if soft else "x", like=predicted)
    _check_fields("target", target, "label" if soft else "x", like=predicted)
    if "existence" in target or "label_log_prob" in target:
        raise ValueError("the target must be a hard graph, without existence or label_log_prob: harden it first")
    if ("activation" in predicted) != ("activation" in target):
        raise ValueError("only one of the two graphs has activations: give both, or neither")
    if "activation" in predicted and predicted.activation.size(1) != target.activation.size(1):
        channels = f"{predicted.activation.size(1)} channels and of the target {target.activation.size(1)}"
        raise ValueError(f"activation of the predicted graph has {channels}: give both as many")
    known = [target.label.long()] if soft else [predicted.x.long(), target.x.long()]
    # The widest of the floats given, at least single precision: a plan is no place for less.
    fields = ("edge_weight", "activation", "label_log_prob", "existence")
    given = [graph[field].dtype for graph in (predicted, target) for field in fields if field in graph]
    dtype = reduce(torch.promote_types, given, torch.float32)
    kinds, types = _types(predicted, target)
    integers = [part.long() for part in (predicted.edge_index, target.edge_index, torch.cat(known))]
    ends = [torch.stack((part if part.numel() else part.new_zeros(1)).aminmax()) for part in integers]
    *table, least, most = torch.cat(ends).tolist()
    if not soft:
        # Floats that are equal where the integers are: a CPU compares those ten times as fast.
        exact = max(-least, most) < 2 / torch.finfo(dtype).eps
        code = integers[2] if exact else integers[2].unique(return_inverse=True)[1]
        known = list(code.to(dtype).split([part.numel() for part in known]))
    elif target.label.numel() and not 0 <= least <= most < predicted.label_log_prob.size(1):
        raise ValueError(
            f"labels of the target range from {least} to {most}, but label_log_prob has "
            f"{predicted.label_log_prob.size(1)} columns"
        )
    x = _pad(predicted, "predicted", table[0:2], dtype, None if soft else known[0], types[0], kinds)
    y = _pad(target, "target", table[2:4], dtype, known[-1], types[1], kinds)
    if len(x.existence) != len(y.existence):
        counts = f"{len(x.existence)} predicted graphs and {len(y.existence)} targets"
        raise ValueError(f"there are {counts}: a loss compares them pairwise")
    return x, y


def check_edge_index(side: str, graph: Data) -> None:
    """Refuses an edge_index that is not one."""
    edges = graph.get("edge_index")
    if not isinstance(edges, Tensor):
        raise ValueError(f"the {side} graph has no edge_index: give it integers of shape [2, e]")
    if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
        raise ValueError(
            f"edge_index of the {side} graph must be integers of shape [2, e], but is {edges.dtype} {list(edges.shape)}"
        )


def _types(predicted: Data, target: Data) -> tuple[int, tuple[Tensor | None, Tensor | None]]:
    """How many types of edges there are, and those of both graphs' edges, numbered; None where all are alike."""
    given = [graph.get("edge_type") for graph in (predicted, target)]
    if any(types is None for types in given):
        return 1, (None, None)
    names, number = torch.unique(torch.cat([types.long() for types in given]), return_inverse=True)
    first, second = number.split([types.numel() for types in given])
    return names.numel(), (first, second) if names.numel() > 1 else (None, None)


def _pad(
    graph: Data,
    side: str,
    ends: list[int],
    dtype: torch.dtype,
    identity: Tensor | None,
    kind: Tensor | None,
    kinds: int,
) -> Padded:
    """`ends`: the least and the last node of edge_index."""
    least, most = ends
    count = (graph.label_log_prob if identity is None else identity).size(0)
    if graph.edge_index.numel() and not 0 <= least <= most < count:
        wrong = least if least < 0 else most
        raise ValueError(f"edge_index of the {side} graph refers to node {wrong}, but it has {count} nodes")
    if graph.edge_index.device.type == "cpu":  # elsewhere it would cost a wait for the device
        _check_values(side, graph)
    padding = Padding.of_counts(_sizes(graph, count))
    (graphs, nodes), index, dense = padding.mask.shape, padding.index, padding.dense
    rows = graphs * nodes
    edge_index = graph.edge_index.long().contiguous()
    source, target = edge_index if index is None else index[edge_index]
    ones = torch.ones(max(count, source.size(0)), dtype=dtype, device=source.device)
    weight = graph.edge_weight.to(dtype) if "edge_weight" in graph else ones[: source.size(0)]
    chain = None
    if nodes and kind is None and is_chain(graph.edge_index):
        chain = weight.new_zeros(rows).index_add(0, source, weight).view(graphs, nodes)[:, :-1]
    return Padded(
        existence=dense(graph.existence.to(dtype) if "existence" in graph else ones[:count]),
        identity=None if identity is None else dense(identity),
        probability=dense(graph.label_log_prob.to(dtype).exp()) if identity is None else None,
        activation=dense(graph.activation.to(dtype)) if "activation" in graph else None,
        edges=Edges((graphs, nodes), Assignment(source, target, weight, rows, rows, checked=False), chain, kind, kinds),
    )


def _sizes(graph: Data, count: int) -> Tensor:
    """How many nodes each graph has: int64 [B]."""
    if graph.get("ptr") is not None:
        return torch.as_tensor(graph.ptr).long().diff()
    if graph.get("batch") is None:
        return torch.tensor([count], device=graph.edge_index.device)
    graphs = graph.num_graphs if isinstance(graph, Batch) else int(graph.batch.max()) + 1 if count else 0
    return torch.bincount(graph.batch, minlength=graphs)


def _check_fields(side: str, graph: Any, needed: str, *, like: Data) -> None:
    """Refuses fields that lack, have another shape or type than they must, or are not where the edges of `like` are."""
    if not isinstance(graph.get(needed), Tensor):
        raise ValueError(f"the {side} graph has no {needed}: give each node its {needed}, and edge_index [2, e]")
    check_edge_index(side, graph)
    if needed != "label_log_prob" and graph[needed].is_floating_point():
        raise ValueError(
            f"{needed} of the {side} graph must be integers that say what nodes are, but is {graph[needed].dtype}: "
            "features go into activation"
        )
    n, e = (graph[needed].size(0) if graph[needed].dim() else 0), graph.edge_index.size(1)
    if isinstance(graph.get("edge_type"), Tensor) and not is_integer(graph.edge_type):
        raise ValueError(f"edge_type of the {side} graph must be integers, but is {graph.edge_type.dtype}")
    shapes: dict[str, list[Any]] = {"edge_index": [2, e], "edge_weight": [e], "edge_type": [e]}
    shapes |= {"existence": [n], "activation": [n, "_"], "ptr": ["_"]}
    shapes[needed] = [n, "_"] if needed == "label_log_prob" else [n]
    for field, shape in shapes.items():
        if not isinstance(graph.get(field), Tensor):
            continue
        name = f"{field} of the {side} graph"
        same_device(name, graph[field], "edge_index of the predicted one", like.edge_index)
        given = list(graph[field].shape)
        if len(given) != len(shape) or shape[0] not in ("_", given[0]):
            wanted = ", ".join(map(str, shape))
            raise ValueError(f"{name} must have shape [{wanted}], but has {given}")


def _check_values(side: str, graph: Data) -> None:
    """Refuses what is no probability, no weight, or not finite."""
    if "existence" in graph:
        check_range(f"existence of the {side} graph", graph.existence, 1.0)
    if "edge_weight" in graph:
        check_range(f"edge_weight of the {side} graph", graph.edge_weight)
    if "activation" in graph and not graph.activation.isfinite().all():
        raise ValueError(f"activation of the {side} graph has values that are not finite")
    if "label_log_prob" in graph:
        there = graph.existence > 0 if "existence" in graph else None
        check_log_probabilities("label_log_prob", f"a node of the {side} graph", graph.label_log_prob, there)
