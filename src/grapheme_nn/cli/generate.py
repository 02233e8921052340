"""`grapheme generate`: writes a file of pairs of a built-in task."""

from pathlib import Path
from typing import Annotated

import typer

from grapheme_nn.cli.sentences import WrongUse, say
from grapheme_nn.data import TASKS, write_pairs
from grapheme_nn.data import generate as generate_pairs
from grapheme_nn.data.expressions import to_prefix
from grapheme_nn.data.generate import Family, find_task
from grapheme_nn.data.graphs import Graph

DEPTHS, LENGTHS = (
    ", ".join(
        f"{name} ({task.default})" for name, task in TASKS.items() if isinstance(task, Family) and task.option == kind
    )
    for kind in ("depth", "length")
)

OUT_HELP = "Where to write; .tsv or .jsonl. A file that is there is replaced."


def generate(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(TASKS)}.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help=OUT_HELP, show_default=False),
    ],
    count: Annotated[
        int | None,
        typer.Option(min=1, help="How many pairs, all with different inputs; 10,000, of graphs 20,000."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same pairs.")] = 0,
    level: Annotated[int | None, typer.Option(help="Of arithmetic: 1 (sums) to 7 (equations).")] = None,
    depth: Annotated[int | None, typer.Option(help=f"Of {DEPTHS}: edges on the longest path.")] = None,
    length: Annotated[int | None, typer.Option(help=f"Of {LENGTHS}: characters at most.")] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Put the nodes of graphs in any order.")] = False,
) -> None:
    """Write pairs of a built-in task, their answers computed and verified.

    Graphs go into JSONL. Example: grapheme generate dates --count 10000 --seed 1 -o dates.tsv
    """
    if out.suffix not in (".tsv", ".jsonl"):
        raise WrongUse(f"--out {out}: the name must end in .tsv or .jsonl, which says how to write")
    try:
        found = find_task(task, level=level, depth=depth, length=length)
        if found.graphs and out.suffix == ".tsv":
            raise WrongUse(f"--out {out}: {task} has graphs, which a TSV cannot hold: give a name that ends in .jsonl")
        count = count or min(20_000 if found.graphs else 10_000, found.most)
        pairs = generate_pairs(task, count, seed, level, depth=depth, length=length, shuffle=shuffle)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    write_pairs(pairs, out)
    say(f"{len(pairs):,} pairs of {task} are in {out}, such as {_shown(pairs[0].input)} -> {_shown(pairs[0].target)}")


def _shown(side: str | Graph) -> str:
    """A text in quotes, or a graph in Polish notation with its number of nodes."""
    if isinstance(side, str):
        return repr(side)
    return f"{to_prefix(side)} ({len(side.nodes)} node{'s' * (len(side.nodes) > 1)})"
