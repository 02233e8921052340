"""Command-line options that several commands share, and what is read by them, the same everywhere."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.cli.sentences import Unusable, WrongUse, say
from grapheme_nn.data import DataError, Pairs, read_pairs
from grapheme_nn.data.columns import column_names
from grapheme_nn.data.read import STDIN


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
    if folder.is_file():
        raise Unusable(f"{folder} is a file: give the folder of a model, as train writes it")
    if not folder.is_dir():
        raise Unusable(f"{folder} is not a model folder: there is no such folder")
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file() and not (folder / "members").is_dir():
            raise Unusable(f"{folder} is not a model folder: it has no {name}")
    return folder


def _are_there(folders: list[Path] | None) -> list[Path] | None:
    return None if folders is None else [_is_there(folder) for folder in folders]


def name_of(data: Path) -> str:
    """What messages call it."""
    return STDIN if str(data) == "-" else str(data)


def read_data(data: Path, columns: str | None, skip_bad_lines: bool) -> Pairs:
    """The pairs of a file, a folder or the standard input; what is to be known of them is said."""
    is_stdin = str(data) == "-"
    if is_stdin and sys.stdin.isatty():
        say("type pairs, with a tab between input and target; Ctrl-D ends")
    pairs = read_pairs(sys.stdin if is_stdin else data, columns=columns, skip_bad_lines=skip_bad_lines)
    if told := pairs.report():
        say(told)
    if len(pairs.files) > 1:
        say("\n".join(f"{name}: {count:,} pairs" for name, count in pairs.files.items()))
    return pairs


def check_not_read(option: str, out: Path, files: Iterable[Path | str]) -> None:
    """That the file to write is none of those that are read, whatever it is called."""
    for file in (Path("/dev/stdin") if str(file) in ("-", STDIN) else Path(file) for file in files):
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
