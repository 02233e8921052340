"""Pairs of texts or graphs, and the lines of files that say them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from grapheme_nn.data.graphs import Graph

MOST_REPORTED = 20


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
    row: dict[str, Any] | None = (
        None  # of inputs, the JSON object with them: None where there is none, or it is a graph
    )

    @property
    def is_bad(self) -> bool:
        """Whether nothing can be made of the line."""
        return self.pair is None and not self.is_header


class Pairs(list[Pair]):
    """The pairs of a file or a folder, in its order."""

    skipped: tuple[str, ...] = ()  # `file:line: reason` of each line that was left out: headers, and bad ones by wish
    files: dict[str, int]  # how many pairs are from which file

    def report(self) -> str:
        """What was left out: the first lines and how many there are; empty where nothing was."""
        return report(self.skipped)


def reasons(lines: Sequence[Line]) -> tuple[str, ...]:
    """`file:line: reason` of each line that is left out."""
    return tuple(f"{line.place}: {line.problem}" for line in lines if line.pair is None)


def report(problems: Sequence[str]) -> str:
    """The first of several problems, and how many there are."""
    lines = list(problems[:MOST_REPORTED])
    if len(problems) > MOST_REPORTED:
        lines.append(f"... and {len(problems) - MOST_REPORTED:,} more: {len(problems):,} lines in all")
    return "\n".join(lines)


def is_empty(side: str | Graph) -> bool:
    """Whether an input or a target is the empty text or a graph without nodes."""
    return not (side.nodes if isinstance(side, Graph) else side)
