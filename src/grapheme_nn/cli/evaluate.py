"""`grapheme evaluate`: error rates, similarity and confusions of a model on pairs whose targets are known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from grapheme_nn.cli.options import BatchSize, Columns, Model, Others, SkipBadLines
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import Graph, Pair, read_pairs

MOST_DRAWN = 3  # wrong graphs
LONGEST = 80  # of a node with its operands


def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Pairs, as for train.", show_default=False)],
    others: Others = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    errors: Annotated[
        int, typer.Option(min=0, metavar="N", help="List the N commonest confusions; draw the first wrong graphs.")
    ] = 0,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print exact match, word and symbol error rate, edit similarity and structural loss.

    A graph is right where it is isomorphic to its target; there are F1 of nodes and of edges and edit distance, too.

    Example: grapheme evaluate dates held_out.tsv --errors 10
    """
    pairs = read_pairs(data, columns=columns, skip_bad_lines=skip_bad_lines)
    if pairs.skipped:
        say(pairs.report())
    from grapheme_nn import evaluate as figures
    from grapheme_nn.cli.models import Models

    models = Models([model, *(others or [])])
    targets: list[Any] = models.models[0].as_targets([pair.target for pair in pairs])
    models.check_targets(targets, data)
    predicted: Any = models.transform(pairs, data, batch_size)[0]
    found = figures.evaluate(predicted, targets, models.target_unit)
    confusions = figures.confusions(predicted, targets, models.target_unit)[:errors] if errors else []
    if as_json:
        listed = {"confusions": [confusion._asdict() for confusion in confusions]} if errors else {}
        typer.echo(json.dumps(found._asdict() | listed, ensure_ascii=False))
        return
    typer.echo(f"pairs              {found.pairs:>8,}")
    for name in ("exact_match", "word_error_rate", "symbol_error_rate", "similarity"):
        typer.echo(f"{name.replace('_', ' '):19}{getattr(found, name):>8.2%}")
    typer.echo(f"structural loss    {found.structural_loss:>8.4f}")
    if isinstance(found, figures.GraphEvaluation):
        typer.echo(f"node F1            {found.node_f1:>8.2%}")
        typer.echo(f"edge F1            {found.edge_f1:>8.2%}")
        typer.echo(f"edit distance      {found.edit_distance:>8.4f}")
    if errors:
        typer.echo("\n   times  target -> predicted" if confusions else "\nno confusions")
    for confusion in confusions:
        typer.echo(f"{confusion.times:>8,}  {_shown(confusion.target)} -> {_shown(confusion.predicted)}")
    for drawing in drawings(pairs, predicted, min(errors, MOST_DRAWN)):
        typer.echo(f"\n{drawing}")


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
            found.append(beside(columns))
    return found


def _shown(unit: str | None) -> str:
    return "nothing" if unit is None else repr(unit if len(unit) <= LONGEST else f"{unit[:LONGEST]}...")
