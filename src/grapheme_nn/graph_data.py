"""Texts and graphs of files as tensors, and back: what one side of a pair is to a network."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from grapheme_nn.dag import Integers, is_integer
from grapheme_nn.data.graphs import Graph, shown
from grapheme_nn.graph import Unit, chains, identities, label_identities, type_identities


class Encoded(NamedTuple):
    """A text or a graph as integers."""

    x: Integers  # [n]: what each node is
    edge_index: Integers | None = None  # [2, e]; None: from each node to the next
    edge_type: Integers | None = None  # [e]


def encode(sides: Sequence[str | Graph], unit: Unit) -> list[Encoded]:
    """Texts in units, or graphs where the unit is `graph`."""
    if unit != "graph":
        return [Encoded(x) for x in identities(sides, unit)]  # type: ignore[arg-type]
    labels = label_identities([label for side in sides for label in _graph(side).nodes])
    encoded, start = [], 0
    for side in sides:
        graph = _graph(side)
        edges = np.array([edge[:2] for edge in graph.edges], dtype=np.int64).reshape(-1, 2).T
        types = np.array(type_identities([edge[2] for edge in graph.edges]), dtype=np.int64)
        encoded.append(Encoded(labels[start : start + len(graph.nodes)], edges, types))
        start += len(graph.nodes)
    return encoded


def collate(sides: Sequence[Encoded], features: Sequence[Integers] | None = None) -> Data:
    """Several as one batch for a network."""
    batch = chains([side.x for side in sides], features)
    if sides and sides[0].edge_index is not None:
        shifted = [side.edge_index + start for side, start in zip(sides, batch.ptr.tolist(), strict=False)]
        batch.edge_index = torch.from_numpy(np.concatenate(shifted, 1))
        batch.edge_type = torch.from_numpy(np.concatenate([side.edge_type for side in sides]))
    return batch


def as_side(value: Any, name: str = "an input") -> tuple[str | Graph, Any]:
    """What a user gives, as a text or a `Graph`, and a function that makes the same kind of thing from a `Graph`.

    Where it is neither, an error says so of what is called `name`.
    """
    if isinstance(value, str):
        return value, _same
    try:
        if isinstance(value, Graph):
            return Graph.from_dict(value.as_dict()), _same  # one made by hand may be anything
        if isinstance(value, dict):
            return Graph.from_dict(value), Graph.as_dict
        if isinstance(value, Data):
            return data_to_graph(value), graph_to_data if "spelling" in value else _numbered
        if hasattr(value, "adj") and hasattr(value, "nodes"):
            return Graph.from_networkx(value), Graph.to_networkx
    except ValueError as error:
        raise ValueError(f"{name} is no graph that can be read: {error}") from None
    kinds = "a str, a Graph, a dictionary with nodes and edges, a networkx graph or PyG Data"
    raise TypeError(f"{name} must be {kinds}, but is {type(value).__name__} {shown(value)}")


def graph_to_data(graph: Graph) -> Data:
    """A graph for PyG: `x` int64 [n], `edge_index`, `edge_type`, and what the labels are (`spelling`, see `graph`).

    Where types have names, they are in the list `edge_type_name`, and their numbers in `edge_type`.
    """
    (side,) = encode([graph], "graph")
    spelling = "".join(graph.nodes).encode("utf-32-le", "surrogatepass")
    assert side.edge_index is not None
    assert side.edge_type is not None
    edge_index, edge_type = torch.from_numpy(side.edge_index.copy()), torch.from_numpy(side.edge_type)
    if not graph.directed:
        edge_index, edge_type = torch.cat([edge_index, edge_index.flip(0)], 1), torch.cat([edge_type, edge_type])
    names = [edge[2] for edge in graph.edges] * (1 if graph.directed else 2)
    named = {"edge_type_name": names} if any(isinstance(kind, str) for kind in names) else {}
    return Data(
        **named,
        x=torch.from_numpy(side.x.copy()),
        edge_index=edge_index,
        edge_type=edge_type,
        spelling=torch.from_numpy(np.frombuffer(spelling, dtype="<u4").astype(np.int64)),
        spelling_size=torch.tensor([len(label) for label in graph.nodes], dtype=torch.long),
    )


def data_to_graph(data: Data) -> Graph:
    """The graph of PyG `Data`: labels as `spelling` has them, else the numbers in `x`; `edge_type` where it has any.

    A graph with every edge in both directions is undirected.
    """
    if data.get("batch") is not None:
        raise ValueError("it is a batch of graphs: give them one by one, batch.to_data_list()")
    if data.get("x") is None or not is_integer(data.x) or data.x.numel() != data.num_nodes:
        raise ValueError("x must be one integer per node that says what it is, see graph_to_data")
    if "spelling" in data:
        text = data.spelling.numpy(force=True).astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        ends = data.spelling_size.cumsum(0).tolist()
        nodes = [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    else:
        nodes = [str(number) for number in data.x.flatten().tolist()]
    kinds = data.get("edge_type")
    kinds = [0] * data.edge_index.size(1) if kinds is None else data.get("edge_type_name", kinds.tolist())
    edges = [[*ends, kind] for ends, kind in zip(data.edge_index.t().tolist(), kinds, strict=True)]
    found = {(*ends,) for *ends, _ in edges}
    directed = not found or any((target, source) not in found for source, target in found)
    if not directed:
        edges = [edge for edge in edges if edge[0] < edge[1]]
    return Graph.from_dict({"nodes": nodes, "edges": edges, "directed": directed})


def _graph(side: str | Graph) -> Graph:
    if not isinstance(side, Graph):
        raise TypeError(f"a graph is wanted, but got {shown(side)}")
    return side


def _same(value: Graph) -> Graph:
    return value


def _numbered(graph: Graph) -> Data:
    """As `graph_to_data`, `x` being the numbers that the labels are."""
    data = graph_to_data(graph)
    if all(label.lstrip("-").isdecimal() for label in graph.nodes):
        data.x = torch.tensor([int(label) for label in graph.nodes], dtype=torch.long)
        del data.spelling, data.spelling_size
    return data
