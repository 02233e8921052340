"""The lines of a file of pairs or inputs, each with what it says or what is wrong with it.

    JSONL   a line that is a JSON object, see `objects`
    TSV     any other: input, target and perhaps features between tabs, see `columns`; of inputs, plain text, too
    CSV     the same between commas or semicolons, by the rules of RFC 4180: a file whose name ends in .csv

The kind that most lines have is the file's; of a stream, that of the lines that come first. Inputs may be mixed, but
where they are JSONL, no plain text is one.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from grapheme_nn.data.columns import (
    COLUMNS,
    FEATURES_SECOND,
    column_names,
    half_header,
    has_features_second,
    header_columns,
    header_keys,
    header_said,
    layouts,
    pair_of_row,
)
from grapheme_nn.data.graphs import cut
from grapheme_nn.data.objects import NotFinite, as_object, is_graph, pair_of_object
from grapheme_nn.data.pairs import BadLine, DataError, Line, Pair, is_empty

MARK = b"\xef\xbb\xbf"  # of the byte order, which some programs put before UTF-8


class _Row(NamedTuple):
    """A line, or a row of a CSV, before it is understood."""

    place: str
    text: str
    columns: Sequence[str] | None = None  # of a CSV
    problem: str = ""

    @property
    def values(self) -> Sequence[str]:
        return self.text.split("\t") if self.columns is None else self.columns

    @property
    def width(self) -> int:
        return self.text.count("\t") + 1 if self.columns is None else len(self.columns)


class LineReader:
    """Reads the lines of one file, all at once or part by part.

    Without `with_target` they are inputs: the target may be missing, a line may be empty, and a graph by itself is one.
    """

    def __init__(self, name: str, columns: str | None, *, with_target: bool) -> None:
        self.name, self.with_target = name, with_target
        self.named = None if columns is None else column_names(columns, with_target)
        self.keys: tuple[str, ...] = ()  # of the columns below a header
        self.separator = "\t"
        self.number = 0  # of the last line that was read
        self.offset = 0  # of the next byte
        self.three: tuple[str, ...] | None = None  # what three columns are, as soon as there are rows to tell it by
        self.kind: str | None = None  # TSV or JSONL, as soon as there are lines to tell it by

    def read(self, data: bytes) -> list[Line]:
        """The next lines; `data` ends where a line ends."""
        if self.offset == 0:
            data = self._begin(data)
        if not data:
            return []
        is_first = self.number == 0
        rows = list(self._rows(data) if self.separator == "\t" else self._csv_rows(data))
        header = header_columns(rows[0].values, self.named, self.with_target) if is_first else None
        if header:
            self.named, self.keys = header, header_keys(rows[0].values, header)
        known = layouts(self.named, (row.width for row in rows), self.with_target)
        wide = [row for row in rows if row.width == 3] if self.named is None and 3 in known else []
        is_decided = self.three is not None
        if wide:
            self.three = self.three or (
                FEATURES_SECOND if has_features_second([row.values for row in wide]) else COLUMNS
            )
            known[3] = self.three
        objects = [self._json(row) for row in rows]
        told = [bool(found) for row, found in zip(rows, objects, strict=True) if row.text and not row.problem]
        if self.kind is None and told:
            # Of pairs each line has a vote, so that one odd line, even the first, is the one that is reported.
            # Of inputs, which may come one at a time, the first line decides, however many come with it.
            is_json = Counter(told).most_common(1)[0][0] if self.with_target else told[0]
            self.kind = "JSONL" if is_json else "TSV"
        lines = [found or self._line(row, known) for row, found in zip(rows, objects, strict=True)]
        if self.kind == "TSV" and self.with_target:
            wrong = "this is a line of JSON, but most lines of the file are TSV"
            lines = [
                Line(line.place, "", None, wrong) if found else line for line, found in zip(lines, objects, strict=True)
            ]
        if header:
            names = cut(", ".join(rows[0].values))
            said = header_said(rows[0].values, header)
            problem = f"looks like a header ({names}) and is left out: {said}; if it is none, move it to another line"
            lines[0] = Line(rows[0].place, rows[0].text, None, problem, is_header=True)
        elif is_first and lines[0].pair is not None:
            lines[0] = lines[0]._replace(note=half_header(rows[0].values))
        if self.three == FEATURES_SECOND and not is_decided:
            names = ",".join(FEATURES_SECOND)
            note = f"the second column looks like features: columns {names}; if they are others, name them (--columns)"
            first = rows.index(wide[0])
            lines[first] = lines[first]._replace(note="; ".join(filter(None, (lines[first].note, note))))
        return lines

    def _begin(self, data: bytes) -> bytes:
        """The data without a mark of the byte order; a `DataError` where it cannot be text."""
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(
                f"{self.name} looks like UTF-16: save it as UTF-8, for example with iconv -f UTF-16 -t UTF-8"
            )
        first = data.split(b"\n", 1)[0]
        # In a stream of inputs, a NUL byte after the first line is a bad line: what came before it was answered.
        if b"\0" in (data if self.with_target else first):
            offset = data.index(0)
            raise DataError(f"{self.name} looks like a binary file (a NUL byte at offset {offset}): give TSV or JSONL")
        if self.name.lower().endswith(".csv") and b"\t" not in first and not first.lstrip(MARK).startswith(b"{"):
            self.separator = ";" if b";" in first and b"," not in first else ","
        if data.startswith(MARK):
            self.offset = len(MARK)
        return data[self.offset :]

    def _rows(self, data: bytes) -> Iterator[_Row]:
        """The lines as text, with their columns or what is wrong."""
        for raw in data.removesuffix(b"\n").split(b"\n"):
            self.number += 1
            problem = ""
            try:
                text = raw.removesuffix(b"\r").decode()
                if "\0" in text:
                    problem = f"a NUL byte at offset {self.offset + raw.index(0)} of the file: this is no text"
            except UnicodeDecodeError as error:
                text = raw.removesuffix(b"\r").decode(errors="backslashreplace")
                problem = (
                    f"not UTF-8 (byte 0x{raw[error.start]:02x} at offset {self.offset + error.start} of the file): "
                    f"save the file as UTF-8, for example with iconv -f LATIN1 -t UTF-8"
                )
            self.offset += len(raw) + 1
            yield _Row(f"{self.name}:{self.number}", text, None, problem)

    def _csv_rows(self, data: bytes) -> Iterator[_Row]:
        """The rows of a CSV, which may have several lines; their number is that of the first."""
        lines = list(self._rows(data))
        reader = csv.reader((f"{line.text}\n" for line in lines), delimiter=self.separator, strict=True)
        while reader.line_num < len(lines):
            first, values, problem = reader.line_num, list[str](), ""
            try:
                values = next(reader)
            except csv.Error as error:
                problem = f'invalid CSV: {error}; a quote inside quotes is written "", or write JSONL'
            read = lines[first : reader.line_num]
            problem = next((line.problem for line in read if line.problem), problem)
            yield _Row(read[0].place, "\n".join(line.text for line in read), values, problem)

    def _json(self, row: _Row) -> Line | None:
        """The line of a JSON object, or of what must have been meant for one; None for all others."""
        if row.columns is not None or row.problem:
            return None
        begins = row.text.lstrip()[:1]
        # Among inputs there may be texts that begin with a bracket; among pairs those have a tab.
        is_meant = self.with_target and begins in ("{", "[") and "\t" not in row.text
        if begins != "{" and not is_meant:
            return None
        try:
            value = as_object(row.text, finite=not self.with_target)  # inputs are answered in JSON
        except BadLine as error:
            is_bad = is_meant or isinstance(error, NotFinite)
            return Line(row.place, row.text, None, str(error)) if is_bad else None
        kept = None if self.with_target or is_graph(value) else value
        try:
            return self._good(row, pair_of_object(value, self.with_target), kept)
        except BadLine as error:
            return Line(row.place, row.text, None, str(error), row=kept)

    def _line(self, row: _Row, known: dict[int, tuple[str, ...]]) -> Line:
        """The line of any other row."""
        kept = None
        try:
            if row.problem:
                raise BadLine(row.problem)
            if not row.text:
                pair = Pair("", "")
            elif self.kind == "TSV":
                pair, kept = pair_of_row(row.values, known, self.separator), self._by_name(row.values)
            elif "\t" in row.text and row.text.lstrip()[:1] != "{":
                raise BadLine(f"this is a line of TSV, but most lines of the file are {self.kind}")
            else:
                pair = pair_of_object(as_object(row.text), self.with_target)
            return self._good(row, pair, kept)
        except BadLine as error:
            return Line(row.place, row.text, None, str(error))

    def _by_name(self, values: Sequence[str]) -> dict[str, Any] | None:
        """What a row says by the names of the header, which may have a target that the row has not."""
        if self.named is None or not self.keys:
            return None
        is_whole = len(values) == len(self.named)
        keys = [key for key, column in zip(self.keys, self.named, strict=True) if is_whole or column != "target"]
        return dict(zip(keys, values, strict=True))

    def _good(self, row: _Row, pair: Pair, kept: dict[str, Any] | None = None) -> Line:
        """The line of a pair; only inputs may be empty, and only beside theirs all else is kept."""
        if not self.with_target:
            return Line(row.place, row.text, pair, row=kept)
        if is_empty(pair.input):
            raise BadLine("the input is empty" if row.text else "the line is empty")
        return Line(row.place, "", pair)
