"""Wrong rewrites: which node with its operands a predicted graph lacks, and what stands in its place."""

from collections import Counter
from collections.abc import Sequence

from grapheme_nn.data.graphs import Graph
from grapheme_nn.drawing import operands, term
from grapheme_nn.graph_matching import match_nodes

MOST_LEVELS = 4  # of operands below a node


def wrong_rewrites(predicted: Sequence[Graph], targets: Sequence[Graph]) -> list[tuple[str | None, str | None]]:
    """For each graph that is wrong, the smallest term of the target that it lacks, and what stands in its place.

    A term is a node with the labels of its operands, `*(x, 1)`; where all of them are there, they are compared with the
    operands of operands, and so on. None is nothing: there is no such node, or the predicted term is one too many.
    """
    found = []
    for given, wanted in zip(predicted, targets, strict=True):
        matching = match_nodes(given, wanted)
        if matching.edits:
            found.append(_smallest(given, wanted, matching.images))
    return found


def _smallest(given: Graph, wanted: Graph, images: Sequence[int | None]) -> tuple[str | None, str | None]:
    in_place = {image: node for node, image in enumerate(images)}
    below_given, below_wanted = _around(given), _around(wanted)
    ours, theirs = [], []
    for depth in range(1, MOST_LEVELS + 1):
        ours = [term(given, below_given, node, depth) for node in range(len(given.nodes))]
        theirs = [term(wanted, below_wanted, node, depth) for node in range(len(wanted.nodes))]
        missing = Counter(theirs) - Counter(ours)
        if missing:
            # Where a term occurs more often than it should, it is missing where another one stands.
            places = [node for node, name in enumerate(theirs) if name in missing]
            wrong = [node for node in places if node not in in_place or ours[in_place[node]] != theirs[node]] or places
            node = min(wrong, key=lambda node: (len(below_wanted[node]), len(theirs[node]), theirs[node]))
            return theirs[node], ours[in_place[node]] if node in in_place else None
        spare = Counter(ours) - Counter(theirs)
        if spare:
            # What is at the top stands in place of what should be there: `x` became `*(x, 1)`.
            tops, wanted_tops = _tops(given), _tops(wanted)
            node = min(
                (node for node, name in enumerate(ours) if name in spare),
                key=lambda node: (node not in tops, len(ours[node]), ours[node]),
            )
            return theirs[min(wanted_tops)] if node in tops and wanted_tops else None, ours[node]
    roots = [", ".join(sorted(terms, key=len)[-1:]) for terms in (theirs, ours)]
    return roots[0], roots[1]


def _tops(graph: Graph) -> set[int]:
    """Nodes that are operands of nothing."""
    return set(range(len(graph.nodes))) - {source for source, _, _ in graph.edges}


def _around(graph: Graph) -> list[list[tuple[int, int | str]]]:
    """The operands of each node; where edges have no direction, its neighbours by type and label."""
    if graph.directed:
        return operands(graph)
    both = (*graph.edges, *((target, source, kind) for source, target, kind in graph.edges))
    found = operands(graph._replace(edges=both))
    for row in found:
        row.sort(key=lambda other: (isinstance(other[1], str), other[1], graph.nodes[other[0]]))
    return found
