"""Results of checks as rows, and their rendering: tables in plain text, or JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from itertools import groupby
from math import isfinite

from rich.console import Console
from rich.table import Table

WIDTH = 100  # columns
NAMES = 32  # columns of names, at least

ADDED_UP = ("compared", "zero", "rises")  # figures that are numbers of things

Figure = int | float | str


@dataclass(frozen=True)
class Row:
    """One thing that was checked."""

    check: str  # gradients, descent, determinism or threshold
    group: str  # what it is part of, such as "Merge"; rows of a group stand together
    name: str  # which of them, such as "soft, chain: theta"
    passed: bool
    figures: dict[str, Figure] = field(default_factory=dict)
    note: str = ""  # why it failed

    @property
    def full_name(self) -> str:
        return f"{self.group} {self.name}".strip()


def render(rows: Sequence[Row], *, grouped: bool = False) -> str:
    """The rows of one check as plain text of at most 100 columns, those with the same figures below one header.

    With `grouped`, the rows of a group that passed are one line, with the worst of their figures, and each row that
    failed has its own.
    """
    text = StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, markup=False, emoji=False, highlight=False)
    shown = _grouped(rows) if grouped else list(rows)
    left = max(NAMES, *(len(row.full_name) for row in shown))
    for number, (_, part) in enumerate(groupby(shown, key=lambda row: tuple(row.figures))):
        block = list(part)
        table = Table(box=None, pad_edge=False)
        title = "" if number else block[0].check
        table.add_column(f"{title:{left}}", overflow="fold")  # wide by its header: `min_width` would cut what is beside
        table.add_column(no_wrap=True)
        for name, value in block[0].figures.items():
            table.add_column(name, justify="left" if isinstance(value, str) else "right", overflow="fold")
        for row in block:
            table.add_row(row.full_name, "ok" if row.passed else "FAIL", *map(_shown, row.figures.values()))
        console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def failures(rows: Iterable[Row]) -> str:
    """A sentence for each row that failed, one a line."""
    return "\n".join(f"FAIL {row.check}: {row.full_name}: {row.note}" for row in rows if not row.passed)


def to_json(rows: Sequence[Row], seconds: float) -> str:
    """All rows as one JSON object; a figure that is not finite is a string."""
    listed = []
    for row in rows:
        figures = {name: value if _is_plain(value) else str(value) for name, value in row.figures.items()}
        listed.append(asdict(row) | {"figures": figures})
    return json.dumps(
        {"passed": all(row.passed for row in rows), "seconds": round(seconds, 1), "rows": listed}, ensure_ascii=False
    )


def _grouped(rows: Sequence[Row]) -> list[Row]:
    shown = []
    for (group, names), part in groupby(rows, key=lambda row: (row.group, tuple(row.figures))):
        block = list(part)
        if len(block) == 1:
            shown += block
            continue
        figures = {name: _together(name, [row.figures[name] for row in block]) for name in names}
        passed = all(row.passed for row in block)
        shown.append(Row(block[0].check, group, f"({len(block)})", passed, figures))
        shown += [row for row in block if not row.passed]
    return shown


def _together(name: str, values: list[Figure]) -> Figure:
    """One figure for many: some are added up, else the largest number counts, or the first word."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return values[0]
    return sum(numbers) if name in ADDED_UP else max(numbers)


def _shown(value: Figure) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def _is_plain(value: Figure) -> bool:
    return isinstance(value, str) or isfinite(value)
