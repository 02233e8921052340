"""Node matching between a predicted and a target graph, and what it takes to turn one into the other.

For isomorphic graphs the matching is an isomorphism, so all is right and there are no edits. Otherwise the edits under
it are an upper bound of the graph edit distance, which is NP-hard: a first matching by equal labels and neighbourhoods
(bipartite graph matching, Riesen and Bunke, 2009) is improved by assignments that count the edges which the last one
keeps, the Frank-Wolfe steps of the quadratic assignment problem (Bougleux et al., 2017); the best one is taken.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from grapheme_nn.data.graphs import Graph
from grapheme_nn.isomorphism import Neighbours, isomorphism, union

RADIUS = 4  # how far around a node a neighbourhood reaches
STEPS = 6
# Above this many pairs of nodes, those with equal neighbourhoods are matched in the order of their numbers.
MOST_PAIRS = 2**20


class Matching(NamedTuple):
    """Which node of the target each predicted node stands for, and what is right under that."""

    images: tuple[int | None, ...]  # for each predicted node; None: there is one too many
    right_nodes: int  # with the label of their image
    right_edges: int  # with the type of an edge between the images of their ends
    edits: int  # nodes and edges to insert, to delete, or to give another label or type


def match_nodes(predicted: Graph, target: Graph) -> Matching:
    """A matching of as many nodes as the smaller graph has, with few edits; see above."""
    exact = isomorphism(predicted, target)
    if exact is not None:
        return judge(predicted, target, exact)
    neighbours, labels = union(predicted, target)
    count = len(predicted.nodes)
    views = _views(neighbours, labels)
    if count * len(target.nodes) > MOST_PAIRS:
        return judge(predicted, target, _by_equal_views(views, count))
    # An equal label is worth one edit, an edge that is kept two; neighbourhoods only tell between what costs the same.
    alike = np.equal.outer(labels[:count], labels[count:]).astype(np.float64)
    for view in views[1:]:
        alike += np.equal.outer(view[:count], view[count:]) / (2 * len(views))
    # A kept edge has two ends, and where nothing is matched yet, each of them may hope for its half.
    gain, best = alike + _common_edges(neighbours, labels, alike.shape), None
    for _ in range(STEPS):
        found = _assignment(gain)
        matching = judge(predicted, target, found)
        if best is not None and matching.edits >= best.edits:
            break
        best = matching
        gain = alike + 2 * _kept_edges(neighbours, found, alike.shape)
    assert best is not None
    return best


def judge(predicted: Graph, target: Graph, images: list[int] | list[int | None]) -> Matching:
    """What is right under this matching, and the edits that are left."""
    directed = predicted.directed or target.directed
    right_nodes = sum(
        image is not None and label == target.nodes[image] for label, image in zip(predicted.nodes, images, strict=True)
    )
    # Types between two nodes of the target, for the edges of both; None is a node that is not there.
    given: defaultdict[tuple[int | None, int | None], Counter[int | str]] = defaultdict(Counter)
    wanted: defaultdict[tuple[int | None, int | None], Counter[int | str]] = defaultdict(Counter)
    for source, target_of, kind in predicted.edges:
        ends = images[source], images[target_of]
        if not directed and None not in ends:
            ends = min(ends), max(ends)  # type: ignore[type-var]
        given[ends][kind] += 1
    for source, target_of, kind in target.edges:
        wanted[(source, target_of) if directed else (min(source, target_of), max(source, target_of))][kind] += 1
    right_edges = sum((given[ends] & kinds).total() for ends, kinds in wanted.items())
    edits = max(len(predicted.nodes), len(target.nodes)) - right_nodes
    for ends in given.keys() | wanted.keys():
        here, there = given[ends], wanted[ends]
        if None in ends:
            edits += here.total()
        else:
            edits += max(here.total(), there.total()) - (here & there).total()
    return Matching(tuple(images), right_nodes, right_edges, edits)


def _views(neighbours: Neighbours, labels: list[int]) -> list[NDArray[np.int64]]:
    """Numbers that are equal for equal labels, then for equal surroundings, at growing distances.

    They look to both sides, then only to operands, then only to what the node is an operand of.
    """
    views = [np.array(labels, dtype=np.int64)]
    for sides in ((0, 1), (1,), (0,)):
        seen = labels
        for _ in range(RADIUS):
            number: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
            seen = [
                number.setdefault(
                    (own, tuple(sorted((kind, seen[at]) for at, kind in around if kind % 2 in sides))), len(number)
                )
                for own, around in zip(seen, neighbours, strict=True)
            ]
            views.append(np.array(seen, dtype=np.int64))
    return views


def _assignment(gain: NDArray[np.float64]) -> list[int | None]:
    found: list[int | None] = [None] * gain.shape[0]
    for row, column in zip(*linear_sum_assignment(gain, maximize=True), strict=True):
        found[int(row)] = int(column)
    return found


def _common_edges(neighbours: Neighbours, labels: list[int], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """How many edges two nodes have in common, by type, direction and the label at the other end, [n, m]."""
    seen: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for node, around in enumerate(neighbours):
        for at, kind in around:
            seen[kind, labels[at]][node] += 1
    common = np.zeros(shape)
    for count in seen.values():
        nodes, times = np.array(list(count)), np.array(list(count.values()))
        ours = nodes < shape[0]
        theirs = nodes[~ours] - shape[0]
        common[np.ix_(nodes[ours], theirs)] += np.minimum.outer(times[ours], times[~ours])
    return common


def _kept_edges(neighbours: Neighbours, images: list[int | None], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """How many edges a pair of nodes would keep where all others are matched as they are, [n, m]."""
    kept = np.zeros(shape)
    count = shape[0]
    for node, image in enumerate(images):
        if image is not None:
            theirs = defaultdict(list)
            for other, kind in neighbours[count + image]:
                theirs[kind].append(other - count)
            for other, kind in neighbours[node]:
                for there in theirs[kind]:
                    kept[other, there] += 1
    return kept


def _by_equal_views(views: list[NDArray[np.int64]], count: int) -> list[int | None]:
    """Nodes with equal surroundings, at falling distances, then equal labels, then what is left."""
    found: list[int | None] = [None] * count
    free = dict.fromkeys(range(views[0].size - count))
    for view in (*views[RADIUS:0:-1], views[0], np.zeros_like(views[0])):
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for place in reversed(free):
            waiting[int(view[count + place])].append(place)
        for node, image in enumerate(found):
            if image is None and waiting[int(view[node])]:
                found[node] = waiting[int(view[node])].pop()
                del free[found[node]]  # type: ignore[arg-type]
    return found
