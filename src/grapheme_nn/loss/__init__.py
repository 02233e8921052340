"""The corridor of losses: distances between graphs, and learning to spell a target graph."""

from grapheme_nn.loss.edges import edge_log_softmax, edge_score
from grapheme_nn.loss.edit_distance import EditDistance, edit_distance
from grapheme_nn.loss.path import PathLoss, Walk, best_path, greedy_path
from grapheme_nn.loss.sinkhorn import sinkhorn
from grapheme_nn.loss.spelling import Spelling
from grapheme_nn.loss.structural import StructuralDistance, StructuralLoss
from grapheme_nn.loss.transport import Order, TransportLoss, most_probable_labels

__all__ = [
    "EditDistance",
    "Order",
    "PathLoss",
    "Spelling",
    "StructuralDistance",
    "StructuralLoss",
    "TransportLoss",
    "Walk",
    "best_path",
    "edge_log_softmax",
    "edge_score",
    "edit_distance",
    "greedy_path",
    "most_probable_labels",
    "sinkhorn",
]
