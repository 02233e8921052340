"""Pairs of texts or graphs, and the lines of files that say them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from grapheme_nn.data.graphs import Graph

MOST_REPORTED = 20
MOST_EMPTY = 0.01  # of the targets, before it is told


class DataError(ValueError):
    """A file of pairs cannot be used; the message says where and why, in sentences meant for the user."""


class BadLine(ValueError):
    """What is wrong with one line."""


class Pair(NamedTuple):
    """A text or a graph and what it shall become."""

    input: str | Graph
    target: str | Graph
    features: tuple[str, ...] = ()  # units as `split_features` makes them


class Line(NamedTuple):
    """A line of a file, or a row of a CSV, and what it says."""

    place: str  # `file:number`
    text: str  # as it came
    pair: Pair | None = None  # None: it is left out
    problem: str = ""  # why it is left out
    is_header: bool = False  # left out, but nothing is wrong with it
    note: str = ""  # how it and those below were understood, where that may not be meant
    row: dict[str, Any] | None = None  # of inputs, all that is there by name: the JSON object, unless it is a graph by
    # itself, or the columns below a header

    @property
    def is_bad(self) -> bool:
        """Whether nothing can be made of the line."""
        return self.pair is None and not self.is_header


class Pairs(list[Pair]):
    """The pairs of a file or a folder, in its order."""

    skipped: tuple[str, ...] = ()  # `file:line: reason` of each line that was left out: headers, and bad ones by wish
    notes: tuple[str, ...] = ()  # sentences on what was read that may not be meant so
    files: dict[str, int]  # how many pairs are from which file

    def report(self) -> str:
        """What was left out, the first lines and how many there are, and the notes; empty where there is nothing."""
        return "\n".join(filter(None, (report(self.skipped), *self.notes)))


def reasons(lines: Sequence[Line]) -> tuple[str, ...]:
    """`file:line: reason` of each line that is left out."""
    return tuple(f"{line.place}: {line.problem}" for line in lines if line.pair is None)


def notes(lines: Sequence[Line]) -> tuple[str, ...]:
    """`file:line: note` of each line that has one."""
    return tuple(f"{line.place}: {line.note}" for line in lines if line.note)


def report(problems: Sequence[str]) -> str:
    """The first of several problems, and how many there are."""
    lines = list(problems[:MOST_REPORTED])
    if len(problems) > MOST_REPORTED:
        lines.append(f"... and {len(problems) - MOST_REPORTED:,} more: {len(problems):,} lines in all")
    return "\n".join(lines)


def is_empty(side: str | Graph) -> bool:
    """Whether an input or a target is the empty text or a graph without nodes."""
    return not (side.nodes if isinstance(side, Graph) else side)


def oddities(pairs: Sequence[Pair]) -> list[str]:
    """What about the pairs as a whole may not be meant so: targets that are missing, spaces around all texts."""
    found = []
    empty = sum(is_empty(pair.target) for pair in pairs)
    if MOST_EMPTY * len(pairs) < empty < len(pairs):
        way_out = "leave those lines out if they are unknown"
        found.append(f"{empty:,} of {len(pairs):,} targets are empty and taken as such: {way_out}")
    for side in ("input", "target"):
        for does, end in (("begin", slice(0, 1)), ("end", slice(-1, None))):
            values = (getattr(pair, side) for pair in pairs)
            if all(isinstance(value, str) and value[end].isspace() for value in values):
                found.append(f"all {side}s {does} with a space, which is kept: remove it if it is no part of them")
    return found
