"""Objectives: what a network is trained by, and how its predictions are read."""

from grapheme_nn.objective.base import Comparison, Decoded, Objective
from grapheme_nn.objective.ctc import CTC
from grapheme_nn.objective.monotone import Monotone
from grapheme_nn.objective.path import Path
from grapheme_nn.objective.structural import Structural
from grapheme_nn.registry import OBJECTIVES

__all__ = ["CTC", "OBJECTIVES", "Comparison", "Decoded", "Monotone", "Objective", "Path", "Structural"]
