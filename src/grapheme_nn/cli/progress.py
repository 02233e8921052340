"""Training progress on stderr: a bar on a terminal, a plain line an epoch elsewhere."""

from math import isnan
from typing import TYPE_CHECKING

from grapheme_nn.cli.sentences import say

if TYPE_CHECKING:
    from grapheme_nn.training import Progress


class Report:
    """Shows the progress of a training on stderr; use it as `with Report() as report: train(..., progress=report)`."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskID, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._bar = None
        if console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}")
            self._bar = Bar(*columns, console=console)
            self._tasks: dict[str, TaskID] = {}  # by member: several are trained side by side

    def __enter__(self) -> "Report":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, progress: "Progress") -> None:
        stage = f"epoch {progress.epoch}/{progress.epochs}" if progress.epochs else "vote"
        epoch = f"{progress.member}: {stage}" if progress.member else stage
        if self._bar:
            if progress.member not in self._tasks:
                self._tasks[progress.member] = self._bar.add_task("training", total=1.0, figures="")
            task = self._tasks[progress.member]
            self._bar.update(task, description=epoch, completed=progress.done, figures=figures(progress))
        elif progress.step == progress.steps:
            say(f"{epoch}  {figures(progress)}")
        for note in progress.notes:
            if self._bar:
                self._bar.console.print(note, markup=False, highlight=False, soft_wrap=True)
            else:
                say(note)


def figures(progress: "Progress") -> str:
    """Loss, dev exact match, examples a second and time left, as far as there are any, in one line."""
    parts = [] if isnan(progress.loss) else [f"loss {progress.loss:.4f}"]  # there is none while members vote
    if progress.dev_exact_match is not None:
        parts.append(f"dev exact match {progress.dev_exact_match:.2%}")
    if not progress.member:  # beside whose name there is no room for it
        parts.append(f"{progress.examples_per_second:,.0f} examples/s")
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    parts.append(f"{minutes}:{seconds:02} left")
    return "  ".join(parts)
