"""The corridor of morphs: operators that change a graph and hand on how they did."""

from grapheme_nn.morph.base import Morph, history
from grapheme_nn.morph.local_pool import LocalPool
from grapheme_nn.morph.merge import Merge, reinforce
from grapheme_nn.morph.rewire import Rewire
from grapheme_nn.morph.soft_pool import SoftPool
from grapheme_nn.morph.split import Split

__all__ = ["LocalPool", "Merge", "Morph", "Rewire", "SoftPool", "Split", "history", "reinforce"]
