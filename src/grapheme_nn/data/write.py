"""Writes pairs to a TSV or JSONL file that reads back as the same pairs."""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from grapheme_nn.data.columns import COLUMNS, has_features_second, header_columns
from grapheme_nn.data.features import split_features
from grapheme_nn.data.graphs import Graph, shown
from grapheme_nn.data.pairs import DataError, Pair, is_empty

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disk, a quota or a limit says where there is no room


class _Unwritable(ValueError):
    """Why a pair cannot be written."""


def write_pairs(pairs: Iterable[Pair], path: str | os.PathLike[str]) -> None:
    """Write pairs to a `.tsv` or `.jsonl` file from which `read_pairs` reads the same pairs.

    The file appears whole or not at all. A TSV has a third column where any pair has features, and a header
    where the second would be taken for it. What a TSV cannot hold, a graph, a tab or the end of a line, is refused.
    """
    path = Path(path)
    pairs = list(pairs)
    if path.suffix not in (".tsv", ".jsonl"):
        raise DataError(f"{path}: the name must end in .tsv or .jsonl, which says how to write")
    with_features = any(pair.features for pair in pairs)
    lines = []
    for number, pair in enumerate(pairs, 1):
        try:
            line = _json_line(pair) if path.suffix == ".jsonl" else _tsv_line(pair, with_features)
            if number == 1 and header_columns(line.split("\t"), None, with_target=True):
                raise _Unwritable("it would be read as a header: put another pair before it, or write .jsonl")
            lines.append(f"{line}\n".encode())
        except _Unwritable as error:
            raise DataError(f"pair {number} cannot be written to {path}: {error}") from None
        except UnicodeEncodeError:
            raise DataError(f"pair {number} cannot be written to {path}: it holds half a surrogate pair") from None
    if (
        with_features
        and path.suffix == ".tsv"
        and has_features_second([line.decode().rstrip("\n").split("\t") for line in lines])
    ):
        lines.insert(0, "\t".join(COLUMNS).encode() + b"\n")
    with whole_file(path) as file:
        file.writelines(lines)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that appears under its name when the block ends, and not at all where that fails.

    An `OSError` of writing it has that name as its `filename`.
    """
    path = named = Path(path)
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a file")
    is_device = path.exists() and not path.is_file()  # or a pipe, which must stay what it is
    path = path if is_device else path.resolve()  # where it is a link, what it leads to is written
    written = path if is_device else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with written.open("wb") as file:
            yield file
        if not is_device:
            os.replace(written, path)
    except OSError as error:
        # Python does not say which file it is that there is no room for, and nobody knows the temporary one.
        if error.errno in FULL if error.filename is None else str(error.filename) == str(written):
            error.filename, error.filename2 = str(named), None
        raise
    finally:
        if not is_device:
            written.unlink(missing_ok=True)


def _json_line(pair: Pair) -> str:
    if is_empty(pair.input):
        raise _Unwritable("its input is empty")
    row = {"input": _json_value("input", pair.input), "target": _json_value("target", pair.target)}
    if pair.features:
        row["features"] = list(pair.features)
    return json.dumps(row, ensure_ascii=False)


def _json_value(name: str, side: str | Graph) -> Any:
    if isinstance(side, str):
        return side
    try:
        return Graph.from_dict(side.as_dict()).as_dict()
    except ValueError as error:
        raise _Unwritable(f"its {name} would not be read: {error}") from None


def _tsv_line(pair: Pair, with_features: bool) -> str:
    if is_empty(pair.input):
        raise _Unwritable("its input is empty")
    features = ";".join(pair.features)
    if split_features(features) != pair.features:
        raise _Unwritable(
            f"its features {shown(list(pair.features))} would be cut at other places when read: write .jsonl"
        )
    values = []
    for name, value in zip(COLUMNS, (pair.input, pair.target, features)[: 2 + with_features], strict=False):
        if isinstance(value, Graph):
            raise _Unwritable(f"its {name} is a graph, which a TSV cannot hold: write .jsonl")
        wrong = re.search("[\t\n\r\0]|^\ufeff", value)
        if wrong:
            raise _Unwritable(f"its {name} has {wrong[0]!r} in it, which a TSV cannot hold: write .jsonl")
        values.append(value)
    return "\t".join(values)
