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
    from grapheme_nn.ensemble import Ensemble, load
    from grapheme_nn.model_folder import CONFIG, WEIGHTS

    loaded = load(model)
    config = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    networks = loaded.models if isinstance(loaded, Ensemble) else (loaded,)
    folders = [model / member for member in config.get("members", [""])]
    held_out = config.get("data", {}).get("held_out", True)
    figure = "dev exact match" if held_out else "exact match on training pairs"
    rows = {
        "model": str(model),
        "parameters": f"{sum(weight.numel() for network in networks for weight in network.parameters()):,}",
        "size": f"{sum((folder / WEIGHTS).stat().st_size for folder in folders) / 1e6:,.1f} MB",
    }
    best = _best(model / "metrics.jsonl", config.get("result", {}).get("best_epoch"))
    if isinstance(loaded, Ensemble):
        rows["models that vote"] = str(len(networks))
        rows |= _figures(figure, config.get("result", {}))
        own = {name: config[name] for name in ("score_slope", "score_offset")}
        members = [json.loads((folder / CONFIG).read_text(encoding="utf-8")) for folder in folders]
        config |= {part: _joined([member.get(part, {}) for member in members]) for part in ("model", "training")}
        config["model"] |= own
    elif best:
        rows[figure] = f"{best['dev_exact_match']:.2%} in epoch {best['epoch']}"
        if "threshold" in best:
            rows["threshold"] = " ".join(f"{value:.4f}" for value in best["threshold"])
            rows["merged"] = f"{best['merged']:,} of {best['nodes']:,} nodes in that epoch"
    # What both know of, such as the width, is the same.
    settings = {name: config[name] for name in ("format", "library") if name in config}
    for part in ("data", "result", "model", "training"):
        settings |= {name: value for name, value in config.get(part, {}).items() if not _is_shown(name)}
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


def _figures(name: str, result: dict[str, Any]) -> dict[str, str]:
    """The figures of an ensemble, of the vote and of each model; nothing where no one can tell."""
    try:
        each = " ".join(f"{share:.2%}" for share in result["members"])
        return {name: f"{result['best_dev_exact_match']:.2%} by vote", "of each": each}
    except (ValueError, KeyError, TypeError):
        return {}


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of several models: a value where all have the same, else all values."""
    values = {name: [part.get(name) for part in parts] for name in parts[0]}
    return {name: each[0] if all(one == each[0] for one in each) else each for name, each in values.items()}


def _is_shown(name: str) -> bool:
    """Whether a name in `config.json` is one of those whose figures come first."""
    return name.startswith("best_") or name == "members"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        shown = cut(" ".join(map(str, value[:MOST_SHOWN])))
        return f"{shown} ... ({len(value):,} in all)" if len(value) > MOST_SHOWN else shown or "none"
    return cut(value if isinstance(value, str) else json.dumps(value))
