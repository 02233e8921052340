"""Distances between graphs."""

from grapheme_nn.loss.edit_distance import EditDistance, edit_distance
from grapheme_nn.loss.sinkhorn import sinkhorn
from grapheme_nn.loss.structural import StructuralDistance, StructuralLoss

__all__ = ["EditDistance", "StructuralDistance", "StructuralLoss", "edit_distance", "sinkhorn"]
