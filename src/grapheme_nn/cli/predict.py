"""`grapheme predict`: streaming inference, from lines of text or graphs to what a model makes of them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from grapheme_nn.cli.options import BatchSize, Columns, Model, Others, SkipBadLines
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import DataError, Graph, stream_inputs

# What a line of TSV cannot hold.
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


def predict(
    model: Model,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Lines of text, TSV, JSONL or graphs; - is the standard input.")
    ] = Path("-"),
    others: Others = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add a column: how sure the model is, 0 to 1.")] = False,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print input and output for every line, with a tab between; where one is a graph, a JSON object for every line.

    A tab or the end of a line inside a text is printed as \\t, \\n or \\r. Lines are answered as they come. A graph by
    itself, {"nodes": ..., "edges": ...}, is answered by one; the answer to {"input": GRAPH, "id": 7} is
    {"id": 7, "output": GRAPH}, with all other keys as they came.

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
                made, sure = models.transform(batch, name, batch_size, scores=scores)
                scored = sure if scores and sure is not None else [None] * len(batch)
                rest = pairs.others[start : start + batch_size]
                for pair, output, score, other in zip(batch, made, scored, rest, strict=True):
                    # What JSON escapes, half a surrogate pair in a key that is not ours, is escaped here too.
                    out.write(f"{answer(pair.input, output, score, other)}\n".encode(errors="backslashreplace"))
                out.flush()


def answer(given: str | Graph, output: str | Graph, score: float | None, other: dict[str, Any] | None) -> str:
    """The line for one input; `other` is what else its line says, None where it is no JSON object or a graph alone."""
    if isinstance(given, str) and isinstance(output, str):
        values = [given, output] if score is None else [given, output, f"{score:.4f}"]
        return "\t".join(value.translate(ESCAPES) for value in values)
    result: Any = output.as_dict() if isinstance(output, Graph) else output
    row: dict[str, Any] = {"input": given} if isinstance(given, str) else {}
    row |= {**(other or {}), "output": result}
    if score is not None:
        row["score"] = round(score, 4)
    alone = other is None and score is None and isinstance(given, Graph) and isinstance(output, Graph)
    return json.dumps(result if alone else row, ensure_ascii=False)


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
