"""Gradient-check cases of network parts: aggregation, embeddings, layers."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from grapheme_nn.check.subjects.subject import Case, Subject, doubles, of_module
from grapheme_nn.config import ModelConfig
from grapheme_nn.morph import Split
from grapheme_nn.morph.base import Condition, Morph
from grapheme_nn.morph.operator import as_graph
from grapheme_nn.nn import Aggregate, HashEmbedding
from grapheme_nn.nn.aggregation import How
from grapheme_nn.nn.attention import Attention
from grapheme_nn.nn.edges import EdgePredictor
from grapheme_nn.nn.layer import Layer
from grapheme_nn.nn.message import Messages
from grapheme_nn.nn.nearest import NearestConsumer
from grapheme_nn.nn.pointer import NextPointer
from grapheme_nn.nn.recurrence import Recurrence
from grapheme_nn.nn.structure import Structure
from grapheme_nn.padding import Padding

MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])
PADDING = Padding.of_counts(MASK.sum(1))
CHAINS = Structure(PADDING)
DAGS = Structure(PADDING, torch.tensor([[0, 0, 1, 2, 4], [1, 2, 3, 3, 5]]))  # a diamond, and a chain of two
TYPED = Structure(PADDING, DAGS.edge_index, None, torch.tensor([1, 2, 2, 0, 1]))
INDEX = torch.tensor([2, 0, 2, 0, 2, 2])  # the node of each message; none reaches node 1
BREAK = 1e-3  # by so much the first of equals is larger: more than any step


def _aggregate(how: How) -> Case:
    module = Aggregate(how)
    return Case(lambda message: module(message, INDEX, dim_size=3), {"message": doubles(6, 3)})


def _tied(how: How) -> Case:
    """Equal messages: the first wins and has all the gradient, as if the earlier were larger by a hair."""
    module = Aggregate(how)
    one = torch.tensor([1.0, -1.0], dtype=torch.float64)
    hair = BREAK * torch.arange(6, 0, -1, dtype=torch.float64)[:, None] * (one.abs() if how == "max" else one)
    return Case(
        lambda message: module(message, INDEX, dim_size=3),
        {"message": one.repeat(6, 1).requires_grad_()},
        lambda message: module(message + hair, INDEX, dim_size=3),
    )


def _attention() -> Case:
    return of_module(Attention(8, 2), MASK, x=doubles(2, 3, 8), context=doubles(2, 4, 8))


def _embedding() -> Case:
    return of_module(HashEmbedding(4, buckets=3, hashes=2), torch.tensor([[97, 98, 10**6], [1, 2, 97]]))


def _on(module: Any, structure: Structure, *more: Any) -> Case:
    return of_module(module, structure, *more, x=doubles(2, 4, 8))


def _next() -> Case:
    case = of_module(NextPointer(8, 2), MASK, x=doubles(2, 4, 8))
    return Case(lambda **inputs: case.fn(**inputs).exp(), case.inputs)


def _candidates(module: nn.Module, graph: Morph, slots: int) -> Case:
    """Candidate edges of the slots of two graphs."""
    case = of_module(module, x=doubles(2, slots, 8))

    def fn(x: Tensor, **parameters: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.func.functional_call(module, parameters, (graph, x))
        return found.log_prob.exp(), found.none.exp()

    return Case(fn, case.inputs)


def _edges(kind: str) -> Case:
    """Of typed DAGs whose nodes are split in two."""
    return _candidates(EdgePredictor(replace(EDGES, edges=kind)), Split(8, 2).double()(typed_graph()), 8)


def _nearest() -> Case:
    chains = Morph.chains(torch.zeros(6, 8, dtype=torch.float64), torch.tensor([0, 4, 6]))
    return _candidates(NearestConsumer(replace(EDGES, input_unit="codepoint", edges="consumer")), chains, 4)


def typed_graph() -> Morph:
    """A diamond and a chain of two, with types."""
    assert DAGS.edge_index is not None
    owner = torch.tensor([0, 0, 0, 0, 1, 1])
    return as_graph(torch.randn(6, 8).double(), DAGS.edge_index, None, owner, edge_type=TYPED.edge_type)


EDGES = ModelConfig(
    ("a",), input_unit="graph", target_unit="graph", edge_types=(0, 1), target_edge_types=(0, 1), width=8, heads=0
)

LAYERS = (
    Subject("aggregate", "sum", lambda: _aggregate("sum")),
    Subject("aggregate", "mean", lambda: _aggregate("mean")),
    Subject("aggregate", "max", lambda: _aggregate("max")),
    Subject("aggregate", "max_norm", lambda: _aggregate("max_norm")),
    Subject("aggregate", "max, of equals", lambda: _tied("max")),
    Subject("aggregate", "max_norm, of equals", lambda: _tied("max_norm")),
    Subject("layers", "HashEmbedding", _embedding),
    Subject("layers", "Attention", _attention),
    Subject("layers", "Messages, chains", lambda: _on(Messages(8), CHAINS)),
    Subject("layers", "Messages, graphs", lambda: _on(Messages(8), DAGS)),
    Subject("layers", "Recurrence, chains", lambda: _on(Recurrence(8, 3), CHAINS)),
    Subject("layers", "Recurrence, graphs", lambda: _on(Recurrence(8, 3), DAGS)),
    Subject("layers", "Layer, with features", lambda: _on(Layer(8, 2, 3, 0.0), CHAINS, _features())),
    Subject("layers", "Messages, typed", lambda: _on(Messages(8, types=2), TYPED)),
    Subject("layers", "Recurrence, typed", lambda: _on(Recurrence(8, 3, types=2), TYPED)),
    Subject("layers", "Layer, typed", lambda: _on(Layer(8, 2, 3, 0.0, types=2), TYPED, _features())),
    Subject("layers", "NextPointer", _next),
    Subject("layers", "EdgePredictor, operands", lambda: _edges("operands")),
    Subject("layers", "EdgePredictor, consumer", lambda: _edges("consumer")),
    Subject("layers", "EdgePredictor, independent", lambda: _edges("independent")),
    Subject("layers", "EdgePredictor, undirected", lambda: _edges("undirected")),
    Subject("layers", "NearestConsumer", _nearest),
)


def _features() -> Condition:
    return Condition(torch.randn(2, 2, 8, dtype=torch.float64), torch.tensor([[True, True], [True, False]]))
