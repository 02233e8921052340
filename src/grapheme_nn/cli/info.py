"""The room of `grapheme info`: what a model is, without using it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.", show_default=False)],
) -> None:
    """Print a model's size, figures and settings.

    Example: grapheme info dates
    """
    from grapheme_nn.model import GraphTransformNet

    network = GraphTransformNet.load(model)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    size = sum(file.stat().st_size for file in model.iterdir() if file.is_file())
    rows = [("model", str(model)), ("parameters", f"{parameters:,}"), ("size", f"{size / 1e6:,.1f} MB")]
    rows += _flat(json.loads((model / "config.json").read_text(encoding="utf-8")))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:{width}}  {value}")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested objects, each with the names on the way to it; long lists are cut."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and len(value) > 20:
        shown = " ".join(map(str, value[:20]))
        yield name, f"{shown} ... ({len(value):,} in all)"
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
