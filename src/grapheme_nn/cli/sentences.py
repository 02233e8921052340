"""Error handling of the command: every wrong use ends in a sentence on stderr and an exit code, not a traceback."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

UNUSABLE = 1  # what was given cannot be used: a file, a model, a full disk
USAGE = 2  # the command was not understood


class Unusable(Exception):
    """What was given cannot be used; the message is the sentence."""

    code = UNUSABLE


class WrongUse(Unusable):
    """Options that have no meaning, or do not fit together."""

    code = USAGE


class Sentences(TyperGroup):
    """A group of commands that says in one sentence what is wrong, then ends with an exit code."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except Exception as error:
            sentence, code = _sentence(error)
            say(sentence)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read the results has seen enough, as `head` does; what is still in buffers goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def say(sentence: str) -> None:
    """A line for the person, on stderr, so that stdout holds results alone."""
    typer.echo(sentence, err=True)


def _sentence(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code; an error that is no one's wrong use is raised again."""
    from grapheme_nn.data import DataError
    from grapheme_nn.data.write import FULL

    if hasattr(error, "format_message"):  # typer's own; which class they are depends on its version
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "grapheme"
        message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        return f"{message} (see {command} --help)", USAGE
    if isinstance(error, Unusable):
        return str(error), error.code
    if isinstance(error, DataError):
        return str(error), UNUSABLE
    if isinstance(error, OSError):
        if error.errno in FULL:  # a file that is written has its name in the error, see `whole_file`
            name = error.filename or "the standard output"
            return f"{name} cannot be written ({error.strerror}): make room", UNUSABLE
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", UNUSABLE
    if isinstance(error, ValueError):
        from grapheme_nn.model_folder import ModelError  # takes torch along, so only now

        if isinstance(error, ModelError):
            return str(error), UNUSABLE
    raise error
