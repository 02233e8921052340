"""Evaluation of predicted texts and graphs: exact match, error rates, edit similarity, confusions, structural loss.

Of texts, everything is counted in units of the target (see `graph`): with `decomposed`, texts that are canonically
equivalent are the same text. Of graphs, in nodes and edges under a matching of their nodes (see `graph_matching`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeGuard, overload

from rapidfuzz.distance import Levenshtein
from torch_geometric.data import Data

from grapheme_nn.data.graphs import Graph
from grapheme_nn.graph import UNITS, Unit, texts_to_batch, units_of
from grapheme_nn.graph_data import collate, encode
from grapheme_nn.graph_matching import match_nodes
from grapheme_nn.loss import StructuralLoss
from grapheme_nn.rewrites import wrong_rewrites

# How many entries the plans of one batch of graphs may have: some 16 MB of floats.
MOST_ENTRIES = 2**22


class Confusion(NamedTuple):
    """A unit of the target, what stood in its place, and how often. None is nothing: missing, or too much.

    Of graphs, a unit is a node with its operands, such as `*(x, 1)`.
    """

    target: str | None
    predicted: str | None
    times: int


class Evaluation(NamedTuple):
    """All figures of one set of predictions. An edit inserts, deletes or replaces one unit."""

    exact_match: float  # the share of predictions that are the target, unit for unit
    pairs: int
    word_error_rate: float  # 1 - exact match
    symbol_error_rate: float  # edits / units of all targets, at least 1: it may exceed 1
    similarity: float  # the mean of 1 - edits / units of the longer text: 1 for the target, 0 where no unit is right
    structural_loss: float


class GraphEvaluation(NamedTuple):
    """All figures of one set of predicted graphs: those of texts, then those that only graphs have."""

    exact_match: float  # share of graphs that are isomorphic to their target
    pairs: int
    word_error_rate: float  # 1 - exact match
    symbol_error_rate: float  # edits per node and edge of all targets
    similarity: float  # mean of 1 - edits / nodes and edges of the larger graph, and not below 0
    structural_loss: float  # of labels, edges and their types
    node_f1: float  # of nodes with the right label, over all graphs together
    edge_f1: float  # of edges with the right type between the right nodes, over all graphs together
    edit_distance: float  # mean edits a graph: an upper bound of the graph edit distance


@overload
def evaluate(predicted: Sequence[str], targets: Sequence[str], unit: Unit = "codepoint") -> Evaluation: ...


@overload
def evaluate(predicted: Sequence[Graph], targets: Sequence[Graph], unit: Any = None) -> GraphEvaluation: ...


def evaluate(
    predicted: Sequence[str] | Sequence[Graph], targets: Sequence[str] | Sequence[Graph], unit: Any = "codepoint"
) -> Evaluation | GraphEvaluation:
    """All figures at once; which ones, what is evaluated tells. Graphs have no unit."""
    if _are_graphs(targets) and _are_graphs(predicted):
        return evaluate_graphs(predicted, targets)
    if _are_graphs(targets) or _are_graphs(predicted):
        raise ValueError("texts cannot be evaluated against graphs: give predictions and targets of one kind")
    return _evaluate_texts(predicted, targets, unit)  # type: ignore[arg-type]


def evaluate_graphs(predicted: Sequence[Graph], targets: Sequence[Graph]) -> GraphEvaluation:
    """All figures of predicted graphs, each matched with its target node by node as `match_nodes` does."""
    _check_count(predicted, targets)
    found = [match_nodes(given, wanted) for given, wanted in zip(predicted, targets, strict=True)]
    exact = sum(matching.edits == 0 for matching in found) / len(found)
    edits = sum(matching.edits for matching in found)
    sizes = [
        max(len(given.nodes), len(wanted.nodes)) + max(len(given.edges), len(wanted.edges))
        for given, wanted in zip(predicted, targets, strict=True)
    ]
    nodes = [sum(len(graph.nodes) for graph in graphs) for graphs in (predicted, targets)]
    edges = [sum(len(graph.edges) for graph in graphs) for graphs in (predicted, targets)]
    alike = sum(max(0.0, 1 - match.edits / max(size, 1)) for match, size in zip(found, sizes, strict=True))
    return GraphEvaluation(
        pairs=len(found),
        exact_match=exact,
        word_error_rate=1 - exact,
        symbol_error_rate=edits / max(nodes[1] + edges[1], 1),
        similarity=alike / len(found),
        structural_loss=_graph_structural_loss(predicted, targets),
        node_f1=_f1(sum(matching.right_nodes for matching in found), *nodes),
        edge_f1=_f1(sum(matching.right_edges for matching in found), *edges),
        edit_distance=edits / len(found),
    )


def _evaluate_texts(predicted: Sequence[str], targets: Sequence[str], unit: Unit) -> Evaluation:
    pairs = _unit_pairs(predicted, targets, unit)
    edits = [Levenshtein.distance(*_numbered(*pair)) for pair in pairs]
    wrong = sum(given != wanted for given, wanted in pairs)
    shares = (1 - edit / max(*map(len, pair), 1) for edit, pair in zip(edits, pairs, strict=True))
    return Evaluation(
        pairs=len(pairs),
        exact_match=(len(pairs) - wrong) / len(pairs),
        word_error_rate=wrong / len(pairs),
        symbol_error_rate=sum(edits) / max(sum(len(wanted) for _, wanted in pairs), 1),
        similarity=sum(shares) / len(pairs),
        structural_loss=structural_loss(predicted, targets, unit),
    )


def confusions(
    predicted: Sequence[str] | Sequence[Graph], targets: Sequence[str] | Sequence[Graph], unit: Any = "codepoint"
) -> list[Confusion]:
    """Which unit came in place of which, the commonest first, then in alphabetical order.

    Of a wrong graph it is one: the smallest node with its operands that it lacks, as `wrong_rewrites` says.
    """
    counts: Counter[tuple[str | None, str | None]] = Counter()
    if _are_graphs(predicted) and _are_graphs(targets):
        _check_count(predicted, targets)
        counts.update(wrong_rewrites(predicted, targets))
    else:
        for given, wanted in _unit_pairs(predicted, targets, unit):  # type: ignore[arg-type]
            if given != wanted:
                counts.update((there, here) for here, there in align(given, wanted) if here != there)
    # Nothing comes before every unit, even an empty one.
    order = sorted(counts.items(), key=lambda item: (-item[1], [(part is not None, part or "") for part in item[0]]))
    return [Confusion(wanted, given, count) for (wanted, given), count in order]


def structural_loss(predicted: Sequence[str], targets: Sequence[str], unit: Unit = "codepoint") -> float:
    """The mean `StructuralLoss` between the graphs of predictions and targets."""
    longest = [max(map(len, pair)) + 1 for pair in _unit_pairs(predicted, targets, unit)]
    return _mean_loss(
        longest, lambda chosen: [texts_to_batch([texts[row] for row in chosen], unit) for texts in (predicted, targets)]
    )


def _graph_structural_loss(predicted: Sequence[Graph], targets: Sequence[Graph]) -> float:
    """The mean `StructuralLoss` between graphs, types of edges included."""
    longest = [max(len(given.nodes), len(wanted.nodes)) + 1 for given, wanted in zip(predicted, targets, strict=True)]
    sides = encode(predicted, "graph"), encode(targets, "graph")
    return _mean_loss(longest, lambda chosen: [collate([side[row] for row in chosen]) for side in sides])


def _mean_loss(longest: Sequence[int], batches: Callable[[list[int]], list[Data]]) -> float:
    """The mean loss of pairs of graphs, of which the larger one has so many nodes less 1, in batches of rows."""
    loss = StructuralLoss()
    order = sorted(range(len(longest)), key=longest.__getitem__)
    total, start = 0.0, 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * longest[order[start + size]] ** 2 <= MOST_ENTRIES:
            size += 1
        chosen = order[start : start + size]
        total += float(loss(*batches(chosen)).total.sum())
        start += size
    return max(total, 0.0) / len(longest)  # of graphs that are the same, rounding is all there is


def align(predicted: Sequence[str], target: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """The units of both, side by side in order, with the fewest edits; None where one of them has no partner.

    Of several such ways it is always the same one, that of rapidfuzz: what both begin and end with is paired, and
    "ab" becomes "ba" by inserting and deleting a b, not by replacing both letters.
    """
    steps = Levenshtein.opcodes(*_numbered(predicted, target))
    parts = ((predicted[step.src_start : step.src_end], target[step.dest_start : step.dest_end]) for step in steps)
    return [pair for here, there in parts for pair in zip_longest(here, there)]


def _numbered(*texts: Sequence[str]) -> list[list[int]]:
    """The units as numbers, equal for equal units: rapidfuzz compares hashes, and "" has that of a NUL."""
    number: dict[str, int] = {}
    return [[number.setdefault(unit, len(number)) for unit in text] for text in texts]


def _unit_pairs(predicted: Sequence[str], targets: Sequence[str], unit: Unit) -> list[tuple[list[str], list[str]]]:
    if unit not in UNITS:
        raise ValueError(f"unknown unit {unit!r}: choose one of {', '.join(UNITS)}")
    if _are_graphs(predicted) or _are_graphs(targets):
        raise ValueError("this is a figure of texts, but some are graphs: use evaluate, confusions or is_isomorphic")
    _check_count(predicted, targets)
    return [(units_of(given, unit), units_of(wanted, unit)) for given, wanted in zip(predicted, targets, strict=True)]


def _are_graphs(sides: Sequence[str] | Sequence[Graph]) -> TypeGuard[Sequence[Graph]]:
    return len(sides) > 0 and isinstance(sides[0], Graph)


def _f1(right: int, predicted: int, targets: int) -> float:
    """The harmonic mean of precision and recall; 1 where there is nothing to find and nothing was found."""
    return 2 * right / (predicted + targets) if predicted + targets else 1.0


def _check_count(predicted: Sequence[object], targets: Sequence[object]) -> None:
    if len(predicted) != len(targets):
        raise ValueError(f"there are {len(predicted)} predictions for {len(targets)} targets: give one for each")
    if not targets:
        raise ValueError("there is nothing to evaluate: give at least one prediction and its target")
