"""Command-line options that several commands share, so that they are the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.data import DataError
from grapheme_nn.data.pairs import column_names


def _understood(columns: str | None) -> str | None:
    """The names of columns as they are; a misspelt one is wrong use, before any file is opened."""
    if columns is not None:
        try:
            column_names(columns, with_target=False)
        except DataError as error:
            raise typer.BadParameter(str(error)) from None
    return columns


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.", show_default=False)]
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="MODEL", help="One more model: all of them vote. May be repeated."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="The columns of a TSV, such as input,features,target; _ leaves one out.",
        metavar="NAMES",
        callback=_understood,
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="How many inputs go through the model together.")]
SkipBadLines = Annotated[bool, typer.Option("--skip-bad-lines", help="Leave bad lines out, and say so.")]
