"""The columns of TSV and CSV: what each of them is, by an option, by a header or by how many there are."""

from collections import Counter
from collections.abc import Iterable, Sequence

from grapheme_nn.data.features import split_features
from grapheme_nn.data.graphs import shown
from grapheme_nn.data.pairs import BadLine, DataError, Pair

COLUMNS = ("input", "target", "features")
LEAVE_OUT = "_"
# What a first row of names may be made of, and what they name: a first row with any other word in it is a pair.
HEADER = (
    dict.fromkeys(("input", "source", "src", "word", "lemma", "text", "question"), "input")
    | dict.fromkeys(("target", "tgt", "output", "pronunciation", "form", "answer", "label"), "target")
    | {"features": "features", "id": LEAVE_OUT, LEAVE_OUT: LEAVE_OUT}
)


def column_names(columns: str, with_target: bool) -> tuple[str, ...]:
    """The names in a list such as `input,features,target`, checked."""
    names = tuple(name.strip() for name in columns.split(","))
    needed = COLUMNS[: 1 + with_target]
    if not _are_columns(names, needed):
        raise DataError(
            f"the columns {shown(columns)} are not understood: name each of {' and '.join(needed)} once, "
            f"{' and '.join(COLUMNS[len(needed) :])} at most once, and {LEAVE_OUT} for a column to leave out, "
            f"such as input,features,target"
        )
    return names


def header_columns(values: Sequence[str], named: tuple[str, ...] | None, with_target: bool) -> tuple[str, ...] | None:
    """What the columns are by a first row that names them; None where it is a row like all others.

    Where the columns are `named` already, the row is a header if it has names in all that are kept.
    """
    names = tuple(HEADER.get(value.strip().lower(), "") for value in values)
    if len(names) < 2:
        return None
    if named is None:
        return names if _are_columns(names, COLUMNS[: 1 + with_target]) else None
    has_names = all(found for name, found in zip(named, names, strict=False) if name != LEAVE_OUT)
    return named if len(names) == len(named) and has_names else None


def layouts(named: tuple[str, ...] | None, widths: Iterable[int], with_target: bool) -> dict[int, tuple[str, ...]]:
    """What the columns of a row are, by how many there are; `widths` are those of all rows."""
    if named is not None:
        found = {len(named): named}
        if not with_target:
            rest = tuple(name for name in named if name != "target")
            found.setdefault(len(rest), rest)
        return found
    if not with_target:
        return {width: COLUMNS[:width] for width in (1, 2, 3)}
    counts = Counter(widths)
    width = 3 if counts[3] > counts[2] else 2
    return {width: COLUMNS[:width]}


def pair_of_row(values: Sequence[str], layouts: dict[int, tuple[str, ...]], separator: str) -> Pair:
    """The pair that a row says; the target may be missing where a layout has none."""
    names = layouts.get(len(values))
    if names is None:
        has = f"has {len(values)} column{'s' * (len(values) > 1)}"
        wanted = " or ".join(f"{width} ({','.join(layout)})" for width, layout in sorted(layouts.items()))
        between = "a tab" if separator == "\t" else repr(separator)
        is_csv = separator == "\t" and len(values) == 1 and ("," in values[0] or ";" in values[0])
        hint = ": if this is CSV, let the name of the file end in .csv" if is_csv else ""
        raise BadLine(f"{has}, but there should be {wanted}, with {between} between columns{hint}")
    row = dict(zip(names, values, strict=True))
    return Pair(row["input"], row.get("target", ""), split_features(row.get("features", "")))


def _are_columns(names: Sequence[str], needed: Sequence[str]) -> bool:
    kept = [name for name in names if name != LEAVE_OUT]
    return set(needed) <= set(kept) <= set(COLUMNS) and len(kept) == len(set(kept))
