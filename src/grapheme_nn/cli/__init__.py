"""The command `grapheme`, on typer. Nothing heavy is imported before it is needed: `--help` must answer at once."""

import os
from typing import Annotated

import typer

from grapheme_nn import __version__
from grapheme_nn.cli.check import check
from grapheme_nn.cli.evaluate import evaluate
from grapheme_nn.cli.generate import generate
from grapheme_nn.cli.info import info
from grapheme_nn.cli.predict import predict
from grapheme_nn.cli.sentences import Sentences
from grapheme_nn.cli.train import train

# Read when torch is loaded. Threads that sleep while they wait leave the machine to others: beside another job, a
# step of threads that wait busily can take twenty times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(cls=Sentences, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def grapheme(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learns from pairs to turn texts or graphs into texts or graphs: a text becomes a graph, and a network morphs it.

    Example: grapheme train pairs.tsv --out model; echo hello | grapheme predict model
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (train, predict, evaluate, generate, info, check):
    app.command()(command)
