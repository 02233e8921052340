"""Evaluation of predicted texts: exact match, error rates, edit similarity, confusions, structural loss.

Everything is counted in units of the target (see `graph`): with `decomposed`, texts that are canonically equivalent are
the same text.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from grapheme_nn.graph import UNITS, Unit, texts_to_batch, units_of
from grapheme_nn.loss import StructuralLoss

# How many entries the plans of one batch of graphs may have: some 16 MB of floats.
MOST_ENTRIES = 2**22


class Confusion(NamedTuple):
    """A unit of the target, what stood in its place, and how often. None is nothing: missing, or too much."""

    target: str | None
    predicted: str | None
    times: int


class Evaluation(NamedTuple):
    """All figures of one set of predictions. An edit inserts, deletes or replaces one unit."""

    pairs: int
    exact_match: float  # the share of predictions that are the target, unit for unit
    word_error_rate: float  # 1 - exact match
    symbol_error_rate: float  # edits / units of all targets, at least 1: it may exceed 1
    similarity: float  # the mean of 1 - edits / units of the longer text: 1 for the target, 0 where no unit is right
    structural_loss: float


def evaluate(predicted: Sequence[str], targets: Sequence[str], unit: Unit = "codepoint") -> Evaluation:
    """All figures at once."""
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


def confusions(predicted: Sequence[str], targets: Sequence[str], unit: Unit = "codepoint") -> list[Confusion]:
    """Which unit came in place of which, the commonest first, then in alphabetical order."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for given, wanted in _unit_pairs(predicted, targets, unit):
        if given != wanted:
            counts.update((there, here) for here, there in align(given, wanted) if here != there)
    # Nothing comes before every unit, even an empty one.
    order = sorted(counts.items(), key=lambda item: (-item[1], [(part is not None, part or "") for part in item[0]]))
    return [Confusion(wanted, given, count) for (wanted, given), count in order]


def structural_loss(predicted: Sequence[str], targets: Sequence[str], unit: Unit = "codepoint") -> float:
    """The mean `StructuralLoss` between the graphs of predictions and targets."""
    longest = [max(map(len, pair)) + 1 for pair in _unit_pairs(predicted, targets, unit)]
    loss = StructuralLoss()
    order = sorted(range(len(targets)), key=longest.__getitem__)
    total, start = 0.0, 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * longest[order[start + size]] ** 2 <= MOST_ENTRIES:
            size += 1
        chosen = order[start : start + size]
        graphs = (texts_to_batch([texts[index] for index in chosen], unit) for texts in (predicted, targets))
        total += float(loss(*graphs).total.sum())
        start += size
    return max(total, 0.0) / len(targets)  # of graphs that are the same, rounding is all there is


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
    if len(predicted) != len(targets):
        raise ValueError(f"there are {len(predicted)} predictions for {len(targets)} targets: give one for each")
    if not targets:
        raise ValueError("there is nothing to evaluate: give at least one prediction and its target")
    return [(units_of(given, unit), units_of(wanted, unit)) for given, wanted in zip(predicted, targets, strict=True)]
