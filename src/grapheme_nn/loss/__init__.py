"""Losses: how far a predicted graph is from its target."""

from grapheme_nn.loss.sinkhorn import sinkhorn
from grapheme_nn.loss.structural import StructuralDistance, StructuralLoss

__all__ = ["StructuralDistance", "StructuralLoss", "sinkhorn"]
