"""The room of what a check says: rows, as plain text that needs no colour, or as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import isfinite

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
    """The rows of one check as lines of at most 100 columns, those with the same figures below one header.

    With `grouped`, the rows of a group that passed are one line, with the worst of their figures, and each row that
    failed has its own.
    """
    lines: list[str] = []
    shown = _grouped(rows) if grouped else list(rows)
    left = max(NAMES, *(len(row.full_name) for row in shown))
    for names, part in groupby(shown, key=lambda row: tuple(row.figures)):
        block = list(part)
        cells = [[_shown(row.figures[name]) for name in names] for row in block]
        widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
        title = block[0].check if not lines else ""
        lines.append(_cut(f"{title:{left}}      {_joined(names, widths, block[0])}"))
        for row, values in zip(block, cells, strict=True):
            verdict = "ok" if row.passed else "FAIL"
            lines.append(_cut(f"{row.full_name:{left}} {verdict:4} {_joined(values, widths, row)}"))
    return "\n".join(lines)


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


def _joined(cells: Sequence[str], widths: Sequence[int], row: Row) -> str:
    """Numbers to the right, words to the left."""
    words = [isinstance(value, str) for value in row.figures.values()]
    parts = [f"{c:{w}}" if word else f"{c:>{w}}" for c, w, word in zip(cells, widths, words, strict=True)]
    return "  ".join(parts)


def _shown(value: Figure) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def _cut(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _is_plain(value: Figure) -> bool:
    return isinstance(value, str) or isfinite(value)
