"""The encoder: a batch of data graphs becomes a graph with features, the one that a network's morphs begin with."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from grapheme_nn.config import ModelConfig
from grapheme_nn.dag import is_integer
from grapheme_nn.graph import count_graphs, type_identities
from grapheme_nn.morph.base import Condition, Morph
from grapheme_nn.morph.operator import as_graph
from grapheme_nn.nn.embedding import HashEmbedding
from grapheme_nn.nn.layer import Layers
from grapheme_nn.padding import Padding


class Encoder(nn.Module):
    """Embeds what each node is, adds what conditions its graph, and runs the layers.

    A batch has `x` int64 [n] and `edge_index`, a DAG, or is chains without it. What conditions a graph without being
    part of it is `feature` int64 [f] with the graph of each, `feature_batch` (PyG's `follow_batch=["feature"]`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, hashed = config.width, {"buckets": config.buckets, "hashes": config.hashes}
        self.embedding = HashEmbedding(width, **hashed)
        self.feature_embedding = HashEmbedding(width, **hashed) if config.features else None
        if config.features:
            self.condition = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
            )
        known = torch.tensor(type_identities(config.edge_types)) if config.edge_types else None
        self.register_buffer("edge_types", known, persistent=False)
        self.edge_types: Tensor | None
        self.dropout = nn.Dropout(config.dropout)
        self.layers = Layers(config, config.layers)

    def forward(self, batch: Data) -> Morph:
        if batch.x is None or batch.x.dim() != 1 or not is_integer(batch.x):
            raise ValueError("x must be one integer per node that says what it is, see text_to_graph")
        unit, owner, graphs, condition = batch.x.long(), batch.get("batch"), count_graphs(batch), None
        x: Tensor = self.embedding(unit)
        if self.feature_embedding is not None:
            condition = self._condition(batch, graphs)
            x = x + self.condition(condition.x.sum(1))[0 if owner is None else owner]
        travels = {"condition": condition, "graphs": graphs, "unit": unit}
        if "ptr" in batch and "edge_index" not in batch:
            graph = Morph.chains(self.dropout(x), batch.ptr, **travels)
        else:
            if self.edge_types is not None:
                travels["edge_type"] = self._edge_types(batch)
            graph = as_graph(self.dropout(x), batch.edge_index, None, owner, **travels)
        encoded: Morph = self.layers(graph)
        return encoded

    def _edge_types(self, batch: Data) -> Tensor:
        """The number of each edge's type, from 1 on, 0 for one that is not known: int64 [e]."""
        assert self.edge_types is not None
        given = batch.get("edge_type")
        if given is None:
            return torch.zeros_like(batch.edge_index[0], dtype=torch.long)
        same = given[:, None] == self.edge_types
        return torch.where(same.any(1), same.int().argmax(1) + 1, 0)

    def _condition(self, batch: Data, graphs: int) -> Condition:
        """The features of each graph; of a batch that has none, none, which is a condition too."""
        assert self.feature_embedding is not None
        feature, owner = batch.get("feature"), batch.get("feature_batch")
        if feature is None:
            feature = batch.x[:0]
        if owner is None:
            if feature.numel() and graphs > 1:
                raise ValueError('it is not said whose features these are: batch with follow_batch=["feature"]')
            owner = torch.zeros_like(feature)
        padding = Padding.of(owner.long(), graphs)
        return Condition(padding.dense(self.feature_embedding(feature.long())), padding.mask)
