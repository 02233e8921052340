"""Command-line options that several commands share, so that they are the same everywhere."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.cli.sentences import Unusable, WrongUse
from grapheme_nn.data import DataError
from grapheme_nn.data.columns import column_names


def _understood(columns: str | None) -> str | None:
    """The names of columns as they are; a misspelt one is wrong use, before any file is opened."""
    if columns is not None:
        try:
            column_names(columns, with_target=False)
        except DataError as error:
            raise typer.BadParameter(str(error)) from None
    return columns


def _is_there(folder: Path) -> Path:
    """The folder of a model; one that is none is refused here, before torch is loaded, which takes seconds."""
    if not folder.is_dir():
        raise Unusable(f"{folder} is not a model folder: there is no such folder")
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise Unusable(f"{folder} is not a model folder: it has no {name}")
    return folder


def _are_there(folders: list[Path] | None) -> list[Path] | None:
    return None if folders is None else [_is_there(folder) for folder in folders]


def check_not_read(option: str, out: Path, files: Iterable[Path]) -> None:
    """That the file to write is none of those that are read, whatever it is called; `-` is the standard input."""
    for file in (Path("/dev/stdin") if str(file) == "-" else file for file in files):
        if out.is_file() and file.exists() and out.samefile(file):
            raise WrongUse(f"{option} {out} is the file that is read: name another")


Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="The folder of a trained model.", show_default=False, callback=_is_there),
]
Others = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="MODEL", help="One more model: all of them vote. May be repeated.", callback=_are_there
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="The columns of TSV or CSV, such as input,features,target; _ leaves one out.",
        metavar="NAMES",
        callback=_understood,
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="How many inputs go through the model together.")]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu, cuda, cuda:1 or mps; without it, cuda where there is one."),
]
SkipBadLines = Annotated[bool, typer.Option("--skip-bad-lines", help="Leave bad lines out, and say so.")]
