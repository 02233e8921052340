"""Operators that change a graph and hand on how they did."""

from grapheme_nn.morph.base import Morph, history
from grapheme_nn.morph.lift import Lift
from grapheme_nn.morph.local_pool import LocalPool
from grapheme_nn.morph.merge import Merge, reinforce
from grapheme_nn.morph.operator import Operator
from grapheme_nn.morph.rewire import Rewire
from grapheme_nn.morph.soft_pool import SoftPool
from grapheme_nn.morph.split import Split
from grapheme_nn.morph.tour import Tour

__all__ = [
    "Lift",
    "LocalPool",
    "Merge",
    "Morph",
    "Operator",
    "Rewire",
    "SoftPool",
    "Split",
    "Tour",
    "history",
    "reinforce",
]
