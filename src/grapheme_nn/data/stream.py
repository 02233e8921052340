"""Streamed reading of inputs: handed on as they come, so that a pipe of any length takes little memory."""

from collections.abc import Iterator
from io import BufferedIOBase

from grapheme_nn.data.pairs import MARK, DataError, Pairs, column_names, parse

BLOCK = 1 << 16  # bytes; some thousand lines


def stream_inputs(
    source: BufferedIOBase, name: str, *, columns: str | None = None, skip_bad_lines: bool = False
) -> Iterator[Pairs]:
    """The inputs of an open stream of bytes, as many at a time as are there: a lone line is handed on alone.

    As `read_inputs`, but bad lines are reported when they come, after the good ones before them.
    """
    named = None if columns is None else column_names(columns, with_target=False)
    line, offset, waiting, empty = 1, 0, b"", True
    pieces: list[bytes] = []  # of a line longer than a block: joined once, however many they are
    while True:
        block = source.read1(BLOCK)
        pieces.append(block)
        if block and b"\n" not in block:
            continue
        waiting += b"".join(pieces)
        pieces.clear()
        # At the end of all lines empty ones do not count, so each time they wait for what may follow.
        whole = waiting[: waiting.rfind(b"\n") + 1] if block else waiting
        text = whole.rstrip(b"\r\n")
        if text.removeprefix(MARK if offset == 0 else b""):
            pairs = parse(name, text, named, with_target=False, first_line=line, first_byte=offset)
            empty = False
            if pairs.skipped and not skip_bad_lines:
                yield pairs
                raise DataError(f"{pairs.report()}\n{name} has bad lines: correct or skip them")
            yield pairs
            used = whole.find(b"\n", len(text)) + 1 or len(whole)
            line += whole.count(b"\n", 0, used)
            offset += used
            waiting = waiting[used:]
        if not block:
            break
    if empty:
        raise DataError(f"{name} is empty: give lines of text, TSV or JSONL")
