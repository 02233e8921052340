"""GRAPHEME: text, or any DAG, becomes a graph, and a network morphs it, with exact gradients through every change."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grapheme_nn.assignment import Assignment
    from grapheme_nn.check import check_gradients, gradient_report
    from grapheme_nn.config import ModelConfig, TrainConfig
    from grapheme_nn.dag import is_acyclic, levels, topological_order
    from grapheme_nn.data.graphs import Graph
    from grapheme_nn.drawing import draw
    from grapheme_nn.ensemble import Ensemble, load
    from grapheme_nn.graph import UNITS, Unit, batch_to_texts, graph_to_text, text_to_graph, texts_to_batch
    from grapheme_nn.graph_data import data_to_graph, graph_to_data
    from grapheme_nn.isomorphism import is_isomorphic
    from grapheme_nn.loss import StructuralLoss, edit_distance, sinkhorn
    from grapheme_nn.members import train_members
    from grapheme_nn.model import GraphTransformNet
    from grapheme_nn.morph import (
        Lift,
        LocalPool,
        Merge,
        Morph,
        Operator,
        Rewire,
        SoftPool,
        Split,
        Tour,
        history,
        reinforce,
    )
    from grapheme_nn.objective import Comparison, Objective
    from grapheme_nn.predicted import PredictedGraph
    from grapheme_nn.registry import MORPHS, OBJECTIVES
    from grapheme_nn.training import train

__version__ = "0.2.0"

# Where each public name lives. It is imported when somebody asks for it: the command's `--help` must not wait.
_HOMES = {
    "assignment": "Assignment",
    "check": "check_gradients gradient_report",
    "config": "ModelConfig TrainConfig",
    "dag": "is_acyclic levels topological_order",
    "ensemble": "Ensemble load",
    "graph": "UNITS Unit batch_to_texts graph_to_text text_to_graph texts_to_batch",
    "data.graphs": "Graph",
    "drawing": "draw",
    "graph_data": "data_to_graph graph_to_data",
    "isomorphism": "is_isomorphic",
    "loss": "StructuralLoss edit_distance sinkhorn",
    "members": "train_members",
    "model": "GraphTransformNet",
    "morph": "Lift LocalPool Merge Morph Operator Rewire SoftPool Split Tour history reinforce",
    "objective": "Comparison Objective",
    "predicted": "PredictedGraph",
    "registry": "MORPHS OBJECTIVES",
    "training": "train",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
