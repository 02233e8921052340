"""Streamed reading of inputs: handed on as they come, so that a pipe of any length takes little memory."""

from collections.abc import Iterator
from io import BufferedIOBase

from grapheme_nn.data.lines import LineReader
from grapheme_nn.data.pairs import DataError, Line

BLOCK = 1 << 16  # bytes; some thousand lines


def stream_inputs(source: BufferedIOBase, name: str, *, columns: str | None = None) -> Iterator[list[Line]]:
    """The lines of an open stream of bytes, good, empty and bad, as many at a time as are there.

    A lone line is handed on alone. A CSV, whose rows may have many lines, is handed on whole.
    """
    reader = LineReader(name, columns, with_target=False)
    pieces: list[bytes] = []  # of a line longer than a block: joined once, however many they are
    is_csv = name.lower().endswith(".csv")
    while True:
        block = source.read1(BLOCK)
        pieces.append(block)
        if block and (is_csv or b"\n" not in block):
            continue
        data = b"".join(pieces)
        end = data.rfind(b"\n") + 1 if block else len(data)
        if lines := reader.read(data[:end]):
            yield lines
        pieces = [data[end:]]
        if not block:
            break
    if reader.number == 0:
        raise DataError(f"{name} is empty: give lines of text, TSV or JSONL")
