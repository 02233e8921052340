"""Reads files and folders of pairs or inputs, and names every bad line."""

import os
from collections import Counter
from itertools import compress
from operator import not_
from pathlib import Path
from typing import IO, TypeAlias

from grapheme_nn.data.graphs import Graph, cut
from grapheme_nn.data.lines import LineReader
from grapheme_nn.data.pairs import DataError, Line, Pairs, notes, oddities, reasons, report

Source: TypeAlias = str | os.PathLike[str] | IO[str] | IO[bytes]

STDIN = "the standard input"  # as messages name it
SUFFIXES = (".csv", ".jsonl", ".tsv")  # of the files that are read in a folder
MOST_NAMED = 3  # of the others


def read_pairs(path: Source, *, columns: str | None = None, skip_bad_lines: bool = False) -> Pairs:
    """The pairs of a file, TSV, CSV or JSONL, or of all such files in a folder, by name.

    `columns` names the columns of TSV and CSV, such as `input,features,target`; `_` leaves one out. Without it they are
    what a header says, or `input,target` or `input,target,features`, as many as most lines have; where the second
    of three columns looks like features, `input,features,target`, and that is noted. JSONL has its own names, so there
    it does nothing. Text must be UTF-8 (a byte-order mark and CRLF are accepted); values keep all their
    spaces. A target may be the empty string or the empty graph, an input may not. Empty lines at the end do not count.

    All bad lines are collected into one `DataError`; with `skip_bad_lines` the good ones are returned. `.skipped` of
    the result names all lines that were left out, which a header always is, `.notes` what may not be meant so, such as
    targets that are empty in more than 1% of the pairs; `.report()` has both.
    """
    lines: list[Line] = []
    files: dict[str, int] = {}
    sources, left_out = _files(path)
    for source in sources:
        name, data = _load(source)
        found = LineReader(name, columns, with_target=True).read(data.rstrip(b"\r\n"))
        if not found:
            raise DataError(f"{name} is empty: give lines of TSV or JSONL")
        lines += found
        files[name] = sum(line.pair is not None for line in found)
    name = str(path) if len(sources) > 1 else name
    pairs = _pairs(name, _without_odd_sides(lines), skip_bad_lines)
    pairs.notes += tuple(f"{name}: {oddity}" for oddity in oddities(pairs))
    if left_out:
        named = ", ".join(map(cut, left_out[:MOST_NAMED]))
        more = f" and {len(left_out) - MOST_NAMED:,} more" if len(left_out) > MOST_NAMED else ""
        pairs.notes += (f"{path}: not read: {named}{more}, for only files that end in {', '.join(SUFFIXES)} are",)
    pairs.files = files
    return pairs


def read_inputs(source: Source, *, columns: str | None = None, skip_bad_lines: bool = False) -> Pairs:
    """The inputs of a file or an open stream, as pairs whose target is empty where the source has none.

    As `read_pairs`, but the target may be missing, so that the file a model was trained on, the same without its
    targets, and plain lines of text all do: a TSV has the columns that `columns` names, or those less `target`. A line
    may also be a graph by itself, `{"nodes": [...], "edges": [...]}`. An empty line is an empty input.
    """
    name, data = _load(source)
    lines = LineReader(name, columns, with_target=False).read(data)
    if not lines:
        raise DataError(f"{name} is empty: give lines of text, TSV or JSONL")
    pairs = _pairs(name, lines, skip_bad_lines)
    pairs.files = {name: len(pairs)}
    return pairs


def _pairs(name: str, lines: list[Line], skip_bad_lines: bool) -> Pairs:
    """The pairs of the good lines; a `DataError` where there is none, or a bad line that is not to be skipped."""
    bad = [line for line in lines if line.is_bad]
    if bad and not skip_bad_lines:
        has = f"{name} has {len(bad):,} bad line{'s' * (len(bad) > 1)}"
        raise DataError(f"{report(reasons(bad))}\n{has}: correct or skip them")
    pairs = Pairs(line.pair for line in lines if line.pair is not None)
    pairs.skipped, pairs.notes = reasons(lines), notes(lines)
    if not pairs:
        raise DataError(f"{pairs.report()}\n{name} has no good line")
    return pairs


def _without_odd_sides(lines: list[Line]) -> list[Line]:
    """The lines, those bad whose input or target is a text where those of most are graphs, or the other way round."""
    for side in ("input", "target"):
        votes = Counter(isinstance(getattr(line.pair, side), Graph) for line in lines if line.pair is not None)
        if len(votes) < 2:
            continue
        is_graph = votes.most_common(1)[0][0]
        this, most = ("a string", "a graph") if is_graph else ("a graph", "a string")
        wrong = f"{side!r} is {this}, but in most lines it is {most}"
        lines = [
            line._replace(pair=None, problem=wrong)
            if line.pair is not None and isinstance(getattr(line.pair, side), Graph) != is_graph
            else line
            for line in lines
        ]
    return lines


def _files(source: Source) -> tuple[list[Source], list[str]]:
    """The file, or the files in a folder, and the names of what else is there, other than what is hidden."""
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        return [source], []
    inside = sorted(file for file in Path(source).iterdir() if file.name[0] != ".")
    is_read = [file.suffix.lower() in SUFFIXES and file.is_file() for file in inside]
    files = list(compress(inside, is_read))
    if not files:
        raise DataError(f"{source} is a folder without files that end in {', '.join(SUFFIXES)}: give pairs")
    others = compress(inside, map(not_, is_read))
    return list(files), [f"{file.name}{'/' * file.is_dir()}" for file in others]


def _load(source: Source) -> tuple[str, bytes]:
    """The name that messages use, and all bytes."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        name = str(path)
        if path.is_dir():
            raise DataError(f"{name} is a folder: give a file inside it")
        try:
            return name, path.read_bytes()
        except FileNotFoundError:
            raise DataError(f"{name} does not exist: check the path") from None
        except OSError as error:
            raise DataError(f"{name} cannot be read: {error.strerror}") from None
    # The bytes below a text stream, where there are any: decoding is ours, with line numbers.
    read = getattr(source, "buffer", source).read()
    data = read.encode("utf-8", "surrogatepass") if isinstance(read, str) else read
    name = str(getattr(source, "name", "input"))
    return STDIN if name == "<stdin>" else name, data
