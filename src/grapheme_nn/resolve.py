"""What a configuration leaves open, decided by the pairs: loss and rates by their kind, sizes by their number."""

from collections.abc import Sequence
from dataclasses import asdict
from math import ceil
from typing import Any

from grapheme_nn.config import Resolved, TrainConfig
from grapheme_nn.dag import Integers
from grapheme_nn.data import Graph, Pair
from grapheme_nn.data.examples import Examples, choose_parts
from grapheme_nn.data.graphs import shown
from grapheme_nn.data.pairs import is_empty
from grapheme_nn.graph_data import as_side
from grapheme_nn.registry import OBJECTIVES

# How many examples a run sees where `epochs` is not given, between which numbers of epochs that is kept, and the steps
# that even ten pairs need.
EXAMPLES, FEWEST_EPOCHS, MOST_EPOCHS, FEWEST_STEPS = 200_000, 4, 100, 1000
COPYING = 0.6  # a task of copying has at least this share of its targets' units in its inputs


def checked_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with texts and `Graph`s alone, each side of all pairs of the same kind."""
    checked = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, Pair):  # a plain tuple, as one writes it by hand
            if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
                raise TypeError(f"pair {number} must be a Pair(input, target, features), but is {shown(pair)}")
            pair = Pair(*pair)
        given, wanted = (
            as_side(getattr(pair, name), f"the {name} of pair {number}")[0] for name in ("input", "target")
        )
        if is_empty(given):
            raise ValueError(f"the input of pair {number} is empty")
        checked.append(Pair(given, wanted, tuple(pair.features)))
    for number, pair in enumerate(checked):
        for name, side, first in zip(("input", "target"), pair[:2], checked[0][:2], strict=True):
            if isinstance(side, Graph) != isinstance(first, Graph):
                kinds = ["a graph" if isinstance(each, Graph) else "a text" for each in (side, first)]
                raise ValueError(f"the {name} of pair {number} is {kinds[0]}, but that of pair 0 is {kinds[1]}")
            if isinstance(side, Graph) and isinstance(first, Graph) and side.directed != first.directed:
                kinds = ["directed" if each.directed else "undirected" for each in (side, first)]
                raise ValueError(f"the {name} of pair {number} is {kinds[0]}, but that of pair 0 is {kinds[1]}")
    return checked


def resolve_kind(config: TrainConfig, pair: Pair) -> Resolved:
    """The configuration with everything decided that depends on whether inputs and targets are texts or graphs."""
    from_graph, to_graph = isinstance(pair.input, Graph), isinstance(pair.target, Graph)
    values: dict[str, Any] = {
        "loss": "structural" if to_graph else "monotone",
        "heads": 0 if from_graph or to_graph else 4,
        "dropout": 0.1 if from_graph or to_graph else 0.2,
        "learning_rate": 1e-3 if from_graph or to_graph else 3e-3,
    }
    values = {name: value for name, value in values.items() if getattr(config, name) is None}
    for name, is_graph in (("input_unit", from_graph), ("target_unit", to_graph)):
        unit = getattr(config, name)
        if is_graph != (unit == "graph"):
            kinds = ("texts", "graphs") if is_graph else ("graphs", "texts")
            raise ValueError(f"{name} {unit} is one of {kinds[0]}, but the pairs have {kinds[1]} there: leave it out")
    loss = str(values.get("loss", config.loss))
    if to_graph and not OBJECTIVES[loss].compares_edges:
        able = ", ".join(name for name in OBJECTIVES if OBJECTIVES[name].compares_edges)
        raise ValueError(f"the loss {loss} compares texts, but the targets are graphs: choose one of {able}")
    if from_graph and not to_graph and "tour" not in config.morphs:
        values["morphs"] = ("tour", *config.morphs)
    return Resolved(**(asdict(config) | values))


def resolve_sizes(config: TrainConfig, examples: Examples, needed: Integers) -> Resolved:
    """The configuration with everything decided that it leaves to the pairs."""
    count, parts = needed.size, 1
    if "split" in config.morphs:
        parts = config.parts or choose_parts(needed) + (config.input_unit == config.target_unit == "graph")
    batch_size = min(config.batch_size, max(4, count // 32))
    epochs = min(max(EXAMPLES // count, FEWEST_EPOCHS), MOST_EPOCHS)
    epochs = max(epochs, ceil(FEWEST_STEPS / ceil(count / batch_size)))
    values = asdict(config) | {
        "parts": parts,
        "reach": config.reach or max(8, 2 * parts),
        "epochs": config.epochs or epochs,
        "patience": max(15, (config.epochs or epochs) // 4) if config.patience is None else config.patience,
        "batch_size": batch_size,
        "unseen": config.unseen if examples.copied_share() >= COPYING else 0.0,
    }
    return Resolved(**values)
