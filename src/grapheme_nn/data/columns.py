"""The columns of TSV and CSV: what each of them is, by an option, by a header or by how many there are."""

from collections import Counter
from collections.abc import Iterable, Sequence

from grapheme_nn.data.features import split_features
from grapheme_nn.data.graphs import cut, shown
from grapheme_nn.data.pairs import BadLine, DataError, Pair

COLUMNS = ("input", "target", "features")
FEATURES_SECOND = ("input", "features", "target")  # as UniMorph has them
LEAVE_OUT = "_"
# The names that make a first row a header, and what they name.
HEADER = {
    name: column
    for column, names in {
        "input": "input source src word lemma text question spelling orthography grapheme graphemes",
        "target": (
            "target tgt output pronunciation form answer label ipa phonemes phones transcription transliteration "
            "translation wordform inflected normalized normalised"
        ),
        "features": "features feats tag tags msd",
        LEAVE_OUT: f"id {LEAVE_OUT}",
    }.items()
    for name in names.split()
}


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

    It names an input and a target; its other columns may have any name, and those that are not known are left out. Of
    inputs it may have no target, but then another of its names is known: `word` and what it becomes is a row. Where
    the columns are `named` already, the row is a header if it has names in all that are kept.
    """
    if len(values) < 2:
        return None
    names = [HEADER.get(name.lower(), "") for name in _bare(values)]
    if named is not None:
        has_names = all(found for name, found in zip(named, names, strict=False) if name != LEAVE_OUT)
        return named if len(names) == len(named) and has_names else None
    may_lack_target = not with_target and "input" in names and names.count("") < len(names) - 1
    if not {"input", "target"} <= set(names) and not may_lack_target:
        return None
    return tuple(name if name and name not in names[:place] else LEAVE_OUT for place, name in enumerate(names))


def half_header(values: Sequence[str]) -> str:
    """What to say of a first row that is no header, but has a name that headers have; empty where it has none."""
    separated = next((values[0].split(mark) for mark in ",;" if len(values) == 1 and mark in values[0]), values)
    if len(separated) < 2 or not any(name.lower() in HEADER for name in _bare(separated)):
        return ""
    if len(values) == 1:
        way_out = "if it is one, let the name of the file end in .csv"
        return f"looks like the header of a CSV ({cut(values[0])}), but is read as a line of text: {way_out}"
    why = "for it does not name both an input and a target by names that are known"
    way_out = "if it is a header, remove it, or call its columns input and target"
    return f"looks like a header ({cut(', '.join(values))}), but is read as a line like all others, {why}: {way_out}"


def header_keys(values: Sequence[str], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Under which keys a row below a header is kept: `input`, and the names of all others, all of them different."""
    keys: list[str] = []
    for place, (name, column) in enumerate(zip(_bare(values), columns, strict=True), 1):
        key = f"{name}.{place}" if name in ("input", *keys) else name
        keys.append("input" if column == "input" else key)
    return tuple(keys)


def header_said(values: Sequence[str], columns: tuple[str, ...]) -> str:
    """What a header says, in words."""
    kept = [f"{name} is {shown(value)}" for name, value in zip(columns, values, strict=True) if name != LEAVE_OUT]
    left_out = [shown(value) for name, value in zip(columns, values, strict=True) if name == LEAVE_OUT]
    return ", ".join(kept) + (f"; not read: {', '.join(left_out)}" if left_out else "")


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


def has_features_second(rows: Sequence[Sequence[str]]) -> bool:
    """Whether of rows of three columns the second has features, such as `V;PST` or `PL`, and the third has none.

    Most of them are several tags in capitals, or any tags that come again and again; forms are at least as many.
    """
    _, second, third = zip(*rows, strict=True)
    return _are_features(second) and not _are_features(third) and len(set(second)) <= len(set(third))


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


def _bare(values: Sequence[str]) -> list[str]:
    """The names in a header, without what may stand around them."""
    return [name.strip() for name in (values[0].lstrip(" #"), *values[1:])]


def _are_features(values: Sequence[str]) -> bool:
    several = sum(";" in value and value.isupper() for value in values)
    tags = sum(";" in value or value.isupper() for value in values)
    return 2 * several > len(values) or 2 * tags > len(values) >= 2 * len(set(values))


def _are_columns(names: Sequence[str], needed: Sequence[str]) -> bool:
    kept = [name for name in names if name != LEAVE_OUT]
    return set(needed) <= set(kept) <= set(COLUMNS) and len(kept) == len(set(kept))
