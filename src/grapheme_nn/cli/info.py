"""`grapheme info`: prints a model's size, figures and settings."""

import json
from pathlib import Path
from typing import Any

import typer

from grapheme_nn.cli.options import Model
from grapheme_nn.data.graphs import cut

MOST_SHOWN = 20  # labels or features


def info(
    model: Model,
) -> None:
    """Print a model's size, figures and settings, of a model for graphs also the kind and the types of its edges.

    Example: grapheme info runs/dates
    """
    from grapheme_nn.model import GraphTransformNet
    from grapheme_nn.model_folder import CONFIG, WEIGHTS

    network = GraphTransformNet.load(model)
    config = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    rows = {
        "model": str(model),
        "parameters": f"{sum(parameter.numel() for parameter in network.parameters()):,}",
        "size": f"{(model / WEIGHTS).stat().st_size / 1e6:,.1f} MB",
    }
    best = _best(model / "metrics.jsonl", config.get("result", {}).get("best_epoch"))
    if best:
        held_out = config.get("data", {}).get("held_out", True)
        rows["dev exact match" if held_out else "exact match on training pairs"] = (
            f"{best['dev_exact_match']:.2%} in epoch {best['epoch']}"
        )
        if "threshold" in best:
            rows["threshold"] = " ".join(f"{value:.4f}" for value in best["threshold"])
            rows["merged"] = f"{best['merged']:,} of {best['nodes']:,} nodes in that epoch"
    # What both know of, such as the width, is the same.
    settings = {name: config[name] for name in ("format", "library") if name in config}
    for part in ("data", "result", "model", "training"):
        settings |= {name: value for name, value in config.get(part, {}).items() if not name.startswith("best_")}
    rows |= {name.replace("_", " "): _shown(value) for name, value in settings.items()}
    width = max(map(len, rows))
    for name, value in rows.items():
        typer.echo(f"{name:{width}}  {value}")


def _best(metrics: Path, epoch: int | None) -> dict[str, Any] | None:
    """The line of the epoch that is kept; None where no one can tell."""
    try:
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        return next((line for line in lines if line["epoch"] == epoch), None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _shown(value: Any) -> str:
    if isinstance(value, list):
        shown = cut(" ".join(map(str, value[:MOST_SHOWN])))
        return f"{shown} ... ({len(value):,} in all)" if len(value) > MOST_SHOWN else shown or "none"
    return cut(value if isinstance(value, str) else json.dumps(value))
