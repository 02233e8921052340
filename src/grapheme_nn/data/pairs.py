"""Reads files of pairs, TSV or JSONL, and names every bad line.

Three kinds of file are told apart by looking at what is inside; the kind that most lines have is the file's:

    JSONL pairs       {"input": "abc", "target": "ab"}, perhaps with "features", a string or a list of strings; in place
                      of a text there may be a graph, {"nodes": [...], "edges": [...]}, then in all lines (see `Graph`)
    JSONL curriculum  {"input_polish": "+ 1 2", "expected_result": 3}, or "expected_symbolic" with a string
    TSV               input, target and perhaps features between tabs: any line with a tab is TSV
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias

from grapheme_nn.data.features import split_features
from grapheme_nn.data.graphs import Graph, kind_of

Kind = Literal["TSV", "JSONL pairs", "JSONL curriculum"]
Source: TypeAlias = str | os.PathLike[str] | IO[str] | IO[bytes]

COLUMNS = ("input", "target", "features")
LEAVE_OUT = "_"
# Where the input is, and where the target may be.
KEYS: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "JSONL pairs": ("input", ("target",)),
    "JSONL curriculum": ("input_polish", ("expected_result", "expected_symbolic")),
}
# What a line of inputs alone has, and plain text has not: the last two are those of a graph by itself.
INPUT_KEYS = {"input", "input_polish", "nodes", "edges"}
MOST_REPORTED = 20
MARK = b"\xef\xbb\xbf"  # of the byte order, which some programs put before UTF-8


class DataError(ValueError):
    """A file of pairs cannot be used; the message says where and why, in sentences meant for the user."""


class Pair(NamedTuple):
    """A text or a graph and what it shall become."""

    input: str | Graph
    target: str | Graph
    features: tuple[str, ...] = ()  # units as `split_features` makes them


class Pairs(list[Pair]):
    """The pairs of a file, in its order."""

    skipped: tuple[str, ...] = ()  # `file:line: reason` of each bad line that was left out
    # Of inputs, for each pair: what else its JSON line says, such as an id; None where the line is no such object.
    others: tuple[dict[str, Any] | None, ...] = ()

    def report(self) -> str:
        """What was left out: the first bad lines and how many there are; empty where nothing was."""
        return _report(self.skipped) if self.skipped else ""


class _BadLine(ValueError):
    """What is wrong with one line."""


def read_pairs(path: Source, *, columns: str | None = None, skip_bad_lines: bool = False) -> Pairs:
    """The pairs of a file of any of the three kinds.

    `columns` names the columns of a TSV, such as `input,features,target`; `_` leaves one out. Without it they are
    `input,target` or `input,target,features`, as many as most lines have. JSONL has its own names, so there it does
    nothing. Text must be UTF-8 (a byte-order mark and CRLF are accepted); values keep all their spaces. A target may
    be the empty string or the empty graph, an input may not. Empty lines at the end do not count.

    All bad lines are collected into one `DataError`; with `skip_bad_lines` the good ones are returned, and `.skipped`
    and `.report()` of the result speak of the others.
    """
    return _read(path, columns, skip_bad_lines, with_target=True)


def read_inputs(source: Source, *, columns: str | None = None, skip_bad_lines: bool = False) -> Pairs:
    """The inputs of a file or an open stream, as pairs whose target is empty where the source has none.

    As `read_pairs`, but the target may be missing, so that the file a model was trained on, the same without its
    targets, and plain lines of text all do: a TSV has the columns that `columns` names, or those less `target`. A line
    may also be a graph by itself, `{"nodes": [...], "edges": [...]}`.
    """
    return _read(source, columns, skip_bad_lines, with_target=False)


def _read(source: Source, columns: str | None, skip_bad_lines: bool, *, with_target: bool) -> Pairs:
    named = None if columns is None else column_names(columns, with_target)
    name, data = _load(source)
    if not data.removeprefix(MARK).strip(b"\r\n"):
        raise DataError(f"{name} is empty: give lines of TSV or JSONL")
    pairs = parse(name, data, named, with_target)
    if pairs.skipped and not skip_bad_lines:
        raise DataError(f"{pairs.report()}\n{name} has {_count(len(pairs.skipped))}: correct or skip them")
    if not pairs:
        raise DataError(f"{pairs.report()}\n{name} has no good line")
    return pairs


def parse(
    name: str,
    data: bytes,
    named: tuple[str, ...] | None,
    with_target: bool,
    *,
    first_line: int = 1,
    first_byte: int = 0,
) -> Pairs:
    """The pairs of the good lines; `skipped` of the result speaks of the bad ones.

    `data` may be a part of a file: messages count from its `first_line` and its `first_byte`.
    """
    refuse_binary(name, data, first_byte)
    bad: dict[int, str] = {}
    lines: dict[int, str] = {}
    if first_byte == 0 and data.startswith(MARK):
        data, first_byte = data[len(MARK) :], len(MARK)
    offset = first_byte
    for number, raw in enumerate(data.rstrip(b"\r\n").split(b"\n"), first_line):
        try:
            lines[number] = raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            bad[number] = (
                f"not UTF-8 (byte 0x{raw[error.start]:02x} at offset {offset + error.start} of the file): save the "
                f"file as UTF-8, for example with iconv -f LATIN1 -t UTF-8"
            )
        offset += len(raw) + 1
    # Each line has a vote, so that one odd line, even the first, is the one that is reported.
    votes = Counter(_kind(line, with_target) for line in lines.values() if line)
    kind: Kind = votes.most_common(1)[0][0] if votes else "TSV"
    layouts = _layouts(named, lines.values(), with_target)
    found: dict[int, tuple[Pair, dict[str, Any] | None]] = {}
    other: dict[str, Any] | None
    for number, line in lines.items():
        try:
            if not line:
                raise _BadLine("the line is empty")
            if kind == "TSV":
                pair, other = _from_tsv(line, layouts, with_target), None
            elif "\t" in line:
                raise _BadLine(f"this is a line of TSV, but most lines of the file are {kind}")
            else:
                pair, other = _from_json(line, kind, with_target)
            if is_empty(pair.input):
                raise _BadLine("the input is empty")
            found[number] = pair, other
        except _BadLine as error:
            bad[number] = str(error)
    if kind == "JSONL pairs":
        for number, reason in _odd_sides({number: pair for number, (pair, _) in found.items()}, with_target):
            bad[number] = reason
            del found[number]
    pairs = Pairs(pair for pair, _ in found.values())
    pairs.others = () if with_target else tuple(other for _, other in found.values())
    pairs.skipped = tuple(f"{name}:{number}: {bad[number]}" for number in sorted(bad))
    return pairs


def _odd_sides(pairs: dict[int, Pair], with_target: bool) -> list[tuple[int, str]]:
    """The lines whose input or target is a text where those of most are graphs, or the other way round, and why."""
    odd: dict[int, str] = {}
    for side in ("input", "target") if with_target else ("input",):
        votes = Counter(isinstance(getattr(pair, side), Graph) for pair in pairs.values())
        if len(votes) < 2:
            continue
        is_graph = votes.most_common(1)[0][0]
        this, most = ("a string", "a graph") if is_graph else ("a graph", "a string")
        for number, pair in pairs.items():
            if isinstance(getattr(pair, side), Graph) != is_graph:
                odd.setdefault(number, f"{side!r} is {this}, but in most lines of the file it is {most}")
    return list(odd.items())


def _load(source: Source) -> tuple[str, bytes]:
    """The name that messages use, and all bytes."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        name = str(path)
        if path.is_dir():
            raise DataError(f"{name} is a folder: give a file inside it")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise DataError(f"{name} does not exist: check the path") from None
        except OSError as error:
            raise DataError(f"{name} cannot be read: {error.strerror}") from None
    else:
        name = str(getattr(source, "name", "input"))
        # The bytes below a text stream, where there are any: decoding is ours, with line numbers.
        read = getattr(source, "buffer", source).read()
        data = read.encode("utf-8", "surrogatepass") if isinstance(read, str) else read
    return name, data


def refuse_binary(name: str, data: bytes, first_byte: int = 0) -> None:
    """A `DataError` where the bytes cannot be text."""
    if first_byte == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name} looks like UTF-16: save it as UTF-8, for example with iconv -f UTF-16 -t UTF-8")
    if b"\0" in data:
        offset = first_byte + data.index(0)
        raise DataError(f"{name} looks like a binary file (a NUL byte at offset {offset}): give TSV or JSONL")


def column_names(columns: str, with_target: bool) -> tuple[str, ...]:
    """The names in a list such as `input,features,target`, checked."""
    names = tuple(name.strip() for name in columns.split(","))
    needed = COLUMNS[: 1 + with_target]
    kept = [name for name in names if name != LEAVE_OUT]
    if not set(needed) <= set(names) or not set(kept) <= set(COLUMNS) or len(kept) > len(set(kept)):
        raise DataError(
            f"the columns {columns!r} are not understood: name each of {' and '.join(needed)} once, "
            f"{' and '.join(COLUMNS[len(needed) :])} at most once, and {LEAVE_OUT} for a column to leave out, "
            f"such as input,features,target"
        )
    return names


def _layouts(named: tuple[str, ...] | None, lines: Iterable[str], with_target: bool) -> dict[int, tuple[str, ...]]:
    """What the columns of a TSV line are, by how many there are."""
    if named is not None:
        layouts = {len(named): named}
        if not with_target:
            rest = tuple(name for name in named if name != "target")
            layouts.setdefault(len(rest), rest)
        return layouts
    if not with_target:
        return {width: COLUMNS[:width] for width in (1, 2, 3)}
    widths = Counter(line.count("\t") + 1 for line in lines)
    width = 3 if widths[3] > widths[2] else 2
    return {width: COLUMNS[:width]}


def _kind(line: str, with_target: bool) -> Kind:
    """The kind of file that a line seems to come from."""
    if "\t" in line or not line.lstrip().startswith(("{", "[")):
        return "TSV"
    if not with_target:
        # A line of plain text may begin with a bracket too.
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return "TSV"
        if not isinstance(value, dict) or not value.keys() & INPUT_KEYS:
            return "TSV"
    return "JSONL curriculum" if '"input_polish"' in line else "JSONL pairs"


def _from_tsv(line: str, layouts: dict[int, tuple[str, ...]], with_target: bool) -> Pair:
    values = line.split("\t")
    names = layouts.get(len(values))
    if names is None:
        if with_target and _kind(line, with_target) != "TSV":
            raise _BadLine("this is a line of JSON, but most lines of the file are TSV")
        has = f"has {len(values)} column{'s' * (len(values) > 1)}"
        wanted = " or ".join(f"{width} ({','.join(layout)})" for width, layout in sorted(layouts.items()))
        raise _BadLine(f"{has}, but there should be {wanted}, with a tab between columns")
    row = dict(zip(names, values, strict=True))
    return Pair(row["input"], row.get("target", ""), split_features(row.get("features", "")))


def _from_json(line: str, kind: Kind, with_target: bool) -> tuple[Pair, dict[str, Any] | None]:
    """The pair, and what else the line says; None where the line is a graph by itself."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise _BadLine(f"invalid JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _BadLine(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise _BadLine(f"the JSON is {kind_of(value)}, but should be an object such as {{...}}")
    bare = (
        not with_target and kind == "JSONL pairs" and "input" not in value and bool(value.keys() & {"nodes", "edges"})
    )
    if bare:
        value = {"input": value}
    if (kind == "JSONL curriculum") != ("input_polish" in value) and value.keys() & {"input", "input_polish"}:
        raise _BadLine(f"the keys are {_keys(value)}, but most lines of the file are {kind}")
    source, answers = KEYS[kind]
    # A curriculum may have both kinds of answer, one of them null.
    answer = next((key for key in answers if value.get(key) is not None), answers[0])
    for key in (source, answer) if with_target else (source,):
        if key not in value:
            wanted = " or ".join(map(repr, answers)) if key == answer else repr(key)
            raise _BadLine(f"there is no key {wanted}; the keys are {_keys(value)}")
    result = value.get(answer, "")
    if answer == "expected_result" and isinstance(result, int | float) and not isinstance(result, bool):
        if not math.isfinite(result):
            raise _BadLine(f"{answer!r} is not a finite number")
        result = str(result)
    features = value.get("features") or ()
    if isinstance(features, str):
        features = split_features(features)
    elif not isinstance(features, list | tuple) or not all(isinstance(unit, str) for unit in features):
        raise _BadLine("'features' must be a string or a list of strings")
    pair = Pair(_side(source, value[source], kind), _side(answer, result, kind), tuple(features))
    try:
        "".join((*_texts(pair.input), *_texts(pair.target), *features)).encode()
    except UnicodeEncodeError:
        raise _BadLine("an escape such as \\ud800 is half of a surrogate pair, which is no character") from None
    known = {source, *answers, "features"}
    return pair, None if bare else {key: other for key, other in value.items() if key not in known}


def _side(key: str, value: object, kind: Kind) -> str | Graph:
    """The input or the target that stands at a key of a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and kind == "JSONL pairs":
        try:
            return Graph.from_dict(value)
        except ValueError as error:
            raise _BadLine(f"{error} (in {key!r})") from None
    also = " or a graph" if kind == "JSONL pairs" else ""
    raise _BadLine(f"{key!r} must be a string{also}, but is {kind_of(value)}")


def is_empty(side: str | Graph) -> bool:
    """Whether an input or a target is the empty text or a graph without nodes."""
    return not (side.nodes if isinstance(side, Graph) else side)


def _texts(side: str | Graph) -> Sequence[str]:
    """All strings in an input or a target."""
    if isinstance(side, str):
        return (side,)
    return (*side.nodes, *(kind for _, _, kind in side.edges if isinstance(kind, str)))


def _report(problems: Sequence[str]) -> str:
    lines = list(problems[:MOST_REPORTED])
    if len(problems) > MOST_REPORTED:
        lines.append(f"... and {len(problems) - MOST_REPORTED:,} more: {_count(len(problems))} in all")
    return "\n".join(lines)


def _count(bad: int) -> str:
    return f"{bad:,} bad line{'s' * (bad > 1)}"


def _keys(value: dict[str, Any]) -> str:
    return ", ".join(map(repr, value)) or "none"
