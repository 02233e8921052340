"""From what a network predicts to texts and graphs: the units that labels stand for, those that are copied, edges."""

from collections.abc import Sequence

import torch
from torch_geometric.data import Data

from grapheme_nn.config import ModelConfig
from grapheme_nn.data.graphs import Graph
from grapheme_nn.graph import join_units, type_identities, units_of
from grapheme_nn.objective import Decoded
from grapheme_nn.predicted import COPY, PredictedGraph

Edge = tuple[int, int, int | str]


def read_out(
    config: ModelConfig, predicted: PredictedGraph, decoded: Decoded, batch: Data, inputs: Sequence[str | Graph]
) -> list[str | Graph]:
    """The texts, or graphs, that decoded graphs are."""
    names = ("", "", *config.labels)
    made: list[str | Graph] = []
    edges = _edges(config, decoded) if config.target_unit == "graph" else None
    for number, (given, row) in enumerate(zip(inputs, decoded.label.tolist(), strict=True)):
        units = [names[label] for label in row if label]
        if COPY in row:
            parents = _parents(config, predicted, batch, number, given, decoded.slot[number])
            units = [parents[at] if label == COPY else names[label] for at, label in enumerate(row) if label]
        if edges is None:
            made.append(join_units(units, config.target_unit))
        else:
            made.append(Graph(tuple(units), edges[number], config.edges != "undirected"))
    return made


def read_candidates(
    config: ModelConfig,
    predicted: PredictedGraph,
    batch: Data,
    inputs: Sequence[str | Graph],
    spelled: Sequence[Sequence[Sequence[int]]],
) -> list[list[str]]:
    """The texts of several outputs of each input, whose labels are the columns of `PredictedGraph.spelled_apart`."""
    made = []
    for number, (given, outputs) in enumerate(zip(inputs, spelled, strict=True)):
        slots = predicted.spelled_apart[1][number]
        names = ("", "", *config.labels, *_parents(config, predicted, batch, number, given, slots))
        made.append([join_units([names[label] for label in labels], config.target_unit) for labels in outputs])
    return made


def _parents(
    config: ModelConfig,
    predicted: PredictedGraph,
    batch: Data,
    number: int,
    given: str | Graph,
    slots: torch.Tensor,
) -> list[str]:
    """What each of these slots copies, of the input with this number."""
    units = given.nodes if isinstance(given, Graph) else units_of(given, config.input_unit)
    first = int(batch.ptr[number])
    # A slot of the padding, where it is asked for, copies anything.
    return [units[min(max(node - first, 0), len(units) - 1)] for node in predicted.node[number, slots].tolist()]


def _edges(config: ModelConfig, decoded: Decoded) -> list[tuple[Edge, ...]]:
    """The edges of each decoded graph, in order."""
    assert decoded.edge_index is not None
    assert decoded.edge_type is not None
    begin = (decoded.length.cumsum(0) - decoded.length).tolist()
    owner = torch.arange(decoded.length.numel(), device=decoded.length.device).repeat_interleave(decoded.length)
    types = dict(zip(type_identities(config.target_edge_types), config.target_edge_types, strict=True))
    edges: list[list[Edge]] = [[] for _ in begin]
    ends = zip(*decoded.edge_index.tolist(), decoded.edge_type.tolist(), strict=True)
    owners = owner[decoded.edge_index[0]].tolist()
    for graph, (source, target, kind) in zip(owners, ends, strict=True):
        source, target = source - begin[graph], target - begin[graph]
        if config.edges == "undirected" and source > target:
            source, target = target, source
        edges[graph].append((source, target, types[kind]))
    order = {kind: at for at, kind in enumerate(config.target_edge_types)}
    return [tuple(sorted(set(row), key=lambda edge: (edge[1], order[edge[2]], edge[0]))) for row in edges]
