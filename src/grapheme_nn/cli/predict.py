"""`grapheme predict`: streaming inference, from lines of text to what a model makes of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, cast

import typer

from grapheme_nn.cli.options import BatchSize, Columns, Model, Others, SkipBadLines
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import DataError, stream_inputs

# What a line of TSV cannot hold.
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


def predict(
    model: Model,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Lines of text, TSV or JSONL; - is the standard input.")
    ] = Path("-"),
    others: Others = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add a column: how sure the model is, 0 to 1.")] = False,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print input and output for every line, with a tab between.

    A tab or the end of a line inside a text is printed as \\t, \\n or \\r. Lines are answered as they come.

    Example: echo 'March 5th, 2024' | grapheme predict dates --scores
    """
    with _opened(file) as (stream, name):
        from grapheme_nn.cli.models import Models

        models = Models([model, *(others or [])])
        out = sys.stdout.buffer
        for pairs in stream_inputs(stream, name, columns=columns, skip_bad_lines=skip_bad_lines):
            if pairs.skipped and skip_bad_lines:
                say(pairs.report())
            for start in range(0, len(pairs), batch_size):
                batch = pairs[start : start + batch_size]
                texts, sure = models.transform(batch, name, batch_size, scores=scores)
                columns_out = [[pair.input for pair in batch], texts]
                if scores and sure is not None:
                    columns_out.append([f"{score:.4f}" for score in sure])
                for row in zip(*columns_out, strict=True):
                    out.write(("\t".join(value.translate(ESCAPES) for value in row) + "\n").encode())
                out.flush()


@contextmanager
def _opened(file: Path) -> Iterator[tuple[BufferedIOBase, str]]:
    """The stream, and the name that messages use."""
    if str(file) == "-":
        if sys.stdin.isatty():
            say("type a line and press return; Ctrl-D ends")
        yield cast(BufferedIOBase, sys.stdin.buffer), "the standard input"
        return
    if file.is_dir():
        raise DataError(f"{file} is a folder: give a file inside it")
    if not file.exists():
        raise DataError(f"{file} does not exist: check the path")
    with file.open("rb") as stream:
        yield stream, str(file)
