"""The morphs of a network by name: from its configuration to a module from `Morph` to `Morph`."""

from torch import nn

from grapheme_nn.config import ModelConfig
from grapheme_nn.morph import Lift, LocalPool, Merge, Morph, Rewire, SoftPool, Split, Tour
from grapheme_nn.nn.layer import Layers
from grapheme_nn.registry import MORPHS

CLUSTERS = 16  # of a graph, where it is pooled softly


def make_morphs(config: ModelConfig) -> nn.ModuleList:
    """The morphs of a network, in order."""
    made = [MORPHS[name](config) for name in config.morphs]
    for name, morph in zip(config.morphs, made, strict=True):
        if not isinstance(morph, nn.Module):
            raise TypeError(
                f"the morph {name!r} must make a module of a ModelConfig, but made a {type(morph).__name__}"
            )
    return nn.ModuleList(made)


def run_morphs(morphs: nn.ModuleList, names: tuple[str, ...], graph: Morph) -> Morph:
    """The graph after all morphs, which have these names."""
    for name, morph in zip(names, morphs, strict=True):
        graph = morph(graph)
        if not isinstance(graph, Morph):
            raise TypeError(f"the morph {name!r} must give a Morph, but gave a {type(graph).__name__}")
    return graph


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
