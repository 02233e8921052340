"""Small networks to check, with every part in them; one in float64 whose gradients are all exact."""

import torch

from grapheme_nn.config import ModelConfig
from grapheme_nn.data import Pair
from grapheme_nn.data.examples import features_in, labels_in
from grapheme_nn.model import GraphTransformNet
from grapheme_nn.morph import Merge

PAIRS = (Pair("abc", "ab"), Pair("xyz", "xy"), Pair("123", "12"))
FEATURED = (Pair("abca", "aab", ("V", "PST")), Pair("xé", "éxx", ("N",)), Pair("bbc", "bc", ()))


def small_net(
    pairs: tuple[Pair, ...],
    *,
    seed: int = 0,
    loss: str = "monotone",
    morphs: tuple[str, ...] = ("merge", "lift", "split"),
    dropout: float = 0.0,
    **shape: int,
) -> GraphTransformNet:
    """A network for these pairs, with features where they have any, and a level of merged nodes."""
    sizes = {"width": 8, "hidden": 4, "heads": 2, "layers": 1, "buckets": 4, "hashes": 2, "parts": 2, "reach": 3}
    labels, features = labels_in((pair.target for pair in pairs), "codepoint"), features_in(pairs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = ModelConfig(labels, features, loss=loss, morphs=morphs, dropout=dropout, **(sizes | shape))  # type: ignore[arg-type]
        return GraphTransformNet(config)


def exact_net(loss: str) -> GraphTransformNet:
    """A network whose every gradient is one of differences: its merging is soft, so that the threshold's is exact too.

    The temperature lets every pair of neighbours merge a little. There is dropout, and it is off, as all is but for the
    merging: if it is left on, two passes differ.
    """
    net = small_net(FEATURED, loss=loss, dropout=0.3).double().eval()
    merge = merge_of(net).train()
    merge.estimator, merge.temperature = "soft", 0.5
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for parameter in net.parameters():  # off the round numbers that some of them begin with
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net


def merge_of(net: GraphTransformNet) -> Merge:
    """The first merge of a network."""
    return next(module for module in net.modules() if isinstance(module, Merge))
