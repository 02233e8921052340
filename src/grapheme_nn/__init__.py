"""GRAPHEME: text, or any DAG, becomes a graph, and a network morphs it, with exact gradients through every change."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grapheme_nn.assignment import Assignment
    from grapheme_nn.graph import (
        UNITS,
        Unit,
        batch_to_texts,
        graph_to_text,
        is_acyclic,
        levels,
        text_to_graph,
        texts_to_batch,
        topological_order,
    )
    from grapheme_nn.model import GraphTransformNet

__version__ = "0.1.0"

__all__ = [
    "UNITS",
    "Assignment",
    "GraphTransformNet",
    "Unit",
    "batch_to_texts",
    "graph_to_text",
    "is_acyclic",
    "levels",
    "text_to_graph",
    "texts_to_batch",
    "topological_order",
]

_ROOMS = {"Assignment": "assignment", "GraphTransformNet": "model"}  # every other name is in graph


def __getattr__(name: str) -> object:
    """Opens a room when somebody asks for what is in it: the command's `--help` must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS.get(name, 'graph')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
