"""Which of the accepted pairs may merge, so that a merged DAG is a DAG.

Clusters are the connected components of accepted pairs. Where the quotient graph has a cycle, the least similar pair
inside that strongly connected component is refused, and so on until there is none. Done as told, this takes a search
for cycles per refused pair. It need not be done as told:

- Only the pairs of the strongest spanning forest count; refusing another pair changes no cluster.
- Let time run from the strongest pair of the forest (time 1) to the weakest, C_t be the clusters of the pairs up to
  time t, Q_t the strong components of the graph with those pairs as edges both ways. Both only grow with t, and C_t is
  finer than Q_t. Refusing stops for a component as soon as it is a single cluster: at the last time t at which
  Q_t = C_t around it. So a pair stays exactly if at its own time, or at a later time at which its cluster grew, that
  cluster was a strong component of its own.
- The sizes of C_t and Q_t around every pair at its time are found together, by bisection over all times at once, each
  step one call of a linear-time search for components.

In all O((n + e) log^2 n), on the host.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from grapheme_nn.dag import Integers

Booleans: TypeAlias = NDArray[np.bool_]
Pairs: TypeAlias = Integers  # [2, c]


def acyclic_clusters(
    edges: Pairs, pairs: Pairs, accepted: Booleans, order: Integers, num_nodes: int
) -> tuple[Integers, Booleans]:
    """The cluster of each node [n], numbered by their first node, and the accepted pairs of the forest refused, [c].

    The edges are those of a DAG, `pairs` [2, c] are distinct; `order` int64 [c] says when each would be refused, the
    smallest first.
    """
    chosen = np.flatnonzero(accepted)
    refused = np.zeros(accepted.size, dtype=bool)
    cluster = _components(pairs[:, chosen], num_nodes, "weak")
    component = _components(cluster[edges], num_nodes, "strong")[cluster]  # per node
    cyclic = np.bincount(component[np.unique(cluster, return_index=True)[1]], minlength=num_nodes) > 1
    if cyclic.any():
        forest = chosen[spanning_forest(pairs[:, chosen], order[chosen], num_nodes)]
        inside = cyclic[component[pairs[0, forest]]]
        near, far = edges
        doubtful = (component[near] == component[far]) & cyclic[component[near]]
        stays = _staying(edges[:, doubtful], pairs[:, forest[inside]], order[forest[inside]], num_nodes)
        refused[forest[inside][~stays]] = True
        cluster = _components(pairs[:, forest[~refused[forest]]], num_nodes, "weak")
    _, first, number = np.unique(cluster, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number], refused


def spanning_forest(pairs: Pairs, order: Integers, num_nodes: int) -> Integers:
    """The pairs of the spanning forest that prefers a higher `order`, int64 [at most n - 1]."""
    cost = order.max(initial=0) - order + 1
    tree = minimum_spanning_tree(coo_array((cost.astype(np.float64), tuple(pairs)), shape=(num_nodes, num_nodes)))
    by_cost = np.argsort(cost)
    return by_cost[np.searchsorted(cost, tree.data.astype(np.int64), sorter=by_cost)]  # type: ignore[no-any-return]


def rooted(pairs: Pairs, num_nodes: int) -> tuple[Integers, Integers]:
    """A forest of pairs hung up by the first node of each tree: each node's parent and the pair that leads there, [n].

    Both are -1 for a root.
    """
    tree = _components(pairs, num_nodes, "weak")
    root = np.unique(tree, return_index=True)[1]
    # One more node above all roots makes one tree of them, so that one search finds all parents.
    ends = np.concatenate([pairs, np.stack([np.full_like(root, num_nodes), root])], axis=1)
    matrix = coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(num_nodes + 1, num_nodes + 1)).tocsr()
    _, parent = breadth_first_order(matrix, num_nodes, directed=False, return_predecessors=True)
    parent = parent[:num_nodes].astype(np.int64)
    pair = np.full(num_nodes, -1)
    near, far = pairs
    pair[np.where(parent[far] == near, far, near)] = np.arange(pairs.shape[1])
    return np.where(parent == num_nodes, -1, parent), pair


def _staying(edges: Pairs, forest: Pairs, order: Integers, num_nodes: int) -> Booleans:
    """Whether each pair of the forest stays; every one of them lies in a cyclic component."""
    count = order.size
    time = np.empty(count, dtype=np.int64)
    time[np.argsort(-order)] = np.arange(1, count + 1)
    ends, both_times = np.concatenate(forest), np.concatenate([time, time])
    both_ways = np.concatenate([edges, forest, forest[::-1]], axis=1)
    appears = np.concatenate([np.zeros(edges.shape[1], dtype=np.int64), both_times])
    strong_size, _ = _around(both_ways, appears, ends, both_times, num_nodes, "strong")
    weak_size, weak_last = _around(forest, time, ends, both_times, num_nodes, "weak")
    alone = np.zeros(count + 2, dtype=bool)  # by time: the cluster is a strong component of its own; [count + 1]: never
    alone[time] = (strong_size == weak_size)[:count]
    grown_at = np.full(count + 2, count + 1)  # by time: when the cluster formed then grew next
    has_past = weak_last > 0
    grown_at[weak_last[has_past]] = both_times[has_past]
    for _ in range(count.bit_length()):
        alone |= alone[grown_at]
        grown_at = grown_at[grown_at]
    return alone[time]


def _around(
    edges: Pairs, appears: Integers, node: Integers, at: Integers, num_nodes: int, kind: Literal["strong", "weak"]
) -> tuple[Integers, Integers]:
    """For each question (node, at), the component of the node in the graph of the edges that appear by that time.

    Its number of nodes then, and the time of the last pair that it was made of just before, 0 for a single node.

    Bisection over time for all edges and questions at once. Each has an interval (low, high] of times; an edge's is
    that in which its ends come into one component, a question's that in which its time lies. What was one component at
    `low` has been contracted to one node. Nodes of different intervals have different numbers, so that one search for
    components serves all intervals.
    """
    near, far = edges
    size, last = np.ones(num_nodes, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64)
    high = np.full(near.size + node.size, int(at.max(initial=1)))
    low = np.zeros_like(high)
    is_edge = np.arange(high.size) < near.size
    time = np.concatenate([appears, at])
    a, b = np.concatenate([near, node]), np.concatenate([far, node])
    while (high - low).max() > 1:
        middle = (low + high) // 2
        present = is_edge & (time <= middle)
        component = _components(np.stack([a[present], b[present]]), size.size, kind)
        earlier = np.where(is_edge, component[a] == component[b], time <= middle)
        united_size = np.bincount(component, weights=size).astype(np.int64)
        united_last = np.zeros(united_size.size, dtype=np.int64)
        np.maximum.at(united_last, component, last)
        joined = present & earlier
        np.maximum.at(united_last, component[a[joined]], time[joined])
        # Earlier: nodes as they were. Later: contracted, numbered behind them. Then the numbers in use close ranks.
        a, b = (np.where(earlier, end, size.size + component[end]) for end in (a, b))
        size, last = np.concatenate([size, united_size]), np.concatenate([last, united_last])
        used, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b = np.split(ends, 2)
        size, last = size[used], last[used]
        low, high = np.where(earlier, low, middle), np.where(earlier, middle, high)
    present = is_edge & (time <= high)
    component = _components(np.stack([a[present], b[present]]), size.size, kind)
    total = np.bincount(component, weights=size).astype(np.int64)
    question = a[~is_edge]
    return total[component[question]], last[question]


def _components(edges: Pairs, num_nodes: int, kind: Literal["strong", "weak"]) -> Integers:
    """The component of each node, [n]."""
    matrix = coo_array((np.ones(edges.shape[1], dtype=np.int8), tuple(edges)), shape=(num_nodes, num_nodes))
    return connected_components(matrix.tocsr(), connection=kind)[1].astype(np.int64)  # type: ignore[no-any-return]
