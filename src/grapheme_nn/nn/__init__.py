"""The corridor of network parts."""

from grapheme_nn.nn.aggregation import HOWS, Aggregate, aggregate

__all__ = ["HOWS", "Aggregate", "aggregate"]
