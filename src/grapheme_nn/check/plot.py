"""Plots of curves over the epochs: sparklines in Unicode blocks, and figures by matplotlib, which is optional."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """The course of some values in one line, the lowest as ▁ and the highest, or what is not finite, as █."""
    count = min(width, len(values))
    chosen = [values[at * (len(values) - 1) // max(count - 1, 1)] for at in range(count)]
    finite = [value for value in chosen if isfinite(value)] or [0.0]
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value - low) / span * top) if isfinite(value) else top] for value in chosen)


def save(curves: Mapping[str, Sequence[float]], file: Path) -> None:
    """A figure with a panel for each curve, one above the other, in the format that the file's ending says."""
    from matplotlib.figure import Figure  # not pyplot, which keeps figures and chooses a window system for all

    figure = Figure(figsize=(8, 2 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
    for panel, (name, values) in zip(panels, curves.items(), strict=True):
        panel.plot(range(1, len(values) + 1), values)
        panel.set_ylabel(name)
    panels[-1].set_xlabel("epoch")
    figure.savefig(file)
