"""`grapheme evaluate`: error rates, similarity and confusions of a model on pairs whose targets are known."""

import json
from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.cli.options import BatchSize, Columns, Model, Others, SkipBadLines
from grapheme_nn.cli.sentences import say
from grapheme_nn.data import read_pairs


def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Pairs, as for train.", show_default=False)],
    others: Others = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    errors: Annotated[int, typer.Option(min=0, metavar="N", help="List the N commonest confusions of symbols.")] = 0,
    columns: Columns = None,
    batch_size: BatchSize = 256,
    skip_bad_lines: SkipBadLines = False,
) -> None:
    """Print exact match, word and symbol error rate, edit similarity and structural loss.

    Example: grapheme evaluate dates held_out.tsv --errors 10
    """
    pairs = read_pairs(data, columns=columns, skip_bad_lines=skip_bad_lines)
    if pairs.skipped:
        say(pairs.report())
    from grapheme_nn import evaluate as figures
    from grapheme_nn.cli.models import Models

    models = Models([model, *(others or [])])
    predicted, _ = models.transform(pairs, data, batch_size)
    targets = [pair.target for pair in pairs]
    found = figures.evaluate(predicted, targets, models.target_unit)
    confusions = figures.confusions(predicted, targets, models.target_unit)[:errors]
    if as_json:
        listed = {"confusions": [confusion._asdict() for confusion in confusions]} if errors else {}
        typer.echo(json.dumps(found._asdict() | listed, ensure_ascii=False))
        return
    typer.echo(f"pairs              {found.pairs:>8,}")
    for name in ("exact_match", "word_error_rate", "symbol_error_rate", "similarity"):
        typer.echo(f"{name.replace('_', ' '):19}{getattr(found, name):>8.2%}")
    typer.echo(f"structural loss    {found.structural_loss:>8.4f}")
    if errors:
        typer.echo("\n   times  target -> predicted" if confusions else "\nno confusions")
    for confusion in confusions:
        typer.echo(f"{confusion.times:>8,}  {_shown(confusion.target)} -> {_shown(confusion.predicted)}")


def _shown(unit: str | None) -> str:
    return "nothing" if unit is None else repr(unit)
