"""The morphs of a network by name: from its configuration to a module from `Morph` to `Morph`."""

from torch import nn

from grapheme_nn.config import ModelConfig
from grapheme_nn.morph import Lift, LocalPool, Merge, Rewire, SoftPool, Split, Tour
from grapheme_nn.nn.layer import Layers

CLUSTERS = 16  # of a graph, where it is pooled softly


def merge(config: ModelConfig) -> nn.Module:
    """Nodes that are alike become one, and a layer runs on the coarser graph."""
    return nn.Sequential(Merge(), Layers(config, 1))


def lift(config: ModelConfig) -> nn.Module:
    """Back to the nodes before the last change, which hear from what they became."""
    return Lift(config.width)


def tour(config: ModelConfig) -> nn.Module:
    """A walk around the graph, so that it can be read out as a text, and a layer runs along it."""
    return nn.Sequential(Tour(config.width), Layers(config, 1))


def split(config: ModelConfig) -> nn.Module:
    """Every node becomes as many slots as the configuration says."""
    return Split(config.width, config.parts)


def rewire(config: ModelConfig) -> nn.Module:
    """Edges are deleted and inserted, and a layer runs along the new ones."""
    return nn.Sequential(Rewire(config.width), Layers(config, 1))


def local_pool(config: ModelConfig) -> nn.Module:
    """Neighbours in topological order share clusters, half as many as nodes, and a layer runs on them."""
    return nn.Sequential(LocalPool(config.width), Layers(config, 1))


def soft_pool(config: ModelConfig) -> nn.Module:
    """All nodes of a graph share a fixed number of clusters, and a layer runs on them."""
    return nn.Sequential(SoftPool(config.width, CLUSTERS), Layers(config, 1))
