"""`grapheme generate`: writes a file of pairs of a built-in task."""

from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.cli.sentences import WrongUse, say
from grapheme_nn.data import TASKS, write_pairs
from grapheme_nn.data import generate as generate_pairs


def generate(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(TASKS)}.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write; .tsv or .jsonl.", show_default=False),
    ],
    count: Annotated[int, typer.Option(min=1, help="How many pairs, all with different inputs.")] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same pairs.")] = 0,
    level: Annotated[int | None, typer.Option(help="Of arithmetic: 1 (sums) to 7 (equations).")] = None,
) -> None:
    """Write pairs of a built-in task, their answers computed and verified.

    Example: grapheme generate dates --count 10000 --seed 1 -o dates.tsv
    """
    if out.suffix not in (".tsv", ".jsonl"):
        raise WrongUse(f"--out {out}: the name must end in .tsv or .jsonl, which says how to write")
    try:
        pairs = generate_pairs(task, count, seed, level)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    write_pairs(pairs, out)
    say(f"{len(pairs):,} pairs of {task} are in {out}, such as {pairs[0].input!r} -> {pairs[0].target!r}")
