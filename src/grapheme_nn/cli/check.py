"""`grapheme check`: proof that gradients flow, as a table and an exit code."""

import os
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from grapheme_nn.cli.sentences import UNUSABLE, Unusable, WrongUse, say

What = StrEnum("What", ["gradients", "descent", "determinism", "threshold", "all"])


def check(
    what: Annotated[
        What, typer.Argument(metavar="WHAT", help="What to prove; all of it takes a minute.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with every row.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the threshold's course into this .png, .svg or .pdf. A file that is there is replaced.",
            readable=False,
        ),
    ] = None,
) -> None:
    """Prove that gradients are right, the loss falls, the same seed gives the same bits, and the threshold learns.

    All of it on the CPU. The exit code is 1 if anything is wrong, and each row that failed is named.

    Example: grapheme check all
    """
    if plot is not None:
        _check_plot(plot, what)
    os.environ["ACCELERATE_USE_CPU"] = "true"  # training steps too: differences are taken, and bits compared, on a CPU
    begun = perf_counter()
    from grapheme_nn.check.plot import save
    from grapheme_nn.check.run import CHECKS, run
    from grapheme_nn.check.table import failures, render, to_json

    rows = []
    for name in CHECKS if what == What.all else (str(what),):
        outcome = run(name)
        rows += outcome.rows
        if outcome.curves and plot is not None:
            save(outcome.curves, plot)
        if not as_json:
            typer.echo(render(outcome.rows, grouped=what == What.all))
    seconds = perf_counter() - begun
    wrong = sum(not row.passed for row in rows)
    if as_json:
        typer.echo(to_json(rows, seconds))
    else:
        typer.echo(f"{len(rows)} rows, {f'{wrong} FAILED' if wrong else 'all ok'}, {seconds:.0f} s")
    if wrong:
        say(failures(rows))
        raise typer.Exit(UNUSABLE)


def _check_plot(plot: Path, what: What) -> None:
    """Before a minute of work: can the plot be drawn, and written there?"""
    if what not in (What.threshold, What.all):
        raise WrongUse(
            f"--plot draws the threshold's course, and check {what} has none: leave it out, or check threshold"
        )
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise Unusable("--plot needs matplotlib, which is not here: pip install 'grapheme-nn[plot]'") from None
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if plot.suffix.lower().removeprefix(".") not in formats:
        raise WrongUse(f"--plot {plot}: the name must end in one of {', '.join(formats)}, which says how to draw")
    if plot.is_dir() or not os.access(plot if plot.exists() else plot.resolve().parent, os.W_OK):
        raise WrongUse(f"--plot {plot} cannot be written: is there such a folder, and may you write there?")
