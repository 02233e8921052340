"""Runs a check by its name, isolated from the others, and collects its rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from grapheme_nn.check import descent, determinism, gradients, threshold
from grapheme_nn.check.table import Row

CHECKS = ("gradients", "descent", "determinism", "threshold")


class Outcome(NamedTuple):
    """What came of a check."""

    rows: list[Row]
    curves: Mapping[str, Sequence[float]]  # by name, to be plotted; empty where there is nothing to see


def run(check: str) -> Outcome:
    """One of `CHECKS`. What comes of it depends on nothing that ran before, and nothing after depends on it."""
    rows: list[Row] = []
    curves: Mapping[str, Sequence[float]] = {}
    try:
        with _alone():
            if check == "threshold":
                course = threshold.run()
                curves = course.curves()
                rows += threshold.rows(course)
            else:
                rooms = {"gradients": gradients, "descent": descent, "determinism": determinism}
                for row in rooms[check].rows():
                    rows.append(row)  # one by one: what was found stays, whatever comes after
    except Exception as error:  # a check that breaks has failed, and the others are made all the same
        rows.append(Row(check, "the check itself", "", False, {}, f"{type(error).__name__}: {error}"))
    return Outcome(rows, curves)


@contextmanager
def _alone() -> Iterator[None]:
    """One thread, which is fastest for tensors this small, and a random state that comes back as it was."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
