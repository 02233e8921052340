"""The room of the command `grapheme`. Nothing heavy is imported here: `--help` must answer at once."""

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("grapheme-nn"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def grapheme(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Text becomes a graph, and a network morphs it into another text's graph."""
