"""Graphs as `edge_index`: whether they are chains or acyclic, their levels and orders, who is near, and checks."""

from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, hstack, vstack
from scipy.sparse.csgraph import breadth_first_order, connected_components
from torch import Tensor

Integers: TypeAlias = NDArray[np.int64]


def is_chain(edge_index: Tensor) -> bool:
    """Whether every edge leads from a node to the next number, in order and once, as in text."""
    source, target = on_host(edge_index)
    return bool((target == source + 1).all()) and bool((source[1:] > source[:-1]).all())


def on_host(tensor: Tensor) -> Any:
    """A tensor's numbers for a look at them: on the CPU as a numpy array, which is quicker at a few."""
    return tensor.detach().numpy() if tensor.device.type == "cpu" else tensor.detach()


def is_sorted(numbers: Tensor) -> bool:
    """Whether numbers [n] never fall: the nodes of a batch stand graph after graph."""
    values = on_host(numbers)
    return bool((values[1:] >= values[:-1]).all())


def is_integer(tensor: Tensor) -> bool:
    """Whether a tensor holds whole numbers; bool does not count."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def is_acyclic(edge_index: Tensor, num_nodes: int) -> bool:
    """Whether the directed graph has no cycle (a self-loop is one). Linear time; on the host."""
    source, target = _edges(edge_index, num_nodes)
    if (source < target).all():
        return True
    if (source == target).any():
        return False
    adjacency = csr_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(num_nodes, num_nodes))
    components: int = connected_components(adjacency, directed=True, connection="strong", return_labels=False)
    return components == num_nodes


def levels(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Per node, the number of edges on the longest path that ends in it, int64 [n]: 0 for a node without predecessors.

    Linear time. Chains whose nodes are numbered along them, such as text, take a few vector operations; other DAGs are
    walked on the host.
    """
    source, target = _edges(edge_index, num_nodes)
    if is_chain(edge_index):
        starts = np.ones(num_nodes, dtype=bool)
        starts[target] = False
        node = np.arange(num_nodes)
        level = node - np.maximum.accumulate(np.where(starts, node, 0))
    else:
        level = _walked_levels(source, target, num_nodes)
    return torch.from_numpy(level).to(edge_index.device)


def topological_order(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The nodes in an order in which every edge points forward, int64 [n].

    It is the order of the node numbers where that already has the property, otherwise by `levels`, ties by number; so
    it never depends on the order of the edges. Linear time; on the host.
    """
    source, target = _edges(edge_index, num_nodes)
    if (source < target).all():
        return torch.arange(num_nodes, device=edge_index.device)
    return levels(edge_index, num_nodes).argsort(stable=True)


def breadth_first(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The nodes component after component, each breadth first from one end: neighbours stand near by. int64 [n].

    Edges count both ways. The end is a node farthest from the component's first one, as in the order of Cuthill and
    McKee (1969), which this is but for ties: they go by number. Turned round at last, so that a path keeps the numbers
    it has along itself. Linear time; on the host.
    """
    both_ways = _both_ways(edge_index, num_nodes)
    component = connected_components(both_ways, directed=False)[1]
    begin = first = np.unique(component, return_index=True)[1]
    for _ in range(2):
        # One more node, from which an edge leads to where each search begins, makes one search of all.
        start = csr_array((np.ones(begin.size, dtype=np.int8), (np.zeros_like(begin), begin)), shape=(1, num_nodes))
        whole = hstack([vstack([both_ways, start]), csr_array((num_nodes + 1, 1), dtype=np.int8)], format="csr")
        order = breadth_first_order(whole, num_nodes, return_predecessors=False)[1:]
        begin = np.empty_like(first)
        begin[component[order]] = order  # the last one of each
    order = order[::-1]
    order = order[first[component[order]].argsort(kind="stable")]
    return torch.from_numpy(order.astype(np.int64)).to(edge_index.device)


def near_pairs(edge_index: Tensor, num_nodes: int, hops: int) -> Tensor:
    """The pairs of nodes from 1 to `hops` edges apart, whichever way these point: int64 [2, p], each both ways, sorted.

    On the host, in time and memory of the walks of that length.
    """
    step, near = _both_ways(edge_index, num_nodes).astype(bool), eye_array(num_nodes, dtype=bool, format="csr")
    for _ in range(hops):
        near = near + near @ step
    near.sort_indices()
    first, second = near.tocoo().coords
    pairs = torch.from_numpy(np.stack([first, second]).astype(np.int64))
    return pairs[:, pairs[0] != pairs[1]].to(edge_index.device)


def _both_ways(edge_index: Tensor, num_nodes: int) -> Any:
    """Who is linked with whom: a scipy matrix [n, n], its columns sorted."""
    source, target = _edges(edge_index, num_nodes)
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    matrix = csr_array((np.ones(2 * source.size, dtype=np.int8), ends), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()  # sorts, too
    matrix.data[:] = 1
    return matrix


def _walked_levels(source: Integers, target: Integers, num_nodes: int) -> Integers:
    """Levels by Kahn's algorithm: a node is done when all its predecessors are."""
    successors = target[np.argsort(source, kind="stable")].tolist()
    first = offsets(np.bincount(source, minlength=num_nodes)).tolist()
    waiting = np.bincount(target, minlength=num_nodes)
    queue: list[int] = np.flatnonzero(waiting == 0).tolist()
    missing: list[int] = waiting.tolist()
    level = [0] * num_nodes
    for node in queue:  # grows while we walk it
        below = level[node] + 1
        for successor in successors[first[node] : first[node + 1]]:
            level[successor] = max(level[successor], below)
            missing[successor] -= 1
            if missing[successor] == 0:
                queue.append(successor)
    if len(queue) < num_nodes:
        stuck = next(node for node in range(num_nodes) if missing[node])
        raise ValueError(f"the graph has a cycle at or before node {stuck}, so its nodes have no topological order")
    return np.array(level, dtype=np.int64)


def _edges(edge_index: Tensor, num_nodes: int) -> tuple[Integers, Integers]:
    """The edges' sources and targets on the host, checked."""
    check_edges(edge_index, num_nodes)
    source, target = edge_index.numpy(force=True).astype(np.int64, copy=False)
    return source, target


def check_edges(edge_index: Tensor, num_nodes: int) -> None:
    """That these are edges of a graph of so many nodes."""
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or not is_integer(edge_index):
        raise ValueError(
            f"edge_index must be integers of shape [2, e], but is {edge_index.dtype} {list(edge_index.shape)}"
        )
    if edge_index.numel():
        ends = on_host(edge_index)
        least, most = int(ends.min()), int(ends.max())
        if least < 0 or most >= num_nodes:
            wrong = least if least < 0 else most
            raise ValueError(f"edge_index refers to node {wrong}, but the graph has {num_nodes} nodes")


def check_graph(
    x: object, edge_index: Tensor | None, edge_weight: Tensor | None, batch: Tensor | None, graphs: int | None = None
) -> None:
    """That these are graphs: features [n, d], edges [2, e], perhaps weights [e], perhaps the graph of each node [n]."""
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        found = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be floating point of shape [n, d], but is {found}")
    if edge_index is None:
        raise ValueError("edge_index is missing: give the edges as integers of shape [2, e]")
    same_device("edge_index", edge_index, "x", x)
    check_edges(edge_index, x.size(0))
    if edge_weight is not None:
        check_weights(edge_index, edge_weight)
        if not bool(edge_weight.isfinite().all()):
            wrong = int((~edge_weight.isfinite()).nonzero()[0, 0])
            raise ValueError(f"edge_weight must be finite, but is {float(edge_weight[wrong])} at edge {wrong}")
    if batch is None:
        return
    same_device("batch", batch, "x", x)
    if batch.shape != x.shape[:1] or not is_integer(batch):
        raise ValueError(
            f"batch must be one integer per node, but is {batch.dtype} {list(batch.shape)} for {x.size(0)} nodes"
        )
    owner, ends = on_host(batch), on_host(edge_index.long())
    if batch.numel() and int(owner.min()) < 0:
        raise ValueError(f"batch must not be negative, but a node is in graph {int(owner.min())}: graphs begin with 0")
    if batch.numel() and graphs is not None and int(owner.max()) >= graphs:
        raise ValueError(f"batch says that a node is in graph {int(owner.max())}, but there are {graphs}, from 0 on")
    if bool((owner[ends[0]] != owner[ends[1]]).any()):
        raise ValueError("an edge leads from one graph of the batch to another: graphs do not mix")


def check_weights(edge_index: Tensor, edge_weight: Tensor) -> None:
    """That there is a weight for each edge."""
    same_device("edge_weight", edge_weight, "edge_index", edge_index)
    if edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"edge_weight has shape {list(edge_weight.shape)}, but there are {edge_index.size(1)} edges: it is [e]"
        )


def check_types(edge_index: Tensor, edge_type: Tensor) -> None:
    """That there is a type for each edge."""
    same_device("edge_type", edge_type, "edge_index", edge_index)
    if edge_type.shape != edge_index.shape[1:] or not is_integer(edge_type):
        raise ValueError(
            f"edge_type must be one integer per edge, but is {edge_type.dtype} {list(edge_type.shape)} "
            f"for {edge_index.size(1)} edges"
        )


def same_device(name: str, tensor: Tensor, other: str, reference: Tensor) -> None:
    """That a tensor is where the `reference` called `other` is."""
    if tensor.device != reference.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but {other} is on {reference.device}: move one of them with .to()"
        )


def check_counts(least: int = 1, **counts: int) -> None:
    """That settings which count something are whole numbers, not too small."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, but is {count!r}")


def offsets(count: Integers) -> Integers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count)])
