"""Training examples: pairs as integers, what they ask of a network, and batches of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from torch_geometric.data import Data

from grapheme_nn.dag import Integers
from grapheme_nn.data import Graph, Pair
from grapheme_nn.graph import Unit, name_identities, units_of
from grapheme_nn.graph_data import Encoded, collate, encode
from grapheme_nn.objective import Objective

# Code points of a private area that no text uses: what stands for a character never seen.
_UNSEEN = (0xF0000, 0xFFFFD)


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs as integers: each input and target, and its features."""

    inputs: list[Encoded]
    targets: list[Encoded]
    features: list[Integers] | None

    @classmethod
    def of(cls, pairs: Sequence[Pair], input_unit: Unit, target_unit: Unit, *, with_features: bool) -> "Examples":
        named = [np.array(name_identities(pair.features), dtype=np.int64) for pair in pairs] if with_features else None
        inputs = encode([pair.input for pair in pairs], input_unit)
        return cls(inputs, encode([pair.target for pair in pairs], target_unit), named)

    @cached_property
    def lengths(self) -> list[int]:
        """How much each example costs: batches shall be alike in it."""
        return [max(2 * a.x.size, b.x.size) for a, b in zip(self.inputs, self.targets, strict=True)]

    def needed_parts(self, objective: Objective) -> Integers:
        """Into how many parts each input must be split to become its target, int64 [examples]."""
        slots = np.array([objective.needed_slots(target.x) for target in self.targets], dtype=np.int64)
        nodes = np.array([row.x.size for row in self.inputs], dtype=np.int64)
        return np.where(nodes > 0, -(-slots // np.maximum(nodes, 1)), np.where(slots > 0, np.iinfo(np.int64).max, 1))

    def copied_share(self) -> float:
        """The mean share of target units that are in the input: near 1 where the task is one of copying."""
        shares = [float(np.isin(b.x, a.x).mean()) for a, b in zip(self.inputs, self.targets, strict=True) if b.x.size]
        return sum(shares) / max(len(shares), 1)

    def batch(self, rows: Sequence[int], *, unseen: float = 0.0, random: Random | None = None) -> tuple[Data, Data]:
        """The inputs and the targets of these rows.

        In a share `unseen` of them, chosen by `random`, one character that input and target have in common becomes one
        never seen, so that copying it is the only way to spell it.
        """
        inputs, targets = [self.inputs[row] for row in rows], [self.targets[row] for row in rows]
        for at in range(len(rows)) if random is not None and unseen > 0 else ():
            assert random is not None
            if random.random() < unseen:
                shared = np.intersect1d(inputs[at].x, targets[at].x)
                if shared.size:
                    old, new = shared[random.randrange(shared.size)], random.randint(*_UNSEEN)
                    for sides in (inputs, targets):
                        sides[at] = sides[at]._replace(x=np.where(sides[at].x == old, new, sides[at].x))
        features = None if self.features is None else [self.features[row] for row in rows]
        return collate(inputs, features), collate(targets)


def choose_parts(needed: Integers, share: float = 0.995) -> int:
    """The smallest number of parts that is enough for this share of the examples, at least 1."""
    if not needed.size:
        return 1
    ordered = np.sort(needed)
    return max(1, int(ordered[int(np.ceil(share * ordered.size)) - 1]))


def labels_in(sides: Iterable[str | Graph], unit: Unit) -> tuple[str, ...]:
    """The units, or labels, of all inputs or all targets, in order."""
    return tuple(
        sorted({part for side in sides for part in (side.nodes if isinstance(side, Graph) else units_of(side, unit))})
    )


def edge_types_in(graphs: Iterable[str | Graph]) -> tuple[int | str, ...]:
    """The types of all edges: numbers first, in order, and one at least where there are graphs."""
    found = [graph for graph in graphs if isinstance(graph, Graph)]
    types = {edge[2] for graph in found for edge in graph.edges} or ({0} if found else set())
    return tuple(sorted(types, key=lambda kind: (isinstance(kind, str), kind)))


def edges_in(targets: Iterable[str | Graph], *, from_text: bool) -> str:
    """What the edges of targets are like, one of `EDGE_KINDS`: how many of a type may lead to a node, or leave one."""
    operands = consumer = True
    for graph in targets:
        if isinstance(graph, Graph):
            if not graph.directed:
                return "undirected"
            operands = operands and len({edge[1:] for edge in graph.edges}) == len(graph.edges)
            consumer = consumer and len({edge[0] for edge in graph.edges}) == len(graph.edges)
    if consumer and (from_text or not operands):
        return "consumer"
    return "operands" if operands else "independent"


def features_in(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """All features, in order."""
    return tuple(sorted({feature for pair in pairs for feature in pair.features}))
