"""GRAPHEME: text, or any DAG, becomes a graph, and a network morphs it, with exact gradients through every change."""

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

__version__ = "0.1.0"

__all__ = [
    "UNITS",
    "Unit",
    "batch_to_texts",
    "graph_to_text",
    "is_acyclic",
    "levels",
    "text_to_graph",
    "texts_to_batch",
    "topological_order",
]
