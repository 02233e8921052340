"""Parts of networks: embeddings, layers, aggregation of messages."""

from grapheme_nn.nn.aggregation import HOWS, Aggregate, aggregate
from grapheme_nn.nn.embedding import HashEmbedding

__all__ = ["HOWS", "Aggregate", "HashEmbedding", "aggregate"]
