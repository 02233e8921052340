"""`grapheme predict`: streaming inference, from lines of text or graphs to what a model makes of them."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, cast

import typer

from grapheme_nn.cli.options import BatchSize, Columns, Device, Model, Others, SkipBadLines, check_not_read
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import DataError, Graph, Line, stream_inputs
from grapheme_nn.data.objects import other_keys
from grapheme_nn.data.pairs import is_empty, notes, reasons, report
from grapheme_nn.data.read import STDIN
from grapheme_nn.data.write import whole_file

if TYPE_CHECKING:
    from grapheme_nn.cli.models import Models

OURS = ("output", "score", "unlike_training", "error")
# What a line of TSV cannot hold.
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


def predict(
    model: Model,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Lines of text, TSV, CSV, JSONL or graphs; - is the standard input.")
    ] = Path("-"),
    others: Others = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write there, all lines or nothing. A file that is there is replaced."
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Add columns: how sure the model is, 0 to 1, and what is unlike training.")
    ] = False,
    best: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="As --scores, and more columns: the next outputs, of N, with scores."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for every line: input, output, and all that has a name.")
    ] = False,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    device: Device = None,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print input and output for every line, with a tab between; where one is a graph, a JSON object for every line.

    Each line is answered by one line, in order and as they come. The answer to an empty line is empty, and so is that
    to a bad one with --skip-bad-lines: input and a tab, as JSON {"error": ...}. Without it a bad line ends the run. The
    answer to a header is the same, as JSON {"header": ...}. A
    tab or the end of a line inside a text is printed as \\t, \\n or \\r. A graph by itself, {"nodes": ..., "edges":
    ...}, is answered by one; the answer to {"input": GRAPH, "id": 7} is {"id": 7, "output": GRAPH}, with all other keys
    as they came; with --json the input is there, too. Columns below a header are kept in the same way, under its names.
    Only output, score, unlike_training and error are those of the answer alone. With --best N the output is the most
    probable text, and as JSON there are candidates, all N of them.

    Example: echo 'March 5th, 2024' | grapheme predict dates --scores
    """
    with _opened(file) as (stream, name), _target(out, file) as target:
        from grapheme_nn.cli.models import Models

        models, replaced = Models([model, *(others or [])], device), set[str]()
        in_json, scores = as_json or models.has_graphs, scores or best is not None
        for lines in stream_inputs(stream, name, columns=columns):
            checked = [models.checked(line) for line in lines]
            if in_json:
                _say_replaced(lines, name, replaced, best)
            bad = [line for line in checked if line.is_bad]
            if not skip_bad_lines and bad:
                checked = checked[: checked.index(bad[0])]
            for start in range(0, len(checked), batch_size):
                batch = checked[start : start + batch_size]
                for answer in answers(models, batch, name, scores, best):
                    if in_json:
                        text = json_answer(answer, scores, best, complete=as_json)
                    else:
                        text = tsv_answer(answer, scores, best)
                    # What JSON escapes, half a surrogate pair in a key that is not ours, is escaped here too.
                    target.write(f"{text}\n".encode(errors="backslashreplace"))
                target.flush()
            if told := (*notes(checked), *reasons(checked)):
                say(report(told))
            if bad and not skip_bad_lines:
                unwritten = f"; {out} was not written" if out else ""
                raise DataError(f"{report(reasons(bad))}\n{name} has bad lines: correct or skip them{unwritten}")


class Answer(NamedTuple):
    """A line, and what its input becomes."""

    line: Line
    output: str | Graph | None = None  # None where the line is left out
    score: float | None = None  # how sure that is, where wished
    unlike: str | None = None  # what about the input is unlike training, where scores are wished
    candidates: Sequence[tuple[str, float]] = ()  # the most probable outputs with scores, where they are wished


def answers(models: "Models", lines: Sequence[Line], source: str, scores: bool, best: int | None) -> Iterator[Answer]:
    """Each line with its answer."""
    asked = [line.pair for line in lines if line.pair is not None and not is_empty(line.pair.input)]
    found: list[Answer] = []
    if asked and best is not None:
        several = models.candidates(asked, source, len(lines), best)
        found = [Answer(lines[0], own[0][0], own[0][1], candidates=own) for own in several]
    elif asked:
        made, sure = models.transform(asked, source, len(lines), scores=scores)
        own_score: Sequence[float | None] = sure or [None] * len(made)
        found = [Answer(lines[0], output, score) for output, score in zip(made, own_score, strict=True)]
    unlike = models.unlike_training(asked) if scores and asked else [None] * len(asked)
    answered = zip(found, unlike, strict=True)
    for line in lines:
        if line.pair is None:
            yield Answer(line)
        elif is_empty(line.pair.input):
            yield Answer(line, models.empty)
        else:
            answer, strange = next(answered)
            yield answer._replace(line=line, unlike=strange)


def tsv_answer(answer: Answer, with_score: bool, best: int | None) -> str:
    """The line of TSV for one line: of one that is left out, the line as it came and nothing."""
    line, output, score, unlike = answer[:4]
    values = [line.text if line.pair is None else str(line.pair.input), str(output or "")]
    if with_score:
        values += [_shown(score), f"unlike training: {unlike}" if unlike else ""]
    others = [(text, _shown(own)) for text, own in answer.candidates[1:]]
    for both in others + [("", "")] * ((best or 1) - 1 - len(others)):
        values += both
    return "\t".join(value.translate(ESCAPES) for value in values)


def _shown(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def json_answer(answer: Answer, with_score: bool, best: int | None, *, complete: bool) -> str:
    """The JSON object for one line: all that the line says if `complete`, else without graphs that came in."""
    line, output, score, unlike = answer[:4]
    given = line.text if line.pair is None else line.pair.input
    row: dict[str, Any] = {"input": given} if isinstance(given, str) else {}
    if complete:
        row = {"input": given.as_dict() if isinstance(given, Graph) else given} if line.row is None else line.row
    elif line.row is not None:
        row |= other_keys(line.row)
    row = {key: value for key, value in row.items() if key not in _ours(best)}
    if line.is_header:
        return json.dumps({"header": line.text}, ensure_ascii=False)
    if line.pair is None:
        return json.dumps(row | {"error": f"{line.place}: {line.problem}"}, ensure_ascii=False)
    result: Any = output.as_dict() if isinstance(output, Graph) else output
    row["output"] = result
    if with_score:
        row |= {"score": None if score is None else round(score, 4), "unlike_training": unlike}
    if best is not None:
        row["candidates"] = [{"output": text, "score": round(own, 4)} for text, own in answer.candidates]
    is_alone = not complete and line.row is None and not with_score and not isinstance(given, str)
    return json.dumps(result if is_alone and isinstance(output, Graph) else row, ensure_ascii=False)


def _ours(best: int | None) -> tuple[str, ...]:
    """The keys that an answer has of its own."""
    return OURS if best is None else (*OURS, "candidates")


def _say_replaced(lines: Sequence[Line], source: str, said: set[str], best: int | None) -> None:
    """Say, once of each, which keys of the lines are left out of answers, which have their own."""
    new = [key for key in _ours(best) if key not in said and any(key in (line.row or ()) for line in lines)]
    if new:
        said.update(new)
        own = f"answers have their own {', '.join(new)}"
        say(f"{source}: {own}, so what the lines say there is left out: rename it to keep it")


def _target(out: Path | None, file: Path) -> AbstractContextManager[BinaryIO]:
    """Where answers go."""
    if out is None or str(out) == "-":
        return nullcontext(cast(BinaryIO, sys.stdout.buffer))
    check_not_read("--out", out, [file])
    return whole_file(out)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[BufferedIOBase, str]]:
    """The stream, and the name that messages use."""
    if str(file) == "-":
        if sys.stdin.isatty():
            say("type a line and press return; Ctrl-D ends")
        yield cast(BufferedIOBase, sys.stdin.buffer), STDIN
        return
    if file.is_dir():
        raise DataError(f"{file} is a folder: give a file inside it")
    if not file.exists():
        raise DataError(f"{file} does not exist: check the path")
    with file.open("rb") as stream:
        yield stream, str(file)
