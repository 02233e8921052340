"""`grapheme evaluate`: error rates, similarity and confusions of a model on pairs whose targets are known."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from grapheme_nn.cli.options import (
    BatchSize,
    Columns,
    Device,
    Model,
    Others,
    SkipBadLines,
    check_not_read,
    name_of,
    read_data,
)
from grapheme_nn.cli.predict import ESCAPES
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import Graph, Pair
from grapheme_nn.data.graphs import cut, shown
from grapheme_nn.data.splits import input_key
from grapheme_nn.data.write import whole_file

MOST_DRAWN = 3  # wrong graphs


def evaluate(
    model: Model,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="Pairs, as for train; - is the standard input.", show_default=False),
    ],
    others: Others = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    errors: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the N commonest confusions; draw the first wrong graphs.")
    ] = 0,
    wrong: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write input, target, prediction and score of what is wrong, surest first. A file that is there is "
            "replaced.",
        ),
    ] = None,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    device: Device = None,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print exact match, word and symbol error rate, edit similarity and structural loss.

    A graph is right where it is isomorphic to its target; there are F1 of nodes and of edges and edit distance, too.
    --wrong writes TSV, of graphs or to a name that ends in .jsonl JSONL; - is the standard output, then figures go to
    stderr, or with --json all of it is one object.

    Example: grapheme evaluate dates held_out.tsv --errors 10
    """
    pairs, source = read_data(data, columns, skip_bad_lines), name_of(data)
    to_stdout = str(wrong) == "-"
    if wrong is not None and not to_stdout:
        check_not_read("--wrong", wrong, pairs.files)
    # Opened before the work is done: a name that cannot be written costs nothing.
    with nullcontext() if wrong is None or to_stdout else whole_file(wrong) as file:
        from grapheme_nn import evaluate as figures
        from grapheme_nn.cli.models import Models

        models = Models([model, *(others or [])], device)
        models.check_pairs(pairs, source)
        predicted: Any
        predicted, scores = models.transform(pairs, source, batch_size, scores=wrong is not None)
        targets: list[Any] = models.models[0].as_targets([pair.target for pair in pairs])
        if shared := sum(map(len, ambiguous(pairs, targets, models.target_unit))):
            only = "of which one alone can come out right"
            say(f"{source}: {shared:,} of {len(pairs):,} pairs share their input with another target, {only}")
        found = figures.evaluate(predicted, targets, models.target_unit)
        confusions = figures.confusions(predicted, targets, models.target_unit)[:errors] if errors else []
        rows = [] if wrong is None else wrong_rows(pairs, targets, predicted, scores or [], models.target_unit)
        write = json_line if models.has_graphs or (wrong is not None and wrong.suffix == ".jsonl") else tsv_line
        if file is not None:
            file.writelines(f"{write(row)}\n".encode(errors="backslashreplace") for row in rows)
    if as_json:
        listed: dict[str, Any] = {"confusions": [confusion._asdict() for confusion in confusions]} if errors else {}
        typer.echo(json_line(found._asdict() | listed | ({"wrong": rows} if to_stdout else {})))
        return
    tell = partial(typer.echo, err=to_stdout)
    for row in rows if to_stdout else []:
        typer.echo(write(row))
    tell(f"pairs              {found.pairs:>8,}")
    for name in ("exact_match", "word_error_rate", "symbol_error_rate", "similarity"):
        tell(f"{name.replace('_', ' '):19}{getattr(found, name):>8.2%}")
    tell(f"structural loss    {found.structural_loss:>8.4f}")
    if isinstance(found, figures.GraphEvaluation):
        tell(f"node F1            {found.node_f1:>8.2%}")
        tell(f"edge F1            {found.edge_f1:>8.2%}")
        tell(f"edit distance      {found.edit_distance:>8.4f}")
    if errors:
        tell("\n   times  target -> predicted" if confusions else "\nno confusions")
    for confusion in confusions:
        tell(f"{confusion.times:>8,}  {_shown(confusion.target)} -> {_shown(confusion.predicted)}")
    for drawing in drawings(pairs, predicted, min(errors, MOST_DRAWN)):
        tell(f"\n{drawing}")


def ambiguous(pairs: Sequence[Pair], targets: Sequence[str | Graph], unit: Any) -> list[list[str | Graph]]:
    """The targets of each input, with its features, that has different ones."""
    found: dict[Any, list[str | Graph]] = {}
    for pair, target in zip(pairs, targets, strict=True):
        found.setdefault((input_key(pair.input), pair.features), []).append(target)
    return [group for group in found.values() if not all(_is_right(target, group[0], unit) for target in group[1:])]


def wrong_rows(
    pairs: Sequence[Pair],
    targets: Sequence[str | Graph],
    predicted: Sequence[str | Graph],
    scores: Sequence[float],
    unit: Any,
) -> list[dict[str, Any]]:
    """Input, target, prediction and score of each pair that is wrong, those the model was surest of first.

    What is wrong is decided by `targets`, those of the pairs as a model makes them.
    """
    rows = [
        {"input": _plain(pair.input), "target": _plain(pair.target), "prediction": _plain(made), "score": score}
        for pair, target, made, score in zip(pairs, targets, predicted, scores, strict=True)
        if not _is_right(made, target, unit)
    ]
    return sorted(rows, key=lambda row: -row["score"])


def json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def tsv_line(row: dict[str, Any]) -> str:
    """The values of a row between tabs, the last one a score."""
    *texts, score = row.values()
    return "\t".join([*(text.translate(ESCAPES) for text in texts), f"{score:.4f}"])


def drawings(pairs: Sequence[Pair], predicted: Sequence[str | Graph], most: int) -> list[str]:
    """Input, target and predicted graph of the first pairs that are wrong."""
    from grapheme_nn.drawing import beside, draw
    from grapheme_nn.isomorphism import is_isomorphic

    found: list[str] = []
    for number, (pair, made) in enumerate(zip(pairs, predicted, strict=True), 1):
        if len(found) == most:
            break
        if isinstance(pair.target, Graph) and isinstance(made, Graph) and not is_isomorphic(made, pair.target):
            given = draw(pair.input) if isinstance(pair.input, Graph) else pair.input
            columns = {f"input {number:,}": given, "target": draw(pair.target), "predicted": draw(made)}
            found.append(beside({name: "\n".join(map(cut, block.split("\n"))) for name, block in columns.items()}))
    return found


def _is_right(made: str | Graph, target: str | Graph, unit: Any) -> bool:
    """As exact match counts it."""
    from grapheme_nn.graph import units_of
    from grapheme_nn.isomorphism import is_same

    if isinstance(made, str) and isinstance(target, str):
        return units_of(made, unit) == units_of(target, unit)
    return is_same(made, target)


def _plain(side: str | Graph) -> Any:
    return side.as_dict() if isinstance(side, Graph) else side


def _shown(unit: str | None) -> str:
    return "nothing" if unit is None else shown(unit)
