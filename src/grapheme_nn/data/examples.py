"""Training examples: pairs as integers, what they ask of a network, and batches of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from torch_geometric.data import Data

from grapheme_nn.data import Pair
from grapheme_nn.graph import Integers, Unit, chains, identities, name_identities, units_of
from grapheme_nn.objective import Objective

# Code points of a private area that no text uses: what stands for a character never seen.
_UNSEEN = (0xF0000, 0xFFFFD)


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs as identities: of the units of each input and target, and of its features."""

    inputs: list[Integers]
    targets: list[Integers]
    features: list[Integers] | None

    @classmethod
    def of(cls, pairs: Sequence[Pair], input_unit: Unit, target_unit: Unit, *, with_features: bool) -> "Examples":
        named = [np.array(name_identities(pair.features), dtype=np.int64) for pair in pairs] if with_features else None
        inputs = identities([pair.input for pair in pairs], input_unit)
        return cls(inputs, identities([pair.target for pair in pairs], target_unit), named)

    @cached_property
    def lengths(self) -> list[int]:
        """How much each example costs: batches shall be alike in it."""
        return [max(2 * a.size, b.size) for a, b in zip(self.inputs, self.targets, strict=True)]

    def needed_parts(self, objective: Objective) -> Integers:
        """Into how many parts each input must be split to become its target, int64 [examples]."""
        slots = np.array([objective.needed_slots(target) for target in self.targets], dtype=np.int64)
        nodes = np.array([row.size for row in self.inputs], dtype=np.int64)
        return np.where(nodes > 0, -(-slots // np.maximum(nodes, 1)), np.where(slots > 0, np.iinfo(np.int64).max, 1))

    def copied_share(self) -> float:
        """The mean share of target units that are in the input: near 1 where the task is one of copying."""
        shares = [float(np.isin(b, a).mean()) for a, b in zip(self.inputs, self.targets, strict=True) if b.size]
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
                shared = np.intersect1d(inputs[at], targets[at])
                if shared.size:
                    old, new = shared[random.randrange(shared.size)], random.randint(*_UNSEEN)
                    inputs[at] = np.where(inputs[at] == old, new, inputs[at])
                    targets[at] = np.where(targets[at] == old, new, targets[at])
        features = None if self.features is None else [self.features[row] for row in rows]
        return chains(inputs, features), chains(targets)


def choose_parts(needed: Integers, share: float = 0.995) -> int:
    """The smallest number of parts that is enough for this share of the examples, at least 1."""
    if not needed.size:
        return 1
    ordered = np.sort(needed)
    return max(1, int(ordered[int(np.ceil(share * ordered.size)) - 1]))


def labels_in(pairs: Sequence[Pair], unit: Unit) -> tuple[str, ...]:
    """The units of all targets, in order."""
    return tuple(sorted({part for pair in pairs for part in units_of(pair.target, unit)}))


def features_in(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """All features, in order."""
    return tuple(sorted({feature for pair in pairs for feature in pair.features}))
