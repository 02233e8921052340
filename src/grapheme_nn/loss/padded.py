"""The room of padded graphs: two batches of graphs side by side in dense tensors, as a loss compares them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data


@dataclass(frozen=True, eq=False)
class Edges:
    """The weighted, directed edges of B padded graphs of n nodes, as an adjacency A [B, n, n] that is never formed.

    Where all edges lead from a node to the next, as in text, `chain` [B, n - 1] is the weight of the edge that leaves
    each node, and what follows takes slices; else it goes over `source`, `target` (both b n + i) and `weight`, all [e].
    """

    shape: tuple[int, int]  # B, n
    source: Tensor
    target: Tensor
    weight: Tensor
    chain: Tensor | None

    def successors(self, values: Tensor) -> Tensor:
        """A @ values: per node, the weighted sum over the nodes its edges lead to. [B, n, c] to [B, n, c]."""
        if self.chain is not None:
            return torch.nn.functional.pad(self.chain[:, :, None] * values[:, 1:], (0, 0, 0, 1))
        return self._collect(self.source, self.target, values)

    def predecessors(self, values: Tensor) -> Tensor:
        """A^T @ values: per node, the weighted sum over the nodes whose edges lead to it. [B, n, c] to [B, n, c]."""
        if self.chain is not None:
            return torch.nn.functional.pad(self.chain[:, :, None] * values[:, :-1], (0, 0, 1, 0))
        return self._collect(self.target, self.source, values)

    def inner(self, at_source: Tensor, at_target: Tensor) -> Tensor:
        """Per edge, the inner product of a row [B, n, c] at its source and a row at its target: [e], or [B, n - 1]."""
        if self.chain is not None:
            return (at_source[:, :-1] * at_target[:, 1:]).sum(2)
        return (at_source.flatten(0, 1)[self.source] * at_target.flatten(0, 1)[self.target]).sum(1)

    def total(self, per_edge: Tensor) -> Tensor:
        """The weighted sum of a value per edge, as `inner` gives it, over the edges of each graph: [B]."""
        if self.chain is not None:
            return (self.chain * per_edge).sum(1)
        graphs, nodes = self.shape
        graph = self.source // max(nodes, 1)
        return per_edge.new_zeros(graphs).index_add(0, graph, self.weight * per_edge)

    def _collect(self, to: Tensor, of: Tensor, values: Tensor) -> Tensor:
        flat = values.flatten(0, 1)
        moved = flat[of] * self.weight[:, None]
        return torch.zeros_like(flat).index_add(0, to, moved).view_as(values)


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
    soft = "label_log_prob" in predicted
    name = "label" if soft else "x"
    for side, graph in (("predicted", predicted), ("target", target)):
        needed = ("label_log_prob" if soft else "x") if side == "predicted" else name
        _check_fields(side, graph, needed)
    if "existence" in target or "label_log_prob" in target:
        raise ValueError("the target must be a hard graph, without existence or label_log_prob: harden it first")
    if ("activation" in predicted) != ("activation" in target):
        raise ValueError("only one of the two graphs has activations: give both, or neither")
    device = predicted.edge_index.device
    for side, graph in (("predicted", predicted), ("target", target)):
        for field in ("x", "edge_index", "edge_weight", "activation", "label", "label_log_prob", "existence", "ptr"):
            if isinstance(graph.get(field), Tensor) and graph[field].device != device:
                raise ValueError(
                    f"{field} of the {side} graph is on {graph[field].device}, but edge_index of the predicted one "
                    f"is on {device}: move one of them"
                )
    pointers = [_pointer(predicted, _size(predicted)), _pointer(target, _size(target))]
    if pointers[0].size(0) != pointers[1].size(0):
        raise ValueError(
            f"there are {pointers[0].size(0) - 1} predicted graphs and {pointers[1].size(0) - 1} targets: "
            "a loss compares them pairwise"
        )
    dtype = _dtype(predicted, target)
    facts = [_facts(graph, pointer) for graph, pointer in zip((predicted, target), pointers, strict=True)]
    known = [target.label] if soft else [predicted.x, target.x]
    ends = _ends(torch.cat(known))
    *table, least, most = torch.stack([*facts[0], *facts[1], *ends]).tolist()
    if not soft:
        known = _as_floats(known, dtype, exact=max(-least, most) < 2 / torch.finfo(dtype).eps)
    elif target.label.numel() and not 0 <= least <= most < predicted.label_log_prob.size(1):
        raise ValueError(
            f"labels of the target range from {least} to {most}, but label_log_prob has "
            f"{predicted.label_log_prob.size(1)} columns"
        )
    return (
        _pad(predicted, "predicted", pointers[0], table[0:4], dtype, None if soft else known[0]),
        _pad(target, "target", pointers[1], table[4:8], dtype, known[-1]),
    )


def _as_floats(identities: list[Tensor], dtype: torch.dtype, *, exact: bool) -> list[Tensor]:
    """Floats that are equal where the integers are: a CPU compares those ten times as fast."""
    if exact:
        return [identity.to(dtype) for identity in identities]
    codes = torch.unique(torch.cat(identities), return_inverse=True)[1].to(dtype)
    return list(codes.split([identity.numel() for identity in identities]))


def _pad(
    graph: Data, side: str, pointer: Tensor, facts: list[int], dtype: torch.dtype, identity: Tensor | None
) -> Padded:
    """`facts`: the most nodes of a graph, whether its edges form chains, the least and the last node of edge_index."""
    nodes, is_chain, least, most = facts
    count = _size(graph)
    if graph.edge_index.numel() and not 0 <= least <= most < count:
        wrong = least if least < 0 else most
        raise ValueError(f"edge_index of the {side} graph refers to node {wrong}, but it has {count} nodes")
    graphs = pointer.size(0) - 1
    source, target = graph.edge_index
    place = None  # of each node in the padded graphs, where there is padding
    if count < graphs * nodes:
        graph_of = torch.repeat_interleave(
            torch.arange(graphs, device=pointer.device), pointer.diff(), output_size=count
        )
        place = torch.arange(count, device=pointer.device) + (graph_of * nodes - pointer[graph_of])
        source, target = place[source], place[target]

    def spread(values: Tensor) -> Tensor:
        if place is not None:
            values = values.new_zeros(graphs * nodes, *values.shape[1:]).index_copy(0, place, values)
        return values.view(graphs, nodes, *values.shape[1:])

    existence = (
        graph.existence.to(dtype) if "existence" in graph else torch.ones(count, dtype=dtype, device=pointer.device)
    )
    weight = torch.ones(source.size(0), dtype=dtype, device=pointer.device)
    if "edge_weight" in graph:
        weight = graph.edge_weight.to(dtype)
    chain = None
    if is_chain and nodes:
        chain = weight.new_zeros(graphs * nodes).index_add(0, source, weight).view(graphs, nodes)[:, :-1]
    return Padded(
        existence=spread(existence),
        identity=None if identity is None else spread(identity),
        probability=spread(graph.label_log_prob.to(dtype).exp()) if identity is None else None,
        activation=spread(graph.activation.to(dtype)) if "activation" in graph else None,
        edges=Edges((graphs, nodes), source, target, weight, chain),
    )


def _facts(graph: Data, pointer: Tensor) -> list[Tensor]:
    edges = graph.edge_index
    most_nodes = pointer.diff().max() if pointer.size(0) > 1 else pointer.new_zeros(())
    is_chain = (edges[1] == edges[0] + 1).all().long()
    return [most_nodes, is_chain, *_ends(edges)]


def _ends(integers: Tensor) -> tuple[Tensor, Tensor]:
    if not integers.numel():
        return integers.new_zeros(()), integers.new_zeros(())
    least, most = integers.aminmax()
    return least, most


def _size(graph: Data) -> int:
    size: int = (
        graph.label_log_prob if "label_log_prob" in graph else graph["label" if "x" not in graph else "x"]
    ).size(0)
    return size


def _pointer(graph: Data, count: int) -> Tensor:
    """Where the nodes of each graph begin, and end: int64 [B + 1]."""
    device = graph.edge_index.device
    pointer = graph.get("ptr")
    if pointer is not None:
        return torch.as_tensor(pointer)
    if graph.get("batch") is None:
        return torch.tensor([0, count], device=device)
    graphs = graph.num_graphs if isinstance(graph, Batch) else int(graph.batch.max()) + 1 if count else 0
    return torch.nn.functional.pad(torch.bincount(graph.batch, minlength=graphs).cumsum(0), (1, 0))


def _dtype(predicted: Data, target: Data) -> torch.dtype:
    """The widest of the floats given, at least single precision: a plan is no place for less."""
    dtype = torch.float32
    for graph in (predicted, target):
        for field in ("edge_weight", "activation", "label_log_prob", "existence"):
            if field in graph:
                dtype = torch.promote_types(dtype, graph[field].dtype)
    return dtype


def _check_fields(side: str, graph: Any, needed: str) -> None:
    if not isinstance(graph, Data):
        raise ValueError(f"the {side} graph must be a PyG Data or Batch, but is a {type(graph).__name__}")
    for field in (needed, "edge_index"):
        if field not in graph or not isinstance(graph[field], Tensor):
            raise ValueError(f"the {side} graph has no {field}: give each node its {needed}, and edge_index [2, e]")
    edges = graph.edge_index
    if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
        raise ValueError(
            f"edge_index of the {side} graph must be integers of shape [2, e], but is {edges.dtype} {list(edges.shape)}"
        )
    if needed != "label_log_prob" and graph[needed].is_floating_point():
        raise ValueError(f"{needed} of the {side} graph must be integers, but is {graph[needed].dtype}")
    nodes = graph[needed].size(0)
    shapes: dict[str, tuple[int | None, ...]] = {
        "x": (nodes,),
        "label": (nodes,),
        "existence": (nodes,),
        "label_log_prob": (nodes, None),
        "activation": (nodes, None),
        "edge_weight": (edges.size(1),),
    }
    for field, shape in shapes.items():
        if field not in graph or (field in ("x", "label") and field != needed):
            continue
        given = tuple(graph[field].shape)
        if len(given) != len(shape) or any(
            size not in (want, None) and want is not None for size, want in zip(given, shape, strict=True)
        ):
            wanted = ", ".join("_" if want is None else str(want) for want in shape)
            raise ValueError(f"{field} of the {side} graph must have shape [{wanted}], but has {list(given)}")
